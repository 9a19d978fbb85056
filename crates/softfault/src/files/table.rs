//! Which file has which window.

use super::served::Served;
use crate::store::{FileIdentity, FileStore, FileWrites};
use softfault_engine::cache::PageCache;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

/// Idle windows that are looked at, whether they are empty, when one is closed:
/// more than come, and so few that no unmap takes long.
const LOOKED_AT: usize = 4;
/// The most windows kept for files that nobody maps: each is a mapping, of
/// which Linux allows 65,530.
const MOST_IDLE: usize = 16 << 10;

/// Device and inode.
pub(super) type FileKey = (u64, u64);

/// A window.
pub(super) struct FileWindow {
    pub(super) identity: FileIdentity,
    /// False if the file may have changed within the identity's resolution.
    pub(super) certain: bool,
    /// The window was made after nobody could change the file any more: no page is from before that.
    pub(super) unchangeable: bool,
    pub(super) cache: Arc<PageCache>,
    pub(super) served: Arc<Served>,
    /// Maps of it that live. 0: an idle window.
    pub(super) users: usize,
    /// It was idle, and its pages are from before that.
    was_idle: bool,
    /// The file that it keeps open. `None`: a store of the caller's.
    pub(super) file: Option<Arc<FileStore>>,
    /// The file to which writes go, if the window is writable.
    pub(super) writes: Option<Arc<FileWrites>>,
    /// The file had a name when the window was made.
    had_name: bool,
    /// Its place among the idle windows, if it is one.
    idle_since: u64,
    /// The look that came before it became idle.
    idle_look: u64,
}

/// A window that has become idle.
pub(super) struct IdleWindow {
    pub(super) since: u64,
    /// The file, if it may have lost its name.
    pub(super) named: Option<Arc<FileStore>>,
    /// It is the first: nobody looks yet.
    pub(super) first: bool,
    /// It was written to. It forgets its pages when it is mapped again, and while it is there its file is open for writing: the program cannot
    /// execute it, nor take a lease on it.
    pub(super) written: bool,
}

/// All windows of an engine.
pub(super) struct WindowTable {
    /// A file that changed may have several.
    files: HashMap<FileKey, Vec<FileWindow>>,
    /// The file of each window, by the address of its cache.
    windows: HashMap<usize, FileKey>,
    /// Files that have shared writable maps, and how many.
    written: HashMap<FileKey, usize>,
    /// The idle ones, the oldest first.
    idle: BTreeMap<u64, FileKey>,
    /// Windows that became idle so far.
    closed: u64,
    /// The idle window that is looked at next, or the first one after it.
    next: u64,
    /// Idle windows at most: each costs a file descriptor.
    most_idle: usize,
    /// Looks at all idle windows so far.
    looks: u64,
    /// Nobody looks: there were no idle windows.
    unlooked: bool,
}

impl WindowTable {
    /// An empty table, in a process that may have so many open files.
    pub(super) fn new(open_files: usize) -> Self {
        Self {
            files: HashMap::new(),
            windows: HashMap::new(),
            written: HashMap::new(),
            idle: BTreeMap::new(),
            closed: 0,
            next: 0,
            most_idle: (open_files / 4).min(MOST_IDLE),
            looks: 0,
            unlooked: true,
        }
    }

    /// Enters a window that has one user.
    pub(super) fn add(
        &mut self,
        identity: FileIdentity,
        certain: bool,
        (cache, served): (Arc<PageCache>, Arc<Served>),
        file: Option<Arc<FileStore>>,
        had_name: bool,
    ) -> &mut FileWindow {
        let entry = FileWindow {
            identity,
            certain,
            unchangeable: false,
            cache,
            served,
            users: 1,
            was_idle: false,
            had_name,
            file,
            writes: None,
            idle_since: 0,
            idle_look: 0,
        };
        let file = key(&identity);
        self.windows.insert(address(&entry.cache), file);
        let entries = self.files.entry(file).or_default();
        entries.push(entry);
        entries.last_mut().expect("just entered")
    }

    /// The window that is written to, since it shows any version of its file; or else the one that shows this version.
    /// `unchangeable`: all of its pages must have been read after the last change of the file. Others may have pages from
    /// before a store through a shared mapping, which the identity does not tell.
    pub(super) fn find(
        &mut self,
        identity: &FileIdentity,
        unchangeable: bool,
    ) -> Option<&mut FileWindow> {
        let entries = self.files.get_mut(&key(identity))?;
        let place = |is_it: &dyn Fn(&FileWindow) -> bool| entries.iter().position(is_it);
        let shows = |entry: &FileWindow| entry.certain && entry.identity == *identity;
        let at = place(&|entry| entry.writes.is_some())
            .or_else(|| place(&|entry| shows(entry) && (entry.unchangeable || !unchangeable)))?;
        Some(&mut entries[at])
    }

