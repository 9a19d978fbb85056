//! Threads write to a file that becomes longer as they go, a MiB at a time, through one map of all of it, or past all
//! memory. A thread takes the next MiB, makes the file and the map longer while no other is at it, and writes that MiB. The last
//! flush is inside the time, and the file is looked at afterwards, through the kernel.

use super::super::block::Block;
use super::super::engine::WritableMapping;
use super::super::fill::{PAGE, mix};
use super::super::reader::{reopen_to_check, reopen_to_write};
use super::write::{Flushes, RUN, cannot_flush, cannot_write, check, expected_page};
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The growing file, and the target of the writes of all threads.
struct Growing<'a> {
    file: File,
    /// Written by a thread that makes it longer; the others have it for reading while they write to their parts.
    target: RwLock<Target<'a>>,
}

struct Target<'a> {
    pages: u64,
    /// `None`: past all memory, by O_DIRECT.
    map: Option<Box<dyn WritableMapping + 'a>>,
}

impl Growing<'_> {
    fn read(&self) -> RwLockReadGuard<'_, Target<'_>> {
        self.target.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it so many pages long, unless it is longer.
    fn grow(&self, pages: u64) -> io::Result<()> {
        if self.read().pages >= pages {
            return Ok(());
        }
        let mut target = self.target.write().unwrap_or_else(PoisonError::into_inner);
        if target.pages < pages {
            let bytes = pages * PAGE;
            match &mut target.map {
                Some(map) => map.grow(&self.file, bytes as usize)?,
                None => self.file.set_len(bytes)?,
            }
            target.pages = pages;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        match &self.read().map {
            Some(map) => map.flush(),
            None => self.file.sync_data(),
        }
    }
}

/// Writes all of the job's file, with a flush each `flush_every` pages.
pub fn run(bench: &Bench, flush_every: Option<u64>) -> Result<(), String> {
    let job = bench.job.files[0];
    let opened = |e: io::Error| format!("cannot open the file: {e}");
    let file = reopen_to_write(job.fd, bench.engine.is_none()).map_err(opened)?;
    let checked = reopen_to_check(job.fd).map_err(opened)?;
    let pages = job.bytes / PAGE;
    let first = RUN.min(pages);
    // Blocks that an earlier run has left are not written over.
    (file.set_len(0))
        .and_then(|()| file.set_len(first * PAGE))
        .and_then(|()| file.sync_all())
        .map_err(|e| format!("cannot empty the file: {e}"))?;
    let map = bench.engine.map(|engine| engine.map_writable(&file));
    let map = map
        .transpose()
        .map_err(|e| format!("cannot map the file to be written to: {e}"))?;
    let target = RwLock::new(Target { pages: first, map });
    let growing = Growing { file, target };
    let salt = mix(bench.job.seed ^ u64::from(std::process::id()));
    let (next, working) = (AtomicU64::new(0), AtomicUsize::new(bench.job.threads));
    let flushes = Flushes::new(flush_every);
    let flush = || growing.flush().map_err(cannot_flush);
    gang::measure(bench, STACK, None, |member| {
        let mut blocks = vec![Block::default(); RUN as usize];
        while !member.stopped() {
            // Relaxed: it only gives numbers out.
            let first = next.fetch_add(RUN, Ordering::Relaxed);
            if first >= pages {
                break;
            }
            let end = (first + RUN).min(pages);
            let grown = growing.grow(end);
            grown.map_err(|e| format!("cannot make the file longer: {e}"))?;
            {
                let target = growing.read();
                match &target.map {
                    Some(map) => (first..end).for_each(|page| {
                        // SAFETY: a page of the map, which is this thread's; it does not move meanwhile.
                        let written = || unsafe { store(map.start(), salt, page) };
                        member.timed(Waited::Touch, written);
                    }),
                    None => {
                        let blocks = &mut blocks[..(end - first) as usize];
                        let written = || {
                            (first..).zip(&mut *blocks).for_each(|(page, block)| {
                                (0..).zip(expected_page(salt, page)).for_each(|(at, word)| {
                                    block.set_word(at, word);
                                });
                            });
                            (growing.file).write_all_at(Block::bytes(blocks), first * PAGE)
                        };
                        member.timed(Waited::Touch, written).map_err(cannot_write)?;
                    }
                }
            }
            member.count(end - first);
            if flushes.is_due(end - first) {
                flush()?;
            }
        }
        // The last thread to be done flushes for all.
        match working.fetch_sub(1, Ordering::AcqRel) {
            1 => flush(),
            _ => Ok(()),
        }
    })?;
    drop(growing);
    let bytes = checked.metadata().map_err(opened)?.len();
    if bytes != job.bytes {
        return Err(format!("wrong length: {bytes} bytes of {}", job.bytes));
    }
    check(&checked, pages, salt)
}

/// Writes a page by words.
///
/// # Safety
/// The map has the page, and nobody else writes or reads it.
unsafe fn store(map: NonNull<u8>, salt: u64, page: u64) {
    let start = map.as_ptr().wrapping_add((page * PAGE) as usize);
    for (at, word) in expected_page(salt, page).enumerate() {
        // SAFETY: a word of the page, as the caller says.
        unsafe { start.cast::<u64>().add(at).write_volatile(word) };
    }
}
