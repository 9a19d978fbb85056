//! Faults on huge memory: which map has an address, and how its missing page is got.
//!
//! | file | has |
//! |---|---|
//! | `descriptor` | the userfaultfd of huge maps |
//! | `table` | which map an address is in, for a handler |
//! | `fill` | the kernel is asked for a page |
//! | `serve` | a touch that raised SIGBUS |
//! | `count` | the counters |
//!
//! [`huge`](crate::huge) says how all of this comes together.

mod backing;
mod count;
mod descriptor;
mod fill;
mod serve;
mod size;
mod table;

pub use backing::HugeBacking;
pub use count::{HugeMapStats, HugeStats};
pub(crate) use count::{map, unmap};
pub(crate) use descriptor::opened;
pub(crate) use fill::{HugeWindow, MADV_POPULATE_READ};
#[cfg(target_arch = "x86_64")]
pub(crate) use serve::has;
pub(crate) use serve::{fork_child, serve};
pub use size::HugeSize;
pub(crate) use table::TouchableMap;
