//! Models of the VMA lock that can be biased: see `model/vma.rs`. The others are
//! of its parts besides the count: words in which readers are seen, and a bias
//! that comes and goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::vma::{self, ADDR, World, attach, attached, bias, detach, fault, idle, unbiased};
use crate::model::{apart, attributes, explore, schedules};
use loom::thread::JoinHandle;
use softfault_engine_loom::mm::vma_lock::start_read;
use softfault_engine_loom::mm::{MmapLock, Vma};
use softfault_engine_loom::policy::VmaLockKind::Biased;
use softfault_engine_loom::slab::TypeStable;

#[test]
fn reader_against_reuse_in_another_space() {
    vma::reader_against_reuse_in_another_space(Biased, Some(3));
}

#[test]
fn reader_against_reuse_for_another_range() {
    vma::reader_against_reuse_for_another_range(Biased, Some(3));
}

#[test]
fn reader_of_the_new_mapping_against_reuse() {
    vma::reader_of_the_new_mapping_against_reuse(Biased, Some(3));
}

#[test]
fn reader_against_attach() {
    vma::reader_against_attach(Biased, None);
}

#[test]
fn writer_against_two_readers() {
    vma::writer_against_two_readers(Biased, Some(2));
}

#[test]
fn two_writers_against_a_reader() {
    vma::two_writers_against_a_reader(Biased, Some(2));
}

#[test]
fn writer_against_a_reader_that_comes_twice() {
    vma::writer_against_a_reader_that_comes_twice(Biased, Some(3));
}

#[test]
fn readers_at_the_limit() {
    apart(|| {
        vma::readers_at_the_limit(Biased, Some(3));
    });
}

#[test]
fn a_reader_at_the_limit_against_a_writer() {
    vma::a_reader_at_the_limit_against_a_writer(Biased, Some(2));
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    vma::letting_mmap_lock_go_ends_all_write_locks(Biased, Some(3));
}

#[test]
fn locked_reader_against_a_writer() {
    vma::locked_reader_against_a_writer(Biased, None);
}

#[test]
fn the_last_put_wakes_a_writer_whose_space_is_gone() {
    apart(|| {
        vma::the_last_put_wakes_a_writer_whose_space_is_gone(Biased, Some(4));
    });
}

#[test]
fn a_slot_that_another_space_claims() {
    apart(|| {
        vma::a_slot_that_another_space_claims(Biased, None);
    });
}

/// A fault on a processor.
fn fault_on(
    cpu: usize,
    vma: &Arc<Vma>,
    lock: &Arc<MmapLock>,
    marks: &'static [u64],
) -> JoinHandle<bool> {
    let (vma, lock) = (Arc::clone(vma), Arc::clone(lock));
    spawn(move || {
        sync::run_on(cpu);
        fault(&vma, &lock, ADDR, marks)
    })
}

/// Gives the VMA another mark.
fn write(vma: &Vma, lock: &MmapLock, mark: u64) {
    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.set_attributes(&mmap, attributes(mark));
}

#[test]
fn a_writer_that_spins_against_a_reader_in_a_word() {
    explore(Some(3), || {
        sync::model::spin();
        let world = World::new(Biased);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = fault_on(0, &vma, &lock, &[1, 2]);
        write(&vma, &lock, 2);
        reader.join().unwrap();
        assert!(fault(&vma, &lock, ADDR, &[2]));
        idle(&vma);
    });
}

#[test]
fn writer_against_a_reader_in_a_word() {
    apart(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        let all = schedules(None, {
            let seen = Arc::clone(&seen);
            move || {
                let world = World::new(Biased);
                let lock = world.mmap_lock(1);
                let vma = attached(&lock);
                let reader = fault_on(0, &vma, &lock, &[1, 2]);
                write(&vma, &lock, 2);
                seen.fetch_add(reader.join().unwrap().into(), Relaxed);
                assert!(fault(&vma, &lock, ADDR, &[2]));
                idle(&vma);
            }
        });
        let seen = seen.load(Relaxed);
        assert!(seen > 0 && seen < all, "{seen} of {all}");
    });
}

#[test]
fn writer_against_readers_on_two_processors() {
    // The line of the second makes that of the first one count as used.
    explore(Some(2), || {
        let world = World::new(Biased);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let readers = [0, 1].map(|cpu| fault_on(cpu, &vma, &lock, &[1, 2]));
        write(&vma, &lock, 2);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(fault(&vma, &lock, ADDR, &[2]));
        idle(&vma);
    });
}

