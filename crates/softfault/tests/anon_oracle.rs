//! Random operations on softfault's anonymous memory and on the kernel's: both
//! must show what the model says, byte by byte, and every touched page is paid
//! for.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use softfault::{Engine, MmapMut};
use softfault_engine::mm::MmError;
use softfault_oracle::{ARENA_PAGES, Access, AnonWorld, Expected, Op, Paid};
use softfault_oracle::{any_anon_op, play_anon};
use std::ops::Range;

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

    fn check(&self, _space: usize, paid: Paid) {
        let held: usize = self.maps.iter().map(|(_, map)| map.resident_bytes()).sum();
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

struct Kernel {
    start: usize,
    places: Places,
}

impl Kernel {
    fn new() -> Self {
        let start = Self::mmap(0, ARENA_PAGES * PAGE, libc::PROT_NONE, 0);
        Self {
            start,
            places: Places::new(),
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
        let engine = Engine::builder().memory(24 << 20).build().unwrap();
        let mut softfault = Softfault {
            before: engine.stats().resident_bytes,
            engine,
            maps: Vec::new(),
            places: Places::new(),
        };
        let mut kernel = Kernel::new();
        let first = Op::MapZeros { space: 0, pages: 300..1500 };
        let ops: Vec<_> = std::iter::once(first).chain(ops).collect();
        play_anon(&mut [&mut softfault, &mut kernel], &ops);
        softfault.maps.clear();
        softfault.check(0, Paid { least: 0, most: 0 });
    }
}
