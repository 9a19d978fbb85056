//! Which calls may keep how many servers.
//!
//! A call that waits for a device keeps its server for as long as the device takes. If such calls could keep all servers, one device that
//! hangs would hold up calls that wait for no device, and with them touches of files on other disks. So they pass gates:
//!
//! ```text
//!   writes, syncs, reservations ── gate: all servers but two ──┐
//!   reads, opens, extents ─────────────────────────────────────┴─ gate: all servers but one ──┐
//!   all else ─────────────────────────────────────────────────────────────────────────────────┴─ a server
//! ```
//!
//! A touch may read, and never waits for a write; so the gate of writes leaves one server more. Where there is one server only, all share it.
//! No heap: a fault handler asks.

use super::raw;
use core::ffi::c_long;
use core::sync::atomic::{AtomicU32, Ordering};

/// What a call may wait for. The number is that of the servers that such calls leave to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    /// For no device.
    Nothing,
    /// For bytes of a device, or for what a file system keeps there about a file.
    Reads,
    /// For a device that takes bytes.
    Writes,
}

impl Waits {
    /// What a call of this number may wait for. Of a queue of requests the caller knows it: reads, unless it says otherwise.
    pub(super) fn of(number: c_long) -> Self {
        match number {
            libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_fdatasync
            | libc::SYS_fallocate
            | libc::SYS_ftruncate
            | libc::SYS_sync_file_range => Self::Writes,
            libc::SYS_pread64
            | libc::SYS_preadv2
            | libc::SYS_openat
            | libc::SYS_lseek
            | libc::SYS_fadvise64
            | libc::SYS_io_submit
            | libc::SYS_io_uring_enter => Self::Reads,
            _ => Self::Nothing,
        }
    }

    /// Servers that such calls leave to others.
    pub(super) fn leaves(self) -> usize {
        self as usize
    }
}

/// Threads that wait until something is free. Zeros are none.
pub(super) struct Waiters {
    waiting: AtomicU32,
    /// Counts what such threads may try again.
    released: AtomicU32,
}

impl Waiters {
    /// What `take` takes, as soon as it takes something. It is asked again ten times a second.
    pub(super) fn wait_for<T>(&self, mut take: impl FnMut() -> Option<T>) -> T {
        if let Some(taken) = take() {
            return taken;
        }
        // AcqRel pairs with the fetch_add in `wake`: either that thread sees this one wait, or what it has released is free here.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let taken = loop {
            // Acquire pairs with the Release in `wake`: what is counted is free here, or was taken since.
            let seen = self.released.load(Ordering::Acquire);
            if let Some(taken) = take() {
                break taken;
            }
            raw::wait(&self.released, seen, true);
        };
        // Relaxed: a thread that still sees it wakes others for nothing.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    /// Something was released: wakes a thread that waits for it.
    pub(super) fn wake(&self) {
        // A read-modify-write: see `wait_for`.
        if self.waiting.fetch_add(0, Ordering::AcqRel) > 0 {
            // Release pairs with the Acquire in `wait_for`.
            self.released.fetch_add(1, Ordering::Release);
            // Where that is refused the waiter looks by itself.
            let _ = raw::wake(&self.released);
        }
    }
}

/// A gate. Zeros are one that nobody has passed.
pub(super) struct Gate {
    /// Calls that have passed it and are not over.
    inside: AtomicU32,
    waiters: Waiters,
}

impl Gate {
    /// Passes it as soon as fewer calls are inside than there are servers, but for those that are left to others. The error is ESRCH if there
    /// is no server any more.
    pub(super) fn pass(&self, servers: impl Fn() -> usize, left: usize) -> Result<(), i32> {
        self.waiters.wait_for(|| match servers() {
            0 => Some(Err(libc::ESRCH)),
            servers => {
                let most = servers.saturating_sub(left).max(1);
                self.try_pass(most).then_some(Ok(()))
            }
        })
    }

    fn try_pass(&self, most: usize) -> bool {
        let more = |inside: u32| ((inside as usize) < most).then_some(inside + 1);
        // AcqRel pairs with itself and with the one in `leave`: calls are counted one after the other.
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        self.inside.fetch_update(set, failed, more).is_ok()
    }

    /// A call that has passed it is over.
    pub(super) fn leave(&self) {
        // AcqRel pairs with the one in `try_pass`.
        self.inside.fetch_sub(1, Ordering::AcqRel);
        self.waiters.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::super::busy::{OfReads, OfWrites, busy};
    use super::super::in_child::{check, forked};
    use super::super::server::SERVERS;
    use super::super::{Guarded, want_several};

    fn file() -> Guarded {
        let args = [c"table".as_ptr() as usize, 0, 0, 0, 0, 0];
        // SAFETY: makes a descriptor.
        unsafe { Guarded::open(libc::SYS_memfd_create, args) }.expect("a file")
    }

    fn reads(file: &Guarded) -> bool {
        let mut byte = 0_u8;
        let args = [core::ptr::from_mut(&mut byte) as usize, 1, 0, 0, 0];
        // SAFETY: room for a byte.
        unsafe { file.call(libc::SYS_pread64, args) }.is_ok()
    }

    /// Failed before: as many writes that hang as there are servers held up every other call.
    #[test]
    fn calls_that_wait_for_a_device_leave_servers_to_others() {
        forked(|| {
            // SAFETY: ends this child if it hangs.
            unsafe { libc::alarm(100) };
            let file = file();
            want_several();
            let went_on = busy::<OfWrites, _>(2 * SERVERS, || {
                let read = reads(&file);
                let beside = busy::<OfReads, _>(2 * SERVERS, || file.identity().is_ok());
                read && beside
            });
            check!(went_on);
            // All have left the gates.
            check!(busy::<OfWrites, _>(1, || reads(&file)));
            0
        });
    }

    #[test]
    fn one_server_serves_all() {
        forked(|| {
            let file = file();
            // SAFETY: no memory involved.
            let grown = unsafe { file.call(libc::SYS_ftruncate, [1, 0, 0, 0, 0]) };
            check!(grown == Ok(0) && reads(&file));
            0
        });
    }
}
