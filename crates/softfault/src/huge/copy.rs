//! Copying from and to huge memory, that others may write to at the same time.

use super::map::HugeMap;
use crate::FaultError;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

impl HugeMap {
    /// Fills `buffer` from `offset` on. What others write meanwhile is seen, or not, or in part.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<(), FaultError> {
        let start = self.reach(offset, buffer.len())?;
        let (mut at, end) = (0, buffer.len());
        while at < end {
            let addr = start + at;
            if addr.is_multiple_of(WORD) && end - at >= WORD {
                // SAFETY: within the map, aligned; all who write here do it atomically, or outside
                // of what Rust has a say in.
                let word = unsafe { (*(addr as *const AtomicU64)).load(Ordering::Relaxed) };
                buffer[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
                at += WORD;
            } else {
                // SAFETY: as above.
                buffer[at] = unsafe { (*(addr as *const AtomicU8)).load(Ordering::Relaxed) };
                at += 1;
            }
        }
        Ok(())
    }

    /// Writes `bytes` from `offset` on. Others may see a part of it first.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<(), FaultError> {
        if self.is_read_only() {
            return Err(FaultError::ReadOnly);
        }
        let start = self.reach(offset, bytes.len())?;
        let (mut at, end) = (0, bytes.len());
        while at < end {
            let addr = start + at;
            if let (0, Some(word)) = (addr % WORD, bytes[at..].first_chunk::<WORD>()) {
                let word = u64::from_ne_bytes(*word);
                // SAFETY: as in `read_at`, and the map may be written to.
                unsafe { (*(addr as *const AtomicU64)).store(word, Ordering::Relaxed) };
                at += WORD;
            } else {
                // SAFETY: as above.
                unsafe { (*(addr as *const AtomicU8)).store(bytes[at], Ordering::Relaxed) };
                at += 1;
            }
        }
        Ok(())
    }

    /// Brings in what a copy needs; the address of its first byte.
    fn reach(&self, offset: usize, len: usize) -> Result<usize, FaultError> {
        let end = offset.checked_add(len).ok_or(FaultError::OutOfRange)?;
        let addresses = self.addresses(offset..end)?;
        self.populate(offset..end)?;
        Ok(addresses.start)
    }
}
