//! A core: a thread's way to the bytes of spaces.

use super::SoftMmu;
use super::cores::CoreHandle;
use super::tlb::{Tlb, TlbKey, Transfer};
use crate::PAGE_SIZE;
use sync::Arc;

/// A thread's view of memory: a translation buffer, and a place among the cores
/// that shootdowns wait for. Each thread has its own; all spaces that it is
/// used with are of one machine.
#[derive(Debug)]
pub struct Core {
    mmu: Arc<SoftMmu>,
    /// None only while dropping.
    handle: Option<CoreHandle>,
    tlb: Tlb,
    /// The memory that an access copies to or from: inside an access no thread may touch the
    /// caller's memory, see `cores`.
    buffer: Box<[u8; PAGE_SIZE]>,
}

impl SoftMmu {
    /// A core of its own for the caller. `None` if there are 1024 already.
    pub fn core(self: &Arc<Self>) -> Option<Core> {
        Some(Core {
            handle: Some(self.tables.cores.add_core()?),
            mmu: Arc::clone(self),
            tlb: Tlb::default(),
            buffer: Box::new([0; PAGE_SIZE]),
        })
    }
}

/// Whether an access loads or stores. The bytes are at the beginning of the core's
/// buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Load,
    Store,
}

impl Core {
    /// The page tables.
    pub fn mmu(&self) -> &Arc<SoftMmu> {
        &self.mmu
    }

    /// Where bytes go through.
    pub(crate) fn buffer(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.buffer[..bytes]
    }

    /// Accesses bytes of one page by the core's buffered translation; `false` if
    /// there is none.
    #[inline]
    pub(crate) fn hit(&mut self, place: TlbKey, bytes: usize, way: Direction) -> bool {
        let handle = self.handle.as_mut().expect("until dropped");
        let transfer = transfer(&mut self.buffer[..bytes], way);
        self.mmu.tables.hit(handle, &self.tlb, place, transfer)
    }

    /// The same by the tables' entry at `window_addr`. The caller has a lock
    /// of the VMA that shows it at `place`, and `may_write` if the VMA does.
    pub(crate) fn miss(
        &mut self,
        place: TlbKey,
        bytes: usize,
        way: Direction,
        window_addr: usize,
        may_write: bool,
    ) -> bool {
        let handle = self.handle.as_mut().expect("until dropped");
        let transfer = transfer(&mut self.buffer[..bytes], way);
        let tables = &self.mmu.tables;
        tables.miss(
            handle,
            &mut self.tlb,
            place,
            window_addr,
            may_write,
            transfer,
        )
    }
}

impl Core {
    /// As `miss`, for a huge page, whose frame `walk` finds inside the access.
    pub(crate) fn miss_huge(
        &mut self,
        place: TlbKey,
        bytes: usize,
        way: Direction,
        may_write: bool,
        walk: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let handle = self.handle.as_mut().expect("until dropped");
        let transfer = transfer(&mut self.buffer[..bytes], way);
        (self.mmu).miss_huge(handle, &mut self.tlb, place, may_write, transfer, walk)
    }
}

fn transfer(bytes: &mut [u8], way: Direction) -> Transfer<'_> {
    match way {
        Direction::Load => Transfer::Load(bytes),
        Direction::Store => Transfer::Store(bytes),
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.mmu.tables.cores.remove_core(handle);
        }
    }
}
