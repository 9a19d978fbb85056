//! Anonymous memory larger than its budget, as the workloads about swap use it: where accesses go, the contents of
//! pages, and how good the best way to forget pages would have been.
//!
//! ```text
//!   accesses   seed, thread, number ─► page, read or write
//!   versions   page ─► how often it was written
//!   words      page, place, version ─► the word there
//!   pages      the three of them over memory: every read is checked
//!   lru            the same accesses again: the share that an exact LRU would have found in memory
//! ```

pub mod accesses;
pub mod lru;
pub mod pages;
pub mod seen;
mod versions;
mod words;
