//! The engine's pool, files and spaces, which obey operations.

use super::op::{HugeSetting, Spot};
use crate::rig::Ticks;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::huge::{HugeError, HugeFile, HugeMapping, HugePool, HugeSize};
use softfault_engine::huge::{PoolCounts, Reserve, Shape};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection, VmaSlabs};
use softfault_engine::mmu::{Core, SoftMmu};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
// No thread is suspended with one of these in hand.
use std::sync::Mutex;
use sync::Arc;

const HUGE: usize = HugeSize::TwoMiB.bytes();
const HUGE_PAGES: u64 = (HUGE / PAGE_SIZE) as u64;
/// Where each space has its slots.
const START: usize = 0x4000_0000_0000;
/// Bytes of a word.
const WORD: usize = 8;

/// Why a mapping was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugeRefusal {
    /// The pool or the file says no.
    Huge(HugeError),
    /// The space does.
    Mm(MmError),
}

/// A pool, files by number, and spaces by number. Left as it is when a test panics:
/// spaces would say that they are not empty, and abort.
pub struct HugeWorld {
    mmu: Arc<SoftMmu>,
    pool: Arc<HugePool>,
    slabs: Arc<VmaSlabs>,
    setting: HugeSetting,
    files: Mutex<Vec<Arc<HugeFile>>>,
    spaces: Mutex<BTreeMap<u8, ManuallyDrop<Arc<AddressSpace>>>>,
    /// Cores that nobody uses at the moment.
    cores: Mutex<Vec<Core>>,
}

/// A slot's address.
fn at(slot: usize) -> usize {
    START + slot * HUGE
}

fn range(slots: &Range<usize>) -> Range<usize> {
    at(slots.start)..at(slots.end)
}

fn stopped(stopped: Stopped) -> (usize, FaultError) {
    match stopped.why {
        Stop::Error(error) => (stopped.done / WORD, error),
        Stop::Interrupted => panic!("by nobody"),
    }
}

impl Spot {
    /// The first byte of an access in a page.
    fn offset(self) -> usize {
        match self {
            Self::First => 0,
            Self::Middle => 12_344,
            Self::Across => HUGE - WORD,
        }
    }

    /// The words of an access: pages after the slot, and which word of the page.
    pub(super) fn words(self) -> &'static [(usize, usize)] {
        match self {
            Self::First => &[(0, 0)],
            Self::Middle => &[(0, 1)],
            Self::Across => &[(0, 2), (1, 0)],
        }
    }
}

impl HugeWorld {
    /// With files of holes, and spaces in which nothing is mapped.
    pub fn new(setting: HugeSetting) -> Self {
        let bytes = setting.pool_pages as usize * HUGE;
        let mmu = Arc::new(SoftMmu::with_huge_memory(1 << 20, bytes).expect("address space"));
        let shape = Shape {
            leaf_pages: setting.leaf_pages,
            fault_mutexes: setting.fault_mutexes,
        };
        let clock = Arc::new(Ticks::default());
        let (size, pages) = (HugeSize::TwoMiB, setting.pool_pages);
        let pool = HugePool::with_shape(mmu.clone(), clock, size, pages, setting.policies, shape);
        let pool = pool.expect("memory for so many");
        let file = |_| HugeFile::new(&pool, setting.file_pages).expect("a file");
        let files = (0..setting.files).map(file).collect();
        let world = Self {
            mmu,
            pool,
            slabs: VmaSlabs::new(1 << 10),
            setting,
            files: Mutex::new(files),
            spaces: Mutex::default(),
            cores: Mutex::default(),
        };
        for space in 0..setting.spaces as u8 {
            world.add_space(space);
        }
        world
    }

