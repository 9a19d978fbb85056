//! Copying from and to huge memory, while other threads or processes may write to it.

use super::map::HugeMap;
use crate::FaultError;

impl HugeMap {
    /// Fills `buffer` with the bytes from `offset` on. A concurrent write may be seen in full, in part, or not at all: only
    /// aligned words of 8 bytes are read as a whole.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<(), FaultError> {
        let start = self.reach(offset, buffer.len())?;
        // SAFETY: within the map, which begins and ends with whole words; all writers use
        // `write_at`, and so words, or are outside of Rust. The buffer is ours alone.
        unsafe { sync::bytes::load(start as *const u8, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Writes `bytes` at `offset`. A concurrent reader may see only a part of them: only aligned words of 8 bytes are
    /// written as a whole. If another writer changes the other bytes of a word meanwhile, its change stays.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<(), FaultError> {
        if self.is_read_only() {
            return Err(FaultError::ReadOnly);
        }
        let start = self.reach(offset, bytes.len())?;
        // SAFETY: as in `read_at`, and the map may be written to.
        unsafe { sync::bytes::store(bytes.as_ptr(), start as *mut u8, bytes.len()) };
        Ok(())
    }

    /// Brings in the pages of a copy; returns the address of its first byte.
    fn reach(&self, offset: usize, len: usize) -> Result<usize, FaultError> {
        let end = offset.checked_add(len).ok_or(FaultError::OutOfRange)?;
        let addresses = self.addresses(offset..end)?;
        self.populate(offset..end)?;
        Ok(addresses.start)
    }
}
