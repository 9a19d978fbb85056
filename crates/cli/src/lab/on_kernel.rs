//! The lab's engine over the kernel's own mmap.

use super::engine::{Anonymous, Engine, Mapping};
use super::stats::EngineStats;
use memmap2::{Advice, Mmap, MmapMut};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// Kernel mmap, files with an advice.
pub fn build(advice: Option<Advice>) -> Box<dyn Engine> {
    Box::new(Kernel(advice))
}

struct Kernel(Option<Advice>);

impl Engine for Kernel {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        // SAFETY: the lab's files are not written to while they are mapped.
        let map = unsafe { Mmap::map(file) }?;
        if let Some(advice) = self.0 {
            map.advise(advice)?;
        }
        Ok(Box::new(map))
    }

    /// Without huge pages: the document counts faults of small ones.
    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>> {
        let mut map = MmapMut::map_anon(bytes)?;
        match map.advise(Advice::NoHugePage) {
            // A kernel that was built without them.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            result => result?,
        }
        let start = NonNull::new(map.as_mut_ptr()).expect("no mapping is at address 0");
        Ok(Box::new(Memory { start, _map: map }))
    }

    fn stats(&self) -> Option<EngineStats> {
        None
    }
}

impl Mapping for Mmap {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// Anonymous memory. Immutable; its bytes are the threads' own affair.
struct Memory {
    start: NonNull<u8>,
    _map: MmapMut,
}

// SAFETY: the address is that of a mapping that this owns, and says nothing about the thread.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing here looks at the bytes.
unsafe impl Sync for Memory {}

impl Anonymous for Memory {
    fn start(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }
}
