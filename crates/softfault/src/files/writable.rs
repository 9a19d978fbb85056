//! Files that maps write to over the engine: one window a file that may be written to, which all later maps of the
//! file over the engine show.
//!
//! A written page is in the window until it is *written back*: by reclaim, by a flush, before the process forks, when a map
//! is dropped, at exit, and by a thread of ours, which writes back dirty pages before they are older than [`OLDEST`].
//!
//! Such a window is known by its file and not by the file's version: writing back changes that. One that nobody maps
//! forgets its pages when it is mapped again; it stays as long as it has pages that could not be written.

use super::at_exit::write_back_at_exit;
use super::idle::SharedTable;
use super::length::follow_cut;
use super::served::Served;
use super::table::{FileWindow, WindowTable};
use super::{Files, KnownWindow, Look, OpenedWindow, lock, map_window};
use crate::error::{self, EngineFaultError, FaultError};
use crate::managed::Managed;
use crate::signal;
use crate::store::{self, FileIdentity, FileStore, FileWrites, ReadPolicy, Reads};
use crate::thread::{self, Thread};
use core::ops::Range;
use softfault_engine::cache::{Node, PageCache, WriteBackCursor};
use softfault_engine::store::{Store, WriteBack};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a write may be in memory only.
const OLDEST: Duration = Duration::from_secs(5);
/// The least address space of a window beyond its file, which may grow.
const LEAST_ROOM: u64 = 64 << 20;

/// The thread that writes back, ahead of reclaim and by age, once the engine has files that maps write to.
#[derive(Default)]
pub(super) struct WriteBehind {
    thread: Mutex<Option<(Thread, Arc<Node>)>>,
    state: Arc<State>,
}

/// The work of the thread. Relaxed: it looks after each ring, and otherwise soon.
#[derive(Default)]
struct State {
    /// To write all back at once.
    now: AtomicBool,
    over: AtomicBool,
}

/// Writes back the dirty pages of some addresses of a window.
pub(crate) fn write_back(cache: &PageCache, addresses: Range<usize>) {
    run(cache, cache.write_back_of(addresses));
}

/// The same, and has it survive a crash.
pub(crate) fn flush(cache: &PageCache, writes: &FileWrites, addresses: Range<usize>) {
    let mut seen = 0;
    cache.write_error_since(&mut seen);
    write_back(cache, addresses);
    if cache.write_error_since(&mut seen) == Some(EngineFaultError::BeyondEnd) {
        // Pinned pages would be told of by each flush: they are dirty as long as they are the file's.
        follow_cut(cache, writes);
    }
    cache.sync();
}

impl Files {
    /// Has dirty pages survive a crash (`MS_SYNC`), or starts to write them (`MS_ASYNC`): where the system has no thread for that, they
    /// are in the file when this returns.
    pub(crate) fn msync(
        &self,
        (cache, writes): (&PageCache, &FileWrites),
        addresses: Range<usize>,
        how: i32,
    ) {
        match how {
            libc::MS_SYNC => flush(cache, writes, addresses),
            _ if self.write_back_soon(cache.node()) => {}
            _ => write_back(cache, addresses),
        }
    }
}

/// A write-back, to its end. Signals come in between.
fn run(cache: &PageCache, mut cursor: WriteBackCursor) {
    let mut more = true;
    while more {
        let _masked = signal::masked();
        more = cache.write_back(&mut cursor);
    }
}

/// Writes back all windows of a table.
pub(super) fn write_back_all(table: &SharedTable) {
    write_back_each(table, |cache| cache.write_back_of(cache.addresses()));
}

/// As above, for pages that were dirty already the last time.
fn write_back_aged(table: &SharedTable) {
    write_back_each(table, PageCache::write_back_of_aged);
}

fn write_back_each(table: &SharedTable, cursor: impl Fn(&PageCache) -> WriteBackCursor) {
    let windows = {
        let _masked = signal::masked();
        table.table().writable()
    };
    for window in windows {
        // One at a time: a device may hang, and windows of other files are not kept from going meanwhile.
        let cache = {
            let _masked = signal::masked();
            table.upgrade(&window)
        };
        if let Some(cache) = cache {
            run(&cache, cursor(&cache));
            let _masked = signal::masked();
            drop(cache);
        }
    }
}

