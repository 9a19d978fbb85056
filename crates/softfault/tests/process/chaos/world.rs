//! Memory of each kind under one small budget, whose bytes are known and stay as they are.

use crate::scene::{PAGE, word};
use softfault::{Engine, FaultError, Mmap, MmapMut, Swap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::RwLock;

pub const FILE_BYTES: usize = 64 << 20;
const PRIVATE_BYTES: usize = 32 << 20;
const BUDGET: usize = 12 << 20;

/// A memory of the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    File,
    Copy,
    Anon,
}

pub struct World {
    pub engine: Engine,
    pub file: Mmap,
    pub copy: MmapMut,
    pub anon: MmapMut,
    /// Held for write by whoever closes or replaces descriptors that it does not know, for read
    /// by whoever has some of its own.
    pub descriptors: RwLock<()>,
    /// Held for write by an act whose change others would notice as refusals, for read by
    /// an act that would notice. Taken before `descriptors`.
    pub identity: RwLock<()>,
}

/// The file, which is this process's standard input.
pub fn file() -> File {
    let file = std::io::stdin().as_fd().try_clone_to_owned();
    File::from(file.expect("a descriptor"))
}

impl World {
    pub fn new() -> Self {
        let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(256 << 20);
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(BUDGET)
            .swap(swap)
            .trust_signal_handlers(true);
        let engine = engine.build().expect("an engine");
        // SAFETY: nobody writes to the file.
        let (map, mut copy) = unsafe {
            let copy = softfault::MmapOptions::new()
                .len(PRIVATE_BYTES)
                .map_copy_in(&engine, &file());
            (
                engine.map(&file()).expect("a map"),
                copy.expect("a private map"),
            )
        };
        let mut anon = engine.map_anon(PRIVATE_BYTES).expect("anonymous memory");
        for page in 0..PRIVATE_BYTES / PAGE {
            for at in (page * PAGE..(page + 1) * PAGE).step_by(8) {
                anon[at..at + 8].copy_from_slice(&word(at / 8, 1).to_le_bytes());
                if page % 2 == 0 {
                    copy[at..at + 8].copy_from_slice(&word(at / 8, 1).to_le_bytes());
                }
            }
        }
        Self {
            engine,
            file: map,
            copy,
            anon,
            descriptors: RwLock::new(()),
            identity: RwLock::new(()),
        }
    }

    pub fn bytes(&self, which: Which) -> &[u8] {
        match which {
            Which::File => &self.file,
            Which::Copy => &self.copy,
            Which::Anon => &self.anon,
        }
    }

    /// Reads a page of private memory by a call.
    pub fn read_at(&self, which: Which, page: usize) -> Result<usize, FaultError> {
        let mut bytes = [0; PAGE];
        match which {
            Which::File => self.file.read_at(&mut bytes, page * PAGE),
            Which::Copy => self.copy.read_at(&mut bytes, page * PAGE),
            Which::Anon => self.anon.read_at(&mut bytes, page * PAGE),
        }
    }

    pub fn pages(&self, which: Which) -> usize {
        self.bytes(which).len() / PAGE
    }

    /// The addresses of some pages.
    pub fn addresses(&self, which: Which, pages: Range<usize>) -> Range<usize> {
        let start = self.bytes(which).as_ptr().addr();
        start + pages.start * PAGE..start + pages.end * PAGE
    }

    /// The word that must be there.
    pub fn word(&self, which: Which, index: usize) -> u64 {
        let round = match which {
            Which::File => 0,
            Which::Anon => 1,
            Which::Copy => u64::from((index * 8 / PAGE).is_multiple_of(2)),
        };
        word(index, round)
    }

    /// Compares bytes from page `page` on.
    #[track_caller]
    pub fn check(&self, which: Which, page: usize, bytes: &[u8]) {
        for (at, found) in bytes.chunks_exact(8).enumerate() {
            let found = u64::from_le_bytes(found.try_into().expect("eight bytes"));
            let wanted = self.word(which, page * (PAGE / 8) + at);
            assert_eq!(
                found,
                wanted,
                "{which:?}, page {}, word {at}: {found:#x} and not {wanted:#x}",
                page + at * 8 / PAGE
            );
        }
    }

    pub fn check_all(&self) {
        for which in [Which::File, Which::Copy, Which::Anon] {
            self.check(which, 0, self.bytes(which));
        }
    }
}
