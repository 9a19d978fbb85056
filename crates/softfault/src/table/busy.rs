//! Servers that calls keep until a test lets them end.

use super::Guarded;
use super::tests::until_it_sleeps;
use core::ffi::c_long;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

/// Calls of one kind. At this offset preadv2(2) and pwritev2(2) take pipes.
const OF_PIPES: usize = usize::MAX;

/// A call that waits at a pipe for its other end.
pub(crate) trait Hangs {
    const CALL: c_long;

    /// The end of a new pipe at which it waits, and the one with which it stops waiting once that is closed.
    fn pipe() -> (OwnedFd, OwnedFd);
}

/// A call that waits for no device.
pub(crate) struct OfNothing;

impl Hangs for OfNothing {
    const CALL: c_long = libc::SYS_readv;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (reader.into(), writer.into())
    }
}

/// A read of a device that hangs.
pub(crate) struct OfReads;

impl Hangs for OfReads {
    const CALL: c_long = libc::SYS_preadv2;

    fn pipe() -> (OwnedFd, OwnedFd) {
        OfNothing::pipe()
    }
}

/// A write to one.
pub(crate) struct OfWrites;

impl Hangs for OfWrites {
    const CALL: c_long = libc::SYS_pwritev2;

    /// The pipe is full.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        // SAFETY: numbers only.
        let bytes = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&writer);
            libc::fcntl(fd, libc::F_SETPIPE_SZ, 4096)
        };
        let bytes = usize::try_from(bytes).expect("a size");
        writer.write_all(&vec![0; bytes]).expect("room");
        (writer.into(), reader.into())
    }
}

/// Does `work` while so many calls hang in the table, or wait for a server there; then lets them end. For a child of fork.
pub(crate) fn busy<H: Hangs, R>(calls: usize, work: impl FnOnce() -> R) -> R {
    // All others have their signals blocked, and a test that hangs is ended by one.
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    let pipes: Vec<_> = (0..calls).map(|_| H::pipe()).collect();
    let adopted = pipes.iter().map(|(end, _)| Guarded::adopt(end.as_fd()));
    let adopted: Vec<_> = adopted.map(|end| end.expect("adopted")).collect();
    std::thread::scope(|scope| {
        for pipe in &adopted {
            let id = std::sync::Arc::new(AtomicI32::new(0));
            let note = id.clone();
            scope.spawn(move || {
                // SAFETY: only asks.
                note.store(unsafe { libc::gettid() }, Relaxed);
                let mut byte = 0_u8;
                let part = libc::iovec {
                    iov_base: (&raw mut byte).cast(),
                    iov_len: 1,
                };
                let args = [(&raw const part).addr(), 1, OF_PIPES, 0, 0];
                // SAFETY: one part, of one byte. The answer is the end of the pipe.
                let _ = unsafe { pipe.call(H::CALL, args) };
            });
            until_it_sleeps(&id);
        }
        let done = work();
        drop(pipes);
        done
    })
}
