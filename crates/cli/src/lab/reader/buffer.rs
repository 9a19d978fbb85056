//! What is read into where loads do not reach the bytes.

use crate::lab::engine::Mapping;
use crate::lab::fill::PAGE;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Grows at the first read. Its blocks are as aligned as any device wants.
#[derive(Default)]
pub struct Buffer(Vec<Block>);

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

impl Buffer {
    /// Reads `bytes` bytes of a file at `offset`. Asks for whole blocks, as O_DIRECT wants, even at the
    /// file's end.
    pub fn read_file(&mut self, file: &File, offset: u64, bytes: u64) -> Result<&[u8], String> {
        let buffer = self.whole_blocks(bytes);
        let mut done = 0;
        while (done as u64) < bytes {
            let got = file
                .read_at(&mut buffer[done..], offset + done as u64)
                .map_err(|e| format!("cannot read at offset {offset}: {e}"))?;
            if got == 0 {
                return Err(format!(
                    "the file ends early, at offset {}",
                    offset + done as u64
                ));
            }
            done += got;
        }
        Ok(&buffer[..bytes as usize])
    }

    /// Reads `bytes` bytes of a mapping at `offset`.
    pub fn read_map(
        &mut self,
        map: &dyn Mapping,
        offset: u64,
        bytes: u64,
    ) -> Result<&[u8], String> {
        let buffer = &mut self.whole_blocks(bytes)[..bytes as usize];
        map.read_at(offset as usize, buffer)
            .map_err(|e| format!("cannot read at offset {offset}: {e}"))?;
        Ok(buffer)
    }

    /// Room for `bytes` bytes, rounded up to whole blocks.
    fn whole_blocks(&mut self, bytes: u64) -> &mut [u8] {
        let blocks = bytes.div_ceil(PAGE) as usize;
        if self.0.len() < blocks {
            self.0.resize(blocks, Block::default());
        }
        Block::bytes_mut(&mut self.0[..blocks])
    }
}
