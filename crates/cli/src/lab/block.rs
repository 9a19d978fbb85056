//! Reading around the page cache: how a file is opened for it, and a page of memory to read into.

use super::fill::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// A page, as aligned as any device wants.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub struct Block([u8; PAGE as usize]);

impl Default for Block {
    fn default() -> Self {
        Self([0; PAGE as usize])
    }
}

impl Block {
    /// The bytes of blocks in a row.
    pub fn bytes(blocks: &[Self]) -> &[u8] {
        // SAFETY: a Block is nothing but bytes.
        unsafe { blocks.align_to::<u8>().1 }
    }

    /// The same to be written to.
    pub fn bytes_mut(blocks: &mut [Self]) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { blocks.align_to_mut::<u8>().1 }
    }

    /// The word at a place, of 8 bytes each.
    pub fn word(&self, place: u64) -> u64 {
        let at = place as usize * 8;
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Sets the word at a place.
    pub fn set_word(&mut self, place: u64, word: u64) {
        let at = place as usize * 8;
        self.0[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
}

/// Opens a file for O_DIRECT; `None` if its file system does not have that.
pub fn open_direct(path: &str) -> io::Result<Option<File>> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECT);
    match options.open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        other => other.map(Some),
    }
}
