//! The real page tables, through userfaultfd(2).
//!
//! A window is private anonymous memory, readable, registered for missing
//! faults: a touch of a missing page raises SIGBUS in the touching thread,
//! whose handler copies the page in. No other thread takes part. With
//! [`Faults::Threads`](crate::Faults::Threads) the touching thread sleeps instead, and a
//! message says so.
//!
//! A window that may be written to is registered for writes to protected pages
//! as well, where the kernel has that: such a write raises SIGBUS too.
//!
//! Windows are spread over a few userfaultfds, since each has a lock of its
//! own in the kernel, and file descriptors are few; where messages are read, on eight. They are open in a table of
//! their own ([`table`](crate::table)): the last close of one would unregister its
//! windows, and the kernel would fill missing pages with zeros.

mod abi;
mod faults;
mod fork;
mod given;
mod in_place;
mod memory;
mod messages;
mod mmu;
mod moving;
mod pagemap;
mod pins;
mod present;
mod protect;
mod released;
mod reserved;
mod rows;
mod segments;
mod spare;
#[cfg(test)]
mod tests;
mod this_process;
mod unplaced;
mod zap;

pub use abi::{LOOKS, MESSAGES, Message, Offers, Poisoned, SEEN_FOR, open, register};
pub use faults::Faults;
pub use fork::{WindowLists, close_window};
pub use given::GivenTo;
pub(crate) use given::{close, nothing_at};
pub use in_place::FileToShow;
#[cfg(test)]
pub(crate) use in_place::REFUSED;
pub use mmu::UffdMmu;
pub use present::{copy_page, copy_some};
pub(crate) use segments::{KernelScan, SCAN_BYTES, SEGMENT};
pub(crate) use spare::LARGEST as LARGEST_SPARE;
pub use spare::keep_no_spare_windows;
pub(crate) use unplaced::{UnplacedMapping, map_aside};
