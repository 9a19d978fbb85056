//! Which parts of a file have their blocks: a store to another part goes on only once it has some, so that a full disk is an error of the
//! store and not of the write-back.

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;
use softfault_engine::store::StoreError;
use sync::zeros;

/// Bytes that are known for themselves.
const CHUNK: u64 = 64 << 10;
/// Low bits of `short` that have its number.
const NUMBER: u64 = PAGE_SIZE as u64 - 1;
/// Bytes that are asked for at a time, at most: where they are asked for in order.
const MOST: u64 = 1 << 20;

/// The known blocks of a file. A store to a part that is not known to have blocks asks for them, and the kernel has the truth.
#[derive(Debug)]
pub(super) struct Reserved {
    /// Immutable. Byte before which all was there when the file was opened, by chunks.
    dense: u64,
    /// A bit a chunk: its state has changed since; then, chunks before `dense` were there and those behind not. Changed with Release, which
    /// pairs with the Acquire in `has`: a thread that sees a chunk there also sees where the file ends in it.
    changed: Box<[AtomicU64]>,
    /// Byte up to which the chunk around it is there, by whole pages; 0: no chunk is there in part. The file ended in it. The bits below a
    /// page have a number that changes with it. Changed with Release, for `has`.
    short: AtomicU64,
    /// The last bytes that were asked for. Held while more are asked for.
    last: Mutex<Range<u64>>,
}

impl Reserved {
    /// Of a file of which at most `bytes` bytes will be written. `None` where there is no memory.
    pub(super) fn new(dense: u64, bytes: u64) -> Option<Self> {
        let words = bytes.div_ceil(CHUNK).div_ceil(64);
        Some(Self {
            dense: dense / CHUNK * CHUNK,
            changed: zeros::table(usize::try_from(words).ok()?)?,
            short: AtomicU64::new(0),
            last: Mutex::new(0..0),
        })
    }

    fn bit(&self, chunk: u64) -> Option<(&AtomicU64, u64)> {
        let word = self.changed.get((chunk / 64) as usize)?;
        Some((word, 1 << (chunk % 64)))
    }

    fn is_dense(&self, chunk: u64) -> bool {
        chunk < self.dense / CHUNK
    }

    fn set(&self, chunk: u64, there: bool) {
        match self.bit(chunk) {
            Some((word, bit)) if there == self.is_dense(chunk) => word.fetch_and(!bit, Release),
            Some((word, bit)) => word.fetch_or(bit, Release),
            None => 0,
        };
    }

    /// True if the page at `offset` has its blocks. True also for a page that cannot be written.
    pub(super) fn has(&self, offset: u64) -> bool {
        self.has_while(offset, || ())
    }

    /// The same, and has `others` do something meanwhile.
    fn has_while(&self, offset: u64, others: impl FnOnce()) -> bool {
        let chunk = offset / CHUNK;
        let Some((word, bit)) = self.bit(chunk) else {
            return true;
        };
        // Acquire pairs with the Release of each change: the state of the chunk is no older than the first look at `short`, and the second
        // look no older than the state. If both find the same, it belongs to that.
        let short = self.short.load(Acquire);
        let is_changed = word.load(Acquire) & bit != 0;
        others();
        let is_same = self.short.load(Relaxed) == short;
        let short = short & !NUMBER;
        let is_cut = short / CHUNK == chunk && !short.is_multiple_of(CHUNK) && offset >= short;
        is_changed != self.is_dense(chunk) && !is_cut && is_same
    }

    /// Where a chunk ends that is there in part. The caller has `last`.
    fn short(&self) -> u64 {
        self.short.load(Relaxed) & !NUMBER
    }

    /// Changes that.
    fn set_short(&self, end: u64) {
        let number = (self.short.load(Relaxed) + 1) & NUMBER;
        self.short.store(end | number, Release);
    }

