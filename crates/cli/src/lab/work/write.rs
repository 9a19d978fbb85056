//! Threads write to a file through a map, or past all memory: over all of it in order, or to a word of pages that are
//! drawn. The last flush is inside the time, and the file is looked at afterwards, through the kernel.

use super::super::block::Block;
use super::super::engine::WritableMapping;
use super::super::fill::{PAGE, WORDS, mix};
use super::super::job::{JobFile, Writing};
use super::super::memory::accesses::Accesses;
use super::super::reader::{Buffer, reopen_to_check, reopen_to_write};
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Pages that are looked at by one read.
pub(super) const RUN: u64 = 256;

/// Locks of pages that are read, changed and written: one for each so many pages.
const LOCKS: usize = 1024;

/// The destination of the threads' writes.
enum Target<'a> {
    Map(Box<dyn WritableMapping + 'a>),
    /// The file, by O_DIRECT: as with a map, a write to a part reads it first.
    Direct(File, Vec<Mutex<()>>),
}

impl Target<'_> {
    /// Pages that are written over at a time.
    fn run(&self) -> u64 {
        match self {
            Self::Map(_) => 1,
            Self::Direct(..) => RUN,
        }
    }

    /// Writes over pages, which are the caller's.
    fn write_over(&self, first: u64, blocks: &mut [Block], salt: u64) -> io::Result<()> {
        match self {
            Self::Map(map) => {
                let start = map.start().as_ptr().cast::<u64>();
                for word in first * WORDS..(first + blocks.len() as u64) * WORDS {
                    let value = expected(salt, word / WORDS, word % WORDS);
                    // SAFETY: a word of the map, which is this thread's.
                    unsafe { start.add(word as usize).write_volatile(value) };
                }
                Ok(())
            }
            Self::Direct(file, _) => {
                file.read_exact_at(Block::bytes_mut(blocks), first * PAGE)?;
                for (page, block) in (first..).zip(blocks.iter_mut()) {
                    (0..WORDS).for_each(|word| block.set_word(word, expected(salt, page, word)));
                }
                file.write_all_at(Block::bytes(blocks), first * PAGE)
            }
        }
    }

    /// Counts a word up, which no other thread counts.
    fn count_up(&self, page: u64, word: u64) -> io::Result<()> {
        match self {
            Self::Map(map) => {
                let word = (map.start().as_ptr().cast::<u64>())
                    .wrapping_add((page * WORDS + word) as usize);
                // SAFETY: a word of the map, which no other thread writes to.
                unsafe { word.write_volatile(word.read_volatile().wrapping_add(1)) };
                Ok(())
            }
            Self::Direct(file, locks) => {
                // Others count words of the same page.
                let lock = locks[page as usize % LOCKS].lock();
                let _lock = lock.unwrap_or_else(PoisonError::into_inner);
                let mut block = [Block::default()];
                file.read_exact_at(Block::bytes_mut(&mut block), page * PAGE)?;
                block[0].set_word(word, block[0].word(word).wrapping_add(1));
                file.write_all_at(Block::bytes(&block), page * PAGE)
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Self::Map(map) => map.flush(),
            Self::Direct(file, _) => file.sync_data(),
        }
    }
}

