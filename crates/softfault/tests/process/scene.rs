//! Memory of each kind, four times its budget, whose bytes are known.

use softfault::soft::{SoftEngine, SoftMap, SoftMapMut};
use softfault::{
    Builder, Engine, FaultError, HugeBacking, HugeMap, HugeMemory, Mmap, MmapMut, Stats, Swap,
};
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

pub const PAGE: usize = 4096;
pub const BUDGET: usize = 8 << 20;
/// Four times the budget.
pub const BYTES: usize = 4 * BUDGET;
const WORDS: usize = PAGE / 8;

/// The kind of memory that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A private map of a file, half of it written to, and swap.
    Copy,
    /// Anonymous memory and swap.
    Anon,
    /// A file and anonymous memory over soft page tables.
    Soft,
    /// Huge memory.
    Huge,
}

impl Kind {
    pub const ALL: &[Self] = &[Self::File, Self::Copy, Self::Anon, Self::Soft, Self::Huge];
    /// Memory whose faults are served here.
    pub const SERVED: &[Self] = &[Self::File, Self::Copy, Self::Anon];

    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Copy => "copy",
            Self::Anon => "anon",
            Self::Soft => "soft",
            Self::Huge => "huge",
        }
    }
}

/// A word of the memory, written for the `round`th time; 0 is the file's own word.
pub fn word(index: usize, round: u64) -> u64 {
    let of_file = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    of_file ^ round.wrapping_mul(0xD1B5_4A32_D192_ED03)
}

enum Held {
    File(Mmap),
    Private(MmapMut),
    Soft(SoftMap, SoftMapMut),
    Huge(HugeMap),
}

enum Served {
    Here(Engine),
    Soft(SoftEngine),
    Kernel,
}

/// Memory, its engine, and its expected bytes.
pub struct Scene {
    kind: Kind,
    held: Held,
    served: Served,
    /// How often each page was written.
    rounds: Vec<u64>,
}

/// The file of the row: its process's standard input.
pub fn file() -> File {
    // SAFETY: the descriptor is open as long as it is borrowed.
    let standard = unsafe { BorrowedFd::borrow_raw(0) };
    File::from(
        standard
            .try_clone_to_owned()
            .expect("a file as standard input"),
    )
}

/// An engine of the rows.
pub fn builder() -> Builder {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(4 * BYTES as u64);
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap)
}

impl Scene {
    pub fn new(kind: Kind) -> Self {
        let served = match kind {
            Kind::Soft => Served::Soft(builder().build_soft().expect("a soft engine")),
            Kind::Huge => Served::Kernel,
            _ => Served::Here(builder().build().expect("an engine")),
        };
        let held = match (&served, kind) {
            (Served::Here(engine), Kind::File) => {
                // SAFETY: nobody writes to the file.
                let map = unsafe { engine.map(&file()) };
                Held::File(map.expect("a map"))
            }
            (Served::Here(engine), Kind::Copy) => {
                // SAFETY: nobody writes to the file.
                Held::Private(unsafe { engine.map_copy(&file()) }.expect("a private map"))
            }
            (Served::Here(engine), _) => {
                Held::Private(engine.map_anon(BYTES).expect("anonymous memory"))
            }
            (Served::Soft(engine), _) => Held::Soft(
                engine.map(&file()).expect("a soft map"),
                engine.map_anon(BYTES).expect("soft anonymous memory"),
            ),
            (Served::Kernel, _) => {
                let huge = HugeMemory::builder().backing(HugeBacking::BasePages);
                let huge = huge.create(BYTES as u64).expect("huge memory");
                Held::Huge(huge.map().expect("a map of huge memory"))
            }
        };
        let mut scene = Self {
            kind,
            held,
            served,
            rounds: vec![0; BYTES / PAGE],
        };
        match kind {
            Kind::File => {}
            Kind::Copy => (0..scene.pages())
                .step_by(2)
                .for_each(|page| scene.write(page)),
            _ => (0..scene.pages()).for_each(|page| scene.write(page)),
        }
        scene
    }

