//! Tables whose entries are zero at first.

#[path = "../../sync-shuttle/src/zeros.rs"]
mod of_any_size;

pub use of_any_size::Zero;

/// Entries of the largest table: loom looks at each of them in each schedule, and models have few keys.
const MOST: usize = 16;

/// A table of so many entries: 16 at most, which does for a hash table of any size, and for the memory of models. `None` where the heap has no room for it.
pub fn table<T: Zero>(count: usize) -> Option<Box<[T]>> {
    of_any_size::table(count.min(MOST))
}
