//! Random operations on softfault's private memory and on the kernel's: both must
//! show what the model says, byte by byte, and every touched page is paid for; and
//! the same where most of it is in a swap file.
//!
//! ```text
//!   SOFTFAULT_ORACLE_OPERATIONS=1_000_000   so many operations in `a_long_run`
//! ```

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use softfault::{Advice, Builder, Engine, MmapMut, MmapOptions, Swap, UncheckedAdvice};
use softfault_engine::mm::MmError;
use softfault_oracle::{
    ARENA_PAGES, Access, AnonWorld, COPIED_PAGES, Expected, MemoryVerb, Op, Paid,
};
use softfault_oracle::{any_anon_op, any_swap_op, byte_at, play_anon};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 4096;

/// Where each page of the arena is, if it is mapped.
struct Places(Vec<Option<usize>>);

impl Places {
    fn new() -> Self {
        Self(vec![None; ARENA_PAGES])
    }

    fn is_free(&self, pages: &Range<usize>) -> bool {
        self.0[pages.clone()].iter().all(Option::is_none)
    }

    fn set(&mut self, pages: &Range<usize>, start: Option<usize>) {
        for (nth, place) in self.0[pages.clone()].iter_mut().enumerate() {
            *place = start.map(|start| start + nth * PAGE);
        }
    }
}

struct Way<'a>(&'a Places);

impl Way<'_> {
    fn address(&self, at: usize) -> *mut u8 {
        let page = self.0.0[at / PAGE].expect("only what is mapped is touched");
        (page + at % PAGE) as *mut u8
    }
}

