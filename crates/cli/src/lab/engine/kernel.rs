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

    /// The kernel has a call a range: one that starts the reads, and one that waits.
    fn bring_in(&self, ranges: &[Range<usize>]) -> io::Result<()> {
        for advice in [Advice::WillNeed, Advice::PopulateRead] {
            for range in ranges {
                self.advise_range(advice, range.start, range.len())?;
            }
        }
        Ok(())
    }
}
