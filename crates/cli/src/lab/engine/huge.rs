//! Huge memory as the lab's engines map it in a process: the kernel's hugetlbfs, plainly, and softfault's.

use super::{HugeFile, HugeSpace};
use crate::lab::huge_pool::HUGE;
use softfault::{HugeBacking, HugeMap, HugeMemory, HugeSize};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::rc::Rc;

/// A span of page tables that processes can share.
const SPAN: usize = 1 << 30;
/// The page size of mincore(2).
const SMALL: usize = 4096;

/// The kernel's: a memfd of the pool, and `mmap`; if it `parks`, with a mapping that keeps page tables.
pub fn kernel(bytes: u64, parks: bool) -> io::Result<Box<dyn HugeFile>> {
    let (memory, bytes) = (made(bytes)?, bytes as usize);
    let place = place(bytes)?;
    Ok(Box::new(Kernel {
        memory,
        place,
        bytes,
        parks,
    }))
}

/// softfault's, of the same.
pub fn softfault(bytes: u64) -> io::Result<Box<dyn HugeFile>> {
    Ok(Box::new(Ours(made(bytes)?)))
}

fn made(bytes: u64) -> io::Result<HugeMemory> {
    let builder = HugeMemory::builder().page_size(HugeSize::TwoMiB);
    builder.backing(HugeBacking::Hugetlb).create(bytes)
}

fn punch(memory: &HugeMemory) -> Result<(), String> {
    let punched = memory.bytes().and_then(|bytes| memory.punch_hole(0..bytes));
    punched.map_err(|e| format!("cannot empty huge memory: {e}"))
}

struct Kernel {
    /// For its descriptor, and to give pages back.
    memory: HugeMemory,
    /// Where to map it: processes share page tables only at the same place of a span.
    place: usize,
    bytes: usize,
    /// Whether a space keeps page tables when it unmaps.
    parks: bool,
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
    fn space(&self) -> Result<Box<dyn HugeSpace + '_>, String> {
        let parked = match self.parks && self.bytes >= SPAN {
            true => {
                let free = place(self.bytes).and_then(|place| self.map(place));
                let parked = free.map_err(|e| format!("cannot park huge memory: {e}"))?;
                Some(Rc::new(parked))
            }
            false => None,
        };
        Ok(Box::new(Loads {
            map: move || {
                let plain = self.map(self.place)?;
                let parked = parked.clone();
                Ok(Parking { plain, parked })
            },
            mapped: None,
        }))
    }

    fn empty(&self) -> Result<(), String> {
        punch(&self.memory)
    }
}

impl Kernel {
    /// All of it, at a place if that is free.
    fn map(&self, place: usize) -> io::Result<Plain> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (place, fd) = (place as *mut _, self.memory.as_fd().as_raw_fd());
        // SAFETY: a new mapping, where the hint says or anywhere else.
        let start = unsafe { libc::mmap(place, self.bytes, protection, libc::MAP_SHARED, fd, 0) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Plain(start, self.bytes)),
        }
    }
}

struct Ours(HugeMemory);

impl HugeFile for Ours {
    fn space(&self) -> Result<Box<dyn HugeSpace + '_>, String> {
        Ok(Box::new(Loads {
            map: || self.0.map(),
            mapped: None,
        }))
    }

    fn empty(&self) -> Result<(), String> {
        punch(&self.0)
    }
}

/// A mapping that loads and stores reach.
trait Reached {
    fn start(&self) -> NonNull<u8>;

    fn served(&self) -> u64 {
        0
    }
}

struct Plain(*mut libc::c_void, usize);

/// A mapping that leaves its page tables to another one when it goes, which nobody touches: as the library's does.
struct Parking {
    plain: Plain,
    parked: Option<Rc<Plain>>,
}

impl Reached for Parking {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.plain.0.cast()).expect("nothing is mapped at 0")
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        if let Some(parked) = &self.parked {
            parked.share_tables();
        }
    }
}

impl Plain {
    /// Begins to share existing page tables of other mappings, span by span; a missing page is not requested.
    fn share_tables(&self) {
        for at in (0..).step_by(SPAN).take_while(|at| at + SPAN <= self.1) {
            let mut found = 0u8;
            // SAFETY: of a mapping of ours; the first fills the byte, the second maps a page that is there.
            unsafe {
                let start = self.0.byte_add(at);
                if libc::mincore(start, SMALL, &raw mut found) == 0 && found & 1 != 0 {
                    libc::madvise(start, HUGE as usize, libc::MADV_POPULATE_READ);
                }
            }
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: mapped by `Kernel`, and nobody looks at it any more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

impl Reached for HugeMap {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.as_mut_ptr()).expect("nothing is mapped at 0")
    }

    fn served(&self) -> u64 {
        self.stats().faults
    }
}

/// Mappings that loads and stores reach.
struct Loads<M, F> {
    map: F,
    mapped: Option<M>,
}

impl<M: Reached, F> Loads<M, F> {
    fn at(&self, at: u64) -> NonNull<u64> {
        let mapped = self.mapped.as_ref().expect("mapped before it is touched");
        // SAFETY: callers stay within the mapping, at multiples of a word.
        unsafe { mapped.start().add(at as usize).cast() }
    }
}

impl<M: Reached, F: Fn() -> io::Result<M>> HugeSpace for Loads<M, F> {
    fn map(&mut self) -> Result<(), String> {
        let mapped = (self.map)().map_err(|e| format!("cannot map huge memory: {e}"))?;
        self.mapped = Some(mapped);
        Ok(())
    }

    fn swap(&mut self, at: u64, word: u64) -> Result<u64, String> {
        let place = self.at(at);
        // SAFETY: within the map; others write to other words.
        unsafe {
            let before = place.read_volatile();
            place.write_volatile(word);
            Ok(before)
        }
    }

    fn sum(&mut self, page: u64) -> Result<u64, String> {
        let start = self.at(page * HUGE);
        // SAFETY: within the map, of which nobody changes a byte.
        let words = unsafe { std::slice::from_raw_parts(start.as_ptr(), (HUGE / 8) as usize) };
        Ok(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)))
    }

    fn fill(&mut self, page: u64, word: u64) -> Result<(), String> {
        let start = self.at(page * HUGE);
        // SAFETY: within the map, which nobody else looks at yet.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), (HUGE / 8) as usize) }.fill(word);
        Ok(())
    }

    fn unmap(&mut self) -> u64 {
        let mapped = self.mapped.take();
        mapped.map_or(0, |mapped| mapped.served())
    }
}