impl Access for Way<'_> {
    fn read(&mut self, _space: usize, at: usize, bytes: &mut [u8]) -> Expected {
        let source = self.address(at);
        for (place, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: mapped; threads write bytes of their own.
            *byte = unsafe { source.add(place).read_volatile() };
        }
        Expected::Done
    }

    fn write(&mut self, _space: usize, at: usize, bytes: &[u8]) -> Expected {
        let target = self.address(at);
        for (place, &byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read`; it is mapped for writing.
            unsafe { target.add(place).write_volatile(byte) };
        }
        Expected::Done
    }
}

struct Softfault {
    engine: Engine,
    /// What private copies are made of.
    file: File,
    /// Part of it is in swap.
    swaps: bool,
    /// Charged before anything was mapped.
    before: u64,
    /// The maps, and the pages that each was made for.
    maps: Vec<(Range<usize>, MmapMut)>,
    places: Places,
}

impl AnonWorld for Softfault {
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(Way(&self.places))
    }

    fn map(&mut self, _space: usize, pages: Range<usize>) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let mut map = self.engine.map_anon(pages.len() * PAGE).unwrap();
        let start = map.as_mut_ptr() as usize;
        self.places.set(&pages, Some(start));
        self.maps.push((pages, map));
        Ok(())
    }

    fn unmap(&mut self, _space: usize, pages: Range<usize>) {
        self.places.set(&pages, None);
        self.maps.retain_mut(|(all, map)| {
            let part = pages.start.max(all.start)..pages.end.min(all.end);
            if part == *all {
                return false;
            }
            if !part.is_empty() {
                let bytes = (part.start - all.start) * PAGE..(part.end - all.start) * PAGE;
                // SAFETY: nobody touches what is not in `places`.
                unsafe { map.unmap_part(bytes) }.unwrap();
            }
            true
        });
    }

    fn is_managed(&self) -> bool {
        self.swaps
    }

    fn map_copy(&mut self, _space: usize, pages: Range<usize>, from: usize) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let mut options = MmapOptions::new();
        let options = options.offset((from * PAGE) as u64).len(pages.len() * PAGE);
        // SAFETY: nobody changes the file.
        let mut map = unsafe { options.map_copy_with(&self.engine, &self.file) }.unwrap();
        let start = map.as_mut_ptr() as usize;
        self.places.set(&pages, Some(start));
        self.maps.push((pages, map));
        Ok(())
    }

    fn manage(&mut self, _space: usize, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        for (all, map) in &self.maps {
            let part = pages.start.max(all.start)..pages.end.min(all.end);
            // Where it was unmapped in the middle, others are by now.
            let shown = |&page: &usize| {
                let start = map.as_ptr() as usize + (page - all.start) * PAGE;
                self.places.0[page] == Some(start)
            };
            let mut next = part.start;
            while let Some(first) = (next..part.end).find(shown) {
                let count = (first..part.end).take_while(shown).count();
                next = first + count;
                let (offset, len) = ((first - all.start) * PAGE, count * PAGE);
                let advised = advise(map, offset, len, verb);
                advised.unwrap_or_else(|error| panic!("{verb:?} of {part:?}: {error}"));
            }
        }
        Expected::Done
    }

    fn check(&self, _space: usize, paid: Paid) {
        let held: usize = self.maps.iter().map(|(_, map)| map.resident_bytes()).sum();
        if self.swaps {
            let stats = self.engine.stats();
            assert!(stats.peak_bytes <= stats.memory_bytes, "{stats:?}");
            return;
        }
        let pages = paid.least..=paid.most;
        assert!(pages.contains(&(held / PAGE)), "{held} bytes, not {paid:?}");
        let stats = self.engine.stats();
        // Zeros are resident and cost nothing.
        let least = self.before + (paid.least * PAGE) as u64;
        assert!(stats.resident_bytes >= least, "{stats:?}, not {paid:?}");
        assert!(stats.peak_bytes <= stats.memory_bytes, "{stats:?}");
        if self.maps.is_empty() {
            assert_eq!(stats.resident_bytes, self.before);
        }
    }
}

/// Gives advice of a part of a map.
fn advise(map: &MmapMut, offset: usize, len: usize, verb: MemoryVerb) -> io::Result<()> {
    match verb {
        MemoryVerb::DontNeed => {
            // SAFETY: the model knows what is there then.
            unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, len) }
        }
        MemoryVerb::Free => {
            // SAFETY: as above.
            unsafe { map.unchecked_advise_range(UncheckedAdvice::Free, offset, len) }
        }
        MemoryVerb::Cold => map.advise_range(Advice::Cold, offset, len),
        MemoryVerb::PageOut => map.advise_range(Advice::PageOut, offset, len),
        MemoryVerb::PopulateRead => map.advise_range(Advice::PopulateRead, offset, len),
        MemoryVerb::PopulateWrite => map.advise_range(Advice::PopulateWrite, offset, len),
        MemoryVerb::Lock | MemoryVerb::Unlock => Ok(()),
    }
}

struct Kernel {
    start: usize,
    places: Places,
    file: File,
}

impl Kernel {
    fn new() -> Self {
        let start = Self::mmap(0, ARENA_PAGES * PAGE, libc::PROT_NONE, 0);
        Self {
            start,
            places: Places::new(),
            file: copied_file(),
        }
    }

    fn mmap(addr: usize, bytes: usize, protection: i32, flags: i32) -> usize {
        // SAFETY: new, or over a part of the arena that nobody touches.
        let addr = unsafe {
            libc::mmap(
                addr as *mut libc::c_void,
                bytes,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
                -1,
                0,
            )
        };
        assert_ne!(addr, libc::MAP_FAILED);
        addr as usize
    }

    fn set(&mut self, pages: &Range<usize>, protection: i32) -> usize {
        let addr = self.start + pages.start * PAGE;
        Self::mmap(addr, pages.len() * PAGE, protection, libc::MAP_FIXED)
    }
}

impl AnonWorld for Kernel {
    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(Way(&self.places))
    }

    fn map(&mut self, _space: usize, pages: Range<usize>) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let start = self.set(&pages, libc::PROT_READ | libc::PROT_WRITE);
        self.places.set(&pages, Some(start));
        Ok(())
    }

    fn unmap(&mut self, _space: usize, pages: Range<usize>) {
        self.places.set(&pages, None);
        self.set(&pages, libc::PROT_NONE);
    }

    fn is_managed(&self) -> bool {
        true
    }

    fn map_copy(&mut self, _space: usize, pages: Range<usize>, from: usize) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let addr = self.start + pages.start * PAGE;
        // SAFETY: over a part of the arena that nobody touches.
        let mapped = unsafe {
            libc::mmap(
                addr as *mut libc::c_void,
                pages.len() * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                (from * PAGE) as i64,
            )
        };
        assert_eq!(mapped as usize, addr);
        self.places.set(&pages, Some(addr));
        Ok(())
    }

    fn manage(&mut self, _space: usize, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        let advice = match verb {
            MemoryVerb::DontNeed => libc::MADV_DONTNEED,
            MemoryVerb::Free => libc::MADV_FREE,
            MemoryVerb::Cold => libc::MADV_COLD,
            MemoryVerb::PageOut => libc::MADV_PAGEOUT,
            MemoryVerb::PopulateRead => libc::MADV_POPULATE_READ,
            MemoryVerb::PopulateWrite => libc::MADV_POPULATE_WRITE,
            MemoryVerb::Lock | MemoryVerb::Unlock => return Expected::Done,
        };
        let addr = (self.start + pages.start * PAGE) as *mut libc::c_void;
        // SAFETY: of the arena; the model knows what is there then.
        let advised = unsafe { libc::madvise(addr, pages.len() * PAGE, advice) };
        assert_eq!(advised, 0, "{verb:?}: {}", io::Error::last_os_error());
        Expected::Done
    }
}

/// The file that private copies are made of.
fn copied_file() -> File {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only another number each time.
    let name = format!(
        "copied-{}-{}",
        std::process::id(),
        MADE.fetch_add(1, Relaxed)
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let pages = (0..(COPIED_PAGES * PAGE) as u64).map(|at| byte_at(0, at));
    std::fs::write(&path, pages.collect::<Vec<u8>>()).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the whole arena, which nobody touches any more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, ARENA_PAGES * PAGE) };
    }
}

/// Seeds that failed once are kept beside the sources, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/anon_oracle.txt"
    );
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn both_show_the_same(ops in proptest::collection::vec(any_anon_op(), 1..60)) {
        play(Engine::builder().memory(24 << 20), false, ops);
    }

    #[test]
    fn both_show_the_same_from_swap(
        memory in prop_oneof![Just(8usize << 20), Just(10 << 20)],
        ops in proptest::collection::vec(any_swap_op(false), 1..60),
    ) {
        play(swapping(memory), true, ops);
    }
}

fn swapping(memory: usize) -> Builder {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    Engine::builder().memory(memory).swap(swap)
}

fn play(engine: Builder, swaps: bool, ops: Vec<Op>) {
    let engine = engine.build().unwrap();
    let mut softfault = Softfault {
        before: engine.stats().resident_bytes,
        engine,
        file: copied_file(),
        swaps,
        maps: Vec::new(),
        places: Places::new(),
    };
    let mut kernel = Kernel::new();
    let first = Op::MapZeros {
        space: 0,
        pages: 300..1500,
    };
    let ops: Vec<_> = std::iter::once(first).chain(ops).collect();
    play_anon(&mut [&mut softfault, &mut kernel], &ops);
    softfault.maps.clear();
    softfault.check(0, Paid { least: 0, most: 0 });
    let swap = softfault.engine.stats().swap;
    assert!(swap.is_none_or(|swap| swap.slots_used == 0), "{swap:?}");
}

/// As many operations as the environment says, most pages in swap.
#[test]
fn a_long_run() {
    let text = std::env::var("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or("2_000".into());
    let operations: usize = text.replace('_', "").parse().unwrap();
    const LIST: usize = 400;
    let lists = operations.div_ceil(LIST);
    let config = ProptestConfig {
        failure_persistence: None,
        ..config(lists as u32)
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let list = proptest::collection::vec(any_swap_op(false), LIST);
    let played = runner.run(&list, |ops| {
        play(swapping(9 << 20), true, ops);
        Ok(())
    });
    played.unwrap();
    println!("{} operations", lists * LIST);
}
