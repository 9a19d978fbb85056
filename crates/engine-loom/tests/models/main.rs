//! Models of the engine's protocols, a file a part. One program: it is linked once, and one
//! model takes the processor that another has no use for.

mod anon_pages;
mod batches;
mod budget;
mod completeness;
mod faults;
mod folio;
mod frames;
mod grace;
mod huge;
mod lists;
mod locks;
mod model;
mod mutex_pool;
mod private;
mod queued_rwsem;
mod shared_verbs;
mod slab;
mod soft_cores;
mod soft_tables;
mod steal_rwsem;
mod swap_slots;
mod tree;
mod tree_shared;
mod vma_lock;
mod vma_lock_biased;
mod vma_lock_rwsem;
mod wait_word;
mod window;
mod writable;
