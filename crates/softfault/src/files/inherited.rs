//! Maps of files in a child of fork: the kernel's own, where the parent's windows were.
//!
//! The engine that serves a window is the parent's, with its threads, locks and budget: nothing of it can be
//! used in the child. But the file is there, and the child has inherited a descriptor of it. So the kernel maps it
//! in the window's place, and the bytes are where they were. They are in no budget; what the kernel keeps of them is
//! page cache, which it takes back when memory is short. What the program asks of such a map the kernel does.

use super::Files;
use super::served::Served;
use crate::store::FileStore;
use core::ops::Range;
use libc::c_void;
use std::sync::Arc;

/// A window that somebody maps, and what a child needs of it.
pub(crate) struct FileWindow {
    addresses: Range<usize>,
    store: Arc<FileStore>,
    served: Arc<Served>,
}

impl Files {
    /// The windows that a child is to have.
    pub(crate) fn for_child(&self) -> Vec<FileWindow> {
        if self.born.is_parents() {
            // What was the kernel's in a child, its own children have by themselves.
            return Vec::new();
        }
        let table = self.table();
        let windows = table.stores_in_use();
        let windows = windows.filter(|(_, _, served)| served.is_for_children());
        let windows = windows.map(|(cache, store, served)| FileWindow {
            addresses: cache.addresses(),
            store: store.clone(),
            served: served.clone(),
        });
        windows.collect()
    }
}

impl FileWindow {
    pub(crate) fn addresses(&self) -> &Range<usize> {
        &self.addresses
    }

    /// Sees to it that a child has a descriptor of the file.
    pub(crate) fn before_fork(&self) {
        self.store.lend();
    }

    /// In the child: maps the file. False: a touch is a SIGSEGV, as it is without.
    ///
    /// # Safety
    /// Nothing is there that anybody else has put there.
    pub(crate) unsafe fn map_in_child(&self) -> bool {
        let Some(fd) = self.store.lent() else {
            return false;
        };
        let (start, bytes) = (self.addresses.start, self.addresses.len());
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the place of a window, of which the caller vouches that it is free.
        let mapped =
            unsafe { libc::mmap(start as *mut c_void, bytes, libc::PROT_READ, flags, fd, 0) };
        let is_mapped = mapped != libc::MAP_FAILED;
        if is_mapped {
            self.served.is_inherited();
        }
        is_mapped
    }
}
