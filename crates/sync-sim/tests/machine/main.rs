//! The simulated machine.

mod lines;
mod outside;
mod program;
mod same;
mod scheduler;
mod shared;
mod stuck;
mod words;

use softfault_sync_sim::machine::Heap;

#[global_allocator]
static HEAP: Heap = Heap;
