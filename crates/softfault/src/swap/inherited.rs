//! Swap of a child of fork: pages that its parent had there are read from the parent's, and
//! its own writes go to a file of its own.
//!
//! ```text
//!   slot   0 ─────────────── first ─────────────── end
//!          └─ the parent's ──┘└─ the child's own ──┘
//! ```
//!
//! A grandchild's parent's part is all of the child's, and so on.

use super::SwapFile;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::sync::Arc;

/// Reads that are passed on at a time; bounds the handler's stack.
const READS: usize = 8;
/// Nothing can be written (ENOSPC).
const NO_ROOM: StoreError = StoreError::Io(libc::ENOSPC);

/// The two as one.
pub(crate) struct InheritedSwap {
    inherited: Arc<dyn SwapDevice>,
    /// Immutable. Bytes of the parent's.
    first: u64,
    /// `None` where there could be no file: nothing goes to swap any more.
    own: Option<Arc<SwapFile>>,
}

impl InheritedSwap {
    /// The swap of a child; its parent's is `inherited`.
    pub(super) fn new(inherited: Arc<dyn SwapDevice>, own: Option<Arc<SwapFile>>) -> Self {
        // A device that does not say has nothing.
        let first = inherited.len().unwrap_or(0);
        Self {
            inherited,
            first,
            own,
        }
    }

    /// The file that it writes to.
    pub(super) fn own(&self) -> Option<&Arc<SwapFile>> {
        self.own.as_ref()
    }

    /// The slots below are the parent's.
    pub(super) fn first_slot(&self) -> u32 {
        let first = self.first / PAGE_SIZE as u64;
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// Whose the bytes from `offset` on are, where they are there, and how many follow
    /// that are its too.
    fn at(&self, offset: u64) -> Result<(&dyn SwapDevice, u64, u64), StoreError> {
        match (offset.checked_sub(self.first), &self.own) {
            (None, _) => Ok((&*self.inherited, offset, self.first - offset)),
            (Some(offset), Some(own)) => Ok((&**own, offset, u64::MAX)),
            (Some(_), None) => Err(NO_ROOM),
        }
    }
}

impl Store for InheritedSwap {
    fn len(&self) -> Result<u64, StoreError> {
        let own = self.own.as_ref().map_or(Ok(0), |own| own.len());
        own.map(|own| self.first + own)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < bytes {
            let (device, offset, left) = self.at(offset + done as u64)?;
            let part = (bytes - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            // SAFETY: a part of the caller's buffer.
            let read = unsafe { device.read(offset, buffer.wrapping_add(done), part)? };
            done += read;
            if read < part {
                break;
            }
        }
        Ok(done)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let mut done = 0;
        while done < reads.len() {
            let mut placed = [reads[0]; READS];
            let mut count = 0;
            let mut whose: Option<&dyn SwapDevice> = None;
            for read in reads[done..].iter().take(READS) {
                let Ok((device, offset, left)) = self.at(read.offset) else {
                    break;
                };
                // Both in one read: the thread that needs the page reads it.
                let other = whose.is_some_and(|whose| !core::ptr::addr_eq(whose, device));
                if read.bytes as u64 > left || other {
                    break;
                }
                whose = Some(device);
                placed[count] = Read { offset, ..*read };
                count += 1;
            }
            // SAFETY: the caller's promise.
            let begun = whose.map_or(0, |whose| unsafe { whose.submit(&placed[..count]) });
            done += begun;
            if begun < count || count == 0 {
                break;
            }
        }
        done
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        match (self.inherited.reap(cookie, complete, timeout_ns), &self.own) {
            (Reap::NotInFlight, Some(own)) => own.reap(cookie, complete, timeout_ns),
            (inherited, _) => inherited,
        }
    }

    fn before_fork(&self) {
        self.inherited.before_fork();
        if let Some(own) = &self.own {
            own.before_fork();
        }
    }
}

impl SwapDevice for InheritedSwap {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        match (offset.checked_sub(self.first), &self.own) {
            // SAFETY: the caller's promise.
            (Some(offset), Some(own)) => unsafe { own.write(offset, pages) },
            _ => Err(NO_ROOM),
        }
    }

    fn discard(&self, range: Range<u64>) {
        if let (Some(start), Some(own)) = (range.start.checked_sub(self.first), &self.own) {
            own.discard(start..range.end - self.first);
        }
    }
}
