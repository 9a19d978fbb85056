//! Huge memory over soft page tables: spaces in one process, a pool of its own, bytes by calls.

use super::{HugeFile, HugeSpace};
use crate::lab::huge_pool::HUGE;
use softfault::clock::now_ns;
use softfault::policy::Policies;
use softfault_engine::Clock;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{NeverInterrupted, Stopped, read_at, write_at};
use softfault_engine::huge::{HugeFile as File, HugeMapping, HugePool, HugeSize, Reserve};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine::mmu::{Core, SoftMmu};
use std::ops::Range;
use std::sync::Arc;

/// Where spaces map it.
const START: usize = 0x4000_0000_0000;
/// Memory for small pages, of which there are none.
const SMALL: usize = 16 << 20;
/// Mappings of all spaces.
const MAPPINGS: u32 = 1 << 16;

/// Memory of `bytes` bytes. The pool has room for it as often as spaces map it at a time: a mapper is promised all that
/// it asks for before it learns how much of it others were promised meanwhile. Room that is not used is address space only.
pub fn soft(bytes: u64, spaces: usize, policies: Policies) -> Result<SoftHuge, String> {
    let room = bytes.checked_mul(spaces as u64).ok_or("too many spaces")?;
    let mmu = SoftMmu::with_huge_memory(SMALL, room as usize);
    let mmu = Arc::new(mmu.map_err(|e| format!("no memory for soft page tables: {e:?}"))?);
    let pages = (bytes / HUGE) as u32;
    let total = (room / HUGE) as u32;
    let pool = HugePool::new(
        mmu.clone(),
        Arc::new(Monotonic),
        HugeSize::TwoMiB,
        total,
        policies.huge,
    );
    let pool = pool.map_err(|e| e.to_string())?;
    let file = File::new(&pool, pages.into()).map_err(|e| e.to_string())?;
    Ok(SoftHuge {
        mmu,
        pool,
        file,
        slabs: VmaSlabs::new(MAPPINGS),
        policies,
    })
}

/// Soft huge memory.
pub struct SoftHuge {
    mmu: Arc<SoftMmu>,
    pool: Arc<HugePool>,
    file: Arc<File>,
    slabs: Arc<VmaSlabs>,
    policies: Policies,
}

impl SoftHuge {
    /// Statistics of its faults.
    pub fn pool(&self) -> &HugePool {
        &self.pool
    }
}

struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        now_ns()
    }
}

impl HugeFile for SoftHuge {
    fn space(&self) -> Result<Box<dyn HugeSpace + '_>, String> {
        let clock = Arc::new(Monotonic);
        let locks = self.policies.locks;
        let space = AddressSpace::with_lock(self.slabs.clone(), clock, locks);
        Ok(Box::new(Space {
            huge: self,
            space: space.map_err(|e| format!("no space: {e:?}"))?,
            core: self.mmu.core().ok_or("no core is left")?,
        }))
    }

    fn empty(&self) -> Result<(), String> {
        let punched = self.file.punch_hole(0..self.file.len());
        punched.map_err(|e| format!("cannot empty huge memory: {e}"))
    }
}

struct Space<'a> {
    huge: &'a SoftHuge,
    space: AddressSpace,
    core: Core,
}

impl Space<'_> {
    fn range(&self) -> Range<usize> {
        START..START + (self.huge.file.len() * HUGE) as usize
    }
}

impl HugeSpace for Space<'_> {
    fn map(&mut self) -> Result<(), String> {
        let file = &self.huge.file;
        let mapping = HugeMapping::new(file, 0..file.len(), Reserve::Yes);
        let attributes = Attributes {
            backing: Backing::from(mapping.map_err(|e| format!("cannot map huge memory: {e}"))?),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let mapped = self.space.mmap(self.range(), attributes);
        mapped.map_err(|e| format!("cannot map huge memory: {e:?}"))
    }

    fn swap(&mut self, at: u64, word: u64) -> Result<u64, String> {
        let addr = START + at as usize;
        let mut before = [0; 8];
        let (core, space) = (&mut self.core, &self.space);
        read_at(core, space, addr, &mut before, &NeverInterrupted).map_err(stopped)?;
        write_at(core, space, addr, &word.to_ne_bytes(), &NeverInterrupted).map_err(stopped)?;
        Ok(u64::from_ne_bytes(before))
    }

    fn sum(&mut self, page: u64) -> Result<u64, String> {
        let mut bytes = [0; PAGE_SIZE];
        let mut sum = 0u64;
        for at in (0..HUGE as usize).step_by(PAGE_SIZE) {
            let addr = START + (page * HUGE) as usize + at;
            let read = read_at(
                &mut self.core,
                &self.space,
                addr,
                &mut bytes,
                &NeverInterrupted,
            );
            read.map_err(stopped)?;
            let (words, _) = bytes.as_chunks::<8>();
            let words = words.iter().map(|word| u64::from_ne_bytes(*word));
            sum = words.fold(sum, u64::wrapping_add);
        }
        Ok(sum)
    }

    fn fill(&mut self, page: u64, word: u64) -> Result<(), String> {
        let mut bytes = [0; PAGE_SIZE];
        let (words, _) = bytes.as_chunks_mut::<8>();
        words.fill(word.to_ne_bytes());
        for at in (0..HUGE as usize).step_by(PAGE_SIZE) {
            let addr = START + (page * HUGE) as usize + at;
            let wrote = write_at(&mut self.core, &self.space, addr, &bytes, &NeverInterrupted);
            wrote.map_err(stopped)?;
        }
        Ok(())
    }

    /// Its faults are counted by the pool.
    fn unmap(&mut self) -> u64 {
        let unmapped = self.space.munmap(self.range(), |_, _| {});
        assert!(unmapped.is_ok(), "a whole mapping can be taken out");
        0
    }
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        self.space.exit(|_, _| {});
    }
}

fn stopped(stopped: Stopped) -> String {
    format!("a touch of huge memory ended with {:?}", stopped.why)
}
