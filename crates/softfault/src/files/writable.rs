//! Files that maps write to over the engine: one window a file that may be written to, which all later maps of the
//! file over the engine show.
//!
//! What is written is in the window until it is *written back*: by reclaim, by a flush, before the process forks, when a map
//! is dropped, at exit, and by a thread of ours, which sees to it that nothing is older than [`OLDEST`].
//!
//! Such a window is known by its file and not by the file's version: writing back changes that. One that nobody maps
//! forgets its pages when it is mapped again; it stays as long as it has pages that could not be written.

use super::served::Served;
use super::table::{FileWindow, WindowTable};
use super::{Files, Look, OpenedWindow, map_window};
use crate::error;
use crate::generation::{Done, Own};
use crate::managed::Managed;
use crate::signal;
use crate::store::{FileIdentity, FileStore, FileWrites, ReadPolicy, Reads};
use crate::thread::{self, Thread};
use core::ops::Range;
use softfault_engine::cache::{PageCache, WriteBackCursor};
use softfault_engine::store::{Store, WriteBack};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long what was written may be in memory only.
const OLDEST: Duration = Duration::from_secs(5);
/// The least address space of a window beyond its file, which may grow.
const LEAST_ROOM: u64 = 64 << 20;

/// The thread that writes back, while the engine has files that maps write to.
#[derive(Default)]
pub(super) struct WriteBehind {
    thread: Mutex<Option<Thread>>,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// It is to write back at once.
    now: bool,
    over: bool,
}

/// The tables that are written back at exit.
#[derive(Default)]
struct AtExit(Mutex<Vec<Weak<super::idle::SharedTable>>>);

static AT_EXIT: Own<AtExit> = Own::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes back what is dirty of some addresses of a window. Signals come in between.
pub(crate) fn write_back(cache: &PageCache, addresses: Range<usize>) {
    let mut cursor = WriteBackCursor::default();
    let mut more = true;
    while more {
        let _masked = signal::masked();
        more = cache.write_back(addresses.clone(), &mut cursor);
    }
}

/// Writes back all windows of a table.
fn write_back_all(table: &super::idle::SharedTable) {
    let windows = {
        let _masked = signal::masked();
        table.table().writable()
    };
    for cache in windows {
        write_back(&cache, cache.addresses());
        let _masked = signal::masked();
        drop(cache);
    }
}

impl Files {
    /// The window for a new map that writes to a file, with its VMA in the space: the one that there is, or a new one, if that is
    /// `wanted`. `None` where the kernel's own mapping is
    /// the only one that all who have the file mapped already would agree with.
    pub(crate) fn open_writable(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
        wanted: bool,
    ) -> io::Result<Option<OpenedWindow>> {
        if !managed.node.mmu.can_protect() {
            return Ok(None);
        }
        if let Some(known) = self.find_writable(managed, &looked.identity)? {
            return Ok(Some(known));
        }
        if !wanted || self.table().is_taken(&looked.identity) {
            return Ok(None);
        }
        // What is read stays with us: the kernel's copy would be thrown away with each page that is written back.
        let policy = Arc::new(ReadPolicy::alone(Reads::Direct));
        let store = Arc::new(FileStore::open_by(fd, Some(&managed.rings), &policy)?);
        let identity = store.opened_as()?;
        let room = identity.size.saturating_mul(2);
        let room = room.max(identity.size.saturating_add(LEAST_ROOM));
        let writes = Arc::new(FileWrites::open(fd, room)?);
        let stores: (Arc<dyn Store>, Arc<dyn WriteBack>) = (store.clone(), writes.clone());
        let make = || PageCache::new_writable(managed.node.clone(), stores.clone(), room);
        let cache = self.making_room(make)?;
        cache.truncate(identity.size);
        let mut table = self.table();
        // Somebody else may have opened it meanwhile. Then ours goes, once the table is unlocked.
        if table.is_taken(&identity) {
            drop(table);
            return self.find_writable(managed, &identity);
        }
        map_window(managed, &cache)?;
        store.will_be_read();
        let shown = (cache.clone(), Served::always());
        let served = shown.1.clone();
        let had_name = store.had_name();
        table.add(identity, true, shown, Some(store), had_name);
        table.make_writable(&identity, writes.clone());
        drop(table);
        self.begin_write_behind();
        Ok(Some(OpenedWindow {
            writes: Some(writes),
            ..OpenedWindow::new(cache, served, identity.size)
        }))
    }

