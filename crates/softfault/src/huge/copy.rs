//! Copying from and to huge memory, that others may write to at the same time.

use super::map::HugeMap;
use crate::FaultError;

impl HugeMap {
    /// Fills `buffer` from `offset` on. What others write meanwhile is seen, or not, or in part: aligned
    /// words of 8 bytes are read whole.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> Result<(), FaultError> {
        let start = self.reach(offset, buffer.len())?;
        // SAFETY: within the map, which begins and ends with whole words; all who write here do it by
        // `write_at`, and so by words, or outside of what Rust has a say in. The buffer is ours alone.
        unsafe { sync::bytes::load(start as *const u8, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Writes `bytes` from `offset` on. Others may see a part of it first: aligned words of 8 bytes are
    /// written whole, and what others write to the rest of a word meanwhile stays.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> Result<(), FaultError> {
        if self.is_read_only() {
            return Err(FaultError::ReadOnly);
        }
        let start = self.reach(offset, bytes.len())?;
        // SAFETY: as in `read_at`, and the map may be written to.
        unsafe { sync::bytes::store(bytes.as_ptr(), start as *mut u8, bytes.len()) };
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