/// Writes, with a flush each `flush_every` pages.
pub fn run(bench: &Bench, how: Writing, flush_every: Option<u64>) -> Result<(), String> {
    let job: JobFile = bench.job.files[0];
    let opened = reopen_to_write(job.fd, bench.engine.is_none());
    let file = opened.map_err(|e| format!("cannot open the file: {e}"))?;
    // The look at it must not count as memory of the run.
    let checked = reopen_to_check(job.fd).map_err(|e| format!("cannot open the file: {e}"))?;
    let map = bench.engine.map(|engine| engine.map_writable(&file));
    let map = map
        .transpose()
        .map_err(|e| format!("cannot map the file to be written to: {e}"))?;
    let target = match map {
        Some(map) => Target::Map(map),
        None => Target::Direct(file, (0..LOCKS).map(|_| Mutex::default()).collect()),
    };
    let (pages, threads) = (job.bytes / PAGE, bench.job.threads as u64);
    let salt = mix(bench.job.seed ^ u64::from(std::process::id()));
    let before = match how {
        Writing::Over => 0,
        Writing::Words(_) => sum(&checked, pages, threads)?,
    };
    let flush = || target.flush().map_err(cannot_flush);
    let working = AtomicUsize::new(bench.job.threads);
    let flushes = Flushes::new(flush_every);
    let count = |pages: u64| match flushes.is_due(pages) {
        true => flush(),
        false => Ok(()),
    };
    let seconds = matches!(how, Writing::Words(_)).then_some(bench.job.seconds);
    gang::measure(bench, STACK, seconds, |member| {
        match how {
            Writing::Over => {
                let own = |number: u64| number * pages / threads;
                let number = member.number as u64;
                let mut blocks = vec![Block::default(); target.run() as usize];
                for first in (own(number)..own(number + 1)).step_by(blocks.len()) {
                    if member.stopped() {
                        break;
                    }
                    let run = target.run().min(own(number + 1) - first);
                    let blocks = &mut blocks[..run as usize];
                    let done =
                        member.timed(Waited::Touch, || target.write_over(first, blocks, salt));
                    done.map_err(cannot_write)?;
                    member.count(run);
                    count(run)?;
                }
            }
            Writing::Words(spread) => {
                let accesses = Accesses::new(bench.job.seed, pages, 100, spread);
                for number in 0.. {
                    // One write at least, however short the run.
                    if number > 0 && member.stopped() {
                        break;
                    }
                    let page = accesses.at(member.number, number).page;
                    let word = member.number as u64 % WORDS;
                    let done = member.timed(Waited::Touch, || target.count_up(page, word));
                    done.map_err(cannot_write)?;
                    member.count(1);
                    count(1)?;
                }
            }
        }
        // The last thread to be done flushes for all.
        match working.fetch_sub(1, Ordering::AcqRel) {
            1 => flush(),
            _ => Ok(()),
        }
    })?;
    drop(target);
    match how {
        Writing::Over => check(&checked, pages, salt),
        Writing::Words(_) => {
            let (after, written) = (sum(&checked, pages, threads)?, flushes.written.into_inner());
            let found = after.wrapping_sub(before);
            match found == written {
                true => Ok(()),
                false => Err(format!(
                    "wrong data: {found} of {written} writes are in the file"
                )),
            }
        }
    }
}

/// When flushes are due, beside the last one.
pub(super) struct Flushes {
    /// Pages that were written. Relaxed: a count.
    written: AtomicU64,
    /// Immutable.
    every: u64,
}

impl Flushes {
    /// One each so many pages.
    pub(super) fn new(every: Option<u64>) -> Self {
        Self {
            written: AtomicU64::new(0),
            every: every.unwrap_or(u64::MAX),
        }
    }

    /// Counts pages, and is true if one is due that was not before.
    pub(super) fn is_due(&self, pages: u64) -> bool {
        // Relaxed: a count.
        let before = self.written.fetch_add(pages, Ordering::Relaxed);
        before / self.every != (before + pages) / self.every
    }
}

pub(super) fn cannot_flush(error: io::Error) -> String {
    format!("cannot flush: {error}")
}

pub(super) fn cannot_write(error: io::Error) -> String {
    format!("cannot write: {error}")
}

/// The words of a page that was written over.
pub(super) fn expected_page(salt: u64, page: u64) -> impl Iterator<Item = u64> {
    (0..WORDS).map(move |at| expected(salt, page, at))
}

/// The word of a file that was written over.
fn expected(salt: u64, page: u64, word: u64) -> u64 {
    (page * WORDS + word).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt
}

/// The sum of the words that the threads write to.
fn sum(file: &File, pages: u64, threads: u64) -> Result<u64, String> {
    let mut sum = 0u64;
    each_page(file, pages, |_, words| {
        let own = words.take(threads.min(WORDS) as usize);
        sum = own.fold(sum, u64::wrapping_add);
        Ok(())
    })?;
    Ok(sum)
}

/// Fails if the file does not have the bytes that were written.
pub(super) fn check(file: &File, pages: u64, salt: u64) -> Result<(), String> {
    each_page(file, pages, |page, words| {
        match (0..)
            .zip(words)
            .find(|&(at, word)| word != expected(salt, page, at))
        {
            None => Ok(()),
            Some((at, _)) => Err(format!("wrong data at offset {}", page * PAGE + at * 8)),
        }
    })
}

fn each_page(
    file: &File,
    pages: u64,
    mut each: impl FnMut(u64, &mut dyn Iterator<Item = u64>) -> Result<(), String>,
) -> Result<(), String> {
    let mut buffer = Buffer::default();
    for first in (0..pages).step_by(RUN as usize) {
        let bytes = (pages - first).min(RUN) * PAGE;
        let part = buffer.read_file(file, first * PAGE, bytes)?;
        for (page, bytes) in (first..).zip(part.chunks_exact(PAGE as usize)) {
            let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            each(page, &mut bytes.chunks_exact(8).map(word))?;
        }
    }
    Ok(())
}
