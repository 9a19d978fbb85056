//! Prints the digest of a small run: the same in each build.

#[path = "../tests/machine/program.rs"]
mod program;

use softfault_sync_sim::machine::Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn main() {
    println!("digest {:016x}", program::mixture(7, false).digest);
}
