//! Private memory of an engine, as its maps have it: anonymous, or a file's until it is
//! written to. Maps that are reached by loads and maps that are reached by calls have the same.
//!
//! | file | has |
//! |---|---|
//! | `advise` | `madvise(2)` |
//! | `hand_over` | parts that are the program's own, and the kernel's to serve, from then on |
//! | `keep` | pages that stay: `mlock(2)`, pins, system calls |
//! | `populate` | pages brought in, with errors as values |
//! | `part` | the state for another map that is to begin as a part of this one |
//! | `protect` | `mprotect(2)` |
//! | `renew` | `mmap(2)` with `MAP_FIXED` over pages of zeros |
//! | `remap` | `mremap(2)` |
//! | `reserved` | address space of the program's, of which parts come to be memory of the engine's |

mod advise;
mod hand_over;
mod keep;
mod part;
mod populate;
mod protect;
mod remap;
mod renew;
mod reserved;

pub(crate) use keep::HoldFor;

use crate::access_path::AccessPath;
use crate::error;
use crate::files::Files;
use crate::fork::Memory;
use crate::generation::PerProcess;
use crate::managed::Managed;
use crate::process;
use crate::signal::Masked;
use crate::store::FileStore;
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::anon::PrivateFile;
use softfault_engine::cache::OnTruncate;
use softfault_engine::mm::{Attributes, Backing, Protection};
use std::io;
use std::sync::{Arc, Mutex};

/// Bytes of a file, for a private map: `offset` may be any.
#[derive(Clone)]
pub(crate) struct FilePart {
    pub(crate) store: Arc<FileStore>,
    pub(crate) offset: u64,
    pub(crate) on_truncate: OnTruncate,
}

/// A private map.
pub(crate) struct Private {
    anon: Memory,
    access_path: AccessPath,
    /// Bytes of the window before the first of the map: a file's offset in its page.
    skip: usize,
    len: usize,
    /// The protection of pages that have none of their own. Protected by the map, which is borrowed to change it.
    protection: Protection,
    /// Pages may have a protection of their own, which the space knows. Relaxed: set before the first has one; a thread that looks
    /// meanwhile goes by the protection that all had before.
    parts_differ: AtomicBool,
    /// The file that it begins as. Immutable.
    file: Option<Arc<FileStore>>,
    /// Pages that stay.
    kept: PerProcess<KeptPages>,
}

/// Pages that stay: a child of fork inherits none.
#[derive(Default)]
struct KeptPages {
    /// By their numbers in the window: one range for each holder.
    held: Mutex<Vec<Range<usize>>>,
    /// True if all of the map is one of them, for `mlock`. Locked before `held`, and over the faults that bring the pages in.
    locked: Mutex<bool>,
}

impl Private {
    /// `len` bytes of zeros, or of a part of a file: of one page at least. Memory that is
    /// reached by loads needs `masked` signals; without, it is reached by calls.
    pub(crate) fn new(
        (managed, files): (&Managed, &Files),
        masked: Option<&Masked>,
        len: usize,
        part: Option<FilePart>,
    ) -> io::Result<Self> {
        let access_path = match masked {
            Some(_) => AccessPath::ByLoads,
            None => AccessPath::ByCalls,
        };
        if let (AccessPath::ByLoads, Some(process)) = (access_path, process::get()) {
            process.mmu().prepare_pins();
        }
        let skip = part
            .as_ref()
            .map_or(0, |part| part.offset % PAGE_SIZE as u64) as usize;
        let bytes = len.checked_add(skip).ok_or_else(error::too_large)?.max(1);
        let anon = files.making_room(|| {
            let node = managed.node.clone();
            let Some(part) = part.clone() else {
                return Anonymous::new(node, bytes);
            };
            let private_file = PrivateFile {
                store: part.store,
                offset: part.offset - skip as u64,
            };
            Anonymous::of_file(node, bytes, private_file, part.on_truncate)
        })?;
        let mut map = Self {
            anon: Memory::new(anon),
            access_path,
            skip,
            len,
            protection: Protection::ReadWrite,
            parts_differ: AtomicBool::new(false),
            file: part.map(|part| part.store),
            kept: PerProcess::default(),
        };
        map.enter(managed, map.window())?;
        map.allow_inherit(masked);
        Ok(map)
    }

    /// Enters a range of the window into the space.
    fn enter(&self, managed: &Managed, range: Range<usize>) -> io::Result<()> {
        self.enter_as(managed, range, self.protection)
    }

    fn enter_as(
        &self,
        managed: &Managed,
        range: Range<usize>,
        protection: Protection,
    ) -> io::Result<()> {
        let pgoff = (range.start - self.anon.addresses().start) / PAGE_SIZE;
        let attributes = Attributes {
            backing: Backing::from(self.anon.clone()),
            pgoff: pgoff as u64,
            protection,
            ..Attributes::default()
        };
        managed.space.mmap(range, attributes).map_err(error::mm)
    }

    /// Children inherit it from now on, if it is memory of the process's.
    fn allow_inherit(&mut self, masked: Option<&Masked>) {
        if let Some(masked) = masked {
            self.anon.allow_inherit(masked);
        }
    }

    /// True if a parent of this process made it, and this one could not take it over.
    pub(crate) fn is_lost(&self) -> bool {
        self.anon.is_lost()
    }

    /// Where the first byte is.
    pub(crate) fn start(&self) -> usize {
        self.anon.addresses().start + self.skip
    }

    /// Bytes of the map.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// True if it may be written to, or perhaps some of it.
    pub(crate) fn is_writable(&self) -> bool {
        self.protection == Protection::ReadWrite || self.parts_differ.load(Relaxed)
    }

    /// The memory, for statistics.
    pub(crate) fn anonymous(&self) -> &Arc<Anonymous> {
        &self.anon
    }

    /// The addresses that are mapped: whole pages.
    pub(crate) fn window(&self) -> Range<usize> {
        let start = self.anon.addresses().start;
        start..start + pages_for(self.skip + self.len)
    }

    /// Takes it away; nobody has a reference to the bytes any more.
    pub(crate) fn unmap(self, managed: &Managed) {
        let masked = self.access_path.masked();
        // Dropped before the mask, as a parameter is not: it may have the last reference to its file.
        let this = self;
        let window = this.window();
        let anon = this.anon.into_inner(masked.as_ref());
        managed.unmap_window(window);
        give_up(anon);
    }
}

/// Drops memory that is not mapped any more.
fn give_up(anon: Arc<Anonymous>) {
    // A fault by a stray pointer looks once more, and lets go: the
    // last reference is dropped here, and not in the handler.
    while !Anonymous::is_unused(&anon) {
        std::thread::yield_now();
    }
    drop(anon);
}

/// Bytes of the pages for so many bytes: one at least, as mmap(2) maps.
fn pages_for(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(PAGE_SIZE)
}
