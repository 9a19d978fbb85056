//! Reads that are not in flight: those through the page cache, except the kernel's own, and those that the kernel would not have.
//!
//! A read that must not wait and finds its bytes brings them at once. One that does not find them is refused,
//! but the kernel has begun to read them into the page cache. Such a read is *parked*:
//! it keeps its slot, and is finished by a read that does wait, in the thread that needs it. Reads without a
//! waiter are polled, without waiting. Bytes that are not there after a while may never come by
//! themselves (the read failed, or the page cache has lost them again), and the poller waits for them: as long as
//! the device takes.
//!
//! A read past the page cache is parked if the kernel refuses it too often, or if its file cannot be told. The thread that needs it
//! reads it, by a call that waits for the device; so the thread that collects the answers of the ring does not. One without a waiter is
//! not there, however often a poll looks, until a poller waits for it.

use super::Ring;
use crate::store::room::now_ms;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::store::{Complete, StoreError};

/// Parked reads that are not there yet, after which a poll gives up: they come in order, more or less.
const NOT_THERE: u32 = 2;
/// How long a read may be parked before a poller waits for it.
const LONG_MS: u64 = 100;

impl Ring {
    /// Parks the read in a slot, and wakes the thread that waits for it, which is to finish it.
    #[inline(never)]
    pub(super) fn park(&self, slot: u16, since_ms: u64) {
        let word = &self.words[usize::from(slot)];
        let mut table = self.table.lock();
        let waited = table.park(slot, since_ms);
        // Relaxed: see the header of the ring.
        word.fetch_add(1, Relaxed);
        drop(table);
        if waited {
            word.wake(u32::MAX);
        }
    }

    /// Finishes the parked reads whose bytes are there.
    #[inline(never)]
    pub(super) fn finish_the_present_reads(&self, complete: &dyn Complete) {
        let (mut next, mut not_there) = (0, 0);
        while not_there < NOT_THERE {
            let mut table = self.table.lock();
            let Some((slot, since_ms)) = table.parked_from(next) else {
                return;
            };
            if !table.unpark(slot) {
                return;
            }
            let request = table.take_back(slot);
            drop(table);
            next = slot + 1;
            // Past the page cache even a read that must not wait waits for the device, once the kernel has it.
            let there = match request.how.is_cached() {
                // SAFETY: a store outlives its reads; the buffer is the read's until its completion.
                true => unsafe {
                    let file = request.source.file();
                    file.read_if_there(request.how, request.offset, request.buffer, request.bytes)
                },
                false => Err(libc::EAGAIN),
            };
            match there {
                Ok(bytes) => {
                    // It had to be fetched all the same.
                    self.was_read(&request, false);
                    let result: Result<usize, StoreError> = request.arrived(bytes);
                    self.deliver_result(slot, &request, result, complete);
                }
                Err(_) if now_ms().saturating_sub(since_ms) >= LONG_MS => {
                    self.finish(slot, complete);
                }
                Err(_) => {
                    not_there += 1;
                    self.park(slot, since_ms);
                }
            }
        }
    }
}