    /// The setting.
    pub fn setting(&self) -> &HugeSetting {
        &self.setting
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<HugePool> {
        &self.pool
    }

    /// The counts of the pool.
    pub fn counts(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// A core, to be given back.
    pub fn take_core(&self) -> Core {
        let known = self.cores.lock().unwrap().pop();
        known.unwrap_or_else(|| self.mmu.core().expect("room for cores"))
    }

    /// Gives a core back, and its buffered translations.
    pub fn give_core(&self, core: Core) {
        self.cores.lock().unwrap().push(core);
    }

    /// The file that has this number now.
    pub fn file(&self, file: usize) -> Arc<HugeFile> {
        self.files.lock().unwrap()[file].clone()
    }

    /// The space of this number.
    pub fn space(&self, space: u8) -> Option<Arc<AddressSpace>> {
        let spaces = self.spaces.lock().unwrap();
        spaces.get(&space).map(|space| Arc::clone(space))
    }

    /// A new space, in which nothing is mapped.
    pub fn add_space(&self, space: u8) {
        let made = AddressSpace::new(self.slabs.clone(), Arc::new(Ticks::default()));
        let made = ManuallyDrop::new(Arc::new(made.expect("room for a space")));
        let before = self.spaces.lock().unwrap().insert(space, made);
        assert!(before.is_none(), "space {space} is there");
    }

    /// A new mapping of a file, and a part of it shown from a slot on.
    pub fn map(
        &self,
        space: &AddressSpace,
        file: &Arc<HugeFile>,
        (indexes, shown): (Range<u64>, Range<u64>),
        slot: usize,
        reserve: bool,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let reserve = if reserve { Reserve::Yes } else { Reserve::No };
        let mapping = HugeMapping::new(file, indexes, reserve).map_err(HugeRefusal::Huge)?;
        Self::show(space, mapping.into(), &shown, slot, protection)
    }

    /// A part of the mapping that is shown at `of`, with its protection.
    pub fn map_more(
        &self,
        space: &AddressSpace,
        of: usize,
        shown: &Range<u64>,
        slot: usize,
    ) -> Result<(), HugeRefusal> {
        let mut known = None;
        {
            let mmap = space.mmap_lock().read();
            space.for_each_vma(&mmap, at(of)..at(of + 1), |vma| {
                known = Some(vma.attributes(&mmap));
            });
        }
        let unmapped = HugeRefusal::Mm(MmError::Unmapped);
        let Attributes {
            backing,
            protection,
            ..
        } = known.ok_or(unmapped)?;
        Self::show(space, backing, shown, slot, protection)
    }

    fn show(
        space: &AddressSpace,
        backing: Backing,
        shown: &Range<u64>,
        slot: usize,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let attributes = Attributes {
            backing,
            pgoff: shown.start * HUGE_PAGES,
            protection,
            ..Attributes::default()
        };
        let slots = slot..slot + (shown.end - shown.start) as usize;
        (space.mmap(range(&slots), attributes)).map_err(HugeRefusal::Mm)
    }

    /// Unmaps the mappings there.
    pub fn unmap(&self, space: &AddressSpace, slots: &Range<usize>) {
        space
            .munmap(range(slots), |_, _| {})
            .expect("no VMA is cut");
    }

    /// Changes the protection.
    pub fn protect(
        &self,
        space: &AddressSpace,
        slots: &Range<usize>,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let done = space.mprotect(range(slots), protection);
        done.map_err(HugeRefusal::Mm)
    }

    /// Moves the mappings there.
    pub fn remap(
        &self,
        space: &AddressSpace,
        slots: &Range<usize>,
        to: usize,
    ) -> Result<(), HugeRefusal> {
        let moved = space.mremap(range(slots), at(to));
        moved.map_err(HugeRefusal::Mm)
    }

    /// Copies a space. Huge pages are never too few for that.
    pub fn fork(&self, space: &AddressSpace, child: u8) {
        let copy = AddressSpace::new(self.slabs.clone(), Arc::new(Ticks::default()));
        let copy = copy.expect("room for a space");
        space.fork(&copy).expect("a copy reserves nothing");
        let copy = ManuallyDrop::new(Arc::new(copy));
        let before = self.spaces.lock().unwrap().insert(child, copy);
        assert!(before.is_none(), "space {child} is there");
    }

    /// Ends a space.
    pub fn exit(&self, space: u8) {
        let gone = self.spaces.lock().unwrap().remove(&space);
        let gone = ManuallyDrop::into_inner(gone.expect("a space that is there"));
        gone.exit(|_, _| {});
    }

    /// Gives a number to another file.
    pub fn replace(&self, file: usize) {
        let new = HugeFile::new(&self.pool, self.setting.file_pages).expect("a file");
        let old = std::mem::replace(&mut self.files.lock().unwrap()[file], new);
        drop(old);
    }

    /// Reads words; those before the one that fails, with the failure.
    pub fn read(
        &self,
        core: &mut Core,
        space: &AddressSpace,
        (slot, spot): (usize, Spot),
    ) -> (Vec<u64>, Option<FaultError>) {
        let mut bytes = [0; 2 * WORD];
        let bytes = &mut bytes[..spot.words().len() * WORD];
        let addr = at(slot) + spot.offset();
        let done = fault::read_at(core, space, addr, bytes, &NeverInterrupted);
        let done = done.map_err(stopped);
        let words = done.map_or_else(|(done, _)| done, |()| spot.words().len());
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        let read = bytes.chunks(WORD).take(words).map(word).collect();
        (read, done.err().map(|(_, error)| error))
    }

    /// Writes a word wherever the access goes; how many were written, and the failure.
    pub fn write(
        &self,
        core: &mut Core,
        space: &AddressSpace,
        (slot, spot): (usize, Spot),
        word: u64,
    ) -> (usize, Option<FaultError>) {
        let bytes = [word.to_ne_bytes(), word.to_ne_bytes()].concat();
        let bytes = &bytes[..spot.words().len() * WORD];
        let addr = at(slot) + spot.offset();
        match fault::write_at(core, space, addr, bytes, &NeverInterrupted) {
            Ok(()) => (spot.words().len(), None),
            Err(error) => {
                let (done, error) = stopped(error);
                (done, Some(error))
            }
        }
    }

    /// Takes all down, and asserts that nothing is left of it.
    pub fn finish(self) {
        let spaces = self.spaces.into_inner().unwrap();
        for space in spaces.into_values() {
            let space = ManuallyDrop::into_inner(space);
            space.validate(&space.mmap_lock().read());
            space.exit(|_, _| {});
        }
        for file in self.files.into_inner().unwrap() {
            assert_eq!(file.mappings(), 0, "mappings are left");
            let spans = 0..self.setting.file_pages / self.setting.leaf_pages as u64;
            for span in spans {
                assert_eq!(file.sharers(span), 0, "somebody shares span {span}");
            }
            let pages = file.pages();
            let counts = self.pool.counts();
            drop(file);
            assert_eq!(self.pool.counts().free, counts.free + pages);
        }
        let PoolCounts {
            total,
            free,
            reserved,
        } = self.pool.counts();
        assert_eq!((free, reserved), (total, 0), "free and reserved pages");
        assert_eq!(self.pool.table_bytes(), 0, "bytes of tables");
    }
}
