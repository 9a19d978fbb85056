//! Models of the VMA lock that is a semaphore apart: see `model/vma.rs`. Two
//! more are of the parts that the count does not have: a VMA that gets another lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::vma::{self, ADDR, World, attach, attached, detach, fault, idle};
use crate::model::{apart, attributes, explore};
use softfault_engine_loom::mm::Vma;
use softfault_engine_loom::mm::find::try_lock_at;
use softfault_engine_loom::policy::VmaLockKind::Rwsem;
use softfault_engine_loom::slab::TypeStable;

#[test]
fn reader_against_reuse_in_another_space() {
    vma::reader_against_reuse_in_another_space(Rwsem, Some(3));
}

#[test]
fn reader_against_reuse_for_another_range() {
    vma::reader_against_reuse_for_another_range(Rwsem, Some(3));
}

#[test]
fn reader_of_the_new_mapping_against_reuse() {
    vma::reader_of_the_new_mapping_against_reuse(Rwsem, Some(3));
}

#[test]
fn reader_against_attach() {
    vma::reader_against_attach(Rwsem, None);
}

#[test]
fn writer_against_two_readers() {
    vma::writer_against_two_readers(Rwsem, Some(2));
}

#[test]
fn two_writers_against_a_reader() {
    vma::two_writers_against_a_reader(Rwsem, Some(2));
}

#[test]
fn writer_against_a_reader_that_comes_twice() {
    vma::writer_against_a_reader_that_comes_twice(Rwsem, None);
}

#[test]
fn readers_at_the_limit() {
    apart(|| {
        vma::readers_at_the_limit(Rwsem, None);
    });
}

#[test]
fn a_reader_at_the_limit_against_a_writer() {
    vma::a_reader_at_the_limit_against_a_writer(Rwsem, Some(2));
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    vma::letting_mmap_lock_go_ends_all_write_locks(Rwsem, None);
}

#[test]
fn locked_reader_against_a_writer() {
    vma::locked_reader_against_a_writer(Rwsem, None);
}

#[test]
fn the_last_put_wakes_a_writer_whose_space_is_gone() {
    apart(|| {
        vma::the_last_put_wakes_a_writer_whose_space_is_gone(Rwsem, Some(4));
    });
}

#[test]
fn a_slot_that_another_space_claims() {
    apart(|| {
        vma::a_slot_that_another_space_claims(Rwsem, None);
    });
}

#[test]
fn reader_of_a_vma_that_gets_another_lock() {
    apart(|| {
        let locked = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let locked = Arc::clone(&locked);
            move || {
                let world = World::new(Rwsem);
                let lock = world.mmap_lock(1);
                let vma = attached(&lock);
                let reader = {
                    let (vma, lock, locked) =
                        (Arc::clone(&vma), Arc::clone(&lock), Arc::clone(&locked));
                    spawn(move || {
                        if let Ok(read) = try_lock_at(&vma, &lock, ADDR) {
                            read.with(|now| assert_eq!(*now, attributes(now.pgoff)));
                            assert_eq!(vma.readers(), 1, "its lock has another reader");
                            locked.fetch_add(1, Relaxed);
                        }
                    })
                };
                let mmap = lock.write();
                assert_eq!(detach(&vma, &mmap), attributes(1));
                // Its lock is the other VMA's then.
                let other = Vma::new_slot(1);
                attach(&other, &mmap, 5 * ADDR, 5);
                attach(&vma, &mmap, ADDR, 2);
                drop(mmap);
                reader.join().unwrap();
                assert!(fault(&vma, &lock, ADDR, &[2]));
                idle(&vma);
                idle(&other);
            }
        });
        assert!(locked.load(Relaxed) > 0);
    });
}

#[test]
fn reader_in_a_lock_that_comes_back() {
    explore(Some(3), || {
        let world = World::new(Rwsem);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || fault(&vma, &lock, ADDR, &[1, 2, 3]))
        };
        let mmap = lock.write();
        assert_eq!(detach(&vma, &mmap), attributes(1));
        // The second life has another lock, the third the first one again.
        let first = world.vma_locks().alloc().unwrap();
        attach(&vma, &mmap, ADDR, 2);
        drop(mmap);
        let mmap = lock.write();
        assert_eq!(detach(&vma, &mmap), attributes(2));
        world.vma_locks().free(first);
        attach(&vma, &mmap, ADDR, 3);
        drop(mmap);
        reader.join().unwrap();
        assert!(fault(&vma, &lock, ADDR, &[3]));
        idle(&vma);
    });
}