    /// A map of the file over an engine that there is.
    pub fn of_file(engine: Engine, kind: Kind) -> Self {
        // A map by a descriptor that is open for writing may be the kernel's.
        let to_read = File::open("/proc/self/fd/0").unwrap_or_else(|_| file());
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&to_read) }.expect("a map");
        Self {
            kind,
            held: Held::File(map),
            served: Served::Here(engine),
            rounds: vec![0; BYTES / PAGE],
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Without addresses there is nothing for the kernel's calls to act on: `None`.
    pub fn range(&self) -> Option<Range<usize>> {
        let start = match &self.held {
            Held::File(map) => map.as_ptr().addr(),
            Held::Private(map) => map.as_ptr().addr(),
            Held::Huge(map) => map.as_ptr().addr(),
            Held::Soft(..) => return None,
        };
        Some(start..start + BYTES)
    }

    /// The addresses of memory that has some.
    pub fn addresses(&self) -> Range<usize> {
        self.range().expect("memory with addresses")
    }

    pub fn engine(&self) -> &Engine {
        match &self.served {
            Served::Here(engine) => engine,
            _ => panic!("{:?} has no such engine", self.kind),
        }
    }

    pub fn map(&self) -> &Mmap {
        match &self.held {
            Held::File(map) => map,
            _ => panic!("{:?} is no map of a file", self.kind),
        }
    }

    pub fn pages(&self) -> usize {
        self.rounds.len()
    }

    pub fn is_writable(&self) -> bool {
        self.kind != Kind::File
    }

    /// Writes a page for once more, all of it.
    pub fn write(&mut self, page: usize) {
        self.rounds[page] += 1;
        let round = self.rounds[page];
        match &mut self.held {
            Held::File(_) => panic!("a file's map may only be read"),
            Held::Private(map) => fill(&mut map[page * PAGE..(page + 1) * PAGE], page, round),
            Held::Soft(_, map) => {
                let mut bytes = [0; PAGE];
                fill(&mut bytes, page, round);
                map.write_at(&bytes, page * PAGE).expect("written");
            }
            // SAFETY: nobody else uses the memory.
            Held::Huge(map) => fill(
                unsafe { &mut map.as_mut_slice()[page * PAGE..(page + 1) * PAGE] },
                page,
                round,
            ),
        }
    }

    /// From now on a page must show the words of `round`, whatever it showed before.
    pub fn forget(&mut self, page: usize, round: u64) {
        self.rounds[page] = round;
    }

    /// Compares a page, as a program would touch it.
    #[track_caller]
    pub fn check(&self, page: usize) {
        let round = self.rounds[page];
        match &self.held {
            Held::File(_) | Held::Private(_) | Held::Huge(_) => {
                let from = self.addresses().start + page * PAGE;
                // SAFETY: within the map, which lives and nobody writes to; each
                // word is aligned.
                let found = |at: usize| unsafe { (from as *const u64).add(at).read_volatile() };
                compare(page, round, found);
            }
            Held::Soft(file, anon) => {
                let mut bytes = [0; PAGE];
                assert_eq!(file.read_at(&mut bytes, page * PAGE), Ok(PAGE));
                compare(page, 0, |at| word_of(&bytes, at));
                assert_eq!(anon.read_at(&mut bytes, page * PAGE), Ok(PAGE));
                compare(page, round, |at| word_of(&bytes, at));
            }
        }
    }

    /// Writes a page of anonymous memory over soft page tables; false if there was no memory for it,
    /// and it stays as it was.
    pub fn write_or_no_memory(&mut self, page: usize) -> bool {
        let Held::Soft(_, map) = &mut self.held else {
            panic!("{:?} is not soft", self.kind);
        };
        let mut bytes = [0; PAGE];
        fill(&mut bytes, page, self.rounds[page] + 1);
        match map.write_at(&bytes, page * PAGE) {
            Err(FaultError::NoMemory) => return false,
            wrote => wrote.expect("written"),
        };
        self.rounds[page] += 1;
        true
    }

    /// Compares all of it.
    #[track_caller]
    pub fn check_all(&self) {
        (0..self.pages()).for_each(|page| self.check(page));
    }

    /// Compares some words of a page, for calls that lose the others; true if they are
    /// right.
    pub fn is_right(&self, page: usize, words: &[u64]) -> bool {
        let round = self.rounds[page];
        let mut all = words.iter().enumerate();
        all.all(|(at, &found)| found == word(page * WORDS + at, round))
    }

    /// True if these words of a page are those that the file has there.
    pub fn is_of_file(&self, page: usize, words: &[u64]) -> bool {
        let mut all = words.iter().enumerate();
        self.kind == Kind::Copy && all.all(|(at, &found)| found == word(page * WORDS + at, 0))
    }

    /// Twice more over all of it: pages go and come.
    #[track_caller]
    pub fn check_goes_on(&self) {
        let before = self.gone();
        for page in (0..self.pages()).rev() {
            self.check(page);
        }
        if let (Some(before), Some(after)) = (before, self.gone()) {
            assert!(after > before, "nothing was evicted: {before} pages");
        }
    }

    /// Evictions so far.
    pub fn gone(&self) -> Option<u64> {
        let stats: Stats = match &self.served {
            Served::Here(engine) => engine.stats(),
            Served::Soft(engine) => engine.stats(),
            Served::Kernel => return None,
        };
        let swap = stats.swap.unwrap_or_default();
        Some(stats.evicted + swap.pages_out + swap.clean_drops)
    }
}

fn fill(bytes: &mut [u8], page: usize, round: u64) {
    for (at, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(page * WORDS + at, round).to_le_bytes());
    }
}

fn word_of(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("eight bytes"))
}

#[track_caller]
fn compare(page: usize, round: u64, found: impl Fn(usize) -> u64) {
    for at in 0..WORDS {
        let (found, wanted) = (found(at), word(page * WORDS + at, round));
        assert_eq!(
            found, wanted,
            "page {page}, word {at}: {found:#x} and not {wanted:#x}"
        );
    }
}