    /// All windows.
    pub(super) fn entries(&self) -> impl Iterator<Item = &FileWindow> {
        self.files.values().flatten()
    }

    /// The mapped windows of a file, of any version.
    pub(super) fn windows_of(&self, file: FileKey) -> Vec<(Arc<PageCache>, Arc<Served>)> {
        let entries = self.files.get(&file).into_iter().flatten();
        let used = entries.filter(|entry| entry.users > 0);
        let windows = used.map(|entry| (entry.cache.clone(), entry.served.clone()));
        windows.collect()
    }

    /// Counts a shared writable map in.
    pub(super) fn begin_writing(&mut self, file: FileKey) {
        *self.written.entry(file).or_default() += 1;
    }

    /// Counts it out.
    pub(super) fn end_writing(&mut self, file: FileKey) {
        let count = self.written.get_mut(&file).expect("it was counted in");
        *count -= 1;
        if *count == 0 {
            self.written.remove(&file);
        }
    }

    /// True if the file has any.
    pub(super) fn is_written(&self, identity: &FileIdentity) -> bool {
        self.written.contains_key(&key(identity))
    }

    /// All windows of a file, of any version.
    pub(super) fn of_file(
        &mut self,
        identity: &FileIdentity,
    ) -> impl Iterator<Item = &mut FileWindow> {
        self.files.get_mut(&key(identity)).into_iter().flatten()
    }

    /// The mapped windows, and the server of each.
    pub(super) fn in_use(&self) -> Vec<(Weak<PageCache>, Arc<Served>)> {
        let entries = self.files.values().flatten();
        let used = entries.filter(|entry| entry.users > 0);
        let shown = used.map(|entry| (Arc::downgrade(&entry.cache), entry.served.clone()));
        shown.collect()
    }

    /// Those of files.
    pub(super) fn files_in_use(&self) -> impl Iterator<Item = (&FileWindow, &Arc<FileStore>)> {
        let used = self.entries().filter(|entry| entry.users > 0);
        used.filter_map(|entry| Some((entry, entry.file.as_ref()?)))
    }

    /// Counts a user in, of the window that was found so.
    pub(super) fn open(&mut self, identity: &FileIdentity, unchangeable: bool) {
        let entry = self.find(identity, unchangeable);
        let entry = entry.expect("the caller found it");
        entry.users += 1;
        if entry.users == 1 {
            let idle_since = entry.idle_since;
            self.idle.remove(&idle_since);
        }
    }

    /// Counts a user out; the window is idle if it was the last.
    pub(super) fn close(&mut self, cache: &Arc<PageCache>) -> Option<IdleWindow> {
        let file = self.windows.get(&address(cache));
        let file = *file.expect("a map's cache is in the table");
        let entries = self.files.get_mut(&file);
        let mut entries = entries.into_iter().flatten();
        let entry = entries
            .find(|entry| Arc::ptr_eq(&entry.cache, cache))
            .expect("the file has the window");
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        entry.was_idle = true;
        // Its identity is not looked at again before it is mapped anew.
        if entry
            .file
            .as_ref()
            .is_some_and(|file| file.mtime_ignores_stores())
        {
            entry.certain = false;
        }
        self.closed += 1;
        (entry.idle_since, entry.idle_look) = (self.closed, self.looks);
        self.idle.insert(self.closed, file);
        Some(IdleWindow {
            since: self.closed,
            named: entry.file.clone().filter(|_| entry.had_name),
            first: core::mem::take(&mut self.unlooked),
            written: entry.writes.is_some(),
        })
    }

    /// The server of a window.
    pub(super) fn served(&mut self, cache: &Arc<PageCache>) -> Option<Arc<Served>> {
        self.entry_of(cache).map(|entry| entry.served.clone())
    }

    /// The file to which the writes of a window go.
    pub(super) fn writes_of(&mut self, cache: &Arc<PageCache>) -> Option<Arc<FileWrites>> {
        self.entry_of(cache)?.writes.clone()
    }

    /// True to the first that asks since the window was idle.
    pub(super) fn was_idle(&mut self, cache: &Arc<PageCache>) -> bool {
        let entry = self.entry_of(cache);
        entry.is_some_and(|entry| core::mem::take(&mut entry.was_idle))
    }

