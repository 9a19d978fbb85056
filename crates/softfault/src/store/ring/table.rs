//! The reads in flight in one ring: a slot each, of a fixed number. The slot's
//! index travels through the kernel.

use std::num::NonZero;

use softfault_engine::store::StoreError;

use super::super::descriptor::Source;
use super::super::read::{Step, after};
use super::super::read_path::ReadPath;
use super::last_step::LastStep;

/// Answers of which nothing is to be concluded about the file: the submitter exited, there was
/// no memory, it could not be read without waiting.
const REFUSED: [i32; 4] = [libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::EOPNOTSUPP];

/// How often the kernel may refuse a read (the submitter exited, no memory)
/// before the thread that needs it reads it itself.
const REFUSALS: u8 = 8;

/// One read of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    pub(crate) source: Source,
    pub(crate) offset: u64,
    pub(crate) buffer: *mut u8,
    pub(crate) bytes: usize,
    /// How the file is read.
    pub(crate) how: ReadPath,
    /// Fewer bytes than asked for are an error.
    pub(crate) whole: bool,
    /// The work that is left for the bytes that arrived.
    pub(crate) then: Option<LastStep>,
}

// SAFETY: the buffer belongs to the read, wherever that is completed.
unsafe impl Send for Request {}

impl Request {
    /// The reader's result of a read that brought so many bytes.
    pub(super) fn arrived(&self, bytes: usize) -> Result<usize, StoreError> {
        if self.whole && bytes < self.bytes {
            return Err(StoreError::Short);
        }
        Ok(bytes)
    }
}

/// How a read goes on after the kernel has answered.
pub(super) enum Next {
    /// To be submitted again, from this byte on.
    Again(Request, usize),
    /// Over, with so many bytes or an error.
    Over(Request, Result<usize, StoreError>),
    /// The page cache has not all of it yet: to be [parked](ReadTable::park).
    Park,
    /// Refused too often, or it is not known which file was read: to be
    /// [parked](ReadTable::park), or [taken back](ReadTable::take_back).
    Refused,
}

#[derive(Debug, Clone, Copy)]
struct ReadSlot {
    /// Meaningful while the slot is used.
    request: Request,
    /// Bytes that have arrived for good, whole pages.
    done: usize,
    /// Times that the kernel refused the read.
    refused: u8,
    /// The submission, if it is not known yet that it reads from the right file.
    unproven: Option<NonZero<u32>>,
    /// The kernel may not have it yet, and may never get it: the submission that is to hand it over.
    handed_over_by: Option<NonZero<u32>>,
    /// The kernel has no more of it; about to be given back, or parked again.
    over: bool,
    /// When it was parked, in milliseconds.
    parked_ms: u64,
    /// Counts the reads that this slot has carried.
    round: u32,
    /// Threads that sleep on the slot's word, or are about to.
    waiters: u32,
}

/// The table. Protected by the ring's lock as a whole.
#[derive(Debug)]
pub(super) struct ReadTable {
    slots: Box<[ReadSlot]>,
    /// Slots that carry a read. The lowest are taken first, so that looking a
    /// cookie up walks few cache lines.
    used: Bits,
    /// Slots with waiters that may poll.
    waited: Bits,
    /// Slots whose reads the kernel has begun by itself, into the page cache, or would not have: a thread that needs one
    /// reads it.
    parked: Bits,
    /// A thread polls: it collects completions for all.
    pub(super) has_poller: bool,
    /// The number of the last one.
    submission: NonZero<u32>,
}

impl ReadSlot {
    /// Of a read that nobody has handed over yet.
    fn of(request: Request, round: u32) -> Self {
        Self {
            request,
            done: 0,
            refused: 0,
            unproven: None,
            handed_over_by: None,
            over: false,
            parked_ms: 0,
            round,
            waiters: 0,
        }
    }
}

impl ReadTable {
    pub(super) fn new(entries: usize) -> Self {
        let nothing = Request {
            cookie: 0,
            source: Source::NONE,
            offset: 0,
            buffer: std::ptr::null_mut(),
            bytes: 0,
            how: ReadPath::Past,
            whole: false,
            then: None,
        };
        let slots = vec![ReadSlot::of(nothing, 0); entries].into_boxed_slice();
        Self {
            slots,
            used: Bits::default(),
            waited: Bits::default(),
            parked: Bits::default(),
            has_poller: false,
            submission: NonZero::<u32>::MIN,
        }
    }

    /// A slot for a read; None if all are taken.
    pub(super) fn take(&mut self, request: Request) -> Option<u16> {
        let slot = self.used.first_clear(self.slots.len())?;
        self.used.set(slot);
        let round = self.slots[slot].round;
        self.slots[slot] = ReadSlot::of(request, round);
        Some(slot as u16)
    }

