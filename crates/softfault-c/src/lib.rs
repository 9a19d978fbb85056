//! softfault for C and C++: `softfault.h`, which is written from here.
//!
//! | file | has |
//! |---|---|
//! | `boundary` | where C calls: panics end, errno is set |
//! | `failure` | errors as errno and a line of text |
//! | `sized` | structures that grow: the caller says how large it knows them |
//! | `maps` | which map has an address; it knows nothing of C |
//! | `access`, `kinds` | mmap(2)'s arguments, and the maps for them |
//! | `fixed` | mmap(2) at the address that is asked for |
//!
//! Of the others each has a verb, or the few that belong together. The words of a function's comment are the header's.

// In the order of the header.
pub mod version;

pub mod engine;

pub mod mmap;

pub mod munmap;

pub mod mremap;

pub mod mprotect;

pub mod madvise;

pub mod msync;

pub mod mlock;

pub mod fault_in;

pub mod pin;

pub mod transfer;

pub mod stats;

pub mod error;

mod access;
mod boundary;
mod failure;
mod fixed;
mod kinds;
mod maps;
mod sized;
