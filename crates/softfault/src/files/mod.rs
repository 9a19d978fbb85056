//! The files of an engine: one window a file, shared by all maps of it, and
//! kept after the last one is dropped until reclaim has emptied it, or it has been idle
//! for a while.

mod at_exit;
mod fills;
mod hand_back;
mod idle;
mod inherited;
mod length;
mod look;
mod pressure;
mod served;
mod table;
mod writable;
mod written;

pub(crate) use hand_back::KernelPart;
pub(crate) use inherited::FileWindow;
pub(crate) use look::Look;
pub(crate) use served::{Hold, Served};
pub(crate) use writable::{flush, write_back};
pub(crate) use written::WrittenFile;

use crate::error;
use crate::generation::ProcessGeneration;
use crate::managed::Managed;
use crate::store::{FileIdentity, FileStore, FileWrites};
use core::ops::Range;
use idle::{IdleThread, SharedTable};
use pressure::Watch;
use softfault_engine::cache::{MapError, OnTruncate, PageCache};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::{PAGE_SIZE, Store};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::WindowTable;
use writable::WriteBehind;

/// The files of an engine.
pub(crate) struct Files {
    /// Its table is locked for look-ups, for entering VMAs and taking them out, and over waits for folios when a
    /// window becomes idle with pins left. Windows are made and
    /// dropped without that: a thread of low priority that is preempted over a system
    /// call must not keep the others from mapping.
    shared: Arc<SharedTable>,
    idle_thread: IdleThread,
    /// Of a soft engine it never begins.
    watch: Watch,
    write_behind: WriteBehind,
    /// Immutable.
    generation: ProcessGeneration,
    /// Forks of a soft engine that live. Relaxed: the thread that closes idle files looks again and again.
    forks: AtomicUsize,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            shared: Arc::new(SharedTable::new(WindowTable::new(
                crate::machine::open_files(),
            ))),
            idle_thread: IdleThread::default(),
            watch: Watch::default(),
            write_behind: WriteBehind::default(),
            generation: ProcessGeneration::here(),
            forks: AtomicUsize::new(0),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    fn table(&self) -> MutexGuard<'_, WindowTable> {
        self.shared.table()
    }

    /// The window for a new map of the file that was `looked` at, with its VMA in the
    /// space. A file that has changed since is looked at once more. `alone`: no other map has the window, which has
    /// room for so many bytes at least.
    pub(crate) fn open(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
        (on_truncate, alone): (OnTruncate, Option<u64>),
    ) -> io::Result<OpenedWindow> {
        if let Some(bytes) = alone {
            return self.open_alone(managed, fd, looked, on_truncate, bytes);
        }
        let (known, changed) = {
            let mut table = self.table();
            let mut changed = table.forget_changed(&looked.identity);
            changed.extend(table.forget_outgrown(&looked.identity));
            let known =
                find_and_open(managed, &mut table, (&looked.identity, looked.unchangeable))?;
            (known, changed)
        };
        drop(changed);
        if let Some(known) = known {
            return self.brought_up_to_date(managed, known);
        }
        let store = FileStore::open_by(fd, Some(&managed.rings), &managed.reads)?;
        // The file that the store opened counts.
        let identity = store.opened_as()?;
        looked.is_still(&identity)?;
        let bytes = identity.size;
        let had_name = store.had_name();
        let store = Arc::new(store);
        let cache = self.new_cache(managed, store.clone(), bytes, on_truncate)?;
        let mut table = self.table();
        // Somebody else may have opened it meanwhile. Then ours goes, once the
        // table is unlocked.
        if let Some(known) = find_and_open(managed, &mut table, (&identity, looked.unchangeable))? {
            drop(table);
            return self.brought_up_to_date(managed, known);
        }
        map_window(managed, &cache)?;
        let certain = identity.certain(looked.now_ns);
        let served = new_served(managed, &store, &cache, on_truncate);
        let shown = (cache.clone(), served.clone());
        let entry = table.add(identity, certain, shown, Some(store), had_name);
        entry.unchangeable = looked.unchangeable;
        Ok(OpenedWindow::new(cache, served, bytes))
    }

    /// The same in a window that no other map finds.
    fn open_alone(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
        on_truncate: OnTruncate,
        bytes: u64,
    ) -> io::Result<OpenedWindow> {
        let store = Arc::new(FileStore::open_by(
            fd,
            Some(&managed.rings),
            &managed.reads,
        )?);
        let identity = store.opened_as()?;
        looked.is_still(&identity)?;
        let had_name = store.had_name();
        let bytes = bytes.max(identity.size);
        let cache = self.new_cache(managed, store.clone(), bytes, on_truncate)?;
        cache.truncate(identity.size);
        map_window(managed, &cache)?;
        let served = new_served(managed, &store, &cache, on_truncate);
        let shown = (cache.clone(), served.clone());
        // Its version is never certain, so it is not in the table of files.
        self.table()
            .add(identity, false, shown, Some(store), had_name);
        Ok(OpenedWindow::new(cache, served, identity.size))
    }

    /// A page cache in a window of its own.
    fn new_cache(
        &self,
        managed: &Managed,
        store: Arc<dyn Store>,
        bytes: u64,
        on_truncate: OnTruncate,
    ) -> io::Result<Arc<PageCache>> {
        self.making_room(|| PageCache::new(managed.node.clone(), store.clone(), bytes, on_truncate))
    }

    /// A fork has windows of its own accord from now on: it may keep those that nobody maps.
    pub(crate) fn lend_to_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a fork is gone, with its windows.
    pub(crate) fn fork_is_gone(&self) {
        self.forks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a map. Where the budget cannot hold it, files that nobody maps go first.
    pub(crate) fn making_room<T>(&self, make: impl Fn() -> Result<T, MapError>) -> io::Result<T> {
        let mut made = make();
        if matches!(made, Err(MapError::Budget(_))) {
            self.make_room();
            made = make();
        }
        made.map_err(error::map)
    }

    /// The store of a file that is mapped privately: that of the window which shows
    /// this version of the file, if there is one.
    pub(crate) fn store(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
    ) -> io::Result<Arc<FileStore>> {
        let known = match self.generation.is_parents() {
            true => None,
            false => {
                (self.table().find(&looked.identity, false)).and_then(|entry| entry.file.clone())
            }
        };
        let store = match known {
            Some(store) => store,
            None => {
                let store = FileStore::open_by(fd, Some(&managed.rings), &managed.reads)?;
                Arc::new(store)
            }
        };
        store.will_be_read();
        Ok(store)
    }

    /// The page cache for a new map of a store that is no file of ours. Never
    /// found again.
    pub(crate) fn open_store(
        &self,
        managed: &Managed,
        store: Arc<dyn Store>,
        on_truncate: OnTruncate,
    ) -> io::Result<OpenedWindow> {
        let size = store.len().map_err(crate::error::store)?;
        let identity = FileIdentity {
            dev: u64::MAX,
            ino: u64::MAX,
            size,
            mtime_ns: 0,
            ctime_ns: 0,
        };
        let cache = self.new_cache(managed, store, size, on_truncate)?;
        map_window(managed, &cache)?;
        let served = Served::always();
        let shown = (cache.clone(), served.clone());
        self.table().add(identity, false, shown, None, false);
        Ok(OpenedWindow::new(cache, served, size))
    }

    /// A map of the file is dropped.
    pub(crate) fn close(&self, managed: &Managed, cache: Arc<PageCache>) {
        let mut table = self.table();
        if let Some(idle) = table.close(&cache) {
            managed.unmap_window(cache.addresses());
            // The next map of the file finds the window as a new one is.
            cache.renew_window();
            // Before anybody maps the file again, and pins.
            cache.forget_pins();
            let served = table.served(&cache);
            if let Some(served) = &served {
                served.forget_advice(&cache.addresses());
                served.stop_scan();
            }
            let let_go = served.filter(|served| served.forget_holds());
            // The table has it still.
            drop(cache);
            let gone = table.forget_idle();
            drop(table);
            drop(gone);
            if let Some(served) = let_go {
                served.was_let_go();
            }
            self.became_idle(idle);
        }
    }

    /// Maps and idle windows now.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.table().counts()
    }
}

