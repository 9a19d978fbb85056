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
    /// The kernel is about to map a file to be written to. `None` if a window of the engine may be. Signals are masked.
    pub(crate) fn begin_writing(&self, identity: &FileIdentity) -> Option<WrittenFile> {
        let key = key(identity);
        let windows = {
            let mut table = self.table();
            if table.has_writable(identity) {
                return None;
            }
            table.begin_writing(key);
            table.windows_of(key)
        };
        let windows = windows.iter();
        let writers = windows.map(|(cache, served)| Writer::of(served, cache));
        let written = WrittenFile {
            key,
            writers: writers.collect(),
        };
        self.look_again();
        Some(written)
    }

    /// The map is gone.
    pub(crate) fn end_writing(&self, written: WrittenFile) {
        drop(written.writers);
        self.table().end_writing(written.key);
        // Windows that the kernel serves because of it may be taken over again.
        self.look_again();
    }

    /// True if the file has a shared writable map.
    pub(crate) fn is_written(&self, identity: &FileIdentity) -> bool {
        self.table().is_written(identity)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::scratch::Scratch;
    use crate::{Coherence, Engine};
    use crate::{files::Look, signal};
    use std::os::fd::AsFd;

    /// A thread whose map was to be the kernel's, since somebody read the file, comes too late.
    #[test]
    fn the_kernel_maps_no_file_that_the_engine_writes_to() {
        let builder = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = builder.coherence(Coherence::Engine).build().unwrap();
        let scratch = Scratch::new(&[1; 4096]);
        let file = scratch.to_write();
        let files = &engine.inner.files;
        let identity = Look::at(file.as_fd()).unwrap().identity;
        // SAFETY: nobody looks at the bytes.
        let map = unsafe { engine.map_mut(&file) }.unwrap();
        assert!(map.is_managed());
        let _masked = signal::masked();
        assert!(files.begin_writing(&identity).is_none());
        drop(map);
        engine.close_idle();
        let written = files.begin_writing(&identity).expect("it has no window");
        files.end_writing(written);
    }
}
