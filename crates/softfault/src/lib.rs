//! Memory maps larger than memory.
