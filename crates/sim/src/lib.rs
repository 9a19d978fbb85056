//! The documents' workloads on simulated machines of N cores.
//!
//! ```text
//!   run ── Job ──► world      the machine: threads, virtual time, processors
//!                    │
//!                    ├─ rig       a process on it: a budget, a space, page tables
//!                    │    ├─ disk      where files are
//!                    │    └─ uffd      the cost of the kernel beneath
//!                    └─ workload  the work of its threads
//!                         │
//!              Outcome ◄──┘
//! ```
//!
//! A machine is a [`Topology`](topology::Topology): a [preset] with its sources,
//! a file, or the result of [`calibrate`](calibrate::calibrate) here;
//! [`vary`](vary::vary) makes others like it.
//!
//! The engine is the product's own source, compiled over the simulated
//! machine's façade. Nothing in this crate measures by the real clock, and no
//! real lock is held over an operation of the façade.

pub mod calibrate;
pub mod job;
pub mod outcome;
pub mod preset;
pub mod random;
mod rig;
mod uffd;
pub mod vary;
mod workload;
mod world;

pub use job::{Job, MmuKind, Progress, Verb, Workload};
pub use outcome::{HugeCounts, LockRow, Longest, Mode, Outcome, SwapCounts, Trouble};
pub use softfault_engine::lock::WaitSnapshot;
pub use softfault_engine::policy::Policies;
pub use sync::machine::{Heap, HotLine, HotSleep, Report};
pub use sync::topology;
pub use workload::{Zipf, mixed_sizes, run, run_watched};
