//! softfault under the name memmap2: what `[patch.crates-io]` puts in its place.
//!
//! Maps that write to their file (`map_mut`), executable ones and `MmapRaw` are not there: a
//! program that needs one does not compile.

pub use softfault::*;