impl Files {
    /// The window for a new map that writes to a file, with its VMA in the space: the one that there is, or a new one, if that is
    /// `wanted`, with room for the map, whose last byte is at `reach`, at any length of the file. `None` where only the kernel's own
    /// mapping agrees with the present maps of the file.
    pub(crate) fn open_writable(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        looked: &Look,
        (wanted, reach): (bool, u64),
    ) -> io::Result<Option<OpenedWindow>> {
        if !managed.node.mmu.can_protect() {
            return Ok(None);
        }
        // The kernel does not see stores to the window.
        store::may_be_written(fd)?;
        let with_room = FileIdentity {
            size: looked.identity.size.max(reach),
            ..looked.identity
        };
        let outgrown = self.table().forget_outgrown(&with_room);
        drop(outgrown);
        if let Some(known) = self.find_writable(managed, &looked.identity)? {
            self.begin_write_behind(&managed.node);
            return Ok(Some(known));
        }
        if !wanted || self.table().is_taken(&looked.identity) {
            return Ok(None);
        }
        let Some((store, identity)) = or_kernel(open_store(managed, fd))? else {
            return Ok(None);
        };
        let least = identity.size.max(reach);
        let room = (identity.size.saturating_mul(2))
            .max(identity.size.saturating_add(LEAST_ROOM))
            .max(reach);
        let made = match self.make_writable_window(managed, fd, &store, room) {
            // Without room to grow: there is not so much address space, or memory for its page tables.
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory && least < room => {
                self.make_writable_window(managed, fd, &store, least)
            }
            made => made,
        };
        let Some((cache, writes)) = made? else {
            return Ok(None);
        };
        cache.truncate(identity.size);
        let mut table = self.table();
        // Somebody else may have opened it meanwhile. Then ours goes, once the table is unlocked.
        if table.has_writable(&identity) || table.is_taken(&identity) {
            drop(table);
            return self.find_writable(managed, &identity);
        }
        map_window(managed, &cache)?;
        store.will_be_read();
        let shown = (cache.clone(), Served::always());
        let opened = OpenedWindow {
            writes: Some(writes.clone()),
            ..OpenedWindow::new(cache, shown.1.clone(), identity.size)
        };
        let (file, had_name) = (Some(store.clone()), store.had_name());
        let forgotten = table.forget_idle_of(&identity);
        let entry = table.add(identity, true, shown, file.clone(), had_name);
        entry.writes = Some(writes);
        drop(table);
        drop(forgotten);
        self.begin_write_behind(&managed.node);
        // It may have been truncated since it was opened.
        let known = KnownWindow { opened, file };
        self.brought_up_to_date(managed, known).map(Some)
    }

    /// A page cache over so much address space, and the way back to the file. `None` where only the kernel can map it.
    fn make_writable_window(
        &self,
        managed: &Managed,
        fd: BorrowedFd<'_>,
        store: &Arc<FileStore>,
        room: u64,
    ) -> io::Result<Option<(Arc<PageCache>, Arc<FileWrites>)>> {
        let Some(writes) = or_kernel(FileWrites::open(fd, room))?.map(Arc::new) else {
            return Ok(None);
        };
        let stores: (Arc<dyn Store>, Arc<dyn WriteBack>) = (store.clone(), writes.clone());
        let make = || PageCache::new_writable(managed.node.clone(), stores.clone(), room);
        Ok(Some((self.making_room(make)?, writes)))
    }

    /// True if one map shows the window.
    pub(crate) fn has_one_map(&self, cache: &Arc<PageCache>) -> bool {
        self.table().has_one_user(cache)
    }

    /// True if the engine has a window of the file that may be written to.
    pub(crate) fn is_writable(&self, identity: &FileIdentity) -> bool {
        self.table().has_writable(identity)
    }

    /// Drops the window of a file that maps have written to, if none shows it any more, and all of it is in the file.
    pub(crate) fn forget_writable(&self, identity: &FileIdentity) {
        let _masked = signal::masked();
        if self.is_writable(identity) {
            let forgotten = self.table().forget_idle_of(identity);
            drop(forgotten);
        }
    }

