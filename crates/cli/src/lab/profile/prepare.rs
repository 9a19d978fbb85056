//! The memory for each kind of fault: an engine, a mapping of it, and the order of the touches.

use super::fill::{Contents, Fill, PAGE, mix};
use super::kind::{Kind, ToldBy};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::lab::caches;
use crate::lab::files::{self, LabFile};
use crate::lab::full_swap::{self, Tell};
use crate::lab::job;
use softfault::{Advice, Coherence, Engine, Mmap, MmapMut, Reads, Swap};
use std::fs::File;
use std::path::Path;

/// Pages of memory for each touch: touched pages lie apart.
const APART: u64 = 4;
/// The least of it, so that a budget of a quarter is one.
const LEAST: u64 = 64 << 20;
/// Bytes of the budget besides the mapping.
const ROOM: u64 = 64 << 20;

/// Where, and how much.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub dir: &'a Path,
    pub seed: u64,
    pub touches: u64,
}

/// A mapping whose touches are faults of a kind. All fields immutable.
pub struct Scene {
    map: Mapped,
    /// Its pages.
    pages: u64,
    seed: u64,
    in_order: bool,
    /// The contents of its pages, where they are a file's.
    fill: Option<Fill>,
    /// The contents of a page of no file.
    written: bool,
    /// Lives as long as the map.
    _engine: Engine,
}

enum Mapped {
    Read(Mmap),
    Write(MmapMut),
}

