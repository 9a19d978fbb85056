//! A reader-writer lock with something that it protects, and the scenarios that any such lock has to stand, whatever its queue.

use std::sync::Arc;

use super::spawn;
use loom::cell::UnsafeCell;
use softfault_engine_loom::lock::RwSem;
use softfault_engine_loom::policy::MmapQueue;

use super::{Still, explore};

/// A lock and something that it protects.
pub struct Guarded {
    pub sem: RwSem,
    value: UnsafeCell<u32>,
}

// SAFETY: `value` is protected by `sem`; loom checks it.
unsafe impl Sync for Guarded {}

impl Guarded {
    pub fn new(queue: MmapQueue) -> Arc<Self> {
        Arc::new(Self {
            sem: RwSem::with_queue(Arc::new(Still), queue),
            value: UnsafeCell::new(0),
        })
    }

    pub fn add(&self) {
        let _guard = self.sem.write();
        self.add_locked();
    }

    pub fn add_locked(&self) {
        // SAFETY: held for writing; loom checks it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    pub fn get(&self) -> u32 {
        let _guard = self.sem.read();
        self.get_locked()
    }

    pub fn get_locked(&self) -> u32 {
        // SAFETY: held for reading; loom checks it.
        self.value.with(|value| unsafe { *value })
    }
}

/// A reader and two writers, once each, which look once more before they sleep.
pub fn a_reader_and_two_writers_that_spin(queue: MmapQueue, preemptions: usize) {
    explore(Some(preemptions), move || {
        sync::model::spin();
        let guarded = Guarded::new(queue);
        let writer = {
            let guarded = Arc::clone(&guarded);
            spawn(move || guarded.add())
        };
        let reader = {
            let guarded = Arc::clone(&guarded);
            spawn(move || assert!(guarded.get() <= 2))
        };
        guarded.add();
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(guarded.get(), 2);
    });
}

/// A writer and two readers, once each.
pub fn a_writer_and_two_readers(queue: MmapQueue, preemptions: usize) {
    explore(Some(preemptions), move || {
        let guarded = Guarded::new(queue);
        let readers = [(); 2].map(|()| {
            let guarded = Arc::clone(&guarded);
            spawn(move || assert!(guarded.get() <= 1))
        });
        guarded.add();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(guarded.get(), 1);
    });
}

/// Two writers and a reader, once each.
pub fn two_writers_and_a_reader(queue: MmapQueue, preemptions: usize) {
    explore(Some(preemptions), move || {
        let guarded = Guarded::new(queue);
        let reader = {
            let guarded = Arc::clone(&guarded);
            spawn(move || assert!(guarded.get() <= 2))
        };
        let writer = {
            let guarded = Arc::clone(&guarded);
            spawn(move || guarded.add())
        };
        guarded.add();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(guarded.get(), 2);
    });
}

/// Three writers, once each.
pub fn three_writers(queue: MmapQueue, preemptions: usize) {
    explore(Some(preemptions), move || {
        let guarded = Guarded::new(queue);
        let others = [(); 2].map(|()| {
            let guarded = Arc::clone(&guarded);
            spawn(move || guarded.add())
        });
        guarded.add();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(guarded.get(), 3);
    });
}

/// A reader and a writer, twice each, so that gates and phases are used again.
pub fn a_reader_and_a_writer_that_come_again(queue: MmapQueue, preemptions: usize) {
    explore(Some(preemptions), move || {
        let guarded = Guarded::new(queue);
        let reader = {
            let guarded = Arc::clone(&guarded);
            spawn(move || {
                let first = guarded.get();
                assert!(guarded.get() >= first);
            })
        };
        guarded.add();
        guarded.add();
        reader.join().unwrap();
        assert_eq!(guarded.get(), 2);
    });
}
