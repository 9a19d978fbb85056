//! Anonymous memory: operations on spaces that fork, a model of what every byte
//! must be and of what is paid for, and something that obeys.

mod model;
mod op;
mod play;

pub use model::{AnonModel, Expected};
pub use op::{ARENA_PAGES, any_anon_op};
pub use play::{Access, AnonWorld, play_anon};
