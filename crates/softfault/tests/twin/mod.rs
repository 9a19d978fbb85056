//! Private maps of ours, in either kind of page tables, beside a map of the kernel's that
//! has the same done to it.

#![allow(dead_code)] // Each test crate uses its part.

use softfault::soft::{SoftEngine, SoftMapMut};
use softfault::{Advice, Engine, MIN_MEMORY, Mmap, MmapMut, RemapOptions, Stats};
use softfault::{Swap, UncheckedAdvice};
use softfault_oracle::Random;
use std::fs::File;
use std::ops::Range;

pub const PAGE: usize = 4096;
pub const MIB: usize = 1 << 20;

/// The operations on a private map.
pub trait Side {
    fn len(&self) -> usize;
    fn read(&self, at: usize, bytes: &mut [u8]);
    fn write(&mut self, at: usize, bytes: &[u8]);
    /// True if it was taken.
    fn advise(&self, advice: Advice, range: Range<usize>) -> bool;
    fn unchecked(&self, advice: UncheckedAdvice, range: Range<usize>) -> bool;
    fn lock(&self, locked: bool) -> bool;
    fn make_read_only(&mut self);
    fn make_mut(&mut self);
    fn remap(&mut self, len: usize, options: RemapOptions) -> bool;
}

/// memmap2's types, or ours, which have the same names.
pub enum Plain<M, R> {
    Mut(M),
    Read(R),
    Gone,
}

macro_rules! plain {
    ($krate:ident, $advice:expr, $unchecked:expr, $options:expr) => {
        impl Side for Plain<$krate::MmapMut, $krate::Mmap> {
            fn len(&self) -> usize {
                self.bytes().len()
            }

            fn read(&self, at: usize, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.bytes()[at..at + bytes.len()]);
            }

            fn write(&mut self, at: usize, bytes: &[u8]) {
                let Self::Mut(map) = self else {
                    panic!("not to be written to")
                };
                map[at..at + bytes.len()].copy_from_slice(bytes);
            }

            fn advise(&self, advice: Advice, range: Range<usize>) -> bool {
                let advice = $advice(advice);
                match self {
                    Self::Mut(map) => map.advise_range(advice, range.start, range.len()),
                    Self::Read(map) => map.advise_range(advice, range.start, range.len()),
                    Self::Gone => unreachable!(),
                }
                .is_ok()
            }

            fn unchecked(&self, advice: UncheckedAdvice, range: Range<usize>) -> bool {
                let (advice, start, len) = ($unchecked(advice), range.start, range.len());
                // SAFETY: no code relies on the old bytes.
                unsafe {
                    match self {
                        Self::Mut(map) => map.unchecked_advise_range(advice, start, len),
                        Self::Read(map) => map.unchecked_advise_range(advice, start, len),
                        Self::Gone => unreachable!(),
                    }
                }
                .is_ok()
            }

            fn lock(&self, locked: bool) -> bool {
                match (self, locked) {
                    (Self::Mut(map), true) => map.lock(),
                    (Self::Mut(map), false) => map.unlock(),
                    (Self::Read(map), true) => map.lock(),
                    (Self::Read(map), false) => map.unlock(),
                    (Self::Gone, _) => unreachable!(),
                }
                .is_ok()
            }

            fn make_read_only(&mut self) {
                *self = match std::mem::replace(self, Self::Gone) {
                    Self::Mut(map) => Self::Read(map.make_read_only().unwrap()),
                    other => other,
                };
            }

            fn make_mut(&mut self) {
                *self = match std::mem::replace(self, Self::Gone) {
                    Self::Read(map) => Self::Mut(map.make_mut().unwrap()),
                    other => other,
                };
            }

            fn remap(&mut self, len: usize, options: RemapOptions) -> bool {
                let options = $options(options);
                // SAFETY: nobody has a reference to its bytes.
                unsafe {
                    match self {
                        Self::Mut(map) => map.remap(len, options),
                        Self::Read(map) => map.remap(len, options),
                        Self::Gone => unreachable!(),
                    }
                }
                .is_ok()
            }
        }

        impl Plain<$krate::MmapMut, $krate::Mmap> {
            pub fn bytes(&self) -> &[u8] {
                match self {
                    Self::Mut(map) => map,
                    Self::Read(map) => map,
                    Self::Gone => unreachable!(),
                }
            }
        }
    };
}

plain!(softfault, |advice| advice, |advice| advice, |options| {
    options
});
plain!(memmap2, to_kernel, to_kernel_unchecked, |options| {
    memmap2::RemapOptions::new().may_move(options == may_move())
});

pub fn may_move() -> RemapOptions {
    RemapOptions::new().may_move(true)
}

pub type Kernel = Plain<memmap2::MmapMut, memmap2::Mmap>;
pub type Ours = Plain<MmapMut, Mmap>;

fn to_kernel(advice: Advice) -> memmap2::Advice {
    match advice {
        Advice::Normal => memmap2::Advice::Normal,
        Advice::Random => memmap2::Advice::Random,
        Advice::Sequential => memmap2::Advice::Sequential,
        Advice::WillNeed => memmap2::Advice::WillNeed,
        Advice::PopulateRead => memmap2::Advice::PopulateRead,
        Advice::PopulateWrite => memmap2::Advice::PopulateWrite,
        // Its crate does not have them, and they change no bytes.
        _ => memmap2::Advice::Normal,
    }
}

