//! Anonymous memory: operations on spaces that fork, a model of the bytes
//! and of the paid pages, and the implementations that must behave alike.

mod model;
mod op;
mod play;
mod threads;
mod world;

pub use model::{AnonModel, Expected, Paid};
pub use op::{ARENA_PAGES, any_anon_op, any_swap_op};
pub use play::{COPIED_PAGES, play_anon};
pub use threads::{Step, obey_plans};
pub use world::{Access, AnonWorld};
