//! Submitting: a slot for each read, then one system call.

use super::queue::Entry;
use super::table::Request;
use super::{ENTRIES, Ring};

impl Ring {
    /// Starts up to `count` reads and returns how many, from the front.
    pub(crate) fn submit(&self, count: usize, request: impl Fn(usize) -> Request) -> usize {
        let mut slots = [0u16; ENTRIES];
        let mut taken = 0;
        {
            let mut table = self.table.lock();
            for slot in slots.iter_mut().take(count) {
                let Some(free) = table.take(request(taken)) else {
                    break;
                };
                *slot = free;
                taken += 1;
            }
        }
        if taken == 0 {
            return 0;
        }
        let started = self
            .queue
            .submit(taken, |i| Entry::new(slots[i], &request(i), 0));
        for &slot in &slots[started..taken] {
            self.give_back(slot);
        }
        started
    }
}
