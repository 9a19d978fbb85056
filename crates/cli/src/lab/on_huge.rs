//! Huge memory as the lab's engines map it: the kernel's hugetlbfs, plainly, and softfault's.

use super::engine::{HugeFile, HugeMapping};
use softfault::{HugeBacking, HugeMap, HugeMapOptions, HugeMemory, HugeSize};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

/// A span of page tables that processes can share.
const SPAN: usize = 1 << 30;

/// The kernel's: a memfd of the pool, and `mmap`.
pub fn kernel(bytes: u64) -> io::Result<Box<dyn HugeFile>> {
    let memory = made(bytes)?;
    let place = place(bytes as usize)?;
    Ok(Box::new(Kernel { memory, place }))
}

/// softfault's, of the same.
pub fn softfault(bytes: u64) -> io::Result<Box<dyn HugeFile>> {
    Ok(Box::new(Ours {
        memory: made(bytes)?,
    }))
}

fn made(bytes: u64) -> io::Result<HugeMemory> {
    let builder = HugeMemory::builder().page_size(HugeSize::TwoMiB);
    builder.backing(HugeBacking::Hugetlb).create(bytes)
}

struct Kernel {
    /// For its descriptor, and to give pages back.
    memory: HugeMemory,
    /// Where to map it: processes share page tables only at the same place of a span.
    place: usize,
}

/// A place for so many bytes that begins with a span, free at the moment.
fn place(bytes: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of nothing at an address of the kernel's choice, taken away again.
    unsafe {
        let all = bytes + SPAN;
        let start = libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(start, all);
        Ok((start as usize).next_multiple_of(SPAN))
    }
}

impl HugeFile for Kernel {
    fn map(&self) -> io::Result<Box<dyn HugeMapping>> {
        let bytes = self.memory.bytes()? as usize;
        let (fd, protection) = (
            self.memory.as_fd().as_raw_fd(),
            libc::PROT_READ | libc::PROT_WRITE,
        );
        // SAFETY: a new mapping, where the hint says or anywhere else.
        let start = unsafe {
            let hint = self.place as *mut _;
            libc::mmap(hint, bytes, protection, libc::MAP_SHARED, fd, 0)
        };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Box::new(Plain { start, bytes })),
        }
    }

    fn empty(&self) -> io::Result<()> {
        self.memory.punch(0..self.memory.bytes()?)
    }
}

struct Plain {
    start: *mut libc::c_void,
    bytes: usize,
}

impl HugeMapping for Plain {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.start.cast()).expect("nothing is mapped at 0")
    }

    fn served(&self) -> u64 {
        0
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: mapped in `Kernel::map`, and nobody looks at it any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

struct Ours {
    memory: HugeMemory,
}

impl HugeFile for Ours {
    fn map(&self) -> io::Result<Box<dyn HugeMapping>> {
        Ok(Box::new(HugeMapOptions::new().map(&self.memory)?))
    }

    fn empty(&self) -> io::Result<()> {
        self.memory.punch(0..self.memory.bytes()?)
    }
}

impl HugeMapping for HugeMap {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.as_mut_ptr()).expect("nothing is mapped at 0")
    }

    fn served(&self) -> u64 {
        self.stats().faults
    }
}
