//! Pages that stay in memory, and may be handed to system calls.

use super::FileMap;
use crate::advice::Advice;
use crate::error::FaultError;
use crate::files::Hold;
use crate::kernel::lock_by_kernel;
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, Pin, Populated};

/// Pages that are pinned, for [`FileMap::unpin`].
#[must_use]
pub(crate) struct FilePin {
    /// Charged to the limit on pins.
    pages: u64,
    /// The kernel has locked them.
    locked: bool,
    /// For pages that the kernel serves, this is all: they can be read, in memory
    /// or not.
    hold: Hold,
}

impl FilePin {
    fn uncounted(hold: Hold) -> Self {
        Self {
            pages: 0,
            locked: false,
            hold,
        }
    }

    /// True if the kernel serves the pages: nothing keeps them.
    pub(crate) fn is_kernels(&self) -> bool {
        self.hold.is_kernels()
    }
}

impl FileMap {
    /// Pins the pages of some addresses.
    pub(crate) fn pin(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<FilePin, FaultError> {
        let mut hold = self.hold();
        hold.keep();
        if hold.is_kernels() {
            self.bring_in_by_kernel(&addresses)?;
            return Ok(FilePin::uncounted(hold));
        }
        let pages = self.cache.admit_pin(&addresses);
        let pages = pages.ok_or(FaultError::NoMemory)?;
        self.cache.wait_for_protection();
        match self.pin_by_engine(managed, addresses) {
            Ok(()) => Ok(FilePin {
                pages,
                ..FilePin::uncounted(hold)
            }),
            Err(error) => {
                self.cache.dismiss_pin(pages);
                Err(error)
            }
        }
    }

    /// As [`pin`](Self::pin), of pages that stay until they are unpinned, also when memory is short: the
    /// kernel does not serve them any more. If others hold the window in that state, it locks them.
    pub(crate) fn lock(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<FilePin, FaultError> {
        // Pages that cannot be taken over stay as they are.
        let _ = self.change_server(false);
        let mut pin = self.pin(managed, addresses.clone())?;
        if pin.is_kernels() {
            pin.hold.begin_kernel_lock();
            pin.locked = true;
            if let Err(error) = lock_by_kernel(&addresses, true) {
                self.unpin(addresses, pin);
                return Err(FaultError::Io(error.raw_os_error().unwrap_or(libc::ENOMEM)));
            }
        }
        Ok(pin)
    }

    /// The same, charged to no limit.
    pub(crate) fn pin_uncounted(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
    ) -> Result<FilePin, FaultError> {
        let hold = self.hold();
        match hold.is_kernels() {
            true => self.bring_in_by_kernel(&addresses)?,
            false => self.pin_by_engine(managed, addresses)?,
        }
        Ok(FilePin::uncounted(hold))
    }

    /// Has the kernel, which serves the window, bring pages in, as reads would.
    pub(super) fn bring_in_by_kernel(&self, addresses: &Range<usize>) -> Result<(), FaultError> {
        let brought = populate_by_kernel(addresses, false);
        brought.map_err(|error| self.kernels_error(addresses, error))
    }

    /// The kernel says of no page why it cannot bring it in; the file's end is told as the engine tells it.
    pub(crate) fn kernels_error(&self, addresses: &Range<usize>, error: FaultError) -> FaultError {
        let last = (addresses.end - 1) / PAGE_SIZE * PAGE_SIZE - self.cache.addresses().start;
        let _masked = self.access_path.masked();
        match self.cache.store().len() {
            Ok(end) if end <= last as u64 => FaultError::BeyondEnd,
            _ => error,
        }
    }

    /// Maps the pages and takes references to their folios.
    fn pin_by_engine(&self, managed: &Managed, addresses: Range<usize>) -> Result<(), FaultError> {
        self.access_path
            .each_attempt(addresses.clone(), |rest, interrupt| {
                let from = rest.start;
                let all = addresses.clone();
                match fault::pin(&managed.space, &self.cache, all, from, interrupt) {
                    Pin::Done => Populated::Done,
                    Pin::Interrupted(at) => Populated::Interrupted(at),
                    Pin::Failed(error) => Populated::Failed(from, error),
                }
            })
    }

    /// Has pages that are pinned, and were brought in as writes would, take the writes of system calls.
    pub(crate) fn open_to_writes(&self, addresses: Range<usize>) -> Result<(), FaultError> {
        let _masked = self.access_path.masked();
        Ok(fault::open_to_writes(&self.cache, addresses)?)
    }

    /// Lets pages go that were pinned.
    pub(crate) fn unpin(&self, addresses: Range<usize>, pin: FilePin) {
        let _masked = self.access_path.masked();
        if pin.locked {
            // Locks of other maps of the window may be of the same pages.
            let unlock = || drop(lock_by_kernel(&self.cache.addresses(), false));
            pin.hold.end_kernel_lock(unlock);
        }
        if !pin.hold.is_kernels() {
            fault::unpin(&self.cache, addresses);
            self.cache.dismiss_pin(pin.pages);
        }
    }
}

/// Has the kernel bring in pages of a mapping of its own, as reads would, or writes: a page that it cannot read is an error
/// here, and no signal. Before Linux 5.14 it cannot be asked, and a later touch finds out.
pub(crate) fn populate_by_kernel(addresses: &Range<usize>, write: bool) -> Result<(), FaultError> {
    if addresses.is_empty() {
        return Ok(());
    }
    let advice = match write {
        true => Advice::PopulateWrite,
        false => Advice::PopulateRead,
    };
    match advice.to_kernel(addresses) {
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(FaultError::Io(libc::EIO)),
        _ => Ok(()),
    }
}
