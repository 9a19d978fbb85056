//! Models of the mutex and of the reader-writer lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::model::rwsem::{self, Guarded};
use crate::model::spawn;
use crate::model::{apart, explore};
use softfault_engine_loom::lock::raw_rwsem::TryReadError;
use softfault_engine_loom::lock::{Mutex, RawRwSem};
use softfault_engine_loom::policy::MmapQueue;

fn three_lock_a_mutex() {
    let mutex = Arc::new(Mutex::new(0));
    let others = [(); 2].map(|()| {
        let mutex = Arc::clone(&mutex);
        spawn(move || *mutex.lock() += 1)
    });
    *mutex.lock() += 1;
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(*mutex.lock(), 3);
}

#[test]
fn mutex_among_three() {
    explore(Some(4), three_lock_a_mutex);
}

#[test]
fn mutex_between_two_that_come_twice() {
    explore(Some(6), || {
        let mutex = Arc::new(Mutex::new(0));
        let twice = {
            let mutex = Arc::clone(&mutex);
            move || {
                *mutex.lock() += 1;
                if let Some(mut value) = mutex.try_lock() {
                    *value += 10;
                }
                *mutex.lock() += 1;
            }
        };
        let other = spawn(twice.clone());
        twice();
        other.join().unwrap();
        assert_eq!(*mutex.lock() % 10, 4);
    });
}

/// A thread that spins takes the mutex by an exchange of its own.
#[test]
fn mutex_among_three_that_spin() {
    explore(Some(3), || {
        sync::model::spin();
        three_lock_a_mutex();
    });
}

#[test]
fn a_reader_and_two_writers_that_spin() {
    rwsem::a_reader_and_two_writers_that_spin(MmapQueue::PhaseFair, 3);
}

#[test]
fn a_writer_and_two_readers() {
    rwsem::a_writer_and_two_readers(MmapQueue::PhaseFair, 3);
}

#[test]
fn two_writers_and_a_reader() {
    rwsem::two_writers_and_a_reader(MmapQueue::PhaseFair, 3);
}

#[test]
fn three_writers() {
    rwsem::three_writers(MmapQueue::PhaseFair, 4);
}

#[test]
fn a_reader_and_a_writer_that_come_again() {
    rwsem::a_reader_and_a_writer_that_come_again(MmapQueue::PhaseFair, 6);
}

#[test]
fn a_batch_of_readers_whose_gate_opens_late() {
    // A reader that comes while the batch before it is being let in must not
    // go through that batch's gate.
    explore(Some(2), || {
        let guarded = Guarded::new(MmapQueue::PhaseFair);
        let readers = [(); 2].map(|()| {
            let guarded = Arc::clone(&guarded);
            spawn(move || assert!(guarded.get() <= 2))
        });
        guarded.add();
        guarded.add();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(guarded.get(), 2);
    });
}

#[test]
fn no_reader_passes_a_waiting_writer() {
    apart(|| {
        let met = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let met = Arc::clone(&met);
            move || {
                let guarded = Guarded::new(MmapQueue::PhaseFair);
                let written = Arc::new(AtomicBool::new(false));
                let inside = guarded.sem.read();
                let writer = {
                    let (guarded, written) = (Arc::clone(&guarded), Arc::clone(&written));
                    spawn(move || {
                        let _guard = guarded.sem.write();
                        guarded.add_locked();
                        written.store(true, Relaxed);
                    })
                };
                let reader = {
                    let (guarded, written) = (Arc::clone(&guarded), Arc::clone(&written));
                    let met = Arc::clone(&met);
                    spawn(move || {
                        let waits = guarded.sem.waiting_writers() > 0;
                        if waits {
                            met.fetch_add(1, Relaxed);
                            let _guard = guarded.sem.read();
                            assert!(written.load(Relaxed), "the writer was passed");
                        }
                    })
                };
                drop(inside);
                writer.join().unwrap();
                reader.join().unwrap();
            }
        });
        assert!(met.load(Relaxed) > 0);
    });
}

#[test]
fn no_writer_passes_the_waiting_readers() {
    apart(|| {
        let met = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let met = Arc::clone(&met);
            move || {
                let guarded = Guarded::new(MmapQueue::PhaseFair);
                let read = Arc::new(AtomicBool::new(false));
                let inside = guarded.sem.write();
                let reader = {
                    let (guarded, read) = (Arc::clone(&guarded), Arc::clone(&read));
                    spawn(move || {
                        let _guard = guarded.sem.read();
                        read.store(true, Relaxed);
                    })
                };
                let writer = {
                    let guarded = Arc::clone(&guarded);
                    let (read, met) = (Arc::clone(&read), Arc::clone(&met));
                    spawn(move || {
                        let waits = guarded.sem.waiting_readers() > 0;
                        let _guard = guarded.sem.write();
                        if waits {
                            met.fetch_add(1, Relaxed);
                            assert!(read.load(Relaxed), "the reader was passed");
                        }
                    })
                };
                drop(inside);
                reader.join().unwrap();
                writer.join().unwrap();
            }
        });
        assert!(met.load(Relaxed) > 0);
    });
}

/// The lock itself, for comers in a known order. It stays for good:
/// turns borrow it.
fn raw() -> &'static RawRwSem<2> {
    Box::leak(Box::default())
}

#[test]
fn a_reader_waits_for_one_writer_at_most() {
    // One writer is inside and one waits when the reader comes: it goes in
    // between them, and the second writer waits for it.
    explore(None, || {
        let raw = raw();
        let read = Arc::new(AtomicBool::new(false));
        assert!(raw.write_or_queue().is_none());
        let second = raw.write_or_queue().unwrap();
        let turn = raw.read_or_queue().unwrap();
        let writer = {
            let read = Arc::clone(&read);
            spawn(move || {
                second.wait();
                assert!(read.load(Relaxed), "the reader waits for two");
                raw.leave_write();
            })
        };
        let reader = spawn(move || {
            turn.wait();
            read.store(true, Relaxed);
            raw.leave_read();
        });
        raw.leave_write();
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(raw.try_write());
    });
}

#[test]
fn writers_go_in_the_order_of_their_coming() {
    explore(Some(2), || {
        let raw = raw();
        let turn = Arc::new(AtomicUsize::new(0));
        assert_eq!(raw.try_read(1), Ok(()));
        // Three for two gates.
        let writers = [0, 1, 2].map(|place| {
            let own = raw.write_or_queue().unwrap();
            let turn = Arc::clone(&turn);
            spawn(move || {
                own.wait();
                assert_eq!(turn.fetch_add(1, Relaxed), place);
                raw.leave_write();
            })
        });
        raw.leave_read();
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(raw.try_write());
    });
}

#[test]
fn a_writer_waits_for_one_batch_of_readers() {
    // A reader that comes while a writer waits is of the next batch, and goes
    // in when that writer leaves.
    explore(None, || {
        let raw = raw();
        let written = Arc::new(AtomicBool::new(false));
        assert_eq!(raw.try_read(2), Ok(()));
        let own = raw.write_or_queue().unwrap();
        assert_eq!(raw.try_read(2), Err(TryReadError::Writer));
        let late = raw.read_or_queue().unwrap();
        let reader = {
            let written = Arc::clone(&written);
            spawn(move || {
                late.wait();
                assert!(written.load(Relaxed), "the writer was passed");
                raw.leave_read();
            })
        };
        let writer = spawn(move || {
            own.wait();
            written.store(true, Relaxed);
            raw.leave_write();
        });
        raw.leave_read();
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(raw.try_write());
    });
}
