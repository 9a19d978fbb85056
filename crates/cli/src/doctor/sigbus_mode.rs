//! userfaultfd's SIGBUS mode: the faulting thread serves itself (Linux 4.14).

use super::check::{Check, Tried, Whereabouts};
use super::memory::Memory;
use super::place::PAGE;
use super::{machine, uffd, userfaultfd};

pub const CHECK: Check = Check {
    name: "sigbus-mode",
    costs: "no map can be served",
    run: |_| {
        let fd = match uffd::open() {
            Ok(fd) => fd,
            Err(e) => return userfaultfd::refused(&e),
        };
        let registered = uffd::enable(&fd, uffd::FEATURE_SIGBUS)
            .and_then(|_| Memory::map(4 * PAGE))
            .and_then(|memory| uffd::register(&fd, &memory, 0, 4 * PAGE));
        match registered {
            Ok(()) => Tried::ok("a missing page raises SIGBUS in the thread that touches it"),
            Err(e) => Tried::missing(format!("refused: {e}"), machine::newer_kernel(5, 11)),
        }
    },
    whereabouts: Whereabouts::Child,
};
