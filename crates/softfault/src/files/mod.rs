//! The files of an engine: one window a file, shared by all maps of it, and
//! kept after the last one is dropped until reclaim has emptied it.

mod table;

use crate::engine::Managed;
use crate::error;
use crate::fork::Born;
use crate::store::{FileIdentity, FileStore};
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::mmu::MmuError;
use softfault_engine::{PAGE_SIZE, Store};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use table::Table;

/// The files of an engine.
pub(crate) struct Files {
    /// Held for look-ups and for entering VMAs. Windows are made and dropped
    /// without it: a thread of low priority that is preempted over a system
    /// call must not keep the others from mapping.
    table: Mutex<Table>,
    /// Immutable.
    born: Born,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            table: Mutex::new(Table::new(crate::machine::open_files())),
            born: Born::here(),
        }
    }
}

impl Files {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page cache for a new map of the file, with its VMA in the space.
    pub(crate) fn open(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        on_truncate: OnTruncate,
    ) -> io::Result<Arc<PageCache>> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of(fd)?;
        let (known, changed) = {
            let mut table = self.table();
            let changed = table.forget_changed(&identity);
            (find_and_open(managed, &mut table, &identity)?, changed)
        };
        drop(changed);
        if let Some(cache) = known {
            return Ok(cache);
        }
        let store = FileStore::open(fd, managed.rings.clone())?;
        // What the store opened is what counts.
        let identity = store.identity()?;
        let bytes = store.len().map_err(crate::error::store)?;
        let cache = PageCache::new(managed.node.clone(), Arc::new(store), bytes, on_truncate)
            .map_err(reserve_error)?;
        let mut table = self.table();
        // Somebody else may have opened it meanwhile. Then ours goes, once the
        // table is unlocked.
        if let Some(known) = find_and_open(managed, &mut table, &identity)? {
            drop(table);
            return Ok(known);
        }
        map_window(managed, &cache)?;
        table.add(identity, identity.certain(now_ns), cache.clone());
        Ok(cache)
    }

    /// The store of a file that is mapped privately: that of the window which shows
    /// this version of the file, if there is one.
    pub(crate) fn store(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
    ) -> io::Result<Arc<dyn Store>> {
        let identity = FileIdentity::of(fd)?;
        let of = |cache: &Arc<PageCache>| -> Arc<dyn Store> { cache.store().clone() };
        let known = match self.born.is_parents() {
            true => None,
            false => self.table().find(&identity).map(|entry| of(&entry.cache)),
        };
        match known {
            Some(store) => Ok(store),
            None => Ok(Arc::new(FileStore::open(fd, managed.rings.clone())?)),
        }
    }

    /// The page cache for a new map of a store that is no file of ours. Never
    /// found again.
    pub(crate) fn open_store(
        &self,
        managed: &Managed,
        store: Arc<dyn Store>,
        on_truncate: OnTruncate,
    ) -> io::Result<Arc<PageCache>> {
        let size = store.len().map_err(crate::error::store)?;
        let identity = FileIdentity {
            dev: u64::MAX,
            ino: u64::MAX,
            size,
            mtime_ns: 0,
            ctime_ns: 0,
        };
        let cache = PageCache::new(managed.node.clone(), store, size, on_truncate)
            .map_err(reserve_error)?;
        map_window(managed, &cache)?;
        self.table().add(identity, false, cache.clone());
        Ok(cache)
    }

    /// A map of the file was dropped.
    pub(crate) fn close(&self, managed: &Managed, cache: &Arc<PageCache>) {
        let mut table = self.table();
        if table.close(cache) {
            let unmapped = managed.space.munmap(cache.addresses(), |_, _| {});
            assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
            let idle = table.forget_idle();
            drop(table);
            drop(idle);
        }
    }

    /// The file was truncated through the engine.
    pub(crate) fn truncate(&self, file: &File, bytes: u64) -> io::Result<()> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of(file.as_fd())?;
        for entry in self.table().of_file(&identity) {
            entry.cache.truncate(bytes);
            entry.identity = identity;
            entry.certain = identity.certain(now_ns);
        }
        Ok(())
    }

    /// Maps and idle windows now.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.table().counts()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.born.is_parents() {
            // The parent's: reads that were under way at the fork never end
            // in the child, and nothing here is the child's to give back.
            self.table().take().leak();
        }
    }
}

fn wall_clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}

/// The window that shows this version of the file, with one user more.
fn find_and_open(
    managed: &Managed,
    table: &mut Table,
    identity: &FileIdentity,
) -> io::Result<Option<Arc<PageCache>>> {
    let Some(entry) = table.find(identity) else {
        return Ok(None);
    };
    let cache = entry.cache.clone();
    if entry.users == 0 {
        map_window(managed, &cache)?;
    }
    table.open(identity);
    Ok(Some(cache))
}

fn map_window(managed: &Managed, cache: &Arc<PageCache>) -> io::Result<()> {
    let attributes = Attributes {
        backing: Backing::File(cache.clone()),
        protection: Protection::Read,
        ..Attributes::default()
    };
    let addresses = cache.addresses();
    debug_assert!(addresses.start.is_multiple_of(PAGE_SIZE));
    managed
        .space
        .mmap(addresses, attributes)
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "no room for another mapping"))
}

fn reserve_error(error: MmuError) -> io::Error {
    match error {
        MmuError::Closed(errno) => error::closed(errno),
        MmuError::System(errno) => io::Error::from_raw_os_error(errno),
        MmuError::NoMemory | MmuError::Gone => io::Error::new(
            io::ErrorKind::OutOfMemory,
            "no address space or file descriptor for another mapping",
        ),
    }
}
