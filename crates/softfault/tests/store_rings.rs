//! Asynchronous reads: submitted by one thread, reaped by whoever waits.

mod child;
mod filter;
mod store_scene;

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use softfault::store::{FileStore, QueueKind, Rings, Unavailable};
use softfault_engine::store::{Reap, Store};
use store_scene::{FOREVER_NS, Frames, Inbox, PAGE, Scratch, reads};

const KINDS: [QueueKind; 2] = [QueueKind::Uring, QueueKind::Aio];

fn rings(kind: QueueKind, entries: usize) -> Arc<Rings> {
    Arc::new(Rings::with(kind, 1, entries).expect("this machine has them"))
}

fn open(scratch: &Scratch, rings: &Arc<Rings>) -> FileStore {
    FileStore::open(scratch.file.as_fd(), Some(rings.clone())).expect("open")
}

#[test]
fn reads_bring_the_files_bytes() {
    for kind in KINDS {
        for scratch in [Scratch::on_disk(), Scratch::in_memory()] {
            // The last read ends with the file, in the middle of a page.
            let scratch = scratch.filled(63 * 4 * PAGE + PAGE + 99);
            let store = open(&scratch, &rings(kind, 256));
            let (frames, inbox) = (Frames::new(65 * 4), Inbox::new(65));
            let reads = reads(&frames, 65, 4, 0);
            // SAFETY: the frames outlive the reads, which are all waited for.
            assert_eq!(unsafe { store.submit(&reads) }, 65);
            for read in reads.iter().rev() {
                let arrives = match read.cookie {
                    63 => PAGE + 99,
                    64 => 0,
                    _ => read.bytes,
                };
                assert_eq!(inbox.wait(&store, read.cookie), arrives as i64);
                frames.check(read.cookie as usize * 4, read.offset, arrives);
            }
            assert_eq!(inbox.deliveries(), 65);
        }
    }
}

#[test]
fn buffered_reads_go_through_io_uring_only() {
    let scratch = Scratch::on_disk().filled(64 * PAGE);
    let (frames, inbox) = (Frames::new(64), Inbox::new(64));
    let reads = reads(&frames, 64, 1, 0);
    let aio = FileStore::open_buffered(scratch.file.as_fd(), Some(rings(QueueKind::Aio, 64)));
    // SAFETY: nothing is started.
    assert_eq!(unsafe { aio.expect("open").submit(&reads) }, 0);
    let uring = FileStore::open_buffered(scratch.file.as_fd(), Some(rings(QueueKind::Uring, 64)));
    let store = uring.expect("open");
    // SAFETY: the frames outlive the reads, which are all waited for.
    assert_eq!(unsafe { store.submit(&reads) }, 64);
    for read in &reads {
        assert_eq!(inbox.wait(&store, read.cookie), PAGE as i64);
        frames.check(read.cookie as usize, read.offset, PAGE);
    }
}

#[test]
fn a_store_without_rings_starts_nothing() {
    let scratch = Scratch::on_disk().filled(PAGE);
    let store = FileStore::open(scratch.file.as_fd(), None).expect("open");
    let (frames, inbox) = (Frames::new(1), Inbox::new(1));
    // SAFETY: nothing is started.
    assert_eq!(unsafe { store.submit(&reads(&frames, 1, 1, 0)) }, 0);
    assert_eq!(store.reap(0, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert_eq!(inbox.deliveries(), 0);
}

#[test]
fn a_full_ring_takes_fewer() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(64 * PAGE);
        let store = open(&scratch, &rings(kind, 4));
        let (frames, inbox) = (Frames::new(64), Inbox::new(64));
        let reads = reads(&frames, 64, 1, 0);
        let mut next = 0;
        let mut oldest = 0;
        while oldest < 64 {
            // SAFETY: the frames outlive the reads, which are all waited for.
            let started = unsafe { store.submit(&reads[next..]) };
            assert!(started <= 4, "no more than the ring has");
            next += started;
            // Full now, unless the file ended: completed or not, they stay.
            if next < 64 {
                // SAFETY: nothing is started.
                assert_eq!(unsafe { store.submit(&reads[next..]) }, 0);
            }
            inbox.wait(&store, oldest);
            oldest += 1;
            // Others may have been delivered with it.
            while oldest < next as u64 && inbox.result(oldest).is_some() {
                oldest += 1;
            }
        }
        for read in &reads {
            frames.check(read.cookie as usize, read.offset, PAGE);
        }
        assert_eq!(inbox.deliveries(), 64);
    }
}

#[test]
fn polling_delivers_reads_without_a_waiter() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(32 * PAGE);
        let store = open(&scratch, &rings(kind, 32));
        let (frames, inbox) = (Frames::new(32), Inbox::new(32));
        // SAFETY: the frames outlive the reads, which are all polled for.
        assert_eq!(unsafe { store.submit(&reads(&frames, 32, 1, 0)) }, 32);
        while inbox.deliveries() < 32 {
            assert_eq!(store.reap(u64::MAX, &inbox, FOREVER_NS), Reap::NotInFlight);
            thread::yield_now();
        }
        assert_eq!(store.reap(0, &inbox, FOREVER_NS), Reap::NotInFlight);
    }
}

