//! A store under the test's control.

use crate::gate::Gate;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{
    Complete, Extent, PageWrite, Read, Reap, Store, StoreError, WriteBack,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use sync::Arc;

/// The byte that a file of this seed holds at `offset`: differs from page to
/// page and within a page, and is never 0.
pub fn byte_at(seed: u64, offset: u64) -> u8 {
    word_at(seed, offset)[(offset % 8) as usize]
}

/// Those of the aligned word that `offset` is in.
fn word_at(seed: u64, offset: u64) -> [u8; 8] {
    let word = (offset / 8 + 1 + (seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (word | 0x0101_0101_0101_0101).to_le_bytes()
}

/// A store that the test controls.
///
/// Faults that it can inject: reads held back, reads that fail, reads that stop
/// short because the file became shorter, a queue that takes only so many.
pub struct TestStore {
    gate: Gate<File>,
}

struct File {
    len: u64,
    seed: u64,
    /// Where the file is zeros although no hole: pages that were cut off and
    /// came back.
    data_end: u64,
    /// Pages that were never written.
    holes: Vec<Range<u64>>,
    /// Pages whose read fails, with which errno.
    fails: BTreeMap<u64, i32>,
    /// Pages that were written to, and the bytes that each has.
    written: BTreeMap<u64, Box<[u8; PAGE_SIZE]>>,
    /// Pages whose write fails, with which errno.
    write_fails: BTreeMap<u64, i32>,
    /// Nothing that is to be written comes back.
    writes_hang: bool,
    /// The error of making its bytes durable, if it is to fail.
    sync_fails: Option<i32>,
    /// Pages that have no place on the device yet, and may get one until this fails.
    unreserved: BTreeSet<u64>,
    reserve_fails: Option<i32>,
    /// Pages of all writes that were begun, in order.
    written_pages: Vec<u64>,
    /// Pages of all reads that were begun.
    read_pages: Vec<Range<u64>>,
    /// How often it was asked for an extent.
    extents: usize,
    /// Pages that are read without a wait.
    at_hand: Range<u64>,
    /// Reads of pages that were not at hand when they were asked for.
    missing: usize,
    /// Happens when the length is asked for next, before the answer.
    before_len: Option<Box<dyn FnOnce() + Send>>,
}

impl TestStore {
    /// `len` bytes, read in the calling thread only.
    pub fn new(len: u64) -> Arc<Self> {
        Self::with_queue(len, 0)
    }

    /// The same, which takes `queue` asynchronous reads at a time.
    pub fn with_queue(len: u64, queue: usize) -> Arc<Self> {
        let file = File {
            len,
            seed: 0,
            data_end: len,
            holes: Vec::new(),
            fails: BTreeMap::new(),
            written: BTreeMap::new(),
            write_fails: BTreeMap::new(),
            writes_hang: false,
            sync_fails: None,
            unreserved: BTreeSet::new(),
            reserve_fails: None,
            written_pages: Vec::new(),
            read_pages: Vec::new(),
            extents: 0,
            at_hand: 0..0,
            missing: 0,
            before_len: None,
        };
        Arc::new(Self {
            gate: Gate::new(file, queue),
        })
    }

    /// Makes these pages a hole.
    pub fn punch(&self, pages: Range<u64>) {
        self.gate.change(|inner| {
            inner.written.retain(|page, _| !pages.contains(page));
            inner.holes.push(pages);
        });
    }

    /// Reads of this page fail from now on, or no longer.
    pub fn fail(&self, page: u64, errno: Option<i32>) {
        self.gate.change(|inner| match errno {
            Some(errno) => inner.fails.insert(page, errno),
            None => inner.fails.remove(&page),
        });
    }

    /// Writes of this page fail from now on, or no longer.
    pub fn fail_writes(&self, page: u64, errno: Option<i32>) {
        self.gate.change(|inner| match errno {
            Some(errno) => inner.write_fails.insert(page, errno),
            None => inner.write_fails.remove(&page),
        });
    }

    /// Writes hang from now on, or no longer.
    pub fn hang_writes(&self, hang: bool) {
        self.gate.change(|inner| inner.writes_hang = hang);
    }

    /// Nothing is made durable from now on, or all is.
    pub fn fail_sync(&self, errno: Option<i32>) {
        self.gate.change(|inner| inner.sync_fails = errno);
    }

    /// This page has no place on the device.
    pub fn unreserve(&self, page: u64) {
        self.gate.change(|inner| inner.unreserved.insert(page));
    }

    /// No page gets a place on the device from now on, or all do.
    pub fn fail_reserve(&self, errno: Option<i32>) {
        self.gate.change(|inner| inner.reserve_fails = errno);
    }

    /// How often it was asked whether there is a hole.
    pub fn extents(&self) -> usize {
        self.gate.lock().extents
    }

    /// Pages that were written so far, in order.
    pub fn writes(&self) -> Vec<u64> {
        self.gate.lock().written_pages.clone()
    }

    /// Holds back all reads that have not ended.
    pub fn close(&self) {
        self.gate.close();
    }

    /// Lets all reads end.
    pub fn open(&self) {
        self.gate.open();
    }

    /// Lets so many reads end although the store is closed.
    pub fn release(&self, reads: usize) {
        self.gate.release(reads);
    }

    /// Gives the file another length. A range that comes back after it was cut off is
    /// zeros.
    pub fn set_len(&self, len: u64) {
        self.gate.change(|inner| {
            inner.len = len;
            inner.data_end = inner.data_end.min(len);
            let page = PAGE_SIZE as u64;
            inner.written.retain(|&at, _| at < len.div_ceil(page));
            if let Some(last) = inner.written.get_mut(&(len / page)) {
                last[(len % page) as usize..].fill(0);
            }
        });
    }

    /// Has this happen when the length is asked for next, before the answer.
    pub fn before_next_len(&self, happens: impl FnOnce() + Send + 'static) {
        self.gate.lock().before_len = Some(Box::new(happens));
    }

    /// Writes the whole file anew.
    pub fn rewrite(&self, seed: u64) {
        self.gate.change(|inner| inner.seed = seed);
    }

    /// Waits until `count` reads are held back, in `read` or in the queue.
    pub fn wait_blocked(&self, count: usize) {
        self.gate.wait_blocked(count);
    }

    /// These pages are read without a wait.
    pub fn set_at_hand(&self, pages: Range<u64>) {
        self.gate.lock().at_hand = pages;
    }

    /// Reads of pages that were not at hand when they were asked for.
    pub fn missing(&self) -> usize {
        self.gate.lock().missing
    }

    /// Reads begun so far, in order, as pages.
    pub fn reads(&self) -> Vec<Range<u64>> {
        self.gate.lock().read_pages.clone()
    }

    /// Asynchronous reads begun so far.
    pub fn submitted(&self) -> u64 {
        self.gate.lock().submitted
    }

    /// The pages that were read so far, each once.
    pub fn pages_read(&self) -> BTreeSet<u64> {
        self.gate
            .lock()
            .read_pages
            .iter()
            .cloned()
            .flatten()
            .collect()
    }

    /// The file's bytes at `offset` now, which is within it.
    pub fn byte(&self, offset: u64) -> u8 {
        self.gate.lock().byte(offset)
    }

    /// The bytes of a page, which is within the file.
    pub fn page(&self, page: u64) -> Vec<u8> {
        let file = self.gate.lock();
        let start = page * PAGE_SIZE as u64;
        let words = (start..start + PAGE_SIZE as u64).step_by(8);
        words.flat_map(|offset| file.word(offset)).collect()
    }
}

impl File {
    fn byte(&self, offset: u64) -> u8 {
        let page = offset / PAGE_SIZE as u64;
        if let Some(written) = self.written.get(&page) {
            return written[(offset % PAGE_SIZE as u64) as usize];
        }
        let hole = self.holes.iter().any(|hole| hole.contains(&page));
        if hole || offset >= self.data_end {
            return 0;
        }
        byte_at(self.seed, offset)
    }

    /// The bytes from `offset` on, a multiple of 8.
    fn word(&self, offset: u64) -> [u8; 8] {
        let is_written = self.written.contains_key(&(offset / PAGE_SIZE as u64));
        if offset + 8 > self.data_end || is_written {
            return core::array::from_fn(|place| self.byte(offset + place as u64));
        }
        match self.is_hole(offset / PAGE_SIZE as u64) {
            true => [0; 8],
            false => word_at(self.seed, offset),
        }
    }

    fn is_hole(&self, page: u64) -> bool {
        self.holes.iter().any(|hole| hole.contains(&page))
    }

    /// Does a read; the buffer past the end is left alone.
    ///
    /// # Safety
    /// As for [`Store::read`].
    unsafe fn fill(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let page = PAGE_SIZE as u64;
        let pages = offset / page..(offset + bytes as u64) / page;
        if let Some((_, errno)) = self.fails.range(pages).next() {
            return Err(StoreError::Io(*errno));
        }
        let arrived = (self.len.saturating_sub(offset)).min(bytes as u64) as usize;
        for at in (0..arrived).step_by(8) {
            let part = (arrived - at).min(8);
            let word = self.word(offset + at as u64);
            // SAFETY: within the buffer, which the caller lends.
            unsafe { core::ptr::copy_nonoverlapping(word.as_ptr(), buffer.add(at), part) };
        }
        // A caller that shows the rest without zeroing it is found out.
        for at in arrived..bytes {
            // SAFETY: as above.
            unsafe { buffer.add(at).write(0xEE) };
        }
        Ok(arrived)
    }

    fn note(&mut self, offset: u64, bytes: usize) {
        let page = PAGE_SIZE as u64;
        let pages = offset / page..(offset + bytes as u64) / page;
        self.read_pages.push(pages);
    }
}

impl Store for TestStore {
    fn len(&self) -> Result<u64, StoreError> {
        let happens = self.gate.lock().before_len.take();
        if let Some(happens) = happens {
            happens();
        }
        Ok(self.gate.lock().len)
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        let mut inner = self.gate.lock();
        inner.extents += 1;
        let page = PAGE_SIZE as u64;
        let first = offset / page;
        let end = inner.len.div_ceil(page).max(first + 1);
        let hole = inner.is_hole(first);
        // It changes at the border of some hole, or not before the end.
        let borders = inner.holes.iter().flat_map(|hole| [hole.start, hole.end]);
        let borders = borders.filter(|&page| first < page && page < end);
        let next = borders.filter(|&page| inner.is_hole(page) != hole).min();
        let range = first * page..next.unwrap_or(end) * page;
        Ok(match hole {
            true => Extent::Hole(range),
            false => Extent::Data(range),
        })
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let file = self.gate.pass(|file| file.note(offset, bytes));
        // SAFETY: the caller's promise.
        unsafe { file.fill(offset, buffer, bytes) }
    }

    unsafe fn read_at_hand(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Option<usize> {
        let first = offset / PAGE_SIZE as u64;
        let last = (offset + bytes as u64 - 1) / PAGE_SIZE as u64;
        let at_hand = self.gate.lock().at_hand.clone();
        if !(at_hand.contains(&first) && at_hand.contains(&last)) {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.read(offset, buffer, bytes) }.ok()
    }

    unsafe fn read_missing(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        self.gate.change(|file| file.missing += 1);
        // SAFETY: the caller's promise.
        unsafe { self.read(offset, buffer, bytes) }
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let note = |file: &mut File, read: &Read| file.note(read.offset, read.bytes);
        self.gate.submit(reads, note)
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        self.gate.reap(cookie, complete, timeout_ns, |file, read| {
            // SAFETY: lent until the completion, which is next.
            unsafe { file.fill(read.offset, read.buffer, read.bytes) }
        })
    }
}

impl WriteBack for TestStore {
    unsafe fn write(&self, pages: &mut [PageWrite], end: u64) {
        let page_size = PAGE_SIZE as u64;
        for write in pages {
            self.gate.change(|file| {
                let page = write.offset / page_size;
                file.written_pages.push(page);
            });
            while self.gate.lock().writes_hang {
                std::thread::yield_now();
            }
            self.gate.change(|file| {
                let page = write.offset / page_size;
                if let Some(&errno) = file.write_fails.get(&page) {
                    write.result = Err(StoreError::Io(errno));
                    return;
                }
                let known = end;
                let end = known.min(file.len);
                let count = end.saturating_sub(write.offset).min(page_size) as usize;
                if count == 0 {
                    if write.offset < known {
                        write.result = Err(StoreError::Short);
                    }
                    return;
                }
                let mut bytes = Box::new([0; PAGE_SIZE]);
                for (at, byte) in bytes.iter_mut().enumerate() {
                    // SAFETY: readable, as the caller has promised.
                    let stored = unsafe { write.page.add(at).read() };
                    *byte = match at < count {
                        true => stored,
                        false if write.offset + (at as u64) >= file.len => 0,
                        // Others have made it longer.
                        false if stored == 0 => file.byte(write.offset + at as u64),
                        false => stored,
                    };
                }
                file.written.insert(page, bytes);
            });
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        let fails = self.gate.lock().sync_fails;
        fails.map_or(Ok(()), |errno| Err(StoreError::Io(errno)))
    }

    fn is_reserved(&self, offset: u64) -> bool {
        let page = offset / PAGE_SIZE as u64;
        !self.gate.lock().unreserved.contains(&page)
    }

    fn reserve(&self, offset: u64) -> Result<(), StoreError> {
        self.gate.change(|file| match file.reserve_fails {
            Some(errno) => Err(StoreError::Io(errno)),
            None => {
                file.unreserved.remove(&(offset / PAGE_SIZE as u64));
                Ok(())
            }
        })
    }
}
