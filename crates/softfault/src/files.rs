//! The files of an engine: one window a file, shared by all maps of it, and
//! kept after the last one is dropped until reclaim has emptied it.

use crate::engine::Managed;
use crate::error;
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

/// Windows kept for files that nobody maps. Each costs a file descriptor.
const IDLE: usize = 256;

/// The files of an engine.
#[derive(Default)]
pub(crate) struct Files {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    identity: FileIdentity,
    /// False if the file may have changed within the identity's resolution.
    certain: bool,
    cache: Arc<PageCache>,
    /// Maps of it that live. 0: an idle window.
    users: usize,
}

impl Files {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut entries = self.entries();
        self.forget_changed(managed, &mut entries, &identity);
        let known = entries
            .iter_mut()
            .find(|entry| entry.certain && entry.identity == identity);
        if let Some(entry) = known {
            if entry.users == 0 {
                map_window(managed, &entry.cache)?;
            }
            entry.users += 1;
            return Ok(entry.cache.clone());
        }
        let store = FileStore::open(fd, managed.rings.clone())?;
        // What the store opened is what counts.
        let identity = store.identity()?;
        let bytes = store
            .len()
            .map_err(|error| io::Error::from_raw_os_error(error.0))?;
        let cache = PageCache::new(managed.node.clone(), Arc::new(store), bytes, on_truncate)
            .map_err(reserve_error)?;
        map_window(managed, &cache)?;
        entries.push(Entry {
            certain: identity.certain(now_ns),
            identity,
            cache: cache.clone(),
            users: 1,
        });
        Ok(cache)
    }

    /// The page cache for a new map of a store that is no file of ours. Never
    /// found again.
    pub(crate) fn open_store(
        &self,
        managed: &Managed,
        store: Arc<dyn Store>,
        on_truncate: OnTruncate,
    ) -> io::Result<Arc<PageCache>> {
        let size = store
            .len()
            .map_err(|error| io::Error::from_raw_os_error(error.0))?;
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
        self.entries().push(Entry {
            identity,
            certain: false,
            cache: cache.clone(),
            users: 1,
        });
        Ok(cache)
    }

    /// A map of the file was dropped.
    pub(crate) fn close(&self, managed: &Managed, cache: &Arc<PageCache>) {
        let mut entries = self.entries();
        let place = entries
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.cache, cache))
            .expect("a map's cache is in the list");
        let entry = &mut entries[place];
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let unmapped = managed.space.munmap(cache.addresses(), |_, _| {});
        assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
        // The newest idle window is the last to go.
        let entry = entries.remove(place);
        entries.push(entry);
        self.forget_idle(&mut entries);
    }

    /// The file was truncated through the engine.
    pub(crate) fn truncate(&self, file: &File, bytes: u64) -> io::Result<()> {
        let now_ns = wall_clock_ns();
        let identity = FileIdentity::of(file.as_fd())?;
        for entry in self.entries().iter_mut() {
            if same_file(&entry.identity, &identity) {
                entry.cache.truncate(bytes);
                entry.identity = identity;
                entry.certain = identity.certain(now_ns);
            }
        }
        Ok(())
    }

    /// Maps and idle windows now.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let entries = self.entries();
        let idle = entries.iter().filter(|entry| entry.users == 0).count();
        (entries.len() - idle, idle)
    }

    /// Drops idle windows of this file that show what it no longer holds.
    fn forget_changed(&self, _: &Managed, entries: &mut Vec<Entry>, now: &FileIdentity) {
        entries.retain(|entry| {
            let stale = entry.identity != *now || !entry.certain;
            !(same_file(&entry.identity, now) && stale && is_idle(entry))
        });
    }

    /// Drops idle windows that are empty or too many.
    fn forget_idle(&self, entries: &mut Vec<Entry>) {
        // The one that was just closed is counted, although its last map still
        // refers to it.
        let idle = entries.iter().filter(|entry| entry.users == 0).count();
        let mut excess = idle.saturating_sub(IDLE);
        // Looking at all of them at each unmapping would cost more than the
        // empty ones do.
        if excess == 0 && !idle.is_multiple_of(32) {
            return;
        }
        entries.retain(|entry| {
            if !is_idle(entry) {
                return true;
            }
            if excess > 0 {
                excess -= 1;
                return false;
            }
            entry.cache.folio_count() > 0
        });
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if crate::process::is_forked_child() {
            // The parent's: reads that were under way at the fork never end
            // in the child, and nothing here is the child's to give back.
            core::mem::take(&mut *self.entries()).leak();
        }
    }
}

/// Nobody maps it and no fault is under way in it: dropping the entry drops
/// the cache here, and not in a handler.
fn is_idle(entry: &Entry) -> bool {
    entry.users == 0 && Arc::strong_count(&entry.cache) == 1
}

fn same_file(one: &FileIdentity, other: &FileIdentity) -> bool {
    (one.dev, one.ino) == (other.dev, other.ino)
}

fn wall_clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
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
