//! Zaps beside parts of windows that are given to the program. A thread is stopped within its zap: the kernel tells of that by
//! UFFD_EVENT_REMOVE, and has the thread wait until the message is read.

use super::real;
use crate::errno::errno;
use crate::uffd::UffdMmu;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::Mmu;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::slice::from_ref;

const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const EVENT_REMOVE: u8 = 0x15;

/// Memory, and the userfaultfd that tells of its zaps.
fn told() -> (Range<usize>, File) {
    let memory = sync::pages::map(PAGE_SIZE).unwrap();
    let memory = memory.as_ptr().addr()..memory.as_ptr().addr() + PAGE_SIZE;
    const USER_MODE_ONLY: i32 = 1;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: makes a descriptor.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    assert!(made >= 0, "errno {}", errno());
    // SAFETY: nobody else has it.
    let fd = unsafe { File::from_raw_fd(made as i32) };
    let mut api = [0xAA, FEATURE_EVENT_REMOVE, 0_u64];
    // Missing pages.
    let mut register = [memory.start as u64, PAGE_SIZE as u64, 1, 0_u64];
    let calls = [
        (0xc018_aa3f_u32, api.as_mut_ptr()),
        (0xc020_aa00, register.as_mut_ptr()),
    ];
    for (call, structure) in calls {
        // SAFETY: UFFDIO_API and UFFDIO_REGISTER, with their structures.
        let answer = unsafe { libc::ioctl(fd.as_raw_fd(), call as libc::Ioctl, structure) };
        assert_eq!(answer, 0, "errno {}", errno());
    }
    (memory, fd)
}

/// A part that was given while a window is zapped would lose its bytes.
#[test]
fn no_part_is_given_within_a_zap() {
    type Zap = fn(&UffdMmu, &[Range<usize>]);
    let zaps: [Zap; 2] = [
        |mmu, ranges| mmu.zap(ranges),
        |mmu, ranges| assert!(mmu.zap_all(ranges)),
    ];
    for zap in zaps {
        let (mmu, (memory, mut fd)) = (real(), told());
        std::thread::scope(|scope| {
            let zapping = scope.spawn(|| zap(&mmu, from_ref(&memory)));
            let mut poll = libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one of them.
            let polled = unsafe { libc::poll(&mut poll, 1, 60_000) };
            assert_eq!((polled, poll.revents), (1, libc::POLLIN));
            let may_give = mmu.given.may_give();
            let mut message = [0; 32];
            assert_eq!(fd.read(&mut message).unwrap(), message.len());
            zapping.join().unwrap();
            assert_eq!(message[0], EVENT_REMOVE);
            assert!(!may_give);
            assert!(mmu.given.may_give());
        });
    }
}