    /// True if the engine has a window of the file that may be written to.
    pub(crate) fn is_writable(&self, identity: &FileIdentity) -> bool {
        let mut table = self.table();
        (table.of_file(identity)).any(|entry| entry.writes.is_some())
    }

    fn find_writable(
        &self,
        managed: &Managed,
        identity: &FileIdentity,
    ) -> io::Result<Option<OpenedWindow>> {
        let mut table = self.table();
        let Some(entry) = table.find(identity).filter(|entry| entry.writes.is_some()) else {
            return Ok(None);
        };
        let writes = entry.writes.clone();
        let (cache, served) = super::open_known(managed, &mut table, identity)?;
        Ok(Some(OpenedWindow {
            writes,
            ..OpenedWindow::new(cache, served, identity.size)
        }))
    }

    /// Has all files written back, and waits for that. Not that it is on the devices.
    pub(crate) fn write_back_all(&self) {
        if !self.born.is_parents() {
            write_back_all(&self.shared);
        }
    }

    /// Starts to write back what is dirty.
    pub(crate) fn write_back_soon(&self) {
        let (state, changed) = &*self.write_behind.state;
        lock(state).now = true;
        changed.notify_one();
    }

    fn begin_write_behind(&self) {
        let mut thread = lock(&self.write_behind.thread);
        if thread.is_some() {
            return;
        }
        let (shared, state) = (
            Arc::downgrade(&self.shared),
            self.write_behind.state.clone(),
        );
        // Without it, reclaim and flushes write back.
        let serve = move || serve(&shared, &state);
        *thread = thread::start(c"softfault-write", thread::STACK, serve).ok();
        lock(&AT_EXIT.get().0).push(Arc::downgrade(&self.shared));
        static REGISTERED: Done = Done::new();
        REGISTERED.once(|| {
            // SAFETY: a function that stays.
            unsafe { libc::atexit(at_exit) };
        });
    }
}

fn serve(shared: &Weak<super::idle::SharedTable>, state: &(Mutex<State>, Condvar)) {
    let (state, changed) = state;
    loop {
        // What was written just after one look is written back by the next.
        let waits = |state: &mut State| !state.now && !state.over;
        let waited = changed.wait_timeout_while(lock(state), OLDEST / 2, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.over {
            return;
        }
        state.now = false;
        drop(state);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        write_back_all(&shared);
    }
}

extern "C" fn at_exit() {
    let tables: Vec<_> = {
        let _masked = signal::masked();
        lock(&AT_EXIT.get().0)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    };
    tables.iter().for_each(|table| write_back_all(table));
}

impl WriteBehind {
    /// Ends the thread, and has all that is left written.
    pub(super) fn stop(&mut self, shared: &super::idle::SharedTable) {
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else { return };
        let (state, changed) = &*self.state;
        lock(state).over = true;
        changed.notify_one();
        thread.join();
        write_back_all(shared);
        let lost: u64 = (shared.table().writable().iter())
            .map(|cache| cache.dirty_pages())
            .sum();
        if lost > 0 {
            error::say(&format!(
                "{lost} pages that were written to maps could not be written to their files, and are lost"
            ));
        }
    }

    /// In a child of fork: it is the parent's.
    pub(super) fn leave(&mut self) {
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        core::mem::forget((thread.take(), self.state.clone()));
    }
}

impl WindowTable {
    /// The window of a file may be written to, by this way.
    fn make_writable(&mut self, identity: &FileIdentity, writes: Arc<FileWrites>) {
        let entry = self.find(identity).expect("it was just added");
        entry.writes = Some(writes);
    }

    /// True if a window that may be written to would not be the only place where the file's pages are: somebody maps it by
    /// another, or by the kernel.
    fn is_taken(&mut self, identity: &FileIdentity) -> bool {
        self.is_written(identity) || self.of_file(identity).any(|entry| entry.users > 0)
    }

    /// The windows that may be written to.
    fn writable(&self) -> Vec<Arc<PageCache>> {
        let entries = self.entries();
        let writable = entries.filter(|entry: &&FileWindow| entry.writes.is_some());
        writable.map(|entry| entry.cache.clone()).collect()
    }
}
