//! Address space that the program has reserved, and takes into use part by part.
//!
//! A window is made over it of which nothing is the engine's. `take_back` makes a part zeros that the engine serves;
//! `hand_over`'s calls give parts away again.

use super::{KeptPages, Private};
use crate::access_path::AccessPath;
use crate::files::Files;
use crate::fork::Memory;
use crate::generation::PerProcess;
use crate::managed::Managed;
use crate::process;
use crate::signal::Masked;
use crate::uffd::{GivenTo, nothing_at};
use crate::{FaultError, error};
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::Protection;
use std::io;

impl Private {
    /// A map over address space of the program's: it begins at a multiple of a page table's span. All of it stays the
    /// program's.
    pub(crate) fn over_reserved(
        (managed, files): (&Managed, &Files),
        masked: &Masked,
        range: &Range<usize>,
    ) -> io::Result<Self> {
        let process = process::get().ok_or(FaultError::Forked)?;
        let mmu = process.mmu();
        mmu.prepare_pins();
        let anon = files.making_room(|| {
            let window = mmu.window_over(range)?;
            Anonymous::reserved(managed.node.clone(), window)
        })?;
        let mut map = Self {
            anon: Memory::new(anon),
            access_path: AccessPath::ByLoads,
            skip: 0,
            len: range.len(),
            protection: Protection::ReadWrite,
            parts_differ: AtomicBool::new(false),
            file: None,
            kept: PerProcess::<KeptPages>::default(),
        };
        map.allow_inherit(Some(masked));
        Ok(map)
    }

    /// Makes a part that was given away zeros, which the engine serves. After an error it is the program's, and may be
    /// inaccessible.
    ///
    /// # Safety
    /// Nobody uses the part.
    pub(crate) unsafe fn take_back(
        &self,
        managed: &Managed,
        part: &Range<usize>,
    ) -> io::Result<()> {
        let process = process::get().ok_or(FaultError::Forked)?;
        let mmu = process.mmu();
        let _masked = self.access_path.masked();
        let window = self.anon.reservation();
        // SAFETY: the caller's promise.
        unsafe { mmu.take_back(window, part) }.map_err(error::mmu)?;
        let entered = self.enter(managed, part.clone());
        let opened = entered.and_then(|()| {
            mmu.open(part).map_err(|error| {
                let _ = managed.space.munmap(part.clone(), |_, _| {});
                error::mmu(error)
            })
        });
        if opened.is_err() {
            // SAFETY: nobody could touch it yet.
            let _ = unsafe { mmu.give_place(part, GivenTo::Program, || nothing_at(part)) };
        }
        opened
    }
}
