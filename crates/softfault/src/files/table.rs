//! Which file has which window.

use crate::store::FileIdentity;
use softfault_engine::cache::PageCache;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Idle windows that are looked at, whether they are empty, when one is closed:
/// more than come, and so few that no unmap takes long.
const LOOKED_AT: usize = 4;
/// The most windows kept for files that nobody maps: each is a mapping, of
/// which Linux allows 65,530.
const MOST_IDLE: usize = 16 << 10;

/// Device and inode.
type FileKey = (u64, u64);

/// A window.
pub(super) struct Entry {
    pub(super) identity: FileIdentity,
    /// False if the file may have changed within the identity's resolution.
    pub(super) certain: bool,
    pub(super) cache: Arc<PageCache>,
    /// Maps of it that live. 0: an idle window.
    pub(super) users: usize,
    /// Its place among the idle windows, if it is one.
    idle_since: u64,
}

/// All windows of an engine.
pub(super) struct Table {
    /// A file that changed may have several.
    files: HashMap<FileKey, Vec<Entry>>,
    /// The file of each window, by the address of its cache.
    windows: HashMap<usize, FileKey>,
    /// The idle ones, the oldest first.
    idle: BTreeMap<u64, FileKey>,
    /// Windows that became idle so far.
    closed: u64,
    /// The idle window that is looked at next, or the first one after it.
    next: u64,
    /// Idle windows at most: each costs a file descriptor.
    most_idle: usize,
}

impl Table {
    /// An empty table, in a process that may have so many open files.
    pub(super) fn new(open_files: usize) -> Self {
        Self {
            files: HashMap::new(),
            windows: HashMap::new(),
            idle: BTreeMap::new(),
            closed: 0,
            next: 0,
            most_idle: (open_files / 4).min(MOST_IDLE),
        }
    }

    /// Enters a window that has one user.
    pub(super) fn add(&mut self, identity: FileIdentity, certain: bool, cache: Arc<PageCache>) {
        let entry = Entry {
            identity,
            certain,
            cache,
            users: 1,
            idle_since: 0,
        };
        let file = key(&identity);
        self.windows.insert(address(&entry.cache), file);
        self.files.entry(file).or_default().push(entry);
    }

    /// The window that shows this version of a file.
    pub(super) fn find(&mut self, identity: &FileIdentity) -> Option<&mut Entry> {
        let entries = self.files.get_mut(&key(identity))?.iter_mut();
        entries
            .filter(|entry| entry.certain)
            .find(|entry| entry.identity == *identity)
    }

    /// All windows of a file, whatever its version.
    pub(super) fn of_file(&mut self, identity: &FileIdentity) -> impl Iterator<Item = &mut Entry> {
        self.files.get_mut(&key(identity)).into_iter().flatten()
    }

    /// Counts a user in.
    pub(super) fn open(&mut self, identity: &FileIdentity) {
        let entry = self.find(identity).expect("the caller found it");
        entry.users += 1;
        if entry.users == 1 {
            let idle_since = entry.idle_since;
            self.idle.remove(&idle_since);
        }
    }

    /// Counts a user out; true if it was the last.
    pub(super) fn close(&mut self, cache: &Arc<PageCache>) -> bool {
        let file = self.windows.get(&address(cache));
        let file = *file.expect("a map's cache is in the table");
        let entries = self.files.get_mut(&file);
        let mut entries = entries.into_iter().flatten();
        let entry = entries
            .find(|entry| Arc::ptr_eq(&entry.cache, cache))
            .expect("the file has the window");
        entry.users -= 1;
        if entry.users > 0 {
            return false;
        }
        self.closed += 1;
        entry.idle_since = self.closed;
        self.idle.insert(self.closed, file);
        true
    }

    /// Takes out idle windows of a file that do not show this version of it.
    pub(super) fn forget_changed(&mut self, now: &FileIdentity) -> Vec<Entry> {
        let mut gone = Vec::new();
        let stale = |entry: &Entry| entry.identity != *now || !entry.certain;
        self.take_idle_of(key(now), stale, &mut gone);
        gone
    }

    /// Takes out idle windows that are too many, and a few that are empty.
    pub(super) fn forget_idle(&mut self) -> Vec<Entry> {
        let mut gone = Vec::new();
        while self.idle.len() > self.most_idle {
            // One that a fault still looks at stays, and counts no more.
            let (since, file) = self.idle.pop_first().expect("there are some");
            self.take_idle_of(file, |entry| entry.idle_since == since, &mut gone);
        }
        let looked_at = self.idle.range(self.next..).take(LOOKED_AT);
        let looked_at: Vec<_> = looked_at.map(|(&since, &file)| (since, file)).collect();
        self.next = match looked_at.last() {
            Some((since, _)) if looked_at.len() == LOOKED_AT => since + 1,
            _ => 0,
        };
        for (since, file) in looked_at {
            let empty = |entry: &Entry| entry.idle_since == since && entry.cache.folio_count() == 0;
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

    /// Empties the table and returns what was in it.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.idle.clear();
        self.windows.clear();
        let files = core::mem::take(&mut self.files);
        files.into_values().flatten().collect()
    }

    fn take_idle_of(
        &mut self,
        file: FileKey,
        which: impl Fn(&Entry) -> bool,
        gone: &mut Vec<Entry>,
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

/// Nobody maps it and no fault is under way in it: who drops the entry drops
/// the cache, and not a handler.
fn is_idle(entry: &Entry) -> bool {
    entry.users == 0 && Arc::strong_count(&entry.cache) == 1
}

fn key(identity: &FileIdentity) -> FileKey {
    (identity.dev, identity.ino)
}

fn address(cache: &Arc<PageCache>) -> usize {
    Arc::as_ptr(cache) as usize
}
