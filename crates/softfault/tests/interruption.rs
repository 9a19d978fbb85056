//! Touching a map does not make the thread's later system calls fail.

mod files;

use files::{check, made_file};
use softfault::{Advice, AsyncReads, Engine};

/// Reads ahead, then waits for nothing in `epoll_wait` while the reads end;
/// returns how often that was interrupted.
fn interrupted_waits(how: AsyncReads) -> usize {
    let file = made_file("waits", 32 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(64 << 20)
        .async_reads(how);
    let engine = engine.build().unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    // SAFETY: makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let mut interrupted = 0;
    for megabyte in 0..32 {
        let range = megabyte << 20..(megabyte + 1) << 20;
        map.advise_range(Advice::WillNeed, range.start, 1 << 20)
            .unwrap();
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event; nothing is registered.
        let answer = unsafe { libc::epoll_wait(epoll, &mut event, 1, 5) };
        interrupted += usize::from(answer < 0);
        for offset in range.step_by(4096) {
            check(&map, offset);
        }
    }
    assert!(engine.stats().fault_around + engine.stats().minor_faults > 0);
    // SAFETY: ours.
    unsafe { libc::close(epoll) };
    interrupted
}

#[test]
fn reading_ahead_interrupts_no_system_call() {
    assert_eq!(interrupted_waits(AsyncReads::Auto), 0);
}

#[test]
fn with_io_uring_all_bytes_are_right_and_waits_may_be_interrupted() {
    // How many is the kernel's business; that it is more than none is why
    // io_uring is not the first choice.
    let interrupted = interrupted_waits(AsyncReads::IoUring);
    println!("io_uring: {interrupted} of 32 waits were interrupted");
}
