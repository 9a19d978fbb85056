//! Models of the batches of reclaim: those that cannot write dirty pages back are not under way any more once files are written to;
//! a thread that needs one waits for whichever is free first.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use loom::cell::UnsafeCell;
use softfault_engine_loom::reclaim::Batches;
use sync::run_on;

/// A budget of five batches: one more than may be written back.
const PAGES: usize = 5 * 4096;
/// A processor whose own batch is the last one.
const LAST: usize = 4;

/// Batches, and a cell that is used while no page is dirty, and then by the thread that writes to a file.
struct Scene {
    batches: Batches,
    clean: UnsafeCell<()>,
}

// SAFETY: a cell that loom checks.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            batches: Batches::new(PAGES),
            clean: UnsafeCell::new(()),
        })
    }

    /// Evicts a batch: no page may become dirty meanwhile, unless the batch can write it back.
    fn evict(&self) {
        run_on(LAST);
        let batch = self.batches.take();
        if !batch.can_write() {
            self.clean.with_mut(|_| ());
        }
    }

    /// A file is written to.
    fn write(&self) {
        assert!(self.batches.will_write(0));
        self.clean.with_mut(|_| ());
    }
}

#[test]
fn a_batch_that_cannot_write_ends_before_a_file_is_written_to() {
    explore(Some(4), || {
        let scene = Scene::new();
        let evicts = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.evict())
        };
        scene.write();
        evicts.join().unwrap();
        run_on(LAST);
        assert!(scene.batches.take().can_write());
    });
}

#[test]
fn any_batch_that_is_free_first_will_do() {
    explore(Some(3), || {
        let scene = Scene::new();
        run_on(LAST);
        let mut all: Vec<_> = [(); LAST + 1].map(|()| scene.batches.take()).into();
        let evicts = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.evict())
        };
        // The last that was taken, which is no processor's.
        drop(all.pop());
        evicts.join().unwrap();
    });
}
