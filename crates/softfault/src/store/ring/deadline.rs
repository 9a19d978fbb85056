//! How long a wait may still take.

use sync::clock::now_ns;

/// A moment of the monotonic clock, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(u64);

impl Deadline {
    /// `ns` from now. None are needed for 0: the clock is not read.
    pub(super) fn after(ns: u64) -> Self {
        if ns == 0 {
            Self(0)
        } else {
            Self(now_ns().saturating_add(ns))
        }
    }

    /// Nanoseconds left; 0: it has passed.
    pub(super) fn left(self) -> u64 {
        if self.0 == 0 {
            0
        } else {
            self.0.saturating_sub(now_ns())
        }
    }
}

/// A time in the kernel's shape.
pub(super) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}
