//! softfault under the name memmap2: what `[patch.crates-io]` puts in its place.

pub use softfault::*;
