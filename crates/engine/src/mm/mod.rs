//! Address spaces: VMAs, the tree that finds them, `mmap_lock`, and the verbs
//! that change the shape of a space.

pub mod tree;
pub mod vma;
pub mod vma_lock;