    /// Takes out an idle window, unless it is in use again.
    pub(super) fn forget(&mut self, since: u64, gone: &mut Vec<FileWindow>) {
        if let Some(&file) = self.idle.get(&since) {
            self.take_idle_of(file, |entry| entry.idle_since == since, gone);
        }
    }

    /// Takes out windows that became idle up to then. Returns how many of them stay because
    /// a fault still looks at them.
    pub(super) fn forget_until(&mut self, since: u64, gone: &mut Vec<FileWindow>) -> usize {
        let these: Vec<_> = self.idle.range(..=since).map(|(&since, _)| since).collect();
        these.iter().for_each(|&since| self.forget(since, gone));
        // Windows whose pages cannot be written stay, and the caller does not wait for them.
        let is_dirty = |since: u64, file: &FileKey| {
            let mut entries = self.files.get(file).into_iter().flatten();
            entries.any(|entry| entry.idle_since == since && entry.is_dirty())
        };
        let left = self.idle.range(..=since);
        left.filter(|&(&since, file)| !is_dirty(since, file))
            .count()
    }

    /// No new map finds the window of a cache from now on. Its file, if it has one.
    pub(super) fn hide(&mut self, cache: &Arc<PageCache>) -> Option<Arc<FileStore>> {
        let file = self.file_of(cache)?;
        self.entry_of(cache)?.certain = false;
        Some(file)
    }

    /// Takes the window of a cache out, which is mapped.
    pub(super) fn take_out(&mut self, cache: &Arc<PageCache>) -> Option<FileWindow> {
        let file = self.windows.remove(&address(cache))?;
        let entries = self.files.get_mut(&file)?;
        let at = (entries.iter()).position(|entry| Arc::ptr_eq(&entry.cache, cache))?;
        let gone = entries.swap_remove(at);
        if entries.is_empty() {
            self.files.remove(&file);
        }
        Some(gone)
    }

    /// The file of a cache's window, if it has one, and is not written to.
    pub(super) fn file_of(&mut self, cache: &Arc<PageCache>) -> Option<Arc<FileStore>> {
        let entry = self.entry_of(cache)?;
        let file = entry.file.clone();
        file.filter(|_| entry.writes.is_none())
    }

    fn entry_of(&mut self, cache: &Arc<PageCache>) -> Option<&mut FileWindow> {
        let file = self.windows.get(&address(cache))?;
        let mut entries = self.files.get_mut(file)?.iter_mut();
        entries.find(|entry| Arc::ptr_eq(&entry.cache, cache))
    }

    /// Windows that became idle so far.
    pub(super) fn closed(&self) -> u64 {
        self.closed
    }

    /// True if there are no idle windows, and so nobody need look before the next.
    pub(super) fn stop_looking(&mut self) -> bool {
        self.unlooked = self.idle.is_empty();
        self.unlooked
    }

    /// A look at all idle windows begins: takes out those that have seen `most` of them,
    /// and answers the others whose files may have lost their names since.
    pub(super) fn look(&mut self, most: u64, gone: &mut Vec<FileWindow>) -> Vec<IdleWindow> {
        self.looks += 1;
        let since = |look: u64| self.looks - look;
        let entries = self.files.values().flatten();
        let idle = entries.filter(|entry| entry.users == 0);
        // One that was written to is there for pages that could not be written, or for somebody who still looked at it.
        let is_old = |entry: &&FileWindow| since(entry.idle_look) > most || entry.writes.is_some();
        let (old, young): (Vec<_>, Vec<_>) = idle.partition(is_old);
        let old: Vec<_> = old.iter().map(|entry| entry.idle_since).collect();
        let named = young.into_iter().filter(|entry| entry.had_name);
        let named = named.map(|entry| IdleWindow {
            since: entry.idle_since,
            named: entry.file.clone(),
            first: false,
            written: false,
        });
        let named = named.collect();
        old.iter().for_each(|&since| self.forget(since, gone));
        named
    }

    /// Takes out idle windows of a file that do not show this version of it.
    pub(super) fn forget_changed(&mut self, now: &FileIdentity) -> Vec<FileWindow> {
        let mut gone = Vec::new();
        let stale = |entry: &FileWindow| {
            entry.writes.is_none() && (entry.identity != *now || !entry.certain)
        };
        self.take_idle_of(key(now), stale, &mut gone);
        gone
    }

    /// Takes out all idle windows of a file: a window that is written to is about to be the only place of its pages.
    pub(super) fn forget_idle_of(&mut self, file: &FileIdentity) -> Vec<FileWindow> {
        let mut gone = Vec::new();
        self.take_idle_of(key(file), |_| true, &mut gone);
        gone
    }

