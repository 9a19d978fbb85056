//! Where the windows of a file end: the file becomes shorter or longer by the engine, or others have changed its length.
//!
//! That of a window changes under the window's own lock, which is held over write-back: a file whose device hangs holds up no other.

use super::{Files, KnownWindow, Look, OpenedWindow, write_back};
use crate::managed::Managed;
use crate::signal;
use crate::store::{FileIdentity, FileWrites};
use softfault_engine::cache::{PageCache, TruncateGuard};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

impl Files {
    /// Makes a file shorter or longer, and all windows of it.
    pub(crate) fn truncate(&self, file: &File, bytes: u64) -> io::Result<()> {
        let identity = Look::at(file.as_fd())?.identity;
        let mut shown = self.shown(&identity).into_iter();
        let set = match shown.find_map(|(cache, writes)| Some((cache, writes?))) {
            Some((cache, writes)) => set_len(&cache, &writes, file, bytes),
            None => file.set_len(bytes),
        };
        for (cache, writes) in self.shown(&identity) {
            let _length = cache.hold_length();
            // Not before: of two threads the last one has the length that stays.
            let now = Look::at(file.as_fd())?.identity.size;
            match writes {
                Some(writes) => follow(&cache, &writes, now),
                // It shows no other version than before: others may have written to the file since the window was made.
                None => cache.truncate(now),
            }
        }
        set
    }

    /// The page caches of a file, and the way back to it, which one of them has at most.
    fn shown(&self, file: &FileIdentity) -> Vec<(Arc<PageCache>, Option<Arc<FileWrites>>)> {
        let mut table = self.table();
        let windows = table.of_file(file);
        windows
            .map(|entry| (entry.cache.clone(), entry.writes.clone()))
            .collect()
    }

    /// The file to which the writes of a window go, if it is written to.
    pub(crate) fn writes_of(&self, cache: &Arc<PageCache>) -> Option<Arc<FileWrites>> {
        self.table().writes_of(cache)
    }

    /// A window that is written to shows the present version of its file: its length now, and, if the window was not
    /// mapped for a while, the writes of others meanwhile. The first caller forgets its pages, and others wait for that.
    pub(super) fn brought_up_to_date(
        &self,
        managed: &Managed,
        known: KnownWindow,
    ) -> io::Result<OpenedWindow> {
        let mut opened = known.opened;
        let (Some(file), Some(writes)) = (known.file, &opened.writes) else {
            return Ok(opened);
        };
        let now = {
            let cache = &opened.cache;
            let _length = cache.hold_length();
            if self.table().was_idle(cache) {
                cache.invalidate(cache.addresses());
            }
            (file.identity()).inspect(|now| follow(cache, writes, now.size))
        };
        match now {
            Ok(now) => {
                opened.bytes = now.size;
                Ok(opened)
            }
            Err(error) => {
                self.close(managed, opened.cache);
                Err(error)
            }
        }
    }
}

/// Makes a file shorter or longer, and the window by which it is written to.
fn set_len(cache: &PageCache, writes: &FileWrites, file: &File, bytes: u64) -> io::Result<()> {
    // No fault follows the file's length before the change is done.
    let _length = cache.hold_length();
    let before = Look::at(file.as_fd())?.identity.size;
    let _emptied = about_to_end_at(cache, writes, (before, bytes));
    {
        // A write that has looked at the length before would make the file longer again.
        let _stopped = writes.stop();
        file.set_len(bytes)?;
        // Before a write finds it shorter, and takes that for a cut by others.
        cache.lower_end(bytes);
    }
    if bytes < before {
        writes.was_cut(bytes, before);
    }
    cache.truncate(bytes);
    Ok(())
}

/// A file is about to become `bytes` long, from a length that is followed first. If that is shorter, the pages past it are emptied, until
/// the result is dropped; if it is longer, bytes that were stored past its old end are gone. The caller holds the window's length.
fn about_to_end_at<'a>(
    cache: &'a PageCache,
    writes: &FileWrites,
    (size, bytes): (u64, u64),
) -> Option<TruncateGuard<'a>> {
    follow(cache, writes, size);
    if bytes < cache.end() {
        // The file may refuse to become shorter, and loses nothing then: the end that its pages are written up to moves when it has.
        return Some(cache.empty_from(bytes));
    }
    cache.truncate(cache.end());
    None
}

/// Others have cut a file, as a write-back has found.
pub(super) fn follow_cut(cache: &PageCache, writes: &FileWrites) {
    let _masked = signal::masked();
    let _length = cache.hold_length();
    // One that cannot be looked at keeps the end that it has.
    if let Ok(size) = cache.store().len() {
        follow(cache, writes, size);
    }
}

/// Others may have changed the length of a file, to `size` bytes. The caller holds the window's length.
fn follow(cache: &PageCache, writes: &FileWrites, size: u64) {
    let (window, end) = (cache.addresses(), cache.end());
    if size < end {
        // Stores behind it go nowhere, and the maps that made them are told so by a flush.
        write_back(cache, window.start + size as usize..window.end);
        let _emptied = cache.empty_from(size);
        // If they make it longer again it has holes there. So have pinned pages, which stay.
        writes.was_cut(size, end);
        cache.lower_end(size);
        cache.truncate(size);
    } else if size > end {
        cache.truncate(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::scratch::Scratch;
    use crate::{Coherence, Engine};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PAGE: usize = softfault_engine::PAGE_SIZE;

    /// As where the device hangs to which it is written.
    #[test]
    fn a_file_whose_length_cannot_change_now_holds_up_no_other() {
        let builder = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = builder.coherence(Coherence::Engine).build().unwrap();
        let [hangs, other] = [(); 2].map(|()| Scratch::new(&[1; 2 * PAGE]).to_write());
        // SAFETY: bytes, which nobody looks at.
        let write = |file: &File| unsafe { engine.map_mut(file) }.unwrap();
        let maps = [write(&hangs), write(&other)];
        let identity = Look::at(hangs.as_fd()).unwrap().identity;
        let (cache, _) = engine.inner.files.shown(&identity).pop().unwrap();
        let length = cache.hold_length();
        let (say, said) = channel();
        std::thread::scope(|scope| {
            let (say_cut, engine) = (say.clone(), &engine);
            let hangs = &hangs;
            scope.spawn(move || {
                engine.truncate(hangs, PAGE as u64).unwrap();
                say_cut.send("the file that hangs is cut").unwrap();
            });
            let also = (say.clone(), write);
            scope.spawn(move || {
                let (say, write) = also;
                drop(write(hangs));
                say.send("the file that hangs is mapped").unwrap();
            });
            // Wherever the others are by then.
            let other = &other;
            scope.spawn(move || {
                (0..1_000).for_each(|_| drop(write(other)));
                engine.truncate(other, PAGE as u64).unwrap();
                say.send("the other file").unwrap();
            });
            let first = said.recv_timeout(Duration::from_secs(60));
            drop(length);
            assert_eq!(first, Ok("the other file"));
        });
        drop(maps);
    }
}