#[test]
fn a_submitter_that_exits_leaves_its_reads_behind_whole() {
    for kind in KINDS {
        for buffered in [false, true] {
            let scratch = Scratch::on_disk().filled(256 * PAGE);
            let rings = rings(kind, 256);
            let open = if buffered {
                FileStore::open_buffered
            } else {
                FileStore::open
            };
            let store = open(scratch.file.as_fd(), Some(rings)).expect("open");
            if buffered && kind == QueueKind::Aio {
                continue;
            }
            for _ in 0..8 {
                let (frames, inbox) = (Frames::new(256), Inbox::new(256));
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let reads = reads(&frames, 256, 1, 0);
                        // SAFETY: the frames outlive the reads, which are all waited for.
                        assert_eq!(unsafe { store.submit(&reads) }, 256);
                    });
                });
                for read in &reads(&frames, 256, 1, 0) {
                    assert_eq!(inbox.wait(&store, read.cookie), PAGE as i64);
                    frames.check(read.cookie as usize, read.offset, PAGE);
                }
                assert_eq!(inbox.deliveries(), 256);
            }
        }
    }
}

#[test]
fn many_threads_reap_one_ring_and_each_gets_its_own() {
    const THREADS: usize = 48;
    const ROUNDS: usize = 60;
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(THREADS * PAGE);
        // Two stores, one ring, fewer entries than threads: whoever finds it
        // full polls.
        let rings = rings(kind, 40);
        let stores = [open(&scratch, &rings), open(&scratch, &rings)];
        let frames = Frames::new(THREADS * ROUNDS);
        let inbox = Inbox::new(THREADS * ROUNDS);
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, frames, inbox) = (&stores[thread % 2], &frames, &inbox);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for round in 0..ROUNDS {
                        let index = thread * ROUNDS + round;
                        let mut read = reads(frames, 1, 1, (thread * PAGE) as u64);
                        read[0].cookie = index as u64;
                        read[0].buffer = frames.page(index);
                        // SAFETY: the frames outlive the read, which is waited for.
                        while unsafe { store.submit(&read) } == 0 {
                            store.reap(u64::MAX, inbox, 0);
                            thread::yield_now();
                        }
                        assert_eq!(inbox.wait(store, index as u64), PAGE as i64);
                        frames.check(index, read[0].offset, PAGE);
                    }
                });
            }
        });
        assert_eq!(inbox.deliveries() as usize, THREADS * ROUNDS);
    }
}

#[test]
fn many_threads_wait_for_the_same_reads() {
    const THREADS: usize = 64;
    const READS: usize = 64;
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(READS * PAGE);
        let store = open(&scratch, &rings(kind, READS));
        for round in 0..10 {
            let (frames, inbox) = (Frames::new(READS), Inbox::new(READS));
            let reads = reads(&frames, READS, 1, 0);
            let start = Barrier::new(THREADS + 1);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (store, frames, inbox, start) = (&store, &frames, &inbox, &start);
                    scope.spawn(move || {
                        start.wait();
                        for i in 0..READS {
                            // Some orders alike, some not; some waits too short.
                            let cookie = ((i * (thread % 4 * 2 + 1) + round) % READS) as u64;
                            while thread % 3 == 0
                                && store.reap(cookie, inbox, 30_000) == Reap::TimedOut
                            {
                            }
                            assert_eq!(inbox.wait(store, cookie), PAGE as i64);
                            frames.check(cookie as usize, cookie * PAGE as u64, PAGE);
                        }
                    });
                }
                // SAFETY: the frames outlive the reads, which are all waited for.
                assert_eq!(unsafe { store.submit(&reads) }, READS);
                start.wait();
            });
            assert_eq!(inbox.deliveries() as usize, READS);
        }
    }
}

#[test]
fn a_file_truncated_under_its_reads_ends_them_short() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(64 * PAGE);
        let store = open(&scratch, &rings(kind, 64));
        scratch
            .file
            .set_len((10 * PAGE + 7) as u64)
            .expect("truncate");
        let (frames, inbox) = (Frames::new(64), Inbox::new(16));
        // SAFETY: the frames outlive the reads, which are all waited for.
        assert_eq!(unsafe { store.submit(&reads(&frames, 16, 4, 0)) }, 16);
        let arrived: Vec<i64> = (0..16).map(|cookie| inbox.wait(&store, cookie)).collect();
        let whole = 4 * PAGE as i64;
        let mut expected = [0; 16];
        expected[..3].copy_from_slice(&[whole, whole, 2 * PAGE as i64 + 7]);
        assert_eq!(arrived, expected);
    }
}

#[test]
fn errors_are_delivered_as_values() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(PAGE);
        let store = open(&scratch, &rings(kind, 4));
        let inbox = Inbox::new(1);
        // A buffer that may not be written to. It stays, for another test could get its place.
        let frames = Frames::new(1);
        let reads = reads(&frames, 1, 1, 0);
        // SAFETY: a page of ours, which nobody touches.
        let denied = unsafe { libc::mprotect(frames.page(0).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(denied, 0);
        // SAFETY: nothing is written; the page outlives the read, which is waited for.
        assert_eq!(unsafe { store.submit(&reads) }, 1);
        assert_eq!(inbox.wait(&store, 0), -i64::from(libc::EFAULT));
    }
}

