//! Submitting: a slot for each read, then one system call, then a check of the file that it read from.

use super::Ring;
use super::queue::{FileHandle, RingEntry};
use super::table::Request;

/// Reads of one system call at most, as many as a batch of read-ahead has: the fault handler's stack has room for their slots.
const AT_ONCE: usize = 24;

impl Ring {
    /// Starts up to `count` reads of one file and returns how many, from the front.
    pub(crate) fn submit(&self, count: usize, request: impl Fn(usize) -> Request) -> usize {
        let mut started = 0;
        while started < count {
            let some = (count - started).min(AT_ONCE);
            let more = self.submit_some(some, |i| request(started + i));
            started += more;
            if more < some {
                break;
            }
        }
        started
    }

    /// The same, for one to [`AT_ONCE`] reads.
    fn submit_some(&self, count: usize, request: impl Fn(usize) -> Request) -> usize {
        let first = request(0);
        let mut slots = [0u16; AT_ONCE];
        let mut taken = 0;
        let submission = {
            let mut table = self.table.lock();
            for slot in slots.iter_mut().take(count) {
                let Some(free) = table.take(request(taken)) else {
                    break;
                };
                *slot = free;
                taken += 1;
            }
            table.will_be_handed_over(&slots[..taken])
        };
        if taken == 0 {
            return 0;
        }
        let slots = &slots[..taken];
        let entry = |i| RingEntry::new(slots[i], &request(i), 0);
        let mut started = self.submit_by_number(&first, slots, entry);
        if started < taken && !self.is_apart {
            started += self.submit_in_table(&first, taken - started, |i| entry(started + i));
        }
        self.were_handed_over(submission, &slots[..started]);
        for &slot in &slots[started..] {
            self.give_back(slot);
        }
        started
    }

    fn submit_by_number(
        &self,
        first: &Request,
        slots: &[u16],
        entry: impl Fn(usize) -> RingEntry,
    ) -> usize {
        // Of a read through the page cache, every missing page would be refused.
        if first.how.drops_behind() {
            return 0;
        }
        let source = first.source;
        // SAFETY: a store outlives its reads.
        let Some(number) = (unsafe { source.number() }) else {
            return 0;
        };
        let submission = self.table.lock().submits(slots);
        let through = FileHandle::Number(number.fd(), first.how.flags());
        let taken = self.queue.submit(through, slots.len(), entry);
        let started = taken.count;
        // SAFETY: as above.
        let is_still = unsafe { source.is_still(number) };
        if taken.refusal == libc::EOPNOTSUPP && is_still && !source.is_none() {
            // SAFETY: as above.
            unsafe { source.must_wait() };
        }
        // Of the rest the kernel has nothing.
        let proven = if is_still { 0 } else { started };
        self.table.lock().proven(submission, &slots[proven..]);
        started
    }

    fn submit_in_table(
        &self,
        first: &Request,
        count: usize,
        entry: impl Fn(usize) -> RingEntry,
    ) -> usize {
        // Reads of missing pages are parked. Where no read can do without waiting, only a ring of
        // io_uring does it elsewhere.
        // SAFETY: a store outlives its reads.
        let may_wait = first.source.is_none() || unsafe { first.source.waits() };
        let flags = match first.how.is_cached() {
            true if !may_wait => first.how.flags() | libc::RWF_NOWAIT,
            true if self.queue.waits_at_once() => return 0,
            _ => first.how.flags(),
        };
        let through = match first.source.is_none() {
            true => Some(FileHandle::Number(0, 0)),
            // SAFETY: a store outlives its reads.
            false => unsafe { first.source.guarded() }.map(|file| FileHandle::Table(file, flags)),
        };
        through.map_or(0, |through| self.queue.submit(through, count, entry).count)
    }

    /// Submits the rest of a read, of which `done` bytes have arrived. False: it
    /// cannot be.
    #[inline(never)]
    pub(super) fn submit_rest(&self, slot: u16, request: &Request, done: usize) -> bool {
        let entry = RingEntry::new(slot, request, done);
        match self.is_apart {
            true => self.submit_by_number(request, &[slot], |_| entry) == 1,
            false => self.submit_in_table(request, 1, |_| entry) == 1,
        }
    }
}