    /// The slot of the read with this cookie. There may be two for a moment: a read that is being delivered keeps its slot until that is
    /// done, and its owner may begin another read with the same cookie before that: the later one is found.
    pub(super) fn find(&self, cookie: u64) -> Option<u16> {
        let mut delivered = None;
        for slot in self.used.iter() {
            if self.slots[slot].request.cookie != cookie {
                continue;
            }
            if !self.slots[slot].over {
                return Some(slot as u16);
            }
            delivered = delivered.or(Some(slot as u16));
        }
        delivered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.iter().next().is_none()
    }

    /// True if a read of this descriptor is not over.
    pub(super) fn reads_from(&self, source: Source) -> bool {
        self.used
            .iter()
            .any(|slot| !self.slots[slot].over && self.slots[slot].request.source == source)
    }

    /// Distinguishes the read in a slot from those before and after it.
    pub(super) fn round(&self, slot: u16) -> u32 {
        self.slots[usize::from(slot)].round
    }

    /// Takes the kernel's answer in: bytes, or an errno below zero.
    pub(super) fn answer(&mut self, slot: u16, answer: i64) -> Next {
        assert!(self.used.is_set(usize::from(slot)), "an answer to no read");
        let entry = &mut self.slots[usize::from(slot)];
        if entry.unproven.is_some() {
            return Next::Refused;
        }
        let cached = entry.request.how.is_cached();
        let over = match -answer {
            no @ 1.. => match no as i32 {
                libc::EAGAIN if cached => return Next::Park,
                no if REFUSED.contains(&no) => {
                    entry.refused += 1;
                    if entry.refused > REFUSALS {
                        return Next::Refused;
                    }
                    None
                }
                no => Some(Err(StoreError::Io(no))),
            },
            _ => match after(entry.done, answer as usize, entry.request.bytes) {
                Step::Over(end) => Some(entry.request.arrived(end)),
                Step::Rest(_) if cached => return Next::Park,
                Step::Rest(from) => {
                    entry.done = from;
                    None
                }
            },
        };
        match over {
            Some(result) => {
                entry.over = true;
                Next::Over(entry.request, result)
            }
            None => Next::Again(entry.request, entry.done),
        }
    }

    fn next_submission(&mut self) -> NonZero<u32> {
        let next = self.submission.checked_add(1);
        self.submission = next.unwrap_or(NonZero::<u32>::MIN);
        self.submission
    }

    /// These slots are about to be handed to the kernel: no thread waits there for their reads until they
    /// [are](Self::were_handed_over).
    pub(super) fn will_be_handed_over(&mut self, slots: &[u16]) -> NonZero<u32> {
        let submission = self.next_submission();
        for &slot in slots {
            self.slots[usize::from(slot)].handed_over_by = Some(submission);
        }
        submission
    }

    /// The kernel has the reads of these slots of a submission. Their waiters may poll.
    pub(super) fn were_handed_over(&mut self, submission: NonZero<u32>, slots: &[u16]) {
        for &slot in slots {
            // It may be over, and the slot another's.
            let entry = &mut self.slots[usize::from(slot)];
            if entry.handed_over_by == Some(submission) {
                entry.handed_over_by = None;
                if entry.waiters > 0 && !self.is_not_the_kernels(slot) {
                    self.waited.set(usize::from(slot));
                }
            }
        }
    }

    /// Begins a submission of these slots: answers are not believed until it is
    /// [`proven`](Self::proven).
    pub(super) fn submits(&mut self, slots: &[u16]) -> NonZero<u32> {
        let submission = self.next_submission();
        for &slot in slots {
            self.slots[usize::from(slot)].unproven = Some(submission);
        }
        submission
    }

    /// All that this submission reads was of the file.
    pub(super) fn proven(&mut self, submission: NonZero<u32>, slots: &[u16]) {
        for &slot in slots {
            // It may be over, and the slot another's.
            let unproven = &mut self.slots[usize::from(slot)].unproven;
            if *unproven == Some(submission) {
                *unproven = None;
            }
        }
    }

    /// The read in a slot, which the kernel would not have: the caller reads
    /// it itself, from its beginning.
    pub(super) fn take_back(&mut self, slot: u16) -> Request {
        let entry = &mut self.slots[usize::from(slot)];
        entry.over = true;
        entry.request
    }

    /// Parks the read in a slot: the thread that [takes](Self::unpark) it finishes it. True if a thread waits
    /// for it.
    pub(super) fn park(&mut self, slot: u16, now_ms: u64) -> bool {
        self.parked.set(usize::from(slot));
        let entry = &mut self.slots[usize::from(slot)];
        entry.over = false;
        entry.parked_ms = now_ms;
        entry.waiters > 0
    }