#[test]
fn a_child_leaves_its_parents_reads_alone() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(64 * PAGE);
        let rings = rings(kind, 64);
        let store = open(&scratch, &rings);
        let (frames, inbox) = (Frames::new(64), Inbox::new(64));
        let reads = reads(&frames, 64, 1, 0);
        // SAFETY: the frames outlive the reads, which are all waited for.
        assert_eq!(unsafe { store.submit(&reads) }, 64);
        let status = child::forked(|| {
            rings.forget_in_child();
            let mine = Frames::new(1);
            // SAFETY: nothing is started.
            if unsafe { store.submit(&reads) } != 0 {
                return 1;
            }
            if store.reap(0, &inbox, FOREVER_NS) != Reap::NotInFlight || inbox.deliveries() != 0 {
                return 2;
            }
            // SAFETY: the frame is the child's.
            if unsafe { store.read(0, mine.page(0), PAGE) } != Ok(PAGE) {
                return 3;
            }
            // The child may make rings of its own, and drop the inherited ones.
            let own = Rings::with(kind, 1, 64).map(Arc::new);
            let Ok(own) = own else { return 4 };
            let Ok(other) = FileStore::open(scratch.file.as_fd(), Some(own)) else {
                return 5;
            };
            let mut read = reads[9];
            read.buffer = mine.page(0);
            // SAFETY: the frame is waited for.
            if unsafe { other.submit(&[read]) } != 1 || inbox.wait(&other, 9) != PAGE as i64 {
                return 6;
            }
            mine.check(0, read.offset, PAGE);
            drop(other);
            // SAFETY: the child's copies, which it leaves without dropping again.
            unsafe {
                drop(std::ptr::read(&raw const store));
                drop(std::ptr::read(&raw const rings));
            }
            0
        });
        assert_eq!(status, 0);
        for read in &reads {
            assert_eq!(inbox.wait(&store, read.cookie), PAGE as i64);
            frames.check(read.cookie as usize, read.offset, PAGE);
        }
    }
}

#[test]
fn a_store_may_not_be_dropped_under_its_reads() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(PAGE);
        let rings = rings(kind, 4);
        let (store, other) = (open(&scratch, &rings), open(&scratch, &rings));
        let (frames, inbox) = (Frames::new(1), Inbox::new(1));
        // SAFETY: the frame outlives the read, which is waited for.
        assert_eq!(unsafe { store.submit(&reads(&frames, 1, 1, 0)) }, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(store))).is_err());
        assert_eq!(inbox.wait(&other, 0), PAGE as i64);
    }
}

#[test]
fn dropping_rings_waits_for_the_kernel() {
    for kind in KINDS {
        let scratch = Scratch::on_disk().filled(64 * PAGE);
        let frames = Frames::new(64);
        let store = open(&scratch, &rings(kind, 64));
        // SAFETY: the frames outlive the rings.
        assert_eq!(unsafe { store.submit(&reads(&frames, 64, 1, 0)) }, 64);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(store))).is_err());
        // The rings went with the store; nothing is written to the frames any more.
        for page in 0..64 {
            frames.check(page, (page * PAGE) as u64, PAGE);
        }
    }
}

#[test]
fn aio_completions_do_not_interrupt_the_submitters_calls() {
    let scratch = Scratch::on_disk().filled(256 * PAGE);
    let store = open(&scratch, &rings(QueueKind::Aio, 256));
    let (frames, inbox) = (Frames::new(256), Inbox::new(256));
    // SAFETY: the frames outlive the reads, which are all waited for.
    assert_eq!(unsafe { store.submit(&reads(&frames, 256, 1, 0)) }, 256);
    // SAFETY: an event for the kernel to fill; nothing is ever ready.
    let answer = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event: libc::epoll_event = std::mem::zeroed();
        let answer = libc::epoll_wait(epoll, &mut event, 1, 50);
        libc::close(epoll);
        answer
    };
    assert_eq!(answer, 0, "its time was up");
    (0..256).for_each(|cookie| assert_eq!(inbox.wait(&store, cookie), PAGE as i64));
}

#[test]
fn closed_system_calls_are_told() {
    let status = child::forked(|| {
        filter::deny(&[libc::SYS_io_setup], libc::EPERM);
        let closed = Rings::of(QueueKind::Aio).expect_err("closed");
        if closed
            != (Unavailable {
                kind: QueueKind::Aio,
                errno: libc::EPERM,
            })
        {
            return 1;
        }
        if !closed.to_string().starts_with("io_setup: ") {
            return 2;
        }
        // The other kind is still to be had.
        if !matches!(Rings::new(), Ok(rings) if rings.kind() == QueueKind::Uring) {
            return 3;
        }
        filter::deny(&[libc::SYS_io_uring_setup], libc::EPERM);
        if Rings::new().expect_err("closed") != closed {
            return 4;
        }
        0
    });
    assert_eq!(status, 0);
}
