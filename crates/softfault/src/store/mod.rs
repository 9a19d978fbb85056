//! Stores of files: where the pages of a file mapping come from.
//!
//! - [`FileStore`]: one file, read past the page cache or through it, as its
//!   policy has it ([`Reads`], `read_path`, `room`, `around`, `fill`; opened in `open`), with its contents at an offset (`extent`) and the version of
//!   the file ([`FileIdentity`]).
//! - `FileWrites`: the same file, where it is written to. `write_queues`: the queues that all such files of a process share.
//! - [`Rings`]: asynchronous reads of many stores, reaped by threads that wait
//!   (`ring`; read its header for the protocol). `apart`: one for faults that threads of ours serve.
//!
//! Everything that [`softfault_engine::Store`] names may be called in the
//! fault handler: no heap, no thread-locals, and the only locks are the rings'
//! own. Those are held while a system call runs, but never while anybody's
//! mapped memory is touched; a caller outside of the handler blocks signals
//! first, as every entry point of the library does.

mod around;
mod descriptor;
mod errno;
mod extent;
mod fallocate;
mod file;
mod fill;
mod follow;
mod huge_pages;
mod identity;
mod kept;
mod kernel_reads;
mod length;
mod mark;
mod open;
mod read;
mod read_path;
mod reads;
mod refusals;
mod reserved;
mod ring;
mod room;
mod stream;
mod warm;
mod write_back;
mod write_queues;

pub(crate) use descriptor::{Descriptor, Source};
pub(crate) use errno::check;
pub use file::FileStore;
pub(crate) use fill::Fill;
pub(crate) use huge_pages::{HUGETLBFS, huge_page_of, huge_page_of_own};
pub(crate) use identity::Alignment;
pub use identity::FileIdentity;
pub(crate) use kept::look as look_at_kept;
pub(crate) use kernel_reads::{KernelReads, took_back};
pub use open::{Mode, WhyBuffered};
pub(crate) use open::{duplicate, may_be_mapped, may_be_written, why_not_direct};
pub(crate) use read_path::{CacheProgress, ReadPath};
pub(crate) use reads::ReadPolicy;
pub use reads::Reads;
pub(crate) use refusals::Refusals;
pub(crate) use ring::apart;
pub(crate) use ring::{Finish, LastStep, Make, Request, Ring, RingsOnDemand};
pub use ring::{QueueKind, Rings, Unavailable};
pub(crate) use write_back::FileWrites;
