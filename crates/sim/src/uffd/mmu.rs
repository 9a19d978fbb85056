//! [`Mmu`] over the soft tables, at the kernel's cost.

use super::kernel::{Count, Kernel};
use super::spare::Spare;
use super::windows::{Page, Windows};
use crate::job::Job;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use softfault_engine::{Clock, PAGE_SIZE};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sync::topology::PageCosts;

/// File descriptors that windows are spread over.
const DESCRIPTORS: usize = 16;

/// The page tables of the process.
pub struct UffdMmu {
    pub(super) soft: Arc<SoftMmu>,
    pub(super) kernel: Kernel,
    pub(super) windows: Windows,
    descriptors: [Count; DESCRIPTORS],
    /// Windows made so far; picks the descriptor.
    made: AtomicUsize,
    spare: Spare,
    /// The tables' own cost of a page's bytes. Immutable.
    page: PageCosts,
    /// The protection of a window, and its descriptor, by its start; beside the
    /// machine, as `windows`.
    kinds: Mutex<BTreeMap<usize, (Protection, usize)>>,
}

impl UffdMmu {
    /// Over `soft`, on the job's machine.
    pub fn new(job: &Job, soft: &Arc<SoftMmu>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            soft: soft.clone(),
            kernel: Kernel::new(job, clock),
            windows: Windows::default(),
            descriptors: core::array::from_fn(|_| Count::default()),
            made: AtomicUsize::new(0),
            spare: Spare::new(),
            page: job.topology.page.clone(),
            kinds: Mutex::default(),
        }
    }

    /// The counts of the kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// By an address within: a window may be a part of a reservation.
    fn kind(&self, addr: usize) -> (Protection, usize) {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kinds.range(..=addr).next_back();
        *last.expect("a window that was made").1
    }

    /// Does a copy at the kernel's cost.
    fn copied(
        &self,
        window: &Reservation,
        addr: usize,
        bytes: usize,
        bytes_ps: u64,
        act: impl FnOnce() -> Result<(), MmuError>,
    ) -> Result<(), MmuError> {
        let (_, descriptor) = self.kind(window.addr);
        let vma = self.windows.vma(addr).ok_or(MmuError::Gone)?;
        let pages = bytes.div_ceil(PAGE_SIZE) as u64;
        let descriptor = &self.descriptors[descriptor];
        self.kernel
            .uffd_copy(descriptor, &vma, pages, bytes_ps, act)
    }

    fn enter(&self, addr: usize, bytes: usize, page: Page) {
        for at in (0..bytes).step_by(PAGE_SIZE) {
            self.windows.enter(addr + at, page);
        }
    }

    /// How many pages there are, of all windows.
    pub fn pages(&self) -> u64 {
        self.windows.count()
    }

    /// Gives a window back to the system.
    fn unmap(&self, window: Reservation) {
        self.kernel.unmap_window();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.remove(&window.addr);
        drop(kinds);
        self.soft.release(window);
    }

    /// Gives all spare windows back.
    pub fn close(&self) {
        let windows = self.spare.take_all();
        windows.into_iter().for_each(|window| self.unmap(window));
    }
}

impl Mmu for UffdMmu {
    fn reserve(&self, bytes: usize, protection: Protection) -> Result<Reservation, MmuError> {
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        if let Some(window) = self.spare.take(bytes, protection) {
            self.windows.add(window.range());
            return Ok(window);
        }
        // Relaxed: any will do.
        let descriptor = self.made.fetch_add(1, Relaxed) % DESCRIPTORS;
        self.kernel.map_window();
        let window = self.soft.reserve(bytes, protection)?;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(window.addr, (protection, descriptor));
        drop(kinds);
        self.windows.add(window.range());
        Ok(window)
    }

