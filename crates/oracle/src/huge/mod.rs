//! Huge pages: operations on spaces that map the same files, a model of every
//! word and of the promises, and the engine's pool that must match it.
//!
//! [`play_huge`] plays one list and predicts everything; [`play_huge_together`] plays
//! a list a thread, and asks of each touch whether it must have been so at some moment.

mod draw;
mod history;
mod model;
mod op;
mod play;
mod threads;
mod world;

pub use draw::draw_huge;
pub use model::{HugeModel, PoolShould};
pub use op::{HugeOp, HugeSetting, SLOTS, Spot, any_huge_op};
pub use play::play_huge;
pub use threads::play_huge_together;
pub use world::{HugeRefusal, HugeWorld};
