//! The functions of the C library that are ours.

mod mapping;
