//! Two threads that miss a page at once: both are told to read-ahead, and the page was not evicted in between.

use crate::files::pages;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Extent, Store, StoreError};
use softfault_oracle::{Rig, TestStore};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// A file. A fault that has looked for its page, and not found it, can be made to halt.
struct Halting {
    file: Arc<TestStore>,
    halt: Mutex<Option<Arc<Barrier>>>,
}

impl Store for Halting {
    fn len(&self) -> Result<u64, StoreError> {
        self.file.len()
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        let halt = self.halt.lock().unwrap().take();
        if let Some(barrier) = halt {
            // It is here; it may go on.
            barrier.wait();
            barrier.wait();
        }
        self.file.extent(offset)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        // SAFETY: the caller's promise.
        unsafe { self.file.read(offset, buffer, bytes) }
    }

    unsafe fn submit(&self, reads: &[softfault_engine::store::Read]) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.file.submit(reads) }
    }

    fn reap(
        &self,
        cookie: u64,
        complete: &dyn softfault_engine::store::Complete,
        timeout_ns: u64,
    ) -> softfault_engine::store::Reap {
        self.file.reap(cookie, complete, timeout_ns)
    }
}

/// Four pages of eight, of which the last is missed by two threads, and a fifth: reason enough to read the rest. Failed before: the block
/// was taken for evicted, and its touches were forgotten.
#[test]
fn a_page_that_two_threads_miss_was_not_evicted() {
    let rig = Rig::new(1 << 14);
    let file = TestStore::with_queue(pages(1 << 14), 64);
    let store = Arc::new(Halting {
        file: file.clone(),
        halt: Mutex::default(),
    });
    let cache = rig.map(&store);
    let first = 5 * 512 + 64;
    let touch = |page: usize| {
        let page = first + page;
        let found = rig.touch(cache.addresses().start + page * PAGE_SIZE);
        assert_eq!(found, Ok(file.byte(pages(page))));
    };
    [0, 5, 2].into_iter().for_each(touch);
    let barrier = Arc::new(Barrier::new(2));
    *store.halt.lock().unwrap() = Some(barrier.clone());
    thread::scope(|scope| {
        scope.spawn(|| touch(7));
        barrier.wait();
        touch(7);
        barrier.wait();
    });
    assert_eq!(file.reads().len(), 4);
    touch(3);
    let read = file.pages_read();
    assert!(
        (first..first + 8).all(|page| read.contains(&(page as u64))),
        "{read:?}"
    );
    drop(cache);
    rig.finish();
}