    fn find_writable(
        &self,
        managed: &Managed,
        identity: &FileIdentity,
    ) -> io::Result<Option<OpenedWindow>> {
        let known = {
            let mut table = self.table();
            match table.has_writable(identity) {
                true => super::find_and_open(managed, &mut table, (identity, false))?,
                false => None,
            }
        };
        let up_to_date = |known| self.brought_up_to_date(managed, known);
        known.map(up_to_date).transpose()
    }

    /// Has all files written back, and waits for that. Not that it is on the devices.
    pub(crate) fn write_back_all(&self) {
        if !self.generation.is_parents() {
            write_back_all(&self.shared);
        }
    }

    /// Starts to write back the dirty pages. False if there is no thread for that.
    pub(crate) fn write_back_soon(&self, node: &Arc<Node>) -> bool {
        let _masked = signal::masked();
        self.begin_write_behind(node);
        self.write_behind.state.now.store(true, Relaxed);
        self.write_behind.ring()
    }

    /// Starts the thread, unless there is one. Where the system has none now, this is called again, for the next map or flush.
    fn begin_write_behind(&self, node: &Arc<Node>) {
        let mut thread = lock(&self.write_behind.thread);
        if thread.is_some() {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        let (state, paid_by) = (self.write_behind.state.clone(), node.clone());
        let serve = move || serve(&shared, &state, &paid_by);
        // Without it, reclaim and flushes write back.
        let started = thread::start(c"softfault-write", thread::STACK, serve).ok();
        *thread = started.map(|thread| (thread, node.clone()));
        write_back_at_exit(&self.shared);
    }
}

/// Opens the file to be read, and tells how long it was then.
fn open_store(managed: &Managed, fd: BorrowedFd<'_>) -> io::Result<(Arc<FileStore>, FileIdentity)> {
    // Pages that are read stay with us: the kernel's copy would be thrown away with each page that is written back.
    let policy = Arc::new(ReadPolicy::alone(Reads::Direct));
    let store = FileStore::open_by(fd, Some(&managed.rings), &policy)?;
    let identity = store.opened_as()?;
    Ok((Arc::new(store), identity))
}

/// `None` where the kernel's own mmap returns the error.
fn or_kernel<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(error) if !is_shortage(&error) => Ok(None),
        opened => opened.map(Some),
    }
}

/// True if memory or descriptors have run out: then a mapping of the kernel would not be the one that was asked for.
fn is_shortage(error: &io::Error) -> bool {
    let no = error.raw_os_error();
    error.kind() == io::ErrorKind::OutOfMemory || matches!(no, Some(libc::EMFILE | libc::ENFILE))
}

fn serve(shared: &Weak<SharedTable>, state: &State, node: &Node) {
    // Pages that are dirty at two looks in a row are written back.
    const PERIOD: Duration = Duration::from_nanos(OLDEST.as_nanos() as u64 / 2);
    let mut last = Instant::now();
    while !state.over.load(Relaxed) {
        let left = PERIOD.saturating_sub(last.elapsed());
        if !left.is_zero() && !state.now.load(Relaxed) {
            node.wait_for_cleaning(left.as_nanos() as u64);
            node.clean_ahead();
        }
        let now = state.now.swap(false, Relaxed);
        if now || last.elapsed() >= PERIOD {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            match now {
                true => write_back_all(&shared),
                false => {
                    write_back_aged(&shared);
                    last = Instant::now();
                }
            }
        }
    }
}

impl WriteBehind {
    /// Wakes the thread; false if there is none.
    fn ring(&self) -> bool {
        let thread = lock(&self.thread);
        if let Some((_, node)) = &*thread {
            node.ring_for_cleaning();
        }
        thread.is_some()
    }