/// A window with one user more, and how long the file was at the look that the window
/// was made or found by.
pub(crate) struct OpenedWindow {
    pub(crate) cache: Arc<PageCache>,
    pub(crate) served: Arc<Served>,
    pub(crate) bytes: u64,
    /// The file to which writes go, if the map is writable.
    pub(crate) writes: Option<Arc<FileWrites>>,
}

impl OpenedWindow {
    fn new(cache: Arc<PageCache>, served: Arc<Served>, bytes: u64) -> Self {
        Self {
            cache,
            served,
            bytes,
            writes: None,
        }
    }

    /// Where the window shows the whole file.
    pub(crate) fn whole(&self) -> io::Result<Range<usize>> {
        let len = usize::try_from(self.bytes).map_err(|_| crate::error::too_large())?;
        self.addresses(0, len)
    }

    /// Where the window shows `len` bytes of the file from `offset` on. The one place
    /// where a map's length is compared with its window's: a safe slice may not reach
    /// behind it.
    pub(crate) fn addresses(&self, offset: u64, len: usize) -> io::Result<Range<usize>> {
        let window = self.cache.addresses();
        let start = (usize::try_from(offset).ok()).and_then(|at| window.start.checked_add(at));
        let end = start.and_then(|start| start.checked_add(len));
        match start.zip(end) {
            Some((start, end)) if end <= window.end => Ok(start..end),
            _ => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the file has grown beyond the window of its present maps: drop them, then map again",
            )),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.generation.is_parents() {
            // The parent's: reads that were under way at the fork never end
            // in the child, and nothing here is the child's to give back. Nor is the
            // table locked: another thread may have had its lock.
            core::mem::forget(self.shared.clone());
            self.watch.leave();
            self.write_behind.leave();
            return self.idle_thread.leave();
        }
        self.watch.stop();
        self.write_behind.stop(&self.shared);
        self.idle_thread.stop(&self.shared);
    }
}