    /// Has the part around `offset` there, by `ask`; returns the part that the file has, which ends at `end`. More, where parts are asked for in order.
    pub(super) fn ask(
        &self,
        offset: u64,
        end: u64,
        mut ask: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut last = self.last.lock();
        let end = end.next_multiple_of(PAGE_SIZE as u64);
        if self.has(offset) {
            // Another was faster.
            return Ok(());
        }
        if offset >= end {
            // Another process has cut the file: bytes stored there would go nowhere.
            return Err(StoreError::Short);
        }
        let start = offset / CHUNK * CHUNK;
        let follows = last.end == start && !last.is_empty();
        let most = match follows {
            true => (2 * (last.end - last.start)).min(MOST),
            false => CHUNK,
        };
        let mut part = start..(start + most).min(end);
        let asked = ask(part.clone());
        if asked.is_err() && part.end > start + CHUNK {
            part.end = start + CHUNK;
            ask(part.clone())?;
        } else {
            asked?;
        }
        let before = self.short();
        if !before.is_multiple_of(CHUNK) {
            // The file did not end there any more: the part past it was not requested.
            self.set(before / CHUNK, false);
            self.set_short(0);
        }
        if !part.end.is_multiple_of(CHUNK) {
            // Before anybody takes all of the chunk for there.
            self.set_short(part.end);
        }
        (start / CHUNK..part.end.div_ceil(CHUNK)).for_each(|chunk| self.set(chunk, true));
        *last = part;
        Ok(())
    }

    /// A part was made a hole.
    pub(super) fn punched(&self, part: Range<u64>) {
        let _last = self.last.lock();
        (part.start / CHUNK..part.end.div_ceil(CHUNK)).for_each(|chunk| self.set(chunk, false));
    }

