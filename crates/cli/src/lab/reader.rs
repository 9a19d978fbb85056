//! One thread's way to a file's pages: through a mapping, or by O_DIRECT reads into a buffer. And the
//! checks that what was read is what the file must hold.

use super::engine::{Engine, Mapping};
use super::files::Contents;
use super::fill::{PAGE, WORDS};
use super::job::JobFile;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// A file to read, opened anew in this process. All fields but the mapping are immutable.
pub struct Source {
    file: File,
    bytes: u64,
    contents: Contents,
    map: Option<Box<dyn Mapping>>,
}

/// One thread's reader of a source: through the source's mapping, or into `buffer` if it has none.
pub struct Reader<'a> {
    source: &'a Source,
    buffer: &'a mut Buffer,
}

/// What is read into where nothing is mapped; grows at the first read. Its blocks are as aligned as any
/// device wants.
#[derive(Default)]
pub struct Buffer(Vec<Block>);

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; PAGE as usize]);

impl Source {
    /// Opens `job`'s file anew, for O_DIRECT if `direct` and that is to be had; maps nothing yet.
    pub fn open(job: JobFile, direct: bool) -> Result<Self, String> {
        let file = reopen(job.fd, direct).map_err(|e| format!("cannot open the file: {e}"))?;
        Ok(Self {
            file,
            bytes: job.bytes,
            contents: job.contents,
            map: None,
        })
    }

    /// Maps the file afresh, an earlier mapping being unmapped first; nothing to do for pread.
    pub fn map(&mut self, engine: Option<&dyn Engine>) -> Result<(), String> {
        self.unmap();
        if let Some(engine) = engine {
            let map = engine.map(&self.file);
            self.map = Some(map.map_err(|e| format!("cannot map: {e}"))?);
        }
        Ok(())
    }

    /// Unmaps the file.
    pub fn unmap(&mut self) {
        self.map = None;
    }

    /// Pages, a partial last one included.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    /// A reader of what is mapped, or, if nothing is, by reads into `buffer`.
    pub fn reader<'a>(&'a self, buffer: &'a mut Buffer) -> Reader<'a> {
        Reader {
            source: self,
            buffer,
        }
    }
}

