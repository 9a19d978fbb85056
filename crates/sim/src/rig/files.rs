//! Files: which there are, and mapping and unmapping them.
//!
//! One window a file, as in the product, kept when nobody maps the file any
//! more: its pages stay cached. There each engine has one table of windows
//! under one lock; here each file has a lock of its own, as inodes have, so that
//! the engine's queues are measured.

use super::Rig;
use super::disk::{self, Disk};
use super::ring::Ring;
use super::store::FileStore;
use crate::job::{Job, PAGE};
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::lock::Mutex;
use softfault_engine::mm::{Attributes, Backing, Protection};
use sync::Arc;

/// Bounds on the rings, as in the product: two a processor between these.
const RINGS: (usize, usize) = (4, 16);

/// The files of a disk.
pub struct Files {
    disk: Arc<Disk>,
    rings: Vec<Arc<Ring>>,
    files: Vec<File>,
    /// Of each file's read-ahead, where that is as Linux has it.
    ra_pages: u32,
}

struct File {
    bytes: u64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The file's window, once it was mapped.
    cache: Option<Arc<PageCache>>,
    /// Maps of it now.
    users: usize,
}

/// A file that is mapped. To be given back by [`Rig::unmap_file`].
pub struct FileMap {
    cache: Arc<PageCache>,
    number: usize,
    bytes: u64,
}

impl FileMap {
    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    /// Where a page is.
    pub fn address(&self, page: u64) -> usize {
        self.cache.addresses().start + (page * PAGE) as usize
    }

    /// The first word of a page.
    pub fn word(&self, page: u64) -> u64 {
        disk::word(self.number as u64, page)
    }
}

impl Files {
    /// Files of these sizes on a disk.
    pub fn new(job: &Job, disk: Arc<Disk>, sizes: &[u64]) -> Self {
        let rings = (2 * job.cores).clamp(RINGS.0, RINGS.1);
        let file = |&bytes: &u64| File {
            bytes,
            open: Mutex::new(Open::default()),
        };
        Self {
            disk,
            rings: (0..rings).map(|_| Arc::new(Ring::new())).collect(),
            files: sizes.iter().map(file).collect(),
            ra_pages: job.ra_pages,
        }
    }

    /// Bytes of a file.
    pub fn bytes(&self, number: usize) -> u64 {
        self.files[number].bytes
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Drops all windows; nobody maps a file any more.
    pub fn close(&self) {
        for file in &self.files {
            drop(file.open.lock().cache.take());
        }
    }
}

impl Rig {
    /// Maps the whole of a file.
    pub fn map_file(&self, number: usize) -> Result<FileMap, String> {
        let files = &self.files;
        let file = &files.files[number];
        let mut open = file.open.lock();
        let cache = match &open.cache {
            Some(cache) => cache.clone(),
            None => {
                let ring = &files.rings[number % files.rings.len()];
                let store = FileStore::new(&files.disk, ring, number as u64, file.bytes);
                let node = self.node.clone();
                let cache = PageCache::new(node, Arc::new(store), file.bytes, OnTruncate::Error);
                let cache = cache.map_err(|error| format!("no window for a file: {error:?}"))?;
                cache.set_ra_pages(files.ra_pages);
                open.cache.insert(cache).clone()
            }
        };
        if open.users == 0 {
            let attributes = Attributes {
                backing: Backing::from(cache.clone()),
                protection: Protection::Read,
                ..Attributes::default()
            };
            let mapped = self.space.mmap(cache.addresses(), attributes);
            mapped.map_err(|_| "no room for another mapping".to_owned())?;
        }
        open.users += 1;
        Ok(FileMap {
            cache,
            number,
            bytes: file.bytes,
        })
    }

    /// Gives a map back.
    pub fn unmap_file(&self, map: FileMap) {
        let mut open = self.files.files[map.number].open.lock();
        open.users -= 1;
        if open.users == 0 {
            let unmapped = self.space.munmap(map.cache.addresses(), |_, _| {});
            assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
        }
    }
}