    /// Takes a parked read to finish it: no other thread will. Its waiters cannot poll until then.
    /// False: it is not parked.
    pub(super) fn unpark(&mut self, slot: u16) -> bool {
        let at = usize::from(slot);
        let was_parked = self.parked.is_set(at);
        if was_parked {
            self.parked.clear(at);
            self.waited.clear(at);
            self.slots[at].over = true;
        }
        was_parked
    }

    /// A parked slot from this one on, and when it was parked.
    pub(super) fn parked_from(&self, slot: u16) -> Option<(u16, u64)> {
        let at = self.parked.iter().find(|&at| at >= usize::from(slot))?;
        Some((at as u16, self.slots[at].parked_ms))
    }

    /// True if somebody is to hand over, finish or deliver the read in a slot, or does.
    pub(super) fn is_not_the_kernels(&self, slot: u16) -> bool {
        let at = usize::from(slot);
        let entry = &self.slots[at];
        entry.over || entry.handed_over_by.is_some() || self.parked.is_set(at)
    }

    /// Frees a slot. True if somebody waits for its read.
    pub(super) fn give_back(&mut self, slot: u16) -> bool {
        let slot = usize::from(slot);
        assert!(self.used.is_set(slot), "given back twice");
        self.used.clear(slot);
        self.waited.clear(slot);
        self.parked.clear(slot);
        let entry = &mut self.slots[slot];
        entry.round = entry.round.wrapping_add(1);
        std::mem::take(&mut entry.waiters) > 0
    }

    /// One more waits for the read in `slot`.
    pub(super) fn wait_begins(&mut self, slot: u16) {
        let at = usize::from(slot);
        self.slots[at].waiters += 1;
        if !self.is_not_the_kernels(slot) {
            self.waited.set(at);
        }
    }

    /// One fewer waits for the read in `slot`, which is still there.
    pub(super) fn wait_ends(&mut self, slot: u16) {
        let waiters = &mut self.slots[usize::from(slot)].waiters;
        *waiters -= 1;
        if *waiters == 0 {
            self.waited.clear(usize::from(slot));
        }
    }

    /// How many wait for the read in a slot.
    #[cfg(test)]
    pub(super) fn waiters(&self, slot: u16) -> u32 {
        self.slots[usize::from(slot)].waiters
    }

    /// A slot that somebody waits for.
    pub(super) fn waited_for(&self) -> Option<u16> {
        self.waited.iter().next().map(|slot| slot as u16)
    }
}

/// 256 bits.
#[derive(Debug, Default)]
struct Bits([u64; 4]);

impl Bits {
    fn is_set(&self, bit: usize) -> bool {
        self.0[bit / 64] & (1 << (bit % 64)) != 0
    }