    /// The file had `before` bytes, and ends at byte `end` now: the part past that is gone.
    pub(super) fn cut(&self, end: u64, before: u64) {
        let mut last = self.last.lock();
        *last = 0..0;
        // The file may have been far longer than the part that is written.
        let known = self.changed.len() as u64 * 64;
        let chunks = end.div_ceil(CHUNK)..before.div_ceil(CHUNK).min(known);
        chunks.for_each(|chunk| self.set(chunk, false));
        let page = end / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let short = self.short();
        let is_there = page.checked_sub(1).is_some_and(|last| self.has(last));
        if !page.is_multiple_of(CHUNK) && is_there {
            if !short.is_multiple_of(CHUNK) && short / CHUNK != page / CHUNK {
                self.set(short / CHUNK, false);
            }
            self.set_short(page);
        } else {
            self.set(end / CHUNK, false);
            if short >= page {
                self.set_short(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    /// The requested part of a file of `end` bytes.
    fn ask(reserved: &Reserved, offset: u64, end: u64) -> Option<Range<u64>> {
        let mut asked = None;
        let all = |part| {
            assert_eq!(asked.replace(part), None, "once");
            Ok(())
        };
        reserved.ask(offset, end, all).unwrap();
        assert!(reserved.has(offset));
        asked
    }

    #[test]
    fn blocks_reserved_in_order_come_in_larger_parts() {
        let reserved = Reserved::new(0, 64 << 20).unwrap();
        let end = 10 << 20;
        let (mut at, mut calls) = (0, 0);
        while at < end {
            assert!(!reserved.has(at));
            let part = ask(&reserved, at, end).unwrap();
            assert!(
                part.start == at
                    && (part.start..part.end)
                        .step_by(4096)
                        .all(|page| reserved.has(page))
            );
            (at, calls) = (part.end, calls + 1);
        }
        assert_eq!((at, calls), (end, 14));
        assert!(!reserved.has(end));
        assert_eq!(
            ask(&reserved, 40 << 20, 64 << 20),
            Some(40 << 20..(40 << 20) + CHUNK)
        );
    }

    #[test]
    fn blocks_behind_the_end_are_reserved_once_the_file_is_longer() {
        let reserved = Reserved::new(0, 1 << 20).unwrap();
        assert_eq!(ask(&reserved, PAGE, 3 * PAGE - 5), Some(0..3 * PAGE));
        assert!(reserved.has(2 * PAGE) && !reserved.has(3 * PAGE));
        assert_eq!(ask(&reserved, 3 * PAGE, 5 * PAGE), Some(0..5 * PAGE));
        assert!(reserved.has(4 * PAGE) && !reserved.has(5 * PAGE));
        // The file goes on far behind, and ends in another chunk.
        assert_eq!(
            ask(&reserved, 3 * CHUNK, 3 * CHUNK + PAGE),
            Some(3 * CHUNK..3 * CHUNK + PAGE)
        );
        assert!(!reserved.has(3 * CHUNK + PAGE) && !reserved.has(5 * PAGE));
        assert_eq!(ask(&reserved, 5 * PAGE, 1 << 20), Some(0..CHUNK));
        assert!(reserved.has(15 * PAGE));
        assert_eq!(
            ask(&reserved, 9 << 20, 1 << 20),
            None,
            "no part of the written range"
        );
    }

    /// They end the part of another chunk, which the file ended in until now.
    #[test]
    fn a_part_that_others_ask_for_meanwhile_hides_no_missing_blocks() {
        let reserved = Reserved::new(0, 1 << 20).unwrap();
        ask(&reserved, 0, 2 * PAGE);
        let elsewhere = || assert!(ask(&reserved, 3 * CHUNK, 1 << 20).is_some());
        assert!(!reserved.has_while(5 * PAGE, elsewhere));
        // A look that lasts over an end there and the next one elsewhere sees that, too.
        let before = reserved.short.load(Relaxed);
        ask(&reserved, 0, 2 * PAGE);
        ask(&reserved, 5 * CHUNK, 1 << 20);
        assert_ne!(reserved.short.load(Relaxed), before);
    }

    #[test]
    fn blocks_cut_off_or_punched_are_reserved_again() {
        let reserved = Reserved::new(4 * CHUNK + 100, 1 << 20).unwrap();
        assert!((0..4 * CHUNK).step_by(4096).all(|page| reserved.has(page)));
        assert!(!reserved.has(4 * CHUNK));
        reserved.punched(CHUNK + 5..CHUNK + 6);
        assert!(reserved.has(0) && !reserved.has(CHUNK) && !reserved.has(CHUNK + 9 * PAGE));
        reserved.cut(2 * CHUNK + 2 * PAGE + 1, 4 * CHUNK + 100);
        assert!(reserved.has(2 * CHUNK + PAGE) && !reserved.has(2 * CHUNK + 2 * PAGE));
        assert!(!reserved.has(3 * CHUNK) && !reserved.has(4 * CHUNK));
        assert_eq!(
            ask(&reserved, 2 * CHUNK + 7 * PAGE, 1 << 20),
            Some(2 * CHUNK..3 * CHUNK)
        );
        assert!(reserved.has(2 * CHUNK + 2 * PAGE) && !reserved.has(3 * CHUNK));
        reserved.cut(0, 1 << 20);
        assert!((0..1 << 20).step_by(4096).all(|page| !reserved.has(page)));
        let cut_by_others = reserved.ask(7 * PAGE, 3 * PAGE, |_| unreachable!("no part of it"));
        assert_eq!(cut_by_others, Err(StoreError::Short));
        assert!(!reserved.has(7 * PAGE));
    }

    /// A step for each chunk of it would take hours.
    #[test]
    fn a_file_that_was_far_longer_than_its_window_is_cut() {
        let reserved = Reserved::new(1 << 20, 1 << 20).unwrap();
        reserved.cut(CHUNK, 1 << 62);
        assert!(reserved.has(0) && !reserved.has(CHUNK) && !reserved.has(15 * CHUNK));
        // From an end that is far behind the window too.
        reserved.cut(1 << 61, 1 << 62);
        assert!(reserved.has(0));
    }

    #[test]
    fn where_there_is_not_so_much_less_is_asked_for() {
        let reserved = Reserved::new(0, 1 << 20).unwrap();
        ask(&reserved, 0, 1 << 20);
        let few = |part: Range<u64>| match part.end - part.start > CHUNK {
            true => Err(StoreError::Io(libc::ENOSPC)),
            false => Ok(()),
        };
        assert_eq!(reserved.ask(CHUNK, 1 << 20, few), Ok(()));
        assert!(reserved.has(CHUNK) && !reserved.has(2 * CHUNK));
        let none = |_| Err(StoreError::Io(libc::ENOSPC));
        assert!(reserved.ask(2 * CHUNK, 1 << 20, none).is_err() && !reserved.has(2 * CHUNK));
    }
}
