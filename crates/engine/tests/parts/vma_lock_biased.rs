//! The bias of a VMA lock on the real machine: which reader is seen where, and that it
//! comes and goes. The common tests of all kinds of lock are in `vma_lock.rs`.

use crate::vma_lock::{assert_a_writer_waits, attached};
use softfault_engine::mm::vma_lock::{start_read, start_read_locked};
use softfault_engine::mm::{MmapLock, ReadError, VisibleReaders};
use softfault_oracle::Still;
use sync::Arc;

fn mmap_lock() -> MmapLock {
    with_table(VisibleReaders::new(64))
}

fn with_table(table: VisibleReaders) -> MmapLock {
    let table = Arc::new(table);
    std::mem::forget(Arc::clone(&table));
    // SAFETY: just made sure that it is never dropped.
    unsafe { MmapLock::new(1, Arc::new(Still)).with_visible_readers(table) }
}

#[test]
#[should_panic(expected = "vma_end_read of no VMA")]
fn end_of_a_read_that_was_not_begun() {
    let lock = mmap_lock();
    let vma = attached(&lock);
    start_read(&vma, &lock).unwrap().bias(&lock);
    let read = start_read(&vma, &lock).unwrap();
    // A second guard of one read.
    // SAFETY: a guard is plain data, and the VMA outlives both.
    let again = unsafe { core::ptr::read(&read) };
    drop(read);
    drop(again);
}

#[test]
fn a_bias_from_its_beginning_to_its_end() {
    let lock = mmap_lock();
    let vma = attached(&lock);
    let visible = || (vma.refcount(), lock.visible_readers(&vma));
    // The thread that sets it is in the count, and so are all present readers.
    let first = start_read(&vma, &lock).unwrap();
    first.bias(&lock);
    assert_eq!(visible(), (2, 0));
    drop(first);
    // A new reader is seen in a word; under `mmap_lock` it is the count still.
    let reads = [(); 2].map(|()| start_read(&vma, &lock).unwrap());
    assert_eq!(visible(), (1, 2));
    let mmap = lock.try_read().unwrap();
    let locked = start_read_locked(&vma, &mmap).unwrap();
    assert_eq!(visible(), (2, 2));
    drop((locked, mmap, reads));
    assert_eq!(visible(), (1, 0));
    assert_eq!(lock.vma_biases().get(), 1);

    let mmap = lock.write();
    vma.start_write(&mmap);
    assert_eq!(lock.vma_revocations().snapshot().count, 1);
    let error = start_read(&vma, &lock).unwrap_err();
    assert_eq!(error, ReadError::WriteLocked);
    drop(mmap);
    // One thread alone never sets it again.
    for _ in 0..1000 {
        drop(start_read(&vma, &lock).unwrap());
    }
    let read = start_read(&vma, &lock).unwrap();
    assert_eq!(visible(), (2, 0));
    read.bias(&lock);
    drop(read);
    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.detach(&mmap);
    vma.clear(&mmap);
    assert_eq!(lock.vma_biases().get(), 2);
    assert_eq!(lock.vma_revocations().snapshot().count, 2);
}

#[test]
fn where_no_word_is_free_the_count_is_taken() {
    let lock = with_table(VisibleReaders::with_words(1, 2));
    let vma = attached(&lock);
    start_read(&vma, &lock).unwrap().bias(&lock);
    let reads = [(); 3].map(|()| start_read(&vma, &lock).unwrap());
    assert_eq!((vma.readers(), lock.visible_readers(&vma)), (1, 2));
    drop(reads);
    assert_eq!((vma.readers(), lock.visible_readers(&vma)), (0, 0));
}

#[test]
fn a_writer_waits_for_readers_by_the_bias() {
    let lock = Arc::new(mmap_lock());
    let vma = Arc::new(attached(&lock));
    start_read(&vma, &lock).unwrap().bias(&lock);
    let read = start_read(&vma, &lock).unwrap();
    assert_a_writer_waits(&lock, &vma, read, || {
        assert_eq!(lock.visible_readers(&vma), 1);
    });
    assert_eq!((vma.readers(), lock.visible_readers(&vma)), (0, 0));
}
