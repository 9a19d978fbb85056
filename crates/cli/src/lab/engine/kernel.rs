//! The lab's engine over the kernel's own mmap.

use super::stored::Stored;
use super::written::Written;
use super::{Anonymous, Engine, Mapping, WritableMapping};
use super::{HugeFile, huge};
use crate::lab::stats::EngineStats;
use memmap2::{Advice, Mmap, MmapMut, RemapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The most ranges that one process_madvise(2) takes.
const RANGES: usize = 1024;

/// Kernel mmap, files with an advice.
pub fn build(advice: Option<Advice>) -> Box<dyn Engine> {
    let parks = false;
    Box::new(Kernel { advice, parks })
}

/// The same, keeping the page tables of huge pages by a mapping that stays.
pub fn build_parked() -> Box<dyn Engine> {
    let (advice, parks) = (None, true);
    Box::new(Kernel { advice, parks })
}

/// All fields immutable.
struct Kernel {
    advice: Option<Advice>,
    parks: bool,
}

impl Engine for Kernel {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        // SAFETY: the lab's files are not written to while they are mapped.
        let map = unsafe { Mmap::map(file) }?;
        if let Some(advice) = self.advice {
            map.advise(advice)?;
        }
        Ok(Box::new(map))
    }

    /// Without huge pages: the document counts faults of small ones.
    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>> {
        let map = MmapMut::map_anon(bytes)?;
        match map.advise(Advice::NoHugePage) {
            // A kernel that was built without them.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            result => result?,
        }
        Ok(Box::new(Stored::over(map)))
    }

    fn map_writable(&self, file: &File) -> io::Result<Box<dyn WritableMapping>> {
        // SAFETY: nobody else has the lab's file.
        let map = unsafe { MmapMut::map_mut(file) }?;
        if let Some(advice) = self.advice {
            map.advise(advice)?;
        }
        Ok(Box::new(Written::over(map, MmapMut::flush, grow)))
    }

    fn huge(&self, bytes: u64) -> io::Result<Box<dyn HugeFile>> {
        huge::kernel(bytes, self.parks)
    }

    fn stats(&self) -> Option<EngineStats> {
        None
    }
}

/// By ftruncate(2), and mremap(2), which keeps the advice.
fn grow(map: &mut MmapMut, file: &File, bytes: usize) -> io::Result<()> {
    file.set_len(bytes as u64)?;
    let options = RemapOptions::new().may_move(true);
    // SAFETY: the file has so many bytes; the caller has the map alone, and no pointer into it.
    unsafe { map.remap(bytes, options) }
}

impl Mapping for Mmap {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }

    /// All reads are started before one is waited for.
    fn bring_in(&self, ranges: &[Range<usize>], present: bool) -> io::Result<()> {
        if !present {
            advise_all(self, ranges, Advice::WillNeed)?;
        }
        advise_all(self, ranges, Advice::PopulateRead)
    }
}

/// Gives an advice for each range: by process_madvise(2) for many at once, by madvise(2) for one after the other
/// where the kernel refuses it (before Linux 6.13, and for an advice that it does not know there).
fn advise_all(map: &Mmap, ranges: &[Range<usize>], advice: Advice) -> io::Result<()> {
    // SAFETY: pidfd_open takes no pointers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) } as RawFd;
    // SAFETY: a descriptor that was just made, which nobody else owns.
    let process = (process >= 0).then(|| unsafe { OwnedFd::from_raw_fd(process) });
    for ranges in ranges.chunks(RANGES) {
        if process
            .as_ref()
            .is_some_and(|process| advise_at_once(process, map, ranges, advice))
        {
            continue;
        }
        for range in ranges {
            map.advise_range(advice, range.start, range.len())?;
        }
    }
    Ok(())
}

/// Whether the kernel took the advice for all of the ranges, of which a call may have `RANGES`.
fn advise_at_once(process: &OwnedFd, map: &Mmap, ranges: &[Range<usize>], advice: Advice) -> bool {
    let vector = |range: &Range<usize>| libc::iovec {
        iov_base: map[range.clone()].as_ptr().cast_mut().cast(),
        iov_len: range.len(),
    };
    let vectors: Vec<libc::iovec> = ranges.iter().map(vector).collect();
    let bytes: usize = ranges.iter().map(Range::len).sum();
    // SAFETY: the vectors are live, and their ranges are of the map; the advice changes no byte of it.
    let done = unsafe {
        let call = libc::SYS_process_madvise;
        libc::syscall(
            call,
            process.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            advice as i32,
            0,
        )
    };
    usize::try_from(done) == Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn all_ranges_are_mapped_by_calls_of_many() {
        let page = 4096;
        let mut file = tempfile::tempfile().unwrap();
        // More than a call takes, and a last page that is no whole one.
        let bytes = 2 * RANGES * page + 100;
        file.write_all(&vec![7; bytes]).unwrap();
        // SAFETY: nobody writes to the file any more.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        let ranges: Vec<Range<usize>> = (0..bytes.div_ceil(page))
            .map(|number| number * page..((number + 1) * page).min(bytes))
            .collect();
        map.bring_in(&ranges, false).unwrap();
        // A word for each page of this process: the highest bit is set where it is in the page tables.
        let mut words = vec![0; 8 * ranges.len()];
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let first = map.as_ptr().addr() / page;
        pagemap.read_exact_at(&mut words, 8 * first as u64).unwrap();
        let mut mapped = words.iter().skip(7).step_by(8);
        assert!(mapped.all(|byte| byte & 0x80 != 0));
    }
}
