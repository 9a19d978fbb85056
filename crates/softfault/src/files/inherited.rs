//! Maps of files in a child of fork: the kernel's own, where the parent's windows were.
//!
//! The engine that serves a window is the parent's, with its threads, locks and budget: nothing of it can be
//! used in the child. But the file is there, and the kernel maps it in the window's place: by the descriptor that the child
//! inherits, if there is one in the program's table; else the parent maps it elsewhere while it forks, and the child
//! moves that. No descriptor is made for it: the program's POSIX locks on the file would go with its close at exec. Only where the process
//! may have no more mappings (`vm.max_map_count`) one is, for a file that is only read.
//!
//! The bytes are in no budget; the kernel keeps them in its page cache, which it takes back when memory is
//! short. The kernel does the program's calls on such a map.

use super::Files;
use super::served::Served;
use crate::store::FileStore;
use crate::uffd::map_aside;
use core::ops::Range;
use libc::c_void;
use softfault_engine::store::Store;
use std::sync::Arc;

/// A window that is mapped, and the state that a child needs of it.
pub(crate) struct FileWindow {
    addresses: Range<usize>,
    store: Arc<FileStore>,
    served: Arc<Served>,
    /// The child's protection there.
    protection: i32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    sharing: i32,
    /// Where the parent has mapped it, while it forks.
    aside: Option<usize>,
}

impl Files {
    /// The windows that a child is to have.
    pub(crate) fn for_child(&self) -> Vec<FileWindow> {
        if self.generation.is_parents() {
            // These windows are mappings of the kernel here: a child of this child inherits them by itself.
            return Vec::new();
        }
        // The child reads it from there.
        self.write_back_all();
        let table = self.table();
        let windows = table.files_in_use();
        let windows = windows.filter(|(entry, _)| entry.served.is_for_children());
        let windows = windows.map(|(entry, store)| {
            let addresses = entry.cache.addresses();
            // Without, a touch is a SIGSEGV in the child.
            let sharing = match entry.served.is_private_in_children() {
                true => libc::MAP_PRIVATE,
                false => libc::MAP_SHARED,
            };
            let map_aside = |file| map_aside(file, addresses.len(), sharing).ok();
            let aside = match &entry.writes {
                // The lent descriptor is open for reading only.
                Some(writes) => writes.in_table().and_then(map_aside),
                None if store.allow_inherit() => None,
                None => store.in_table().and_then(map_aside).or_else(|| {
                    store.before_fork();
                    None
                }),
            };
            let writes = entry.writes.as_ref().map_or(0, |_| libc::PROT_WRITE);
            FileWindow {
                store: store.clone(),
                served: entry.served.clone(),
                protection: libc::PROT_READ | writes,
                sharing,
                addresses,
                aside,
            }
        });
        windows.collect()
    }
}

impl FileWindow {
    pub(crate) fn addresses(&self) -> &Range<usize> {
        &self.addresses
    }

    /// In the child: maps the file. False: a touch is a SIGSEGV.
    ///
    /// # Safety
    /// Nothing is there that anybody else has put there.
    pub(crate) unsafe fn map_in_child(&self) -> bool {
        let (start, bytes) = (self.addresses.start as *mut c_void, self.addresses.len());
        let mapped = match (self.aside, self.store.lent()) {
            (Some(aside), _) => {
                let aside = aside as *mut c_void;
                // SAFETY: a mapping of ours, of which nobody knows.
                if unsafe { sync::kernel_calls::mprotect(aside, bytes, self.protection) } < 0 {
                    return false;
                }
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                // SAFETY: the same, to the place of a window, of which the caller vouches that it is free.
                unsafe { sync::kernel_calls::mremap(aside, bytes, bytes, flags, start) }
            }
            (None, Some(fd)) if self.protection == libc::PROT_READ => {
                let flags = self.sharing | libc::MAP_FIXED | libc::MAP_NORESERVE;
                // SAFETY: to such a place, as above.
                unsafe { sync::kernel_calls::mmap(start, bytes, libc::PROT_READ, flags, fd, 0) }
            }
            (None, _) => libc::MAP_FAILED,
        };
        let is_mapped = mapped != libc::MAP_FAILED;
        if is_mapped {
            self.served.inherit();
        }
        is_mapped
    }

    /// In the parent: the child has it.
    pub(crate) fn after_fork(self) {
        if let Some(aside) = self.aside {
            // SAFETY: mapped above, and nobody's.
            unsafe { sync::kernel_calls::munmap(aside as *mut c_void, self.addresses.len()) };
        }
    }
}
