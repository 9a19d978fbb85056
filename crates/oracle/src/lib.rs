//! Code that tests of several worlds share.
//!
//! - [`TestStore`]: a store whose reads the test holds back, fails or cuts
//!   short.
//! - [`TestSwap`]: a swap device of the same kind, which notices a page that
//!   changes while it is written, and poisons slots that may not be read.
//! - [`Rig`]: the engine over the soft page tables, for tests of its parts.
//! - [`Finally`]: it stops a test's threads, also where a check fails.
//! - [`Op`]: the operations of all of them.
//! - [`World`]: something that obeys operations on maps; [`play`] drives it and
//!   compares every byte with the [`Model`].
//! - [`AnonWorld`], [`AnonModel`] and [`play_anon`]: the same for anonymous
//!   memory, in spaces that fork.
//! - [`HugeWorld`], [`HugeModel`] and [`play_huge`]: the same for huge pages, which
//!   spaces share with their tables; and threads at a time, [`play_huge_together`].
//! - [`play_spaces`]: N spaces with files and anonymous memory, and M threads
//!   that obey lists of operations at a time; the bytes that each touch shows must have
//!   been there at some moment of it.
//!
//! The same source is compiled for the std world and for shuttle's: where a
//! thread may be suspended, and with which locks, is decided by the facade.

mod anon;
mod finally;
mod gate;
mod huge;
mod model;
mod numbered;
mod op;
mod play;
mod random;
mod rig;
mod runs;
mod spaces;
mod store;
mod swap;
mod together;
mod verbs;

pub use anon::{ARENA_PAGES, Access, AnonModel, AnonWorld, COPIED_PAGES, Expected, Paid};
pub use anon::{Step, any_anon_op, any_swap_op, obey_plans, play_anon};
pub use finally::Finally;
pub use huge::{HugeModel, HugeOp, HugeRefusal, HugeSetting, HugeWorld, PoolShould, SLOTS, Spot};
pub use huge::{any_huge_op, draw_huge, play_huge, play_huge_together};
pub use model::{Model, Shown};
pub use numbered::Numbered;
pub use op::{MapAdvice, MemoryVerb, Op, Setting, any_op, any_policies};
pub use play::{Touched, World, play};
pub use random::{Random, mix};
pub use rig::{Rig, Still, TestFrames, Ticks, run_on};
pub use runs::{cases, long_run};
pub use spaces::{Draw, Played, Reads, Stage, play_spaces};
pub use store::{TestStore, byte_at};
pub use swap::{POISON, SwapCounts, TestSwap};
pub use together::together;
pub use verbs::{Managed, is_resident, manage, private_copy};
