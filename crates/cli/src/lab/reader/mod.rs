//! One thread's way to a file's pages: by loads from a mapping, by calls of one that loads do not reach,
//! or by O_DIRECT reads into a buffer. `check` has the expected bytes.

mod buffer;
mod check;

pub use buffer::Buffer;

use super::block::open_direct;
use super::engine::{Engine, Mapping};
use super::fill::{Contents, PAGE};
use super::job::JobFile;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;

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

    /// True if loads or calls of a mapping reach the file; otherwise it is read.
    pub fn is_mapped(&self) -> bool {
        self.map.is_some()
    }

    /// Brings pages into memory by one call of the map; `false` if there is no map.
    pub fn bring_in(&self, pages: &[u64], present: bool) -> Result<bool, String> {
        let Some(map) = &self.map else {
            return Ok(false);
        };
        let end = |page: u64| (page * PAGE + PAGE).min(self.bytes) as usize;
        let bytes = |&page: &u64| (page * PAGE) as usize..end(page);
        let ranges: Vec<Range<usize>> = pages.iter().map(bytes).collect();
        let brought = map.bring_in(&ranges, present);
        brought.map_err(|e| format!("cannot bring pages in: {e}"))?;
        Ok(true)
    }

    /// Pages, a partial last one included.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    /// A reader of the map, or, without a map, by reads into `buffer`.
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

/// Opens descriptor `fd` of this process anew, to be read past the page cache where that is to be had.
pub fn reopen_to_check(fd: i32) -> io::Result<File> {
    reopen(fd, true)
}

/// Opens descriptor `fd` of this process anew, for reading and writing; for O_DIRECT if `direct`.
pub fn reopen_to_write(fd: i32, direct: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{fd}");
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    options.open(path)
}

/// How a source's bytes are reached.
enum Way<'a> {
    /// By loads.
    Loads(&'a [u8]),
    /// By calls.
    Calls(&'a dyn Mapping),
    /// By reads of the file.
    Reads,
}

impl<'a> Reader<'a> {
    /// Touches one page: looks at a word of it, and checks it.
    pub fn touch(&mut self, page: u64) -> Result<(), String> {
        self.touch_all(page..page + 1, 1, || ())
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
        match self.way() {
            Way::Calls(map) => pages.into_iter().try_for_each(|page| {
                check::touch_by(contents, page, |offset, word| map.read_at(offset, word))?;
                touched();
                Ok(())
            }),
            way => self.runs(way, pages, run, |page, bytes| {
                check::touch(contents, page, bytes)?;
                touched();
                Ok(())
            }),
        }
    }

    /// Reads every byte of a range, and checks the sum of each page.
    pub fn sum_all(&mut self, pages: Range<u64>, run: u64) -> Result<(), String> {
        let contents = self.source.contents;
        self.runs(self.way(), pages, run, |page, bytes| {
            check::sum(contents, page, bytes)
        })
    }

    fn way(&self) -> Way<'a> {
        match self.source.map.as_deref() {
            None => Way::Reads,
            Some(map) => match map.bytes() {
                Some(bytes) => Way::Loads(bytes),
                None => Way::Calls(map),
            },
        }
    }

    /// Hands each page of the range to `each`; the file's last may be partial.
    fn runs(
        &mut self,
        way: Way,
        pages: Range<u64>,
        run: u64,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let end = (pages.end * PAGE).min(self.source.bytes);
        if let Way::Loads(bytes) = way {
            let bytes = &bytes[(pages.start * PAGE) as usize..end as usize];
            for (page, bytes) in pages.zip(bytes.chunks(PAGE as usize)) {
                each(page, bytes)?;
            }
            return Ok(());
        }
        for first in pages.clone().step_by(run as usize) {
            let last = (first + run).min(pages.end);
            let bytes = (last * PAGE).min(end) - first * PAGE;
            let got = match way {
                Way::Calls(map) => self.buffer.read_map(map, first * PAGE, bytes),
                _ => self
                    .buffer
                    .read_file(&self.source.file, first * PAGE, bytes),
            }?;
            for (page, bytes) in (first..last).zip(got.chunks(PAGE as usize)) {
                each(page, bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::build::build;
    use super::super::fill::{Fill, WORDS};
    use super::*;
    use crate::results::on::On;

    /// A mapping that loads do not reach.
    struct Calls(Vec<u8>);

    impl Mapping for Calls {
        fn bytes(&self) -> Option<&[u8]> {
            None
        }

        fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
            buffer.copy_from_slice(&self.0[offset..offset + buffer.len()]);
            Ok(())
        }
    }

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
    fn every_way_reads_the_files_bytes() {
        let kernel = build(On::Kernel(None), 1, None).unwrap();
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
    fn calls_read_and_check_as_loads_do() {
        let mut words = made();
        let called = |words: &[u64]| Source {
            map: Some(Box::new(Calls(
                words.iter().flat_map(|w| w.to_ne_bytes()).collect(),
            ))),
            ..source(&made())
        };
        let mut buffer = Buffer::default();
        let right = called(&words);
        right.reader(&mut buffer).touch(3).unwrap();
        right.reader(&mut buffer).sum_all(0..4, 3).unwrap();
        let at = (WORDS + FILL.probe(1)) as usize;
        words[at] ^= 1;
        let wrong = called(&words);
        let error = wrong.reader(&mut buffer).touch(1).unwrap_err();
        assert!(error.contains(&format!("offset {}:", at * 8)), "{error}");
        assert!(wrong.reader(&mut buffer).sum_all(0..4, 3).is_err());
        wrong.reader(&mut buffer).touch(2).unwrap();
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
