//! Whether a page is the system's page of zeros, or huge: PAGEMAP_SCAN of
//! `/proc/self/pagemap` (Linux 6.7), as `uapi/linux/fs.h` gives it.

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

/// The file, opened once.
pub struct Pagemap {
    /// `None` where the kernel has no such call, or no file. In a child the descriptor is
    /// closed, and answers nothing.
    file: Option<Working>,
}

impl Pagemap {
    /// Opens it.
    pub fn new() -> Self {
        Self { file: open() }
    }

    /// One that is not to be had, as on an older system.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { file: None }
    }

    /// True if pages can be asked about.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// The contents of the page at `addr`; `None` if they cannot be known.
    pub fn look(&self, addr: usize) -> Option<Shown> {
        let categories = scan(self.file.as_ref()?, addr)?;
        Some(match categories & PAGE_IS_PFNZERO != 0 {
            true => Shown::Zeros {
                protected: categories & PAGE_IS_WRITTEN == 0,
            },
            false => Shown::Other,
        })
    }

    /// True if the page at `addr` is certainly a part of a huge page, and mapped with it.
    pub fn is_huge(&self, addr: usize) -> bool {
        let categories = self.file.as_ref().and_then(|file| scan(file, addr));
        categories.is_some_and(|categories| categories & PAGE_IS_HUGE != 0)
    }

    /// The inherited descriptor means the parent: it must not be used.
    pub fn fork_child(&self) {
        if let Some(file) = &self.file {
            file.close();
        }
    }
}

fn open() -> Option<Working> {
    let path = c"/proc/self/pagemap".as_ptr() as usize;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let args = [libc::AT_FDCWD as usize, path, flags, 0, 0, 0];
    // SAFETY: opens a file by a valid name.
    let file = unsafe { Working::open(libc::SYS_openat, args) }.ok()?;
    // Whether it answers, on a page that is certainly there.
    let here = 0_u8;
    let page = core::ptr::from_ref(&here) as usize & !(PAGE_SIZE - 1);
    let answers = scan(&file, page).is_some_and(|categories| categories & PAGE_IS_PRESENT != 0);
    answers.then_some(file)
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
