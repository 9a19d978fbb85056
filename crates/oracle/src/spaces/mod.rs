//! N spaces and M threads: lists of operations that are obeyed at a time, and an
//! oracle that knows the possible results of each touch.
//!
//! ```text
//!   Stage ── setup: one thread ── lists: a thread each ── one thread looks at
//!                                 and one that lets      everything once more,
//!                                 reads end              takes all down
//! ```
//!
//! - [`Stage`]: spaces, pages, policies, memory; and the players.
//! - `history`: the possible states of a thing that others change meanwhile.
//! - `shadow`: the possible bytes of every page, in these terms.
//! - `manage`: verbs on memory that goes to swap, and the locked pages.
//! - `world`: the engine obeys, and the shadow is asked.
//! - [`Draw`]: lists from a seed.

mod draw;
mod history;
mod manage;
mod play;
mod shadow;
mod world;

pub use draw::Draw;
pub use play::{Played, Reads, Stage, play_spaces};
