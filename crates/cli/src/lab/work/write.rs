//! Threads write to a file through a map: over all of it in order, or to a word of pages that are drawn. The last flush is
//! inside the time, and the file is looked at afterwards, through the kernel.

use super::super::fill::{PAGE, WORDS, mix};
use super::super::job::{JobFile, Writing};
use super::super::memory::accesses::Accesses;
use super::super::reader::{Buffer, reopen_to_check, reopen_to_write};
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Pages that are looked at by one read.
const RUN: u64 = 256;

/// Writes, with a flush each `flush_every` pages.
pub fn run(bench: &Bench, how: Writing, flush_every: Option<u64>) -> Result<(), String> {
    let job: JobFile = bench.job.files[0];
    let file = reopen_to_write(job.fd).map_err(|e| format!("cannot open the file: {e}"))?;
    // What looks at it must not count as memory of the run.
    let checked = reopen_to_check(job.fd).map_err(|e| format!("cannot open the file: {e}"))?;
    let engine = bench.engine.expect("the plan refuses pread here");
    let map = engine.map_writable(&file);
    let map = map.map_err(|e| format!("cannot map the file to be written to: {e}"))?;
    let (pages, threads) = (job.bytes / PAGE, bench.job.threads as u64);
    let salt = mix(bench.job.seed ^ u64::from(std::process::id()));
    let before = match how {
        Writing::Over => 0,
        Writing::Words(_) => sum(&checked, pages, threads)?,
    };
    let (start, flush) = (map.start().as_ptr() as usize, || {
        (map.flush()).map_err(|e| format!("cannot flush: {e}"))
    });
    let (working, written) = (AtomicUsize::new(bench.job.threads), AtomicU64::new(0));
    // Relaxed, all of them: counts.
    let count = |pages: u64| {
        let before = written.fetch_add(pages, Ordering::Relaxed);
        let each = flush_every.unwrap_or(u64::MAX);
        match before / each != (before + pages) / each {
            true => flush(),
            false => Ok(()),
        }
    };
    let seconds = matches!(how, Writing::Words(_)).then_some(bench.job.seconds);
    gang::measure(bench, STACK, seconds, |member| {
        let word = |page: u64, word: u64| (start + (page * PAGE + word * 8) as usize) as *mut u64;
        match how {
            Writing::Over => {
                let own = |number: u64| number * pages / threads;
                let number = member.number as u64;
                for page in own(number)..own(number + 1) {
                    if member.stopped() {
                        break;
                    }
                    member.timed(Waited::Touch, || {
                        for at in 0..WORDS {
                            // SAFETY: a word of the map, which is this thread's.
                            unsafe { word(page, at).write_volatile(expected(salt, page, at)) };
                        }
                    });
                    member.count(1);
                    count(1)?;
                }
            }
            Writing::Words(spread) => {
                let accesses = Accesses::new(bench.job.seed, pages, 100, spread);
                for number in 0.. {
                    if member.stopped() {
                        break;
                    }
                    let page = accesses.at(member.number, number).page;
                    let word = word(page, member.number as u64 % WORDS);
                    member.timed(Waited::Touch, || {
                        // SAFETY: a word of the map, which no other thread writes to.
                        unsafe { word.write_volatile(word.read_volatile().wrapping_add(1)) };
                    });
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
    drop(map);
    match how {
        Writing::Over => check(&checked, pages, salt),
        Writing::Words(_) => {
            let (after, written) = (sum(&checked, pages, threads)?, written.into_inner());
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

/// What a word of a file that was written over is.
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

/// Fails where the file has not what was written over it.
fn check(file: &File, pages: u64, salt: u64) -> Result<(), String> {
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
