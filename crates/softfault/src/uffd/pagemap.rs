//! Whether a page is the system's page of zeros, or huge: PAGEMAP_SCAN of
//! `/proc/self/pagemap` (Linux 6.7), as `uapi/linux/fs.h` gives it. And whether it is in the system's swap, which
//! the entries of that file have said since 2.6.25 (Documentation/admin-guide/mm/pagemap.rst).

use crate::table::Working;
use softfault_engine::PAGE_SIZE;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
/// Not write-protected by userfaultfd.
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// A part of a huge page that one entry maps.
const PAGE_IS_HUGE: u64 = 1 << 6;

/// Bits of an entry: the page is in memory, or in the system's swap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page is a guard of MADV_GUARD_INSTALL, which also has the bit of swap (Linux 6.14).
const GUARD: u64 = 1 << 58;

#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Nothing, or memory.
    Other,
    /// The page of zeros: it costs nothing.
    Zeros {
        /// A write to it ends in a fault.
        protected: bool,
    },
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Memory,
    /// The system's swap; or the memory was broken (the kernel keeps an entry for that too).
    Swap,
    Nowhere,
}

/// The file, opened once.
pub struct Pagemap {
    /// `None` where there is no such file. In a child the descriptor is
    /// closed, and answers nothing.
    file: Option<Working>,
    /// The kernel has PAGEMAP_SCAN; immutable.
    scans: bool,
}

impl Pagemap {
    /// Opens it.
    pub fn new() -> Self {
        let file = open();
        // Whether it answers, on a page that is certainly there.
        let here = 0_u8;
        let page = core::ptr::from_ref(&here) as usize & !(PAGE_SIZE - 1);
        let categories = file.as_ref().and_then(|file| scan(file, page));
        Self {
            scans: categories.is_some_and(|categories| categories & PAGE_IS_PRESENT != 0),
            file,
        }
    }

    /// One that is opened for each question that needs it, and does not look.
    pub const fn unopened() -> Self {
        Self {
            file: None,
            scans: false,
        }
    }

    /// True if it can be asked what pages show.
    pub fn can_look(&self) -> bool {
        self.scans
    }

    fn scan(&self, addr: usize) -> Option<u64> {
        let file = self.file.as_ref().filter(|_| self.scans)?;
        scan(file, addr)
    }

    /// Where the page at `addr` is; `None` if that cannot be known.
    pub fn place(&self, addr: usize) -> Option<Place> {
        let kept = self.file.as_ref().and_then(|file| entry(file, addr));
        // In a child, say.
        match kept.or_else(|| entry(&open()?, addr)) {
            Some(entry) if entry & PRESENT != 0 => Some(Place::Memory),
            Some(entry) if entry & SWAPPED != 0 && entry & GUARD == 0 => Some(Place::Swap),
            Some(_) => Some(Place::Nowhere),
            None if !is_in_core(addr) && !system_has_swap() => Some(Place::Nowhere),
            None => None,
        }
    }

    /// The contents of the page at `addr`; `None` if they cannot be known.
    pub fn look(&self, addr: usize) -> Option<Shown> {
        let categories = self.scan(addr)?;
        Some(match categories & PAGE_IS_PFNZERO != 0 {
            true => Shown::Zeros {
                protected: categories & PAGE_IS_WRITTEN == 0,
            },
            false => Shown::Other,
        })
    }

    /// True if the page at `addr` is certainly a part of a huge page, and mapped with it.
    pub fn is_huge(&self, addr: usize) -> bool {
        self.scan(addr)
            .is_some_and(|categories| categories & PAGE_IS_HUGE != 0)
    }

    /// The inherited descriptor means the parent: it must not be used.
    pub fn fork_child(&self) {
        if let Some(file) = &self.file {
            file.close();
        }
    }
}

fn open() -> Option<Working> {
    Working::open_to_read(c"/proc/thread-self/pagemap").ok()
}

/// The entry of the page at `addr`.
fn entry(file: &Working, addr: usize) -> Option<u64> {
    let mut entry = 0_u64;
    let offset = addr / PAGE_SIZE * size_of::<u64>();
    let args = [(&raw mut entry) as usize, size_of::<u64>(), offset, 0, 0];
    // SAFETY: fills the entry.
    let read = unsafe { file.call_checked_twice(libc::SYS_pread64, args) };
    (read == Ok(size_of::<u64>())).then_some(entry)
}

/// True if the machine may have pages in swap. A file is not asked: there is none.
fn system_has_swap() -> bool {
    // SAFETY: a structure of numbers, which the call fills.
    let (answer, info) = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        (libc::sysinfo(&mut info), info)
    };
    answer != 0 || info.totalswap != 0
}

/// False if mincore(2) says that there is no memory at `addr`: none at all, or a page in the system's swap.
fn is_in_core(addr: usize) -> bool {
    let page = addr & !(PAGE_SIZE - 1);
    let mut there = 0_u8;
    // SAFETY: fills the byte.
    let known = unsafe { sync::kernel_calls::mincore(page as *mut _, PAGE_SIZE, &mut there) == 0 };
    !known || there & 1 != 0
}

/// The state of the page at `addr`.
fn scan(file: &Working, addr: usize) -> Option<u64> {
    let mut region = Region::default();
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: addr as u64,
        end: (addr + PAGE_SIZE) as u64,
        walk_end: 0,
        vec: core::ptr::from_mut(&mut region) as u64,
        vec_len: 1,
        max_pages: 1,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: 0,
        return_mask: PAGE_IS_WRITTEN | PAGE_IS_PRESENT | PAGE_IS_PFNZERO | PAGE_IS_HUGE,
    };
    let args = [PAGEMAP_SCAN as usize, (&raw mut scan) as usize, 0, 0, 0];
    // SAFETY: the structures are those that this ioctl takes; `region` is there
    // for it to fill.
    match unsafe { file.call(libc::SYS_ioctl, args) } {
        Err(_) => None,
        Ok(0) => Some(0),
        Ok(_) => Some(region.categories),
    }
}