/// A window that was there, with one user more.
struct KnownWindow {
    opened: OpenedWindow,
    file: Option<Arc<FileStore>>,
}

/// The window that shows this version of the file, with one user more. `unchangeable`: as of [`WindowTable::find`].
fn find_and_open(
    managed: &Managed,
    table: &mut WindowTable,
    (identity, unchangeable): (&FileIdentity, bool),
) -> io::Result<Option<KnownWindow>> {
    let Some(entry) = table.find(identity, unchangeable) else {
        return Ok(None);
    };
    let known = KnownWindow {
        opened: OpenedWindow {
            writes: entry.writes.clone(),
            ..OpenedWindow::new(entry.cache.clone(), entry.served.clone(), identity.size)
        },
        file: entry.file.clone(),
    };
    if entry.users == 0 {
        map_window(managed, &known.opened.cache)?;
    }
    table.open(identity, unchangeable);
    Ok(Some(known))
}

/// The server of a file's new window.
fn new_served(
    managed: &Managed,
    store: &Arc<FileStore>,
    cache: &Arc<PageCache>,
    on_truncate: OnTruncate,
) -> Arc<Served> {
    let may = managed.reads.kernel_may_serve() && on_truncate == OnTruncate::Error;
    let served = Served::of_file(store, cache, may);
    if served.shown_file().is_none() {
        store.will_be_read();
    }
    served
}

fn map_window(managed: &Managed, cache: &Arc<PageCache>) -> io::Result<()> {
    let attributes = Attributes {
        backing: Backing::from(cache.clone()),
        protection: match cache.is_writable() {
            true => Protection::ReadWrite,
            false => Protection::Read,
        },
        ..Attributes::default()
    };
    let addresses = cache.addresses();
    debug_assert!(addresses.start.is_multiple_of(PAGE_SIZE));
    let mapped = managed.space.mmap(addresses, attributes);
    mapped.map_err(error::mm)
}