#[test]
fn two_readers_of_one_word() {
    apart(|| {
        two_readers_of_one_processor(1, Some(1));
    });
}

#[test]
fn two_readers_of_two_words() {
    apart(|| {
        two_readers_of_one_processor(2, Some(2));
    });
}

/// A reader that finds no word takes the count.
fn two_readers_of_one_processor(words: usize, preemptions: Option<usize>) {
    let counted = Arc::new(AtomicUsize::new(0));
    let both = Arc::new(AtomicUsize::new(0));
    explore(preemptions, {
        let (counted, both) = (Arc::clone(&counted), Arc::clone(&both));
        move || {
            let world = World::with_words(Biased, 1, words);
            let lock = world.mmap_lock(1);
            let vma = attached(&lock);
            let readers = [(); 2].map(|()| {
                let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
                let (counted, both) = (Arc::clone(&counted), Arc::clone(&both));
                spawn(move || {
                    if let Ok(read) = start_read(&vma, &lock) {
                        read.with(|now| assert_eq!(*now, attributes(now.pgoff)));
                        let (by_count, by_word) = (vma.readers(), lock.visible_readers(&vma));
                        counted.fetch_add((by_count > 0).into(), Relaxed);
                        both.fetch_add((by_word == 2).into(), Relaxed);
                    }
                })
            });
            write(&vma, &lock, 2);
            for reader in readers {
                reader.join().unwrap();
            }
            idle(&vma);
            assert_eq!(lock.visible_readers(&vma), 0);
        }
    });
    assert!(counted.load(Relaxed) > 0);
    assert_eq!(both.load(Relaxed) > 0, words == 2);
}

#[test]
fn a_bias_that_is_set_while_a_writer_comes() {
    explore(Some(3), || {
        let world = World::new(Biased);
        let lock = world.mmap_lock(1);
        let vma = unbiased(&lock);
        // One sets it, the other meets it or not.
        let readers = [0, 1].map(|cpu| fault_on(cpu, &vma, &lock, &[1, 2]));
        write(&vma, &lock, 2);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(fault(&vma, &lock, ADDR, &[2]));
        idle(&vma);
    });
}

#[test]
fn a_bias_that_is_set_again_between_two_writers() {
    explore(Some(2), || {
        let world = World::new(Biased);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = fault_on(1, &vma, &lock, &[1, 2, 3]);
        write(&vma, &lock, 2);
        bias(&vma, &lock);
        write(&vma, &lock, 3);
        reader.join().unwrap();
        assert!(fault(&vma, &lock, ADDR, &[3]));
        idle(&vma);
    });
}

#[test]
fn reader_against_reuse_with_a_bias_in_another_space() {
    explore(Some(3), || {
        let world = World::new(Biased);
        let (old, new) = (world.mmap_lock(1), world.mmap_lock(2));
        let vma = attached(&old);
        let reader = fault_on(1, &vma, &old, &[1]);
        assert_eq!(detach(&vma, &old.write()), attributes(1));
        attach(&vma, &new.write(), ADDR, 2);
        bias(&vma, &new);
        // A reader of the old one is waited for, or sees that it is gone.
        write(&vma, &new, 3);
        reader.join().unwrap();
        assert!(fault(&vma, &new, ADDR, &[3]));
        assert!(!fault(&vma, &old, ADDR, &[]));
        idle(&vma);
    });
}

#[test]
fn a_late_wake_up_meets_a_waiter_for_the_words_next_reader() {
    explore(Some(2), || {
        let world = World::new(Biased);
        let (first, second) = (world.mmap_lock(1), world.mmap_lock(2));
        let vma = attached(&first);
        let other = Arc::new(Vma::new_slot(1));
        attach(&other, &second.write(), ADDR, 1);
        bias(&other, &second);
        // Both in the same word, one after the other.
        let reader = {
            let (vma, first) = (Arc::clone(&vma), Arc::clone(&first));
            spawn(move || fault(&vma, &first, ADDR, &[1]))
        };
        assert_eq!(detach(&vma, &first.write()), attributes(1));
        drop(first);
        let next = fault_on(0, &other, &second, &[1, 2]);
        write(&other, &second, 2);
        reader.join().unwrap();
        next.join().unwrap();
        vma.assert_detached();
        assert!(fault(&other, &second, ADDR, &[2]));
    });
}
