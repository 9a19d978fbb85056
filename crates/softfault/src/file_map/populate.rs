//! Bringing pages in.

use super::FileMap;
use crate::advice::Advice;
use crate::error::FaultError;
use crate::managed::Managed;
use core::ops::Range;
use softfault_engine::cache::folio::BLOCK_BYTES;
use softfault_engine::fault;

/// The part of a populate that the kernel reads before the server of the window may change.
const PIECE: usize = 2 << 20;

impl FileMap {
    /// Brings the pages of some addresses in, as reads would, or writes. Nothing keeps them.
    pub(crate) fn populate(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        write: bool,
    ) -> Result<(), FaultError> {
        let mut rest = addresses;
        loop {
            let hold = self.hold();
            if !hold.is_kernels() {
                return self.access_path.each_attempt(rest, |rest, interrupt| {
                    fault::populate(&managed.space, rest, write, interrupt)
                });
            }
            // Piece by piece: memory may get short meanwhile, and then the engine takes it over.
            let end = rest.end.min(rest.start + PIECE);
            self.bring_in_by_kernel(&(rest.start..end))?;
            if end == rest.end {
                return Ok(());
            }
            rest.start = end;
        }
    }

    /// A call of the program's has brought some addresses in: the next such call may find its pages read.
    pub(crate) fn note_call(&self, managed: &Managed, addresses: &Range<usize>) {
        // A range of one block is one touch, which read-ahead has seen.
        if addresses.is_empty()
            || addresses.start / BLOCK_BYTES == (addresses.end - 1) / BLOCK_BYTES
        {
            return;
        }
        let _masked = self.access_path.masked();
        let hold = self.served.hold();
        // The kernel reads ahead by itself.
        if !hold.is_kernels() {
            fault::note_call(&managed.space, addresses);
        }
    }

    /// Starts to read the pages of some addresses, as far as spare memory goes; waits for nothing.
    pub(crate) fn prefetch(&self, addresses: Range<usize>) {
        let _masked = self.access_path.masked();
        let hold = self.served.hold();
        if hold.is_kernels() {
            // A long call, and advice: it does no harm to a window that the engine serves by then.
            drop(hold);
            let _ = Advice::WillNeed.to_kernel(&addresses);
            return;
        }
        fault::prefetch(&self.cache, addresses);
    }
}
