//! The target of reads, for engines whose bytes loads do not reach.

use crate::lab::block::Block;
use crate::lab::engine::Mapping;
use crate::lab::fill::PAGE;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Grows at the first read. Its blocks are as aligned as any device wants.
#[derive(Default)]
pub struct Buffer(Vec<Block>);

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
