//! Models of the reader-writer lock with Linux's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::model::rwsem;
use crate::model::spawn;
use crate::model::{Still, apart, explore};
use loom::thread::yield_now;
use softfault_engine_loom::clock::Clock;
use softfault_engine_loom::lock::QueuedRwSem;
use softfault_engine_loom::lock::queued_rwsem::HANDOFF_NS;
use softfault_engine_loom::policy::MmapQueue;

#[test]
fn a_reader_and_two_writers_that_spin() {
    rwsem::a_reader_and_two_writers_that_spin(MmapQueue::Linux, 3);
}

#[test]
fn a_writer_and_two_readers() {
    rwsem::a_writer_and_two_readers(MmapQueue::Linux, 3);
}

#[test]
fn two_writers_and_a_reader() {
    rwsem::two_writers_and_a_reader(MmapQueue::Linux, 3);
}

#[test]
fn three_writers() {
    rwsem::three_writers(MmapQueue::Linux, 3);
}

#[test]
fn a_reader_and_a_writer_that_come_again() {
    rwsem::a_reader_and_a_writer_that_come_again(MmapQueue::Linux, 4);
}

/// The lock itself, for comers in a known order. It stays for good:
/// turns borrow it.
fn raw() -> &'static QueuedRwSem {
    Box::leak(Box::default())
}

#[test]
fn a_reader_waits_for_every_writer_before_it() {
    explore(Some(2), || {
        let raw = raw();
        let written = Arc::new(AtomicUsize::new(0));
        assert!(raw.write_or_queue(&Still).is_none());
        let writers = [(); 2].map(|()| raw.write_or_queue(&Still).unwrap());
        let turn = raw.read_or_queue(&Still).unwrap();
        let writers = writers.map(|own| {
            let written = Arc::clone(&written);
            spawn(move || {
                own.wait(&Still);
                written.fetch_add(1, Relaxed);
                raw.leave_write(&Still);
            })
        });
        let reader = spawn(move || {
            turn.wait();
            assert_eq!(written.load(Relaxed), 2, "a writer was passed");
            raw.leave_read(&Still);
        });
        raw.leave_write(&Still);
        reader.join().unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(raw.try_write());
    });
}

#[test]
fn readers_go_in_with_the_first_of_them() {
    // One waits before a writer and one behind it: both are inside before the
    // writer is.
    explore(Some(2), || {
        let raw = raw();
        let read = Arc::new(AtomicUsize::new(0));
        assert!(raw.write_or_queue(&Still).is_none());
        let before = raw.read_or_queue(&Still).unwrap();
        let own = raw.write_or_queue(&Still).unwrap();
        let behind = raw.read_or_queue(&Still).unwrap();
        let readers = [before, behind].map(|turn| {
            let read = Arc::clone(&read);
            spawn(move || {
                turn.wait();
                read.fetch_add(1, Relaxed);
                raw.leave_read(&Still);
            })
        });
        let writer = spawn(move || {
            own.wait(&Still);
            assert_eq!(read.load(Relaxed), 2, "a reader was passed");
            raw.leave_write(&Still);
        });
        raw.leave_write(&Still);
        for reader in readers {
            reader.join().unwrap();
        }
        writer.join().unwrap();
        assert!(raw.try_write());
    });
}

#[test]
fn a_writer_that_was_woken_may_be_passed() {
    apart(|| {
        let met = Arc::new([const { AtomicBool::new(false) }; 2]);
        explore(Some(4), {
            let met = Arc::clone(&met);
            move || {
                let raw = raw();
                let written = Arc::new(AtomicBool::new(false));
                assert!(raw.try_read());
                let own = raw.write_or_queue(&Still).unwrap();
                let writer = {
                    let written = Arc::clone(&written);
                    spawn(move || {
                        own.wait(&Still);
                        written.store(true, Relaxed);
                        raw.leave_write(&Still);
                    })
                };
                raw.leave_read(&Still);
                if let Some(turn) = raw.write_or_queue(&Still) {
                    turn.wait(&Still);
                }
                met[usize::from(written.load(Relaxed))].store(true, Relaxed);
                raw.leave_write(&Still);
                writer.join().unwrap();
                assert!(raw.try_write());
            }
        });
        assert!(met.iter().all(|met| met.load(Relaxed)));
    });
}

/// A clock by which everybody has waited for too long.
#[derive(Default)]
struct Late(AtomicU64);

impl Clock for Late {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(HANDOFF_NS, Relaxed)
    }
}

/// Goes in for writing twice, if the first time is a theft. True if `served`, the thread that
/// is the first in the queue, found that out; then nobody steals a second time.
fn steal_twice(raw: &QueuedRwSem, clock: &Late, served: &AtomicBool) -> bool {
    if let Some(turn) = raw.write_or_queue(clock) {
        turn.wait(clock);
        raw.leave_write(clock);
        return false;
    }
    // Lets the others come to where they wait.
    yield_now();
    let found_out = raw.hands_off();
    raw.leave_write(clock);
    match raw.write_or_queue(clock) {
        None => assert!(!found_out || served.load(Relaxed), "passed again"),
        Some(turn) => turn.wait(clock),
    }
    raw.leave_write(clock);
    found_out
}

#[test]
fn a_late_writer_is_not_passed_again() {
    apart(|| {
        let met = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let met = Arc::clone(&met);
            move || {
                let (raw, clock) = (raw(), Arc::new(Late::default()));
                let written = Arc::new(AtomicBool::new(false));
                assert!(raw.try_read());
                let own = raw.write_or_queue(&*clock).unwrap();
                let writer = {
                    let (written, clock) = (Arc::clone(&written), Arc::clone(&clock));
                    spawn(move || {
                        own.wait(&*clock);
                        written.store(true, Relaxed);
                        raw.leave_write(&*clock);
                    })
                };
                raw.leave_read(&*clock);
                met.fetch_add(steal_twice(raw, &clock, &written).into(), Relaxed);
                writer.join().unwrap();
                assert!(raw.try_write());
            }
        });
        assert!(met.load(Relaxed) > 0);
    });
}

#[test]
fn a_late_reader_is_not_passed_again() {
    apart(|| {
        let met = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let met = Arc::clone(&met);
            move || {
                let (raw, clock) = (raw(), Arc::new(Late::default()));
                let read = Arc::new(AtomicBool::new(false));
                assert!(raw.try_write());
                let turn = raw.read_or_queue(&*clock).unwrap();
                let thief = {
                    let (read, met, clock) =
                        (Arc::clone(&read), Arc::clone(&met), Arc::clone(&clock));
                    spawn(move || met.fetch_add(steal_twice(raw, &clock, &read).into(), Relaxed))
                };
                let reader = {
                    let (read, clock) = (Arc::clone(&read), Arc::clone(&clock));
                    spawn(move || {
                        turn.wait();
                        read.store(true, Relaxed);
                        raw.leave_read(&*clock);
                    })
                };
                raw.leave_write(&*clock);
                reader.join().unwrap();
                thief.join().unwrap();
                assert!(raw.try_write());
            }
        });
        assert!(met.load(Relaxed) > 0);
    });
}
