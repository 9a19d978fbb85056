//! A file of an engine, as its maps have it: a part of the window that shows it. Maps that are
//! reached by loads and maps that are reached by calls have the same.
//!
//! | file | has |
//! |---|---|
//! | `advise` | what `madvise(2)` does |
//! | `pin` | pages that stay: `mlock(2)`, pins |
//! | `populate` | pages brought in, with errors as values; the start of that |

mod advise;
mod pin;
mod populate;

use crate::files::{Files, OpenedWindow};
use crate::managed::Managed;
use crate::reached::Reached;
use core::ops::Range;
use softfault_engine::cache::{PageCache, Residency};
use softfault_engine::fault;
use softfault_engine::store::NO_COOKIE;
use std::io;
use std::sync::Arc;

/// A map of a file.
pub(crate) struct FileMap {
    cache: Arc<PageCache>,
    reached: Reached,
}

impl FileMap {
    /// A map of the `part` of a window that has been opened for it, and the addresses of that.
    /// Where there is no such part, the window is closed again.
    pub(crate) fn new(
        (managed, files): (&Managed, &Files),
        reached: Reached,
        opened: OpenedWindow,
        part: impl FnOnce(&OpenedWindow) -> io::Result<Range<usize>>,
    ) -> io::Result<(Self, Range<usize>)> {
        let part = part(&opened);
        let map = Self {
            cache: opened.cache,
            reached,
        };
        match part {
            Ok(part) => Ok((map, part)),
            Err(error) => {
                map.unmap(managed, files);
                Err(error)
            }
        }
    }

    /// The window.
    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// What of some addresses is in memory, by pages.
    pub(crate) fn residency(&self, addresses: Range<usize>) -> Residency {
        let _masked = self.reached.masked();
        // Reads that are over and that nobody waited for are not under way any
        // more.
        let completion = fault::Completion(self.cache.node());
        self.cache.store().reap(NO_COOKIE, &completion, 0);
        self.cache.residency(addresses)
    }

    /// Forgets the pages of some addresses.
    pub(crate) fn invalidate(&self, addresses: Range<usize>) {
        let _masked = self.reached.masked();
        self.cache.invalidate(addresses);
    }

    /// Takes it away; nobody has a reference to the bytes any more.
    pub(crate) fn unmap(self, managed: &Managed, files: &Files) {
        let _masked = self.reached.masked();
        files.close(managed, self.cache);
    }

    /// In a child of fork, of a map that its parent made: nothing is given back.
    pub(crate) fn leave(&self) {
        core::mem::forget(self.cache.clone());
    }
}
