//! `fallocate(2)`: blocks of a file, and holes.

use super::descriptor::Descriptor;
use super::refusals::insist;
use crate::signal::without_file_size_signal;
use core::ops::Range;

impl Descriptor {
    /// Asks for the blocks of a range, or does what the `mode` says. The limit on the size of files is an error, and no signal.
    pub(crate) fn fallocate(&self, mode: i32, range: Range<u64>) -> Result<(), i32> {
        let (start, bytes) = (range.start as usize, (range.end - range.start) as usize);
        let args = [mode as usize, start, bytes, 0, 0];
        // SAFETY: no memory involved.
        let allocate = || unsafe { self.call(libc::SYS_fallocate, args) };
        insist(|| without_file_size_signal(allocate)).map(drop)
    }
}
