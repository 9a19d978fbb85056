//! The mappings of a file: Linux's `i_mmap`, and its `i_mmap_rwsem`.

use super::tables::Tables;
use crate::Clock;
use crate::lock::{Mutex, RwSem};
use sync::Arc;

/// Which mappings a file has.
pub(super) struct IMmap {
    /// Held for writing to unshare, and to add a mapping or take one away;
    /// in the baseline for reading by each fault, in the document by each that begins to
    /// share.
    pub(super) lock: RwSem,
    /// Changed under `lock`, held for writing. Held for a short time only.
    pub(super) mappings: Mutex<Vec<Arc<Tables>>>,
}

impl IMmap {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            lock: RwSem::new(clock),
            mappings: Mutex::new(Vec::new()),
        }
    }

    /// The first mapping for which `is` holds.
    pub(super) fn find(&self, is: impl Fn(&Tables) -> bool) -> Option<Arc<Tables>> {
        self.mappings.lock().iter().find(|known| is(known)).cloned()
    }

    pub(super) fn add(&self, tables: &Arc<Tables>) {
        self.mappings.lock().push(tables.clone());
    }

    pub(super) fn remove(&self, tables: &Arc<Tables>) {
        let mut mappings = self.mappings.lock();
        let place = mappings.iter().position(|known| Arc::ptr_eq(known, tables));
        mappings.swap_remove(place.expect("a mapping is taken away once"));
    }
}
