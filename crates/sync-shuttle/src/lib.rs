//! Not this world's yet: the std world's items.

pub use softfault_sync_std::*;
