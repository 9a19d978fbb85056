//! The documents' workloads on simulated machines of N cores.
//!
//! ```text
//!   run ── Job ──► world      the machine: threads, virtual time, processors
//!                    │
//!                    ├─ rig       a process on it: a budget, a space, page tables
//!                    │    ├─ disk      where files are
//!                    │    └─ uffd      what the kernel beneath costs
//!                    └─ workload  what its threads do
//!                         │
//!              Outcome ◄──┘
//! ```
//!
//! The engine is the product's own source, compiled over the simulated
//! machine's façade. Nothing in this crate measures by the real clock, and no
//! real lock is held over an operation of the façade.

pub mod job;
pub mod outcome;
mod random;
mod rig;
mod uffd;
mod workload;
mod world;

pub use job::{Job, MmuKind, Progress, Workload};
pub use outcome::{LockRow, Longest, Mode, Outcome, Trouble};
pub use softfault_engine::lock::WaitSnapshot;
pub use softfault_engine::lock::wait_stats::RANGE_ENDS_US;
pub use softfault_engine::policy::Policies;
pub use sync::machine::{Heap, HotLine, Report};
pub use workload::{run, run_watched};
