//! Submitting: a slot for each read, then one system call, then a look at what it read from.

use super::Ring;
use super::queue::Entry;
use super::table::Request;

/// Reads of one system call at most: the fault handler's stack has room for their slots.
/// Read-ahead submits eight.
const AT_ONCE: usize = 32;

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
        let source = request(0).source;
        // SAFETY: a store outlives its reads.
        let Some(number) = (unsafe { source.number() }) else {
            return 0;
        };
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
            table.submits(&slots[..taken])
        };
        if taken == 0 {
            return 0;
        }
        let started = self
            .queue
            .submit(taken, |i| Entry::new(slots[i], &request(i), 0, number.fd()));
        // SAFETY: as above.
        if started > 0 && unsafe { source.is_still(number) } {
            self.table.lock().proven(submission, &slots[..started]);
        }
        for &slot in &slots[started..taken] {
            self.give_back(slot);
        }
        started
    }

    /// Submits what is left of a read, of which `done` bytes have arrived. False: it
    /// cannot be.
    pub(super) fn submit_rest(&self, slot: u16, request: &Request, done: usize) -> bool {
        let source = request.source;
        // SAFETY: a store outlives its reads.
        let Some(number) = (unsafe { source.number() }) else {
            return false;
        };
        let submission = self.table.lock().submits(&[slot]);
        let entry = Entry::new(slot, request, done, number.fd());
        if self.queue.submit(1, |_| entry) == 0 {
            return false;
        }
        // SAFETY: as above. Nobody else collects answers.
        if unsafe { source.is_still(number) } {
            self.table.lock().proven(submission, &[slot]);
        }
        true
    }
}