    fn set(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn clear(&mut self, bit: usize) {
        self.0[bit / 64] &= !(1 << (bit % 64));
    }

    /// The lowest clear bit below `limit`.
    fn first_clear(&self, limit: usize) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != u64::MAX)?;
        let bit = word * 64 + self.0[word].trailing_ones() as usize;
        (bit < limit).then_some(bit)
    }

    /// The set bits, ascending.
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.checked_sub(1)?;
                Some(word * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::RingEntry;
    use super::*;

    fn request(cookie: u64, name: usize) -> Request {
        let buffer = std::ptr::without_provenance_mut(4096);
        Request {
            cookie,
            source: Source::named(name),
            offset: 40960,
            buffer,
            bytes: 16384,
            how: ReadPath::Past,
            whole: false,
            then: None,
        }
    }

    /// Failed before: the read that was nearly over was found, and whoever waited for the other slept until its time was up.
    #[test]
    fn a_read_is_found_beside_one_with_its_cookie_that_is_being_delivered() {
        let mut table = ReadTable::new(4);
        let slots = [(); 2].map(|()| table.take(request(7, 1)).unwrap());
        assert!(matches!(table.answer(slots[0], 16384), Next::Over(..)));
        assert_eq!(table.find(7), Some(slots[1]));
        table.give_back(slots[0]);
        assert_eq!(table.find(7), Some(slots[1]));
        assert!(matches!(table.answer(slots[1], 16384), Next::Over(..)));
        assert_eq!(table.find(7), Some(slots[1]), "until it is delivered");
    }

    #[test]
    fn slots_are_found_by_cookie_and_reused_lowest_first() {
        let mut table = ReadTable::new(130);
        let slots: Vec<_> = (0..130)
            .map(|i| table.take(request(i, 1)).unwrap())
            .collect();
        assert_eq!(slots, (0..130).collect::<Vec<u16>>());
        assert_eq!(table.take(request(999, 1)), None);
        assert_eq!(table.find(129), Some(129));
        assert_eq!(table.find(999), None);
        let before = table.round(64);
        assert!(!table.give_back(64));
        assert_ne!(table.round(64), before);
        assert_eq!(table.find(64), None);
        assert_eq!(table.take(request(7000, 1)), Some(64));
        (0..130).for_each(|slot| assert!(!table.give_back(slot)));
        assert!(table.is_empty());
    }

    #[test]
    fn a_read_goes_on_until_it_is_whole() {
        let mut table = ReadTable::new(4);
        let slot = table.take(request(1, 1)).unwrap();
        let Next::Again(request, done) = table.answer(slot, 5000) else {
            panic!()
        };
        let entry = RingEntry::new(slot, &request, done);
        assert_eq!((entry.offset, entry.bytes), (40960 + 4096, 16384 - 4096));
        assert_eq!(entry.buffer.addr(), 4096 + 4096);
        assert!(table.reads_from(Source::named(1)));
        let Next::Over(_, Ok(16384)) = table.answer(slot, 16384 - 4096) else {
            panic!()
        };
        assert!(!table.reads_from(Source::named(1)));
    }

    #[test]
    fn a_refused_read_is_tried_again_but_not_for_ever() {
        let mut table = ReadTable::new(4);
        let slot = table.take(request(1, 1)).unwrap();
        for no in REFUSED.iter().cycle().take(8) {
            let Next::Again(request, done) = table.answer(slot, i64::from(-no)) else {
                panic!()
            };
            let entry = RingEntry::new(slot, &request, done);
            assert_eq!(
                (entry.slot, entry.offset, entry.bytes),
                (slot, 40960, 16384)
            );
        }
        let Next::Refused = table.answer(slot, i64::from(-libc::EAGAIN)) else {
            panic!()
        };
        let request = table.take_back(slot);
        assert_eq!(request.cookie, 1);
        assert!(!table.reads_from(Source::named(1)));
        table.give_back(slot);
        let slot = table.take(request).unwrap();
        let Next::Over(_, Err(StoreError::Io(libc::EIO))) = table.answer(slot, -5) else {
            panic!()
        };
    }

    /// Every errno that `io_submit` and `io_uring` can answer, for ever.
    #[test]
    fn a_read_ends_for_every_answer_of_the_kernel() {
        let mut table = ReadTable::new(1);
        for no in 1..4096 {
            let slot = table.take(request(1, 1)).unwrap();
            let refusals = REFUSED.contains(&no);
            let mut answers = 0;
            let end = loop {
                answers += 1;
                assert!(answers < 100, "{no}: no end");
                match table.answer(slot, i64::from(-no)) {
                    Next::Again(..) => {}
                    end => break end,
                }
            };
            match end {
                // The thread that needs it reads it itself.
                Next::Refused => assert!(refusals),
                Next::Over(_, result) => {
                    assert!(!refusals);
                    assert_eq!(result, Err(StoreError::Io(no)));
                }
                Next::Again(..) | Next::Park => unreachable!("it goes on"),
            }
            table.give_back(slot);
        }
    }

    #[test]
    fn unproven_reads_are_not_believed() {
        let mut table = ReadTable::new(4);
        let slots: Vec<_> = (0..2).map(|i| table.take(request(i, 1)).unwrap()).collect();
        let first = table.submits(&slots);
        let Next::Refused = table.answer(slots[0], 16384) else {
            panic!()
        };
        table.take_back(slots[0]);
        table.give_back(slots[0]);
        // The slot is another's by the time that the first submission is proven.
        table.take(request(2, 1)).unwrap();
        table.submits(&slots[..1]);
        table.proven(first, &slots);
        let Next::Refused = table.answer(slots[0], 16384) else {
            panic!()
        };
        let Next::Over(_, Ok(16384)) = table.answer(slots[1], 16384) else {
            panic!()
        };
    }

    #[test]
    fn waiters_are_counted_for_each_slot() {
        let mut table = ReadTable::new(200);
        (0..200).for_each(|i| assert!(table.take(request(i, 1)).is_some()));
        assert_eq!(table.waited_for(), None);
        table.wait_begins(150);
        table.wait_begins(150);
        table.wait_begins(199);
        table.wait_ends(150);
        assert_eq!(table.waited_for(), Some(150));
        assert!(table.give_back(150));
        assert_eq!(table.waited_for(), Some(199));
        table.wait_ends(199);
        assert_eq!(table.waited_for(), None);
        assert!(!table.give_back(199));
    }
}
