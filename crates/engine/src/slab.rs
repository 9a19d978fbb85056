//! The type-stable slab.
