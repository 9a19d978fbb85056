//! Snapshots.

use super::{SoftEngine, SoftMap, SoftMapMut};
use crate::error::{FaultError, no_memory};
use crate::generation::ProcessGeneration;
use crate::range::clip;
use core::mem::ManuallyDrop;
use softfault_engine::mm::AddressSpace;
use softfault_engine::mm::ForkError;
use std::io;
use std::sync::Arc;

/// All maps of an engine as they were at one moment. Anonymous memory is
/// copied, page by page, when either side writes; files are shared.
///
/// A map is named by the engine's handle of it, which must still live. A map that the fork does not
/// have, younger ones and those of other engines, is [`FaultError::OutOfRange`].
pub struct SoftFork {
    engine: SoftEngine,
    /// Which of the engine's it is.
    number: u64,
    /// Left as it is in a child process: its locks may be held for ever.
    space: ManuallyDrop<AddressSpace>,
}

impl SoftFork {
    pub(super) fn new(engine: &SoftEngine) -> io::Result<Self> {
        let inner = &engine.inner;
        let space = AddressSpace::with_lock(
            inner.slabs.clone(),
            crate::process::monotonic(),
            inner.options.policies_ref().locks,
        );
        let space = space.map_err(|_| no_memory("the engine has no memory for another fork"))?;
        let mut forks = engine.forks();
        let number = *forks;
        *forks += 1;
        let forked = inner.managed.space.fork(&space);
        forked.map_err(|error| {
            no_memory(match error {
                ForkError::Budget => "the budget has no room for a copy of all anonymous memory",
                ForkError::Mmu(_) => "the machine has no memory for page tables",
                ForkError::Mappings => "the engine has no memory for the mappings of another fork",
            })
        })?;
        inner.files.lend_to_fork();
        Ok(Self {
            engine: engine.clone(),
            number,
            space: ManuallyDrop::new(space),
        })
    }

    /// Where it has its maps; an error for a map of another engine, or one that was made when there
    /// were `forks` forks already, this one among them: another mapping may be at its place.
    pub(super) fn space(
        &self,
        engine: &SoftEngine,
        forks: u64,
    ) -> Result<&AddressSpace, FaultError> {
        let is_ours = Arc::ptr_eq(&self.engine.inner, &engine.inner);
        match is_ours && self.number >= forks {
            true => Ok(&self.space),
            false => Err(FaultError::OutOfRange),
        }
    }

    /// Copies bytes of a file out, as [`SoftMap::read_at`] does.
    pub fn read_file_at(
        &self,
        map: &SoftMap,
        buffer: &mut [u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let space = self.space(&map.engine, map.forks)?;
        self.read(space, (map.start(), map.len()), buffer, offset)
    }

    /// Copies bytes of anonymous memory out, as they are in the snapshot.
    pub fn read_at(
        &self,
        map: &SoftMapMut,
        buffer: &mut [u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let space = self.space(&map.engine, map.forks)?;
        let place = map.place_in_fork(self.number);
        self.read(space, place, buffer, offset)
    }

    /// Copies bytes out of a map of `len` bytes at `start`.
    fn read(
        &self,
        space: &AddressSpace,
        (start, len): (usize, usize),
        buffer: &mut [u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let addresses = clip(start, len, offset, buffer.len());
        let count = addresses.len();
        self.engine
            .read(space, addresses.start, &mut buffer[..count])?;
        Ok(count)
    }

    /// Copies bytes into anonymous memory of the snapshot.
    pub fn write_at(
        &self,
        map: &SoftMapMut,
        bytes: &[u8],
        offset: usize,
    ) -> Result<usize, FaultError> {
        let space = self.space(&map.engine, map.forks)?;
        let (start, len) = map.place_in_fork(self.number);
        let addresses = clip(start, len, offset, bytes.len());
        let count = addresses.len();
        self.engine.write(space, addresses.start, &bytes[..count])?;
        Ok(count)
    }
}

impl core::fmt::Debug for SoftFork {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftFork").finish_non_exhaustive()
    }
}

impl Drop for SoftFork {
    fn drop(&mut self) {
        if ProcessGeneration::is_child() {
            return;
        }
        self.space.exit(|_, _| {});
        self.engine.inner.files.fork_is_gone();
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.space) };
    }
}