    /// Ends the thread, and has all that is left written.
    pub(super) fn stop(&mut self, shared: &SharedTable) {
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        self.state.over.store(true, Relaxed);
        if let Some((thread, node)) = thread.take() {
            node.ring_for_cleaning();
            thread.join();
        }
        write_back_all(shared);
        let (mut lost, mut why) = (0, None);
        for entry in shared.table().entries() {
            let pages = entry.cache.dirty_pages();
            if pages > 0 {
                lost += pages;
                why = entry.cache.write_error_since(&mut 0).or(why);
            }
        }
        if lost > 0 {
            let why = why.map(|why| format!(": {}", io::Error::from(FaultError::from(why))));
            let why = why.unwrap_or_default();
            error::print_line(&format!(
                "{lost} pages that were written to maps could not be written to their files, and are lost{why}"
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
    /// True if the file has a window that may be written to.
    pub(super) fn has_writable(&mut self, identity: &FileIdentity) -> bool {
        self.of_file(identity).any(|entry| entry.writes.is_some())
    }

    /// True if a window that may be written to would not be the only place where the file's pages are: somebody maps it by
    /// another, or by the kernel.
    fn is_taken(&mut self, identity: &FileIdentity) -> bool {
        self.is_written(identity) || self.of_file(identity).any(|entry| entry.users > 0)
    }

    /// The windows that may be written to.
    fn writable(&self) -> Vec<Weak<PageCache>> {
        let entries = self.entries();
        let writable = entries.filter(|entry: &&FileWindow| entry.writes.is_some());
        writable.map(|entry| Arc::downgrade(&entry.cache)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::find_and_open;
    use super::*;
    use crate::table::scratch::Scratch;
    use crate::{Coherence, Engine};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc::channel;

    /// A write-back may take as long as a device hangs.
    #[test]
    fn a_write_back_keeps_no_window_but_its_own() {
        let builder = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = builder.coherence(Coherence::Engine).build().unwrap();
        let mut maps: Vec<_> = (0..8)
            .map(|_| {
                let file = Scratch::new(&[1; 4096]).to_write();
                // SAFETY: bytes, which nobody looks at.
                let mut map = unsafe { engine.map_mut(&file) }.unwrap();
                map[0] = 2;
                map
            })
            .collect();
        let files = &engine.inner.files;
        // It has windows at any moment, too.
        files.write_behind.state.over.store(true, Relaxed);
        files.write_behind.ring();
        let (thread, _) = lock(&files.write_behind.thread).take().unwrap();
        thread.join();
        std::thread::scope(|scope| {
            let ((say, begun), (go_on, wait)) = (channel(), channel::<()>());
            scope.spawn(move || {
                write_back_each(&files.shared, |cache| {
                    let _ = say.send(cache.addresses().start);
                    let _ = wait.recv();
                    cache.write_back_of(cache.addresses())
                });
            });
            let first = begun.recv().unwrap();
            maps.retain(|map| map.as_ptr().addr() == first);
            let left = {
                let _masked = signal::masked();
                let mut gone = Vec::new();
                let until = files.table().closed();
                files.table().forget_until(until, &mut gone)
            };
            drop(go_on);
            assert_eq!((maps.len(), left, engine.stats().idle_windows), (1, 0, 0));
        });
    }

    /// One thread has counted itself into a window that nobody mapped for a while, and goes on only later. Another that
    /// comes meanwhile sees what was written to the file, too, and its stores write nothing older over that.
    #[test]
    fn the_second_to_open_an_idle_window_sees_writes_of_others() {
        let builder = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = builder.coherence(Coherence::Engine).build().unwrap();
        let scratch = Scratch::new(&[1; 4096]);
        let file = scratch.to_write();
        let (managed, files) = (engine.inner.managed().unwrap(), &engine.inner.files);
        // SAFETY: bytes, which are looked for.
        let write = || unsafe { engine.map_mut(&file) }.unwrap();
        // SAFETY: as above.
        let read = || unsafe { engine.map(&file) }.unwrap();
        let before = write();
        assert_eq!((before.is_managed(), before[0]), (true, 1));
        // Somebody still looks at it: else it would go with its last map.
        let looked_at = files.table().entries().next().unwrap().cache.clone();
        drop(before);
        for (mark, writes) in [(2, true), (3, false)] {
            file.write_all_at(&[mark], 0).unwrap();
            let identity = Look::at(file.as_fd()).unwrap().identity;
            let first = {
                let _masked = signal::masked();
                find_and_open(managed, &mut files.table(), (&identity, false))
            };
            let first = first.unwrap().expect("the window is idle");
            match writes {
                true => {
                    let mut second = write();
                    second[1] = mark;
                    second.flush().unwrap();
                }
                false => assert_eq!(read()[0], mark),
            }
            let mut bytes = [0; 2];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [mark, 2], "the write by a call, and the store");
            let _masked = signal::masked();
            let first = files.brought_up_to_date(managed, first).unwrap();
            files.close(managed, first.cache);
        }
        drop(looked_at);
    }
}
