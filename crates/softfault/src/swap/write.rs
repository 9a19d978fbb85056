//! Many pages in one system call, from wherever they are in memory.

use crate::signal::without_file_size_signal;
use crate::store::{Descriptor, Refusals};
use libc::{c_void, iovec};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;

/// The most pieces that one call takes.
const PIECES: usize = 1024;

/// Pieces of memory, one after the other in the file.
pub(super) struct WriteVectors([iovec; PIECES]);

// SAFETY: addresses of pages, which belong to no thread.
unsafe impl Send for WriteVectors {}

/// Records of writes: too large for a handler's stack.
pub(super) struct WriteVectorPool([Mutex<Box<WriteVectors>>; 2]);

impl WriteVectorPool {
    pub(super) fn new() -> Self {
        let empty = iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        };
        let vectors = || Mutex::new(Box::new(WriteVectors([empty; PIECES])));
        Self([vectors(), vectors()])
    }

    /// Writes pages to `offset` and on.
    ///
    /// # Safety
    /// Each page is readable, and nobody writes to it meanwhile.
    pub(super) unsafe fn write(
        &self,
        file: &Descriptor,
        mut offset: u64,
        pages: &[*const u8],
    ) -> Result<(), i32> {
        let mut vectors = (self.0[0].try_lock()).unwrap_or_else(|| self.0[1].lock());
        let mut left = pages;
        while !left.is_empty() {
            let (taken, pieces) = fold(&mut vectors.0, left);
            // SAFETY: the pieces are of the pages, which are readable.
            unsafe { write_all(file, &mut offset, &mut vectors.0[..pieces]) }?;
            left = &left[taken..];
        }
        Ok(())
    }
}

/// Notes as many pages as there is room for, neighbours in memory as one piece;
/// answers how many pages, and pieces.
fn fold(vectors: &mut [iovec; PIECES], pages: &[*const u8]) -> (usize, usize) {
    let mut pieces = 0;
    for (at, &page) in pages.iter().enumerate() {
        let last = vectors[..pieces].last_mut();
        if let Some(last) = last
            && last.iov_base.addr() + last.iov_len == page.addr()
        {
            last.iov_len += PAGE_SIZE;
            continue;
        }
        if pieces == PIECES {
            return (at, pieces);
        }
        vectors[pieces] = iovec {
            iov_base: page.cast_mut().cast(),
            iov_len: PAGE_SIZE,
        };
        pieces += 1;
    }
    (pages.len(), pieces)
}

/// Writes all pieces, in as many calls as it takes.
///
/// # Safety
/// Each piece is readable, and nobody writes to it meanwhile.
pub(super) unsafe fn write_all(
    file: &Descriptor,
    offset: &mut u64,
    mut pieces: &mut [iovec],
) -> Result<(), i32> {
    let mut refusals = Refusals::default();
    while let Some(first) = pieces.first() {
        debug_assert!(first.iov_len > 0);
        // The offset's upper half is for machines whose words have 32 bits.
        let args = [
            pieces.as_ptr() as usize,
            pieces.len(),
            *offset as usize,
            0,
            0,
        ];
        // SAFETY: the caller's promise.
        let write = || unsafe { file.call(libc::SYS_pwritev, args) };
        match without_file_size_signal(write) {
            // Nothing, and no word why.
            Ok(0) => return Err(libc::EIO),
            Ok(written) => {
                *offset += written as u64;
                pieces = advance(pieces, written);
                refusals.progress();
            }
            Err(errno) => refusals.again(errno)?,
        }
    }
    Ok(())
}

/// The rest of the pieces after so many bytes.
fn advance(mut pieces: &mut [iovec], mut written: usize) -> &mut [iovec] {
    while let Some(first) = pieces.first()
        && first.iov_len <= written
    {
        written -= first.iov_len;
        pieces = &mut pieces[1..];
    }
    if let Some(first) = pieces.first_mut() {
        first.iov_base = first
            .iov_base
            .cast::<u8>()
            .wrapping_add(written)
            .cast::<c_void>();
        first.iov_len -= written;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors() -> Box<WriteVectors> {
        Box::new(WriteVectors(
            [iovec {
                iov_base: core::ptr::null_mut(),
                iov_len: 0,
            }; PIECES],
        ))
    }

    fn at(page: usize) -> *const u8 {
        core::ptr::without_provenance(page * PAGE_SIZE)
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut vectors = vectors();
        let pages = [at(1), at(2), at(3), at(9), at(8), at(9)];
        assert_eq!(fold(&mut vectors.0, &pages), (6, 3));
        let pieces: Vec<_> = vectors.0[..3]
            .iter()
            .map(|piece| (piece.iov_base.addr() / PAGE_SIZE, piece.iov_len / PAGE_SIZE))
            .collect();
        assert_eq!(pieces, [(1, 3), (9, 1), (8, 2)]);
        let apart: Vec<_> = (0..2000).map(|page| at(2 * page + 1)).collect();
        assert_eq!(fold(&mut vectors.0, &apart), (PIECES, PIECES));
    }

    #[test]
    fn the_rest_of_a_short_write() {
        let mut vectors = vectors();
        fold(&mut vectors.0, &[at(1), at(3), at(5)]);
        let rest = advance(&mut vectors.0[..3], PAGE_SIZE + 512);
        assert_eq!(
            (rest.len(), rest[0].iov_base.addr()),
            (2, 3 * PAGE_SIZE + 512)
        );
        assert_eq!(rest[0].iov_len, PAGE_SIZE - 512);
        let rest = advance(rest, PAGE_SIZE - 512);
        assert_eq!((rest.len(), rest[0].iov_base.addr()), (1, 5 * PAGE_SIZE));
        assert!(advance(rest, PAGE_SIZE).is_empty());
    }
}
