//! Files that have shared writable maps, which are the kernel's: while there is one, the kernel serves the
//! engine's windows of the file, too, so that each page is in one place.
//!
//! A window of which pages are pinned or locked stays the engine's as long as they are, one that a call is about until
//! that returns, and one that may not be the kernel's for ever: its pages are as they were when they were read.

use super::Files;
use super::served::Writer;
use super::table::{FileKey, key};
use crate::store::FileIdentity;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// A shared writable map's file, until [`Files::end_writing`].
#[must_use]
pub(crate) struct WrittenFile {
    key: FileKey,
    /// One of each window of the file's then.
    writers: Vec<Writer>,
}

impl WrittenFile {
    /// True if this is the file.
    pub(crate) fn is_of(&self, file: &File) -> io::Result<bool> {
        Ok(key(&FileIdentity::of(file.as_fd())?) == self.key)
    }
}

impl Files {
    /// A shared writable map of a file was made. Signals are masked.
    pub(crate) fn begin_writing(&self, identity: &FileIdentity) -> WrittenFile {
        let key = key(identity);
        let windows = {
            let mut table = self.table();
            table.begin_writing(key);
            table.windows_of(key)
        };
        let windows = windows.iter();
        let writers = windows.map(|(cache, served)| Writer::of(served, cache));
        WrittenFile {
            key,
            writers: writers.collect(),
        }
    }

    /// The map is gone.
    pub(crate) fn end_writing(&self, written: WrittenFile) {
        drop(written.writers);
        self.table().end_writing(written.key);
    }

    /// True if the file has a shared writable map.
    pub(crate) fn is_written(&self, identity: &FileIdentity) -> bool {
        self.table().is_written(identity)
    }
}
