//! What tests of several worlds share.
//!
//! - [`TestStore`]: a store whose reads the test holds back, fails or cuts
//!   short.
//! - [`Rig`]: the engine over the soft page tables, for tests of its parts.
//! - [`Op`] and [`World`]: operations on maps, and something that obeys them;
//!   [`play`] drives a world and compares every byte with the [`Model`].
//! - [`AnonOp`], [`AnonWorld`], [`AnonModel`] and [`play_anon`]: the same for
//!   anonymous memory, in spaces that fork.

mod anon;
mod model;
mod op;
mod play;
mod rig;
mod store;
mod together;

pub use anon::{ARENA_PAGES, Access, AnonModel, AnonOp, AnonWorld, Expected};
pub use anon::{any_anon_op, play_anon};
pub use model::{Model, Shown};
pub use op::{MapAdvice, Op, Setting, any_op};
pub use play::{Touched, World, play};
pub use rig::{Rig, TestFrames};
pub use store::{TestStore, byte_at};
pub use together::together;
