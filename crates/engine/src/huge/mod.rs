//! Huge pages, and page tables that address spaces share (document 001).
//!
//! ```text
//!   HugePool ── pages, their reservations, the fault mutexes      pool.rs, mutexes.rs
//!      │
//!   HugeFile ── by index: hole, reserved, or a page                     file.rs
//!      │     ── i_mmap: the mappings of the file                        i_mmap.rs
//!      │     ── spans: the leaf tables that mappings share              share.rs
//!      │
//!   HugeMapping, one a space ── tables: a slot a span                   mapping.rs, tables.rs
//!                            ── share lock
//! ```
//!
//! A leaf table has the pages of a span of the file: 512 of them, which is 1 GiB for
//! pages of 2 MiB. A VMA that shows a whole span shares the leaf with all mappings that
//! show it with the same protection: a page that one of them faults in is there for all, and a
//! thousand mappings cost one set of leaves. A mapping that takes a page out of *its own* range, or
//! changes its protection there, drops the leaf first (`unshare`), and faults again.
//!
//! A leaf that its last mapping has left stays with the file, as it is: the next mapping of the
//! file faults once a span, and not once a page. Linux frees it; `left=freed` does.
//!
//! # Exclusion of a fault and the drop of its leaf
//!
//! The fault's own space cannot drop the leaf: the VMA lock is in the way. But truncate and hole
//! punch come through the file, from any space. If its mapping loses the leaf between the look-up
//! and the entry of the page, the fault would enter the page in a table of others. So:
//!
//! | [`ShareSync`] | a fault holds | unsharing holds |
//! |---|---|---|
//! | `IMmapRwsem` (baseline) | `i_mmap` for reading, all the time | `i_mmap` for writing |
//! | `Document` (001) | the mapping's share lock for reading, all the time; `i_mmap` for reading while it begins to share | the share lock for writing, and `i_mmap` for writing |
//! | `VmaLock` (ours) | the mapping's share lock for reading, all the time | the same |
//!
//! # Lock order
//!
//! ```text
//!   mmap_lock ─► VMA lock ─► fault mutex ─► share lock ─► i_mmap ─► span ─► slot ─► leaf
//! ```
//!
//! Linux's `huge_pmd_share` takes `i_mmap` for reading to find a mapping that has a leaf, with the
//! series too. Here the span knows, with every policy: with `VmaLock` a fault has nothing
//! to do with `i_mmap`, with `Document` it holds it although it could do without.
//!
//! In the baseline `i_mmap` comes before the fault mutex, and there is no share lock.
//! Truncate and hole punch learn from `i_mmap` which share locks they need, so they try
//! those, and where one is taken they let `i_mmap` go and take both in order (`rmap`).
//!
//! [`ShareSync`]: crate::policy::ShareSync

mod around;
mod fault;
mod file;
mod i_mmap;
mod mapping;
mod mutexes;
mod pool;
mod punch;
mod reserve;
mod rmap;
mod share;
mod size;
mod stats;
mod tables;
mod unshare;
pub mod vm_ops;

pub use file::HugeFile;
pub use mapping::{HugeMapping, Reserve};
pub use pool::{HugePool, PoolCounts, Shape};
pub use size::HugeSize;
pub use stats::HugeSnapshot;

use core::fmt;

/// Why a huge file or mapping was not made, or not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugeError {
    /// The pool has fewer pages that are not reserved.
    Pool {
        /// Pages that were asked for.
        wanted: u64,
        /// Pages that are to be had.
        free: u64,
    },
    /// The file has no pages so far out, or the range has none.
    Range,
    /// There is no memory for tables.
    NoMemory,
}

impl fmt::Display for HugeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool { wanted, free } => {
                write!(f, "{wanted} huge pages are wanted, and {free} are free")
            }
            Self::Range => f.write_str("no such pages in the file"),
            Self::NoMemory => f.write_str("no memory for huge pages or their tables"),
        }
    }
}

impl std::error::Error for HugeError {}