    /// No new map finds an idle window that is written to and in which its file has no room any more, at its size `now`. Takes it out,
    /// unless somebody still looks at it; one whose pages could not be written stays.
    pub(super) fn forget_outgrown(&mut self, now: &FileIdentity) -> Vec<FileWindow> {
        let is_outgrown = |entry: &FileWindow| {
            let room = entry.cache.addresses().len() as u64;
            entry.users == 0 && entry.writes.is_some() && !entry.is_dirty() && room < now.size
        };
        let mut found = false;
        for entry in self.of_file(now).filter(|entry| is_outgrown(entry)) {
            (entry.writes, entry.certain, found) = (None, false, true);
        }
        match found {
            true => self.forget_changed(now),
            false => Vec::new(),
        }
    }

    /// True if one map shows the window.
    pub(super) fn has_one_user(&mut self, cache: &Arc<PageCache>) -> bool {
        self.entry_of(cache).is_some_and(|entry| entry.users == 1)
    }

    /// Takes out idle windows that are too many, and a few that are empty.
    pub(super) fn forget_idle(&mut self) -> Vec<FileWindow> {
        let mut gone = Vec::new();
        // One that has dirty pages, or that somebody still looks at, stays, and so do the younger ones: there are that many more.
        let too_many = self.idle.len().saturating_sub(self.most_idle);
        let oldest = self.idle.iter().take(too_many);
        let oldest: Vec<_> = oldest.map(|(&since, &file)| (since, file)).collect();
        for (since, file) in oldest {
            self.take_idle_of(file, |entry| entry.idle_since == since, &mut gone);
        }
        let looked_at = self.idle.range(self.next..).take(LOOKED_AT);
        let looked_at: Vec<_> = looked_at.map(|(&since, &file)| (since, file)).collect();
        self.next = match looked_at.last() {
            Some((since, _)) if looked_at.len() == LOOKED_AT => since + 1,
            _ => 0,
        };
        for (since, file) in looked_at {
            let empty =
                |entry: &FileWindow| entry.idle_since == since && entry.cache.folio_count() == 0;
            self.take_idle_of(file, empty, &mut gone);
        }
        gone
    }

    /// Maps and idle windows now.
    pub(super) fn counts(&self) -> (usize, usize) {
        let entries = self.files.values().flatten();
        let idle = entries.filter(|entry| entry.users == 0).count();
        (self.windows.len() - idle, idle)
    }

    fn take_idle_of(
        &mut self,
        file: FileKey,
        which: impl Fn(&FileWindow) -> bool,
        gone: &mut Vec<FileWindow>,
    ) {
        let Some(entries) = self.files.get_mut(&file) else {
            return;
        };
        for entry in entries.extract_if(.., |entry| is_idle(entry) && which(entry)) {
            self.idle.remove(&entry.idle_since);
            self.windows.remove(&address(&entry.cache));
            gone.push(entry);
        }
        if entries.is_empty() {
            self.files.remove(&file);
        }
    }
}

impl FileWindow {
    /// It has pages that the file has not got.
    fn is_dirty(&self) -> bool {
        self.cache.dirty_pages() > 0
    }
}

/// It is not mapped and no fault is under way in it: the cache is dropped
/// with the entry, and not in a handler.
fn is_idle(entry: &FileWindow) -> bool {
    entry.users == 0 && Arc::strong_count(&entry.cache) == 1 && !entry.is_dirty()
}

pub(super) fn key(identity: &FileIdentity) -> FileKey {
    (identity.dev, identity.ino)
}

fn address(cache: &Arc<PageCache>) -> usize {
    Arc::as_ptr(cache) as usize
}

#[cfg(test)]
mod tests {
    use crate::Engine;
    use crate::table::scratch::Scratch;

    #[test]
    fn an_idle_window_too_many_that_somebody_looks_at_goes_later() {
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(16 << 20)
            .build()
            .unwrap();
        let scratch = Scratch::new(&[1; 4096]);
        // SAFETY: nobody writes to it.
        let map = unsafe { engine.map(&scratch.to_read()) }.unwrap();
        // An empty window would go at once.
        assert_eq!(map[0], 1);
        let files = &engine.inner.files;
        files.table().most_idle = 0;
        // As write-behind does.
        let looked_at = files.table().entries().next().unwrap().cache.clone();
        drop(map);
        assert_eq!(engine.stats().idle_windows, 1);
        drop(looked_at);
        engine.close_idle();
        assert_eq!(engine.stats().idle_windows, 0);
    }
}
