//! Models of the reader-writer lock whose writers steal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::model::rwsem;
use crate::model::spawn;
use crate::model::{apart, explore};
use softfault_engine_loom::lock::StealRwSem;
use softfault_engine_loom::policy::MmapQueue;

#[test]
fn a_reader_and_two_writers_that_spin() {
    rwsem::a_reader_and_two_writers_that_spin(MmapQueue::Steal, 3);
}

#[test]
fn a_writer_and_two_readers() {
    rwsem::a_writer_and_two_readers(MmapQueue::Steal, 3);
}

#[test]
fn two_writers_and_a_reader() {
    rwsem::two_writers_and_a_reader(MmapQueue::Steal, 3);
}

#[test]
fn three_writers() {
    rwsem::three_writers(MmapQueue::Steal, 3);
}

#[test]
fn a_reader_and_a_writer_that_come_again() {
    rwsem::a_reader_and_a_writer_that_come_again(MmapQueue::Steal, 4);
}

/// The lock itself, for those who come in a known order. It stays for good:
/// turns borrow it.
fn raw(most_thefts: u32) -> &'static StealRwSem {
    Box::leak(Box::new(StealRwSem::new(most_thefts)))
}

/// Goes in for writing, and leaves. True if it had to wait.
fn write(raw: &StealRwSem) -> bool {
    let turn = raw.write_or_queue();
    let waited = turn.is_some();
    if let Some(turn) = turn {
        turn.wait();
    }
    raw.leave_write();
    waited
}

#[test]
fn a_writer_that_sleeps_is_woken_whoever_steals() {
    apart(|| {
        // Two thefts while the first of the queue wakes up, looks and sleeps again: one of the
        // thieves has to wake it, and waits itself where it comes too late.
        let met = Arc::new([const { AtomicBool::new(false) }; 2]);
        explore(Some(4), {
            let met = Arc::clone(&met);
            move || {
                let raw = raw(3);
                let written = Arc::new(AtomicBool::new(false));
                assert!(raw.write_or_queue().is_none());
                let own = raw.write_or_queue().unwrap();
                let writer = {
                    let written = Arc::clone(&written);
                    spawn(move || {
                        own.wait();
                        written.store(true, Relaxed);
                        raw.leave_write();
                    })
                };
                raw.leave_write();
                for _ in 0..2 {
                    write(raw);
                }
                met[usize::from(written.load(Relaxed))].store(true, Relaxed);
                writer.join().unwrap();
                assert!(raw.try_write());
            }
        });
        assert!(met.iter().all(|met| met.load(Relaxed)));
    });
}

#[test]
fn two_writers_that_sleep_are_woken_whoever_steals() {
    explore(Some(3), || {
        let raw = raw(3);
        assert!(raw.write_or_queue().is_none());
        let turns = [(); 2].map(|()| raw.write_or_queue().unwrap());
        let order = Arc::new(AtomicUsize::new(0));
        let mut place = 0..;
        let writers = turns.map(|own| {
            let (order, place) = (Arc::clone(&order), place.next().unwrap());
            spawn(move || {
                own.wait();
                assert_eq!(order.fetch_add(1, Relaxed), place, "a writer was passed");
                raw.leave_write();
            })
        });
        raw.leave_write();
        write(raw);
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(raw.try_write());
    });
}

#[test]
fn a_writer_is_passed_as_often_as_it_may_be_and_no_more() {
    apart(|| {
        let met = Arc::new([const { AtomicBool::new(false) }; 2]);
        explore(Some(4), {
            let met = Arc::clone(&met);
            move || {
                let raw = raw(1);
                let written = Arc::new(AtomicBool::new(false));
                assert!(raw.write_or_queue().is_none());
                let own = raw.write_or_queue().unwrap();
                let writer = {
                    let written = Arc::clone(&written);
                    spawn(move || {
                        own.wait();
                        written.store(true, Relaxed);
                        raw.leave_write();
                    })
                };
                raw.leave_write();
                for thefts in 0..2 {
                    let waited = write(raw);
                    if !written.load(Relaxed) {
                        assert!(!waited, "it waits for a writer who was not inside");
                        assert_eq!(thefts, 0, "passed twice");
                        met[0].store(true, Relaxed);
                    } else {
                        met[1].store(true, Relaxed);
                    }
                }
                writer.join().unwrap();
                assert!(raw.try_write());
            }
        });
        assert!(met.iter().all(|met| met.load(Relaxed)));
    });
}

#[test]
fn a_reader_waits_for_one_writer_at_most() {
    // The lock is free, the first writer was woken, and a thief may come: the reader goes in
    // between the two.
    explore(Some(3), || {
        let raw = raw(3);
        let written = Arc::new(AtomicUsize::new(0));
        assert!(raw.write_or_queue().is_none());
        let own = raw.write_or_queue().unwrap();
        raw.leave_write();
        let turn = raw.read_or_queue().unwrap();
        let writer = {
            let written = Arc::clone(&written);
            spawn(move || {
                own.wait();
                written.fetch_add(1, Relaxed);
                raw.leave_write();
            })
        };
        let reader = {
            let written = Arc::clone(&written);
            spawn(move || {
                turn.wait();
                assert_eq!(written.load(Relaxed), 1, "not after the next writer");
                raw.leave_read();
            })
        };
        if let Some(turn) = raw.write_or_queue() {
            turn.wait();
        }
        written.fetch_add(1, Relaxed);
        raw.leave_write();
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(raw.try_write());
    });
}

#[test]
fn readers_let_the_first_writer_in_though_it_was_woken_before() {
    // It was woken, a thief came, and a reader behind that: the reader lets the writer in
    // as it leaves, and the writer behind it is woken in its turn.
    explore(Some(2), || {
        let raw = raw(3);
        assert!(raw.write_or_queue().is_none());
        let first = raw.write_or_queue().unwrap();
        let second = raw.write_or_queue().unwrap();
        raw.leave_write();
        assert!(raw.write_or_queue().is_none(), "it is free to steal");
        let turn = raw.read_or_queue().unwrap();
        let writers = [first, second].map(|own| {
            spawn(move || {
                own.wait();
                raw.leave_write();
            })
        });
        raw.leave_write();
        turn.wait();
        raw.leave_read();
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(raw.try_write());
    });
}