fn to_kernel_unchecked(advice: UncheckedAdvice) -> memmap2::UncheckedAdvice {
    match advice {
        UncheckedAdvice::DontNeed => memmap2::UncheckedAdvice::DontNeed,
        _ => memmap2::UncheckedAdvice::Free,
    }
}

impl Side for SoftMapMut {
    fn len(&self) -> usize {
        SoftMapMut::len(self)
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert_eq!(self.read_at(bytes, at), Ok(bytes.len()));
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert_eq!(self.write_at(bytes, at), Ok(bytes.len()));
    }

    fn advise(&self, advice: Advice, range: Range<usize>) -> bool {
        SoftMapMut::advise(self, advice, range).is_ok()
    }

    fn unchecked(&self, advice: UncheckedAdvice, range: Range<usize>) -> bool {
        self.unchecked_advise(advice, range).is_ok()
    }

    fn lock(&self, locked: bool) -> bool {
        match locked {
            true => SoftMapMut::lock(self).is_ok(),
            false => self.unlock().is_ok(),
        }
    }

    fn make_read_only(&mut self) {
        SoftMapMut::make_read_only(self).unwrap();
    }

    fn make_mut(&mut self) {
        SoftMapMut::make_mut(self).unwrap();
    }

    fn remap(&mut self, len: usize, options: RemapOptions) -> bool {
        SoftMapMut::remap(self, len, options).is_ok()
    }
}

/// An engine of either kind.
pub enum AnyEngine {
    Plain(Engine),
    Soft(SoftEngine),
}

/// Both kinds, with little memory and swap beside it.
pub fn engines() -> [AnyEngine; 2] {
    let builder = || {
        let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
        let most = 8 * MIN_MEMORY;
        (Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .max_memory(most))
        .swap(swap)
    };
    [
        AnyEngine::Plain(builder().build().unwrap()),
        AnyEngine::Soft(builder().build_soft().unwrap()),
    ]
}

impl AnyEngine {
    pub fn stats(&self) -> Stats {
        match self {
            Self::Plain(engine) => engine.stats(),
            Self::Soft(engine) => engine.stats(),
        }
    }

    /// Slots in use.
    pub fn slots(&self) -> u64 {
        self.stats().swap.unwrap().slots_used
    }

    pub fn map_anon(&self, len: usize) -> Box<dyn Side> {
        match self {
            Self::Plain(engine) => Box::new(Ours::Mut(engine.map_anon(len).unwrap())),
            Self::Soft(engine) => Box::new(engine.map_anon(len).unwrap()),
        }
    }

    /// A private map of a whole file.
    pub fn map_copy(&self, file: &File) -> Box<dyn Side> {
        match self {
            Self::Plain(engine) => {
                // SAFETY: nobody writes to the file.
                let map = unsafe { engine.map_copy(file) };
                Box::new(Ours::Mut(map.unwrap()))
            }
            Self::Soft(engine) => Box::new(engine.map_copy(file).unwrap()),
        }
    }

    /// All that was had was given back.
    #[track_caller]
    pub fn check_empty(&self, before: u64) {
        let stats = self.stats();
        assert_eq!(self.slots(), 0, "slots of nobody");
        assert!(stats.peak_bytes <= stats.budget_bytes, "{stats:?}");
        // Words of slots stay, a page for so many.
        let grown = stats.resident_bytes as i64 - before as i64;
        assert!(
            (0..=16 * PAGE as i64).contains(&grown),
            "{grown} stay charged"
        );
    }
}

/// The kernel's map of zeros.
pub fn kernel_anon(len: usize) -> Box<dyn Side> {
    Box::new(Kernel::Mut(memmap2::MmapMut::map_anon(len).unwrap()))
}

/// The kernel's private map of a whole file.
pub fn kernel_copy(file: &File) -> Box<dyn Side> {
    // SAFETY: nobody writes to the file.
    let map = unsafe { memmap2::MmapOptions::new().map_copy(file) };
    Box::new(Kernel::Mut(map.unwrap()))
}

/// All bytes are the same.
#[track_caller]
pub fn same(ours: &dyn Side, kernel: &dyn Side) {
    assert_eq!(ours.len(), kernel.len());
    let (mut one, mut other) = (vec![0; MIB], vec![0; MIB]);
    for at in (0..ours.len()).step_by(MIB) {
        let count = MIB.min(ours.len() - at);
        ours.read(at, &mut one[..count]);
        kernel.read(at, &mut other[..count]);
        if one[..count] != other[..count] {
            let place = (0..count)
                .find(|&place| one[place] != other[place])
                .unwrap();
            let (one, other) = (one[place], other[place]);
            panic!(
                "at {:#x}: {one:#x}, and the kernel has {other:#x}",
                at + place
            );
        }
    }
}

/// Writes the same to both, in `times` places.
pub fn write_both(ours: &mut dyn Side, kernel: &mut dyn Side, drawn: &mut Random, times: usize) {
    let mut bytes = [0; 300];
    for _ in 0..times {
        let count = 1 + drawn.below(bytes.len());
        let Some(room) = ours.len().checked_sub(count) else {
            continue;
        };
        let at = drawn.below(room + 1);
        bytes[..count].fill_with(|| drawn.below(256) as u8);
        ours.write(at, &bytes[..count]);
        kernel.write(at, &bytes[..count]);
    }
}