    fn release(&self, window: Reservation) {
        let pages = self.windows.take_out(&window.range());
        let soft: &SoftMmu = &self.soft;
        self.kernel
            .zap(pages, || soft.zap(core::slice::from_ref(&window.range())));
        self.windows.remove(window.addr);
        let (protection, _) = self.kind(window.addr);
        if let Some(goes) = self.spare.keep(window, protection) {
            self.unmap(goes);
        }
    }

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        let ((window, addr), bytes) = (to, of.len());
        self.copied(window, addr, bytes, self.page.copy, || {
            // SAFETY: the caller's promise.
            unsafe { self.soft.copy(to, of, access) }
        })?;
        let (protection, _) = self.kind(window.addr);
        for at in (0..bytes).step_by(PAGE_SIZE) {
            // SAFETY: a page of the source, which is readable.
            let source = unsafe { core::slice::from_raw_parts(of.cast::<u8>().add(at), PAGE_SIZE) };
            let page = match (protection, access) {
                (Protection::ReadWrite, Access::Writable) => Page::of(source),
                (Protection::ReadWrite, Access::ReadOnly) => Page::of(source).protected(),
                _ => Page::new(first_word(source)),
            };
            self.windows.enter(addr + at, page);
        }
        Ok(())
    }

    fn zero(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.copied(window, addr, bytes, 0, || {
            self.soft.zero(window, addr, bytes)
        })?;
        self.enter(addr, bytes, Page::new(0));
        Ok(())
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        for page in (addr..addr + bytes).step_by(PAGE_SIZE) {
            self.copied(window, page, PAGE_SIZE, self.page.clear, || {
                self.soft.fill(window, page, PAGE_SIZE)
            })?;
        }
        self.enter(addr, bytes, Page::new(0));
        Ok(())
    }

    fn zero_page(&self, window: &Reservation, addr: usize) -> Result<Zeroed, MmuError> {
        let (_, descriptor) = self.kind(window.addr);
        let vma = self.windows.vma(addr).ok_or(MmuError::Gone)?;
        self.soft.zero_page(window, addr)?;
        let descriptor = &self.descriptors[descriptor];
        self.kernel.zero_page(descriptor, &vma, || {
            self.windows.enter(addr, Page::zeros());
        });
        self.kernel.protect_zeros(|| {
            self.windows.protect(&(addr..addr + PAGE_SIZE));
        });
        if self.kernel.scan(|| self.windows.is_zeros(addr)) {
            return Ok(Zeroed::Nothing);
        }
        // Somebody wrote to it before it was protected.
        self.make_writable(window, addr)?;
        Ok(Zeroed::Memory)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        for range in ranges {
            self.kernel.protect(|| self.windows.protect(range));
        }
        self.soft.protect(ranges);
    }

    fn make_writable(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
        self.kernel.unprotect(|| {
            self.soft.make_writable(window, addr)?;
            self.windows.make_writable(addr);
            Ok(())
        })
    }

    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
        let bytes = self.soft.bytes(window, addr).cast_mut();
        // The written words are in no frame so far.
        let page = self.windows.page(addr).expect("a page that is there");
        for (at, word) in page.words() {
            // SAFETY: a word of the page's frame, which nobody uses: readers and
            // writers of it go by `windows`, and the caller keeps it. Zeros without
            // memory have no frame, and nothing was written there.
            unsafe {
                let place = bytes.add(at).cast::<u64>();
                if place.read_unaligned() != word {
                    place.write_unaligned(word);
                }
            }
        }
        bytes
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        let (_, descriptor) = self.kind(to.0.addr);
        let vma = self.windows.vma(to.1);
        let vma = vma.ok_or(PartialMove::all(MmuError::Gone))?;
        self.soft.move_pages(from, to, bytes)?;
        self.kernel
            .move_pages(&self.descriptors[descriptor], &vma, || {
                self.windows.move_pages(&(from.1..from.1 + bytes), to.1)
            });
        Ok(())
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        let pages = ranges.iter().map(|range| self.windows.take_out(range));
        let pages = pages.sum();
        let soft: &SoftMmu = &self.soft;
        self.kernel.zap(pages, || soft.zap(ranges));
    }

    unsafe fn read(&self, addr: usize, target: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.soft.read(addr, target, bytes) }
    }
}

fn first_word(page: &[u8]) -> u64 {
    let (words, _) = page.as_chunks();
    u64::from_ne_bytes(words[0])
}
