//! Models of files that are written to: the engine as it is, over two pages, and two threads. No write is lost to
//! write-back, to eviction or to the protection of a whole window; pinned pages stay writable. A page is written once at a time,
//! and whoever needs its last write to be over waits for that.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use crate::model::writable::Writable;
use softfault_engine_loom::fault::FaultError;

/// Of each schedule, of two threads. A fault has a hundred operations, and runs beside a write-back. With two preemptions
/// all of these hold too, which takes minutes.
const PREEMPTIONS: Option<usize> = Some(1);

/// Explores `one` beside `other`, on a file that `before` has prepared, and then asks `after`.
fn beside(before: fn(&Writable), one: fn(&Writable), other: fn(&Writable), after: fn(&Writable)) {
    explore(PREEMPTIONS, move || {
        let file = Writable::new();
        before(&file);
        let threads = [one, other].map(|act| {
            let file = Arc::clone(&file);
            spawn(move || act(&file))
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        after(&file);
    });
}

/// Page 0 has this, in the map and, once it is flushed, in the file.
fn has(file: &Writable, number: u32) {
    assert_eq!(file.load(0), number);
    file.flush();
    assert_eq!(file.file.number(0), number);
    assert_eq!(file.cache.dirty_pages(), 0);
    assert!(!file.is_writable(0));
}

#[test]
fn a_first_write_beside_write_back() {
    let read = |file: &Writable| assert_eq!(file.load(0), 0);
    beside(
        read,
        |file| file.add(0),
        Writable::flush,
        |file| has(file, 1),
    );
}

#[test]
fn a_write_beside_write_back() {
    beside(
        |file| file.add(0),
        |file| file.add(0),
        Writable::flush,
        |file| has(file, 2),
    );
}

/// Pages that the store refuses are dirty again, and pages that were written to meanwhile stay dirty.
#[test]
fn a_write_beside_write_back_that_fails() {
    let write = |file: &Writable| {
        file.add(0);
        file.file.fail_once();
    };
    beside(
        write,
        |file| file.add(0),
        |file| {
            file.flush();
            assert_eq!(
                file.cache.write_error_since(&mut 0),
                Some(FaultError::Io(5))
            );
            assert_ne!(file.cache.dirty_pages(), 0);
        },
        |file| has(file, 2),
    );
}

/// The kernel tells the error of a failed sync to one of two. Failed before: the other flush was Ok.
#[test]
fn a_sync_that_fails_beside_a_sync() {
    let sync = |file: &Writable| {
        file.cache.sync();
        let error = file.cache.write_error_since(&mut 0);
        assert_eq!(error, Some(FaultError::Io(5)));
    };
    beside(|file| file.file.fail_sync_once(), sync, sync, |_| {});
}

/// Each flush covers the writes before it, though the other may be writing them.
#[test]
fn a_flush_beside_a_flush() {
    beside(
        |file| file.add(0),
        |file| {
            file.add(0);
            file.flush();
            assert_eq!(file.file.number(0), 2);
        },
        |file| {
            file.flush();
            assert_ne!(file.file.number(0), 0);
        },
        |file| has(file, 2),
    );
}

/// Pages that are cut off are not written any more once truncate has returned.
#[test]
fn truncate_beside_write_back() {
    beside(
        |file| file.add(0),
        |file| {
            file.cache.truncate(0);
            file.file.set(0, 9);
        },
        Writable::flush,
        |file| assert_eq!((file.file.number(0), file.cache.dirty_pages()), (9, 0)),
    );
}

/// A hole removes the writes before it, and no later ones.
#[test]
fn punch_beside_write_back() {
    let punch = |file: &Writable| {
        let take = || {
            file.file.set(0, 5);
            Ok::<(), ()>(())
        };
        file.cache.empty(file.range(0), take).unwrap();
    };
    beside(
        |file| file.add(0),
        punch,
        Writable::flush,
        |file| has(file, 5),
    );
}

#[test]
fn a_write_beside_eviction() {
    beside(
        |file| file.add(0),
        |file| file.add(0),
        Writable::evict,
        |file| has(file, 2),
    );
}

#[test]
fn a_write_beside_the_protection_of_the_window() {
    let protect = |file: &Writable| {
        file.cache.protect_window();
        file.flush();
    };
    beside(
        |file| file.add(0),
        |file| file.add(0),
        protect,
        |file| has(file, 2),
    );
}

/// Pinned, and written to afterwards, a page may be handed to a system call.
#[test]
fn a_pin_beside_the_protection_of_the_window() {
    let pin = |file: &Writable| {
        assert!(file.cache.admit_pin(&file.range(0)).is_some());
        file.cache.wait_for_protection();
        file.add(0);
    };
    let protect = |file: &Writable| {
        file.cache.protect_window();
    };
    beside(
        |file| file.add(0),
        pin,
        protect,
        |file| {
            assert!(file.is_writable(0));
            file.cache.forget_pins();
            has(file, 2);
        },
    );
}