/// Prepares a kind; or says why it cannot be had here.
pub fn scene(
    kind: Kind,
    told: ToldBy,
    place: Place<'_>,
    interrupt: &Interrupt,
) -> Result<Result<Scene, String>, Error> {
    let pages = (2 * place.touches * APART).max(LEAST / PAGE);
    let bytes = pages * PAGE;
    let is_short = matches!(kind, Kind::Evicted | Kind::SwapIn);
    let memory = if is_short { bytes / 4 } else { bytes + ROOM };
    let reads = match kind {
        Kind::PageCache => Reads::Cached,
        _ => Reads::Direct,
    };
    let mut builder = Engine::builder()
        .memory(memory as usize)
        .allow_kernel_maps(false)
        .coherence(Coherence::Engine)
        .faults(told.faults())
        .reads(reads);
    if kind == Kind::SwapIn {
        let swap = job::Swap {
            dir: place.dir.to_owned(),
            bytes: 2 * bytes,
        };
        full_swap::watch(Some(&swap), Tell::Stderr);
        builder = builder.swap(Swap::in_dir(&swap.dir).bytes(swap.bytes));
    }
    let engine = match builder.build() {
        Ok(engine) => engine,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let file = || file(kind, place, bytes, interrupt);
    let io = |error: std::io::Error| Error::failed(error);
    let (map, fill) = match kind {
        Kind::Present | Kind::Cold | Kind::PageCache | Kind::Evicted | Kind::ReadAhead => {
            let file = file()?;
            // SAFETY: nobody else has the file, and this process only reads it.
            let map = unsafe { engine.map(&file.file) }.map_err(io)?;
            (Mapped::Read(map), fill_of(&file))
        }
        Kind::ZeroRead | Kind::ZeroWrite | Kind::SwapIn => {
            let map = engine.map_anon(bytes as usize).map_err(io)?;
            (Mapped::Write(map), None)
        }
        Kind::PrivateCopy => {
            let file = file()?;
            // SAFETY: as above.
            let map = unsafe { engine.map_copy(&file.file) }.map_err(io)?;
            (Mapped::Write(map), fill_of(&file))
        }
        Kind::Protected => {
            let file = file()?;
            let writable = writable_copy(&file, place.dir).map_err(io)?;
            // SAFETY: nobody else has the copy.
            let map = unsafe { engine.map_mut(&writable) }.map_err(io)?;
            (Mapped::Write(map), fill_of(&file))
        }
    };
    let scene = Scene {
        map,
        pages,
        seed: place.seed,
        in_order: kind == Kind::ReadAhead,
        fill,
        written: kind == Kind::SwapIn,
        _engine: engine,
    };
    if !scene.is_managed() {
        return Ok(Err("the engine does not serve such a map here".into()));
    }
    if kind != Kind::ReadAhead {
        scene.advise_random().map_err(io)?;
    }
    scene.prepare(kind, interrupt)?;
    Ok(Ok(scene))
}

/// A file of known data, in no memory or in the page cache.
fn file(kind: Kind, place: Place<'_>, bytes: u64, interrupt: &Interrupt) -> Result<LabFile, Error> {
    let mut files = files::make_data(place.dir, &[bytes], place.seed, interrupt)?;
    caches::drop_caches(&files, false);
    let file = files.pop().expect("one was asked for");
    if kind == Kind::PageCache {
        let mut reader = &file.file;
        std::io::copy(&mut reader, &mut std::io::sink()).map_err(Error::failed)?;
    }
    Ok(file)
}

fn fill_of(file: &LabFile) -> Option<Fill> {
    match file.contents {
        Contents::Filled(fill) => Some(fill),
        Contents::Zeros | Contents::Unknown => None,
    }
}

/// The file once more, to be written to.
fn writable_copy(file: &LabFile, dir: &Path) -> std::io::Result<File> {
    let mut copy = tempfile::tempfile_in(dir)?;
    let mut reader = &file.file;
    std::io::copy(&mut reader, &mut copy)?;
    copy.sync_all()?;
    Ok(copy)
}

impl Scene {
    /// Does the work that the touches are to find done.
    fn prepare(&self, kind: Kind, interrupt: &Interrupt) -> Result<(), Error> {
        let all = |writes: bool| {
            (0..self.pages).try_for_each(|at| {
                interrupt.check()?;
                self.touch(self.order(at), writes);
                Ok(())
            })
        };
        match kind {
            Kind::Present | Kind::Evicted | Kind::Protected => all(false),
            // Each word says that it was written.
            Kind::SwapIn => all(true),
            _ => Ok(()),
        }
    }

    /// The page of a touch. No page comes twice, unless there are more touches than pages.
    pub fn order(&self, at: u64) -> u64 {
        let at = at % self.pages;
        match self.in_order {
            true => at,
            false => shuffled(at, self.pages, self.seed),
        }
    }

    /// Touches a page, and returns its old word, or its new one if it is written to.
    pub fn touch(&self, page: u64, writes: bool) -> u64 {
        let word = self.fill.map_or(0, |fill| fill.probe(page));
        let at = (page * PAGE + word * 8) as usize;
        match &self.map {
            Mapped::Read(map) => {
                // SAFETY: within the map, whose pages start at multiples of a page.
                unsafe { map.as_ptr().add(at).cast::<u64>().read_volatile() }
            }
            Mapped::Write(map) => {
                // SAFETY: as above; this thread alone uses the map.
                let at = unsafe { map.as_ptr().cast_mut().add(at).cast::<u64>() };
                // SAFETY: as above.
                unsafe {
                    if writes {
                        let word = self.fill.map_or(page + 1, |fill| fill.word(page, word));
                        at.write_volatile(word);
                    }
                    at.read_volatile()
                }
            }
        }
    }

    /// Fails if a word was not the page's.
    pub fn check(&self, page: u64, found: u64) -> Result<(), Error> {
        let is_right = match self.fill {
            Some(fill) => found == fill.word(page, fill.probe(page)),
            None => found == page + 1 || found == 0 && !self.written,
        };
        match is_right {
            true => Ok(()),
            false => Err(Error::failed(format_args!(
                "page {page} has {found:#x}, which is wrong"
            ))),
        }
    }

    fn is_managed(&self) -> bool {
        match &self.map {
            Mapped::Read(map) => map.is_managed(),
            Mapped::Write(map) => map.is_managed(),
        }
    }

    fn advise_random(&self) -> std::io::Result<()> {
        match &self.map {
            Mapped::Read(map) => map.advise(Advice::Random),
            Mapped::Write(map) => map.advise(Advice::Random),
        }
    }
}

/// One of the numbers below `count`, another for each number below it: three rounds of a Feistel network over
/// the next even power of two, again until it is below.
fn shuffled(number: u64, count: u64, seed: u64) -> u64 {
    let half = (u64::BITS - (count - 1).leading_zeros()).div_ceil(2);
    let mask = (1 << half) - 1;
    let mut number = number;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..3 {
            (left, right) = (right, left ^ (mix(seed ^ mix(right << 8 | round)) & mask));
        }
        number = left << half | right;
        if number < count {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_page_once() {
        for count in [2, 3, 64, 1000, 16384] {
            let mut pages: Vec<u64> = (0..count).map(|at| shuffled(at, count, 7)).collect();
            pages.sort_unstable();
            assert!(pages.into_iter().eq(0..count));
        }
    }
}
