//! The expected bytes of a touched page, and whether it has them.

use crate::lab::fill::{Contents, PAGE, WORDS};
use std::hint::black_box;
use std::io;

/// Looks at a word of the page that `bytes` is, and checks it.
pub fn touch(contents: Contents, page: u64, bytes: &[u8]) -> Result<(), String> {
    let Some((index, expected)) = probe(contents, page) else {
        // SAFETY: a page handed out has at least one byte.
        black_box(unsafe { bytes.as_ptr().read_volatile() });
        return Ok(());
    };
    assert_eq!(bytes.len() as u64, PAGE, "made files are of whole pages");
    // SAFETY: the index is below the words of a page, and pages are aligned, mapped or in a Block.
    let found = unsafe {
        bytes
            .as_ptr()
            .cast::<u64>()
            .add(index as usize)
            .read_volatile()
    };
    match found == expected {
        true => Ok(()),
        false => Err(wrong(page * PAGE + index * 8, found, expected)),
    }
}

/// The same where loads do not reach the page: `read` fills a buffer from an offset of the file on.
pub fn touch_by(
    contents: Contents,
    page: u64,
    read: impl FnOnce(usize, &mut [u8]) -> io::Result<()>,
) -> Result<(), String> {
    let mut word = [0; 8];
    let cannot = |e: io::Error| format!("cannot read page {page}: {e}");
    let Some((index, expected)) = probe(contents, page) else {
        return read((page * PAGE) as usize, &mut word[..1]).map_err(cannot);
    };
    let offset = page * PAGE + index * 8;
    read(offset as usize, &mut word).map_err(cannot)?;
    match u64::from_ne_bytes(word) {
        found if found == expected => Ok(()),
        found => Err(wrong(offset, found, expected)),
    }
}

/// Which word of a page a touch looks at, and its expected value; `None` where nobody knows.
fn probe(contents: Contents, page: u64) -> Option<(u64, u64)> {
    match contents {
        Contents::Filled(fill) => {
            let index = fill.probe(page);
            Some((index, fill.word(page, index)))
        }
        Contents::Zeros => Some((page % WORDS, 0)),
        Contents::Unknown => None,
    }
}

/// Reads every byte of the page that `bytes` is, and checks their sum.
pub fn sum(contents: Contents, page: u64, bytes: &[u8]) -> Result<(), String> {
    // SAFETY: any bytes are a valid u64.
    let (head, words, tail) = unsafe { bytes.align_to::<u64>() };
    let found = words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
    let expected = match contents {
        Contents::Filled(fill) => fill.page_sum(page),
        Contents::Zeros => 0,
        Contents::Unknown => {
            black_box((
                found,
                head,
                tail.iter().fold(0, |sum: u8, &b| sum.wrapping_add(b)),
            ));
            return Ok(());
        }
    };
    match found == expected {
        true => Ok(()),
        false => Err(wrong(page * PAGE, found, expected)),
    }
}

fn wrong(offset: u64, found: u64, expected: u64) -> String {
    format!("wrong data at offset {offset}: read {found:#018x}, the file holds {expected:#018x}")
}
