//! PAGEMAP_SCAN (Linux 6.7): the kinds of pages, asked in one call. By it a page of zeros that costs nothing is told from
//! memory.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::PAGE;
use softfault_sim::calibrate::memory::Memory;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub const CHECK: Check = Check {
    name: "pagemap-scan",
    costs: "private memory that is read before it is written takes a page of the budget each time",
    run: |_| match try_it() {
        Ok(()) => Tried::ok("the present pages of a range found in one call"),
        Err(e) => Tried::missing(format!("PAGEMAP_SCAN: {e}"), mend(&e)),
    },
    whereabouts: Whereabouts::Child,
};

fn mend(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => machine::MOUNT_PROC.to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "let the security module allow /proc/self/pagemap".to_owned()
        }
        _ => machine::newer_kernel(6, 7),
    }
}

/// `_IOWR('f', 16, struct pm_scan_arg)` of <linux/fs.h>.
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
const PRESENT: u64 = 1 << 3;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Touches two of four pages and looks for exactly them.
fn try_it() -> io::Result<()> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let memory = Memory::map(4 * PAGE, false)?;
    memory.write(PAGE, 1);
    memory.write(2 * PAGE, 1);
    let mut regions = [Region::default(); 4];
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start: memory.at(0) as u64,
        end: memory.at(4 * PAGE) as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_len: regions.len() as u64,
        category_mask: PRESENT,
        return_mask: PRESENT,
        ..Scan::default()
    };
    // SAFETY: the structure has the layout of the request; it names our regions and our memory.
    let found = unsafe {
        libc::ioctl(
            pagemap.as_raw_fd(),
            PAGEMAP_SCAN as libc::Ioctl,
            &raw mut scan,
        )
    };
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    let expected = (memory.at(PAGE) as u64, memory.at(3 * PAGE) as u64);
    match found == 1 && (regions[0].start, regions[0].end) == expected {
        true => Ok(()),
        false => Err(io::Error::other("it found other pages")),
    }
}
