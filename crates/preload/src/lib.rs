//! `LD_PRELOAD` of this library gives a program's large file mappings to softfault. `softfault run` does that;
//! `docs/run-contract.md` describes the effect on a program.
//!
//! ```text
//!   mmap(2) of the program ──► hooks/mapping.rs
//!                                │ anonymous, no file of any size: the kernel, at once
//!                                ▼
//!                              decide.rs     which mappings are taken, and which are declined, why
//!                                │           assurance.rs: how we know that nobody writes to the file
//!                                │           declined.rs: the message about that, and --strict
//!                                ▼
//!                              take.rs       a map of the engine's, and its place in the table     table.rs
//!
//!   private memory, anonymous or of a file ──► private/, give/, private_calls.rs
//!   address space that is reserved, and used later ──► reserved.rs, commit.rs
//!
//!   malloc(3) of the program ──► hooks/malloc.rs ──► blocks.rs: a large block is a mapping of its own
//!
//!   munmap, mprotect, mremap, ... of a place that was taken ──► hooks/mapping.rs ──► change.rs
//!                                calls that the engine cannot do, the kernel does: its own mapping is put in the place
//!                                first, under threads that read there
//!
//!   madvise(2) that waits for the disk ──► populate.rs: nothing is locked meanwhile
//!
//!   another opens a taken file for writing ──► leases.rs, lease_thread.rs: handed back before he goes on
//! ```
//!
//! A hook may be called in any state of the program: in its malloc, in a signal handler, in a child of fork, before
//! static initialisers. It looks at its arguments and at a bitmap (`marked.rs`), and makes the system call. Only for a
//! mapping that is large enough, or was taken, it does more: with signals masked, over a heap of its own, and with a
//! mark in the thread (`inside.rs`), so that softfault's own calls are passed on to the kernel.
//!
//! The functions that it takes over are glibc's: with another C library it is empty, and `softfault run` declines its programs.

#![cfg(target_env = "gnu")]

mod assurance;
mod block_list;
mod blocks;
mod call;
mod change;
mod commit;
mod count;
mod decide;
mod declined;
mod early;
mod fits;
mod fork;
mod give;
mod heap;
mod hooks;
mod inside;
mod lease_thread;
mod leases;
mod marked;
mod mode;
mod names;
mod no_reader;
mod options;
mod populate;
mod private;
mod private_calls;
mod program;
mod ranges;
mod reports;
mod reserved;
mod seconds;
mod stamp;
mod standard_error;
mod start;
mod stats;
mod swap_failed;
mod table;
mod take;
mod tree;

/// Of this library alone: never the program's.
#[global_allocator]
static HEAP: heap::Heap = heap::Heap;
