//! Parts of a map that stay in memory until an explicit release: for callers without a borrow to hold.

use super::{MmapRaw, Raw};
use crate::FaultError;
use crate::file_map::{FileMap, FilePin};
use crate::kernel::lock_by_kernel;
use crate::map::Held;
use core::ops::Range;

/// A kept part of a map; [`MmapRaw::release`] ends it.
#[derive(Debug)]
#[must_use = "a part that is not released stays in memory as long as the map"]
pub struct Kept {
    /// Offsets in the map. Immutable.
    part: Range<usize>,
    pages: KeptPages,
}

enum KeptPages {
    Read(Held),
    Written(Option<FilePin>),
    /// `mlock(2)` of a mapping of the kernel's own.
    ByKernel,
}

impl core::fmt::Debug for KeptPages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Read(_) => "Read",
            Self::Written(_) => "Written",
            Self::ByKernel => "ByKernel",
        })
    }
}

impl MmapRaw {
    /// Brings a part in, and keeps it: system calls may read it, and may write to it if the map is writable. Pages
    /// that the kernel serves are read in, and locked if `locked` is true. Once pages of an engine's file are locked,
    /// the kernel does not serve the file any more.
    #[doc(hidden)]
    pub fn keep(&self, part: Range<usize>, locked: bool) -> Result<Kept, FaultError> {
        let pages = match &self.0 {
            _ if locked && !self.is_managed() => {
                self.lock_by_kernel(&part, true).inspect_err(|_| {
                    // mlock(2) says so of pages past the end of a file, and has locked them all the same.
                    let _ = self.lock_by_kernel(&part, false);
                })?;
                KeptPages::ByKernel
            }
            Raw::Read(map) => {
                let of_file = if locked { FileMap::lock } else { FileMap::pin };
                KeptPages::Read(map.hold_part(part.clone(), of_file)?)
            }
            Raw::Write(map) => KeptPages::Written(map.hold_part_as_allowed(part.clone())?),
        };
        Ok(Kept { part, pages })
    }

    /// Releases a part that [`keep`](Self::keep) has kept.
    ///
    /// # Safety
    /// The part is of this map, and the map was not remapped since.
    #[doc(hidden)]
    pub unsafe fn release(&self, kept: Kept) {
        match (kept.pages, &self.0) {
            (KeptPages::Read(held), Raw::Read(map)) => map.release_part(kept.part, held),
            (KeptPages::Written(pin), Raw::Write(map)) => map.release_part(kept.part, pin),
            // A child of fork that could not take the map over has nothing locked.
            (KeptPages::ByKernel, _) => drop(self.lock_by_kernel(&kept.part, false)),
            _ => unreachable!("a part is released by its own map"),
        }
    }

    /// Releases a part that is locked, but for `rest`: parts of it in their order, each of which is kept by itself from now on. After
    /// an error all of it is kept as it was.
    ///
    /// # Safety
    /// As for [`release`](Self::release).
    #[doc(hidden)]
    pub unsafe fn release_but(
        &self,
        kept: Kept,
        rest: &[Range<usize>],
    ) -> Result<Vec<Kept>, (Kept, FaultError)> {
        let mut anew = Vec::with_capacity(rest.len());
        if matches!(kept.pages, KeptPages::ByKernel) {
            // Its locks do not nest: what stays locked is never unlocked.
            let starts = [kept.part.start].into_iter();
            let starts = starts.chain(rest.iter().map(|part| part.end));
            let ends = rest.iter().map(|part| part.start).chain([kept.part.end]);
            for (start, end) in starts.zip(ends).filter(|(start, end)| start < end) {
                let _ = self.lock_by_kernel(&(start..end), false);
            }
            anew.extend(rest.iter().map(|part| Kept {
                part: part.clone(),
                pages: KeptPages::ByKernel,
            }));
            return Ok(anew);
        }
        // The engine's nest.
        for part in rest {
            match self.keep(part.clone(), true) {
                Ok(part) => anew.push(part),
                Err(error) => {
                    // SAFETY: the caller's; they were kept just now.
                    anew.into_iter()
                        .for_each(|part| unsafe { self.release(part) });
                    return Err((kept, error));
                }
            }
        }
        // SAFETY: the caller's.
        unsafe { self.release(kept) };
        Ok(anew)
    }

    fn lock_by_kernel(&self, part: &Range<usize>, locked: bool) -> Result<(), FaultError> {
        let addresses = self.addresses(part.clone())?;
        let done = lock_by_kernel(&addresses, locked);
        done.map_err(|error| FaultError::Io(error.raw_os_error().unwrap_or(libc::ENOMEM)))
    }
}