/// Opens descriptor `fd` of this process anew: for O_DIRECT if `direct`, and plainly where that is
/// refused.
fn reopen(fd: i32, direct: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{fd}");
    if direct && let Some(file) = open_direct(&path)? {
        return Ok(file);
    }
    File::open(&path)
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

impl Reader<'_> {
    /// Touches one page: looks at a word of it, and checks it.
    pub fn touch(&mut self, page: u64) -> Result<(), String> {
        let contents = self.source.contents;
        self.runs(page..page + 1, 1, |page, bytes| {
            touch(contents, page, bytes)
        })
    }

    /// Touches every page of a range once, in order, and tells `touched` after each; reads `run` pages at
    /// once where it reads.
    pub fn touch_all(
        &mut self,
        pages: Range<u64>,
        run: u64,
        touched: impl Fn(),
    ) -> Result<(), String> {
        let contents = self.source.contents;
        self.runs(pages, run, |page, bytes| {
            touch(contents, page, bytes)?;
            touched();
            Ok(())
        })
    }

    /// Reads every byte of a range, and checks the sum of each page.
    pub fn sum_all(&mut self, pages: Range<u64>, run: u64) -> Result<(), String> {
        let contents = self.source.contents;
        self.runs(pages, run, |page, bytes| sum(contents, page, bytes))
    }

    /// Hands each page of the range to `each`; the file's last may be partial.
    fn runs(
        &mut self,
        pages: Range<u64>,
        run: u64,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let end = (pages.end * PAGE).min(self.source.bytes);
        match &self.source.map {
            Some(map) => {
                let bytes = &map.bytes()[(pages.start * PAGE) as usize..end as usize];
                for (page, bytes) in pages.zip(bytes.chunks(PAGE as usize)) {
                    each(page, bytes)?;
                }
            }
            None => {
                let buffer = &mut self.buffer.0;
                if buffer.len() < run as usize {
                    buffer.resize(run as usize, Block([0; PAGE as usize]));
                }
                for first in pages.clone().step_by(run as usize) {
                    let last = (first + run).min(pages.end);
                    let bytes = (last * PAGE).min(end) - first * PAGE;
                    let got = read(&self.source.file, buffer, first * PAGE, bytes)?;
                    for (page, bytes) in (first..last).zip(got.chunks(PAGE as usize)) {
                        each(page, bytes)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads `bytes` bytes at `offset`. Asks for whole blocks, as O_DIRECT wants, even at the file's end.
fn read<'b>(
    file: &File,
    buffer: &'b mut [Block],
    offset: u64,
    bytes: u64,
) -> Result<&'b [u8], String> {
    // SAFETY: a Block is nothing but bytes.
    let buffer = unsafe { buffer.align_to_mut::<u8>().1 };
    let whole = bytes.next_multiple_of(PAGE) as usize;
    let mut done = 0;
    while (done as u64) < bytes {
        let got = file
            .read_at(&mut buffer[done..whole], offset + done as u64)
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

fn touch(contents: Contents, page: u64, bytes: &[u8]) -> Result<(), String> {
    let (index, expected) = match contents {
        Contents::Filled(fill) => {
            let index = fill.probe(page);
            (index, fill.word(page, index))
        }
        Contents::Zeros => (page % WORDS, 0),
        Contents::Unknown => {
            // SAFETY: a page handed out has at least one byte.
            black_box(unsafe { bytes.as_ptr().read_volatile() });
            return Ok(());
        }
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

fn sum(contents: Contents, page: u64, bytes: &[u8]) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::super::engine::{self, On};
    use super::super::fill::Fill;
    use super::*;

    const FILL: Fill = Fill {
        seed: 3,
        bytes: 4 * PAGE,
    };

    fn made() -> Vec<u64> {
        let mut words = vec![0u64; 4 * WORDS as usize];
        for (page, words) in (0..).zip(words.chunks_exact_mut(WORDS as usize)) {
            FILL.page(page, words);
        }
        words
    }

    fn source(words: &[u64]) -> Source {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        file.write_all(&bytes).unwrap();
        Source {
            file,
            bytes: FILL.bytes,
            contents: Contents::Filled(FILL),
            map: None,
        }
    }

    #[test]
    fn every_way_reads_what_was_made() {
        let kernel = engine::build(On::Kernel, 1).unwrap();
        for engine in [None, kernel.as_deref()] {
            let mut source = source(&made());
            source.map(engine).unwrap();
            let mut buffer = Buffer::default();
            source.reader(&mut buffer).touch(3).unwrap();
            source
                .reader(&mut buffer)
                .touch_all(0..4, 2, || ())
                .unwrap();
            source.map(engine).unwrap();
            source.reader(&mut buffer).sum_all(0..4, 3).unwrap();
        }
    }

    #[test]
    fn one_wrong_bit_fails_the_sum_and_the_touch_of_its_word() {
        let mut words = made();
        let at = (WORDS + FILL.probe(1)) as usize;
        words[at] ^= 1 << 40;
        let source = source(&words);
        let error = source.reader(&mut Buffer::default()).touch(1).unwrap_err();
        assert!(error.contains(&format!("offset {}:", at * 8)), "{error}");
        source.reader(&mut Buffer::default()).touch(2).unwrap();
        let error = source
            .reader(&mut Buffer::default())
            .sum_all(0..4, 4)
            .unwrap_err();
        assert!(error.contains("offset 4096:"), "{error}");
    }

    #[test]
    fn swapped_pages_are_seen() {
        let mut words = made();
        let (left, right) = words.split_at_mut(2 * WORDS as usize);
        left[WORDS as usize..].swap_with_slice(&mut right[..WORDS as usize]);
        let source = source(&words);
        assert!(
            source
                .reader(&mut Buffer::default())
                .sum_all(1..2, 1)
                .is_err()
        );
        assert!(source.reader(&mut Buffer::default()).touch(2).is_err());
    }
}
