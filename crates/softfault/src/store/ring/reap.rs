//! Reaping: poll, or sleep until one's read was delivered. The protocol is in
//! the module header.

use std::num::NonZero;
use std::sync::atomic::Ordering::Relaxed;

use softfault_engine::lock::MutexGuard;
use softfault_engine::store::{Complete, Reap, StoreError};

use super::super::room::now_ms;
use super::deadline::Deadline;
use super::queue::{BATCH, Done};
use super::table::{Next, ReadTable, Request};
use super::{Ring, apart};

impl Ring {
    /// [`Store::reap`](softfault_engine::store::Store::reap) in this ring.
    pub(crate) fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        let table = self.table.lock();
        match table.find(cookie) {
            Some(slot) => self.reap_read(table, slot, complete, timeout_ns),
            None => {
                self.reap_present(table, complete);
                Reap::NotInFlight
            }
        }
    }

    /// Delivers what has arrived.
    fn reap_present(&self, mut table: MutexGuard<'_, ReadTable>, complete: &dyn Complete) {
        // Looking costs a system call: only where there may be something.
        if table.is_empty() {
            return;
        }
        let polls = !table.has_poller;
        table.has_poller = true;
        drop(table);
        if polls {
            // SAFETY: `has_poller` was not set, and is by this.
            unsafe { self.poll_completions(None, complete, Deadline::after(0)) };
        }
        self.finish_the_present_reads(complete);
    }

    /// Waits for the read of a slot. Its variables are not on the stack of a thread that submits.
    #[inline(never)]
    fn reap_read<'a>(
        &'a self,
        mut table: MutexGuard<'a, ReadTable>,
        slot: u16,
        complete: &dyn Complete,
        timeout_ns: u64,
    ) -> Reap {
        let round = table.round(slot);
        let deadline = Deadline::after(timeout_ns);
        loop {
            if table.unpark(slot) {
                // As below: another's turn to poll would be lost with this thread.
                self.wake_a_poller(&table);
                drop(table);
                self.finish(slot, complete);
                return Reap::NotInFlight;
            }
            let others = table.is_not_the_kernels(slot);
            if !table.has_poller && !others {
                table.has_poller = true;
                drop(table);
                // SAFETY: `has_poller` was not set, and is by this.
                let outcome =
                    unsafe { self.poll_completions(Some((slot, round)), complete, deadline) };
                if let Some(outcome) = outcome {
                    return outcome;
                }
                table = self.table.lock();
                if table.round(slot) != round {
                    return Reap::NotInFlight;
                }
                continue;
            }
            if others {
                // The wake-up that brought us here may have been the call to poll.
                self.wake_a_poller(&table);
            }
            let left = deadline.left();
            if left == 0 {
                return Reap::TimedOut;
            }
            table.wait_begins(slot);
            let word = &self.words[usize::from(slot)];
            // Relaxed: it changes under the table's lock only.
            let seen = word.load(Relaxed);
            drop(table);
            word.wait(seen, Some(left));
            table = self.table.lock();
            if table.round(slot) != round {
                // The wake-up may have been the call to poll.
                self.leave(table);
                return Reap::NotInFlight;
            }
            table.wait_ends(slot);
        }
    }

    /// Collects and delivers completions for all, until the read `mine` (a
    /// slot and its round) was delivered or time is up; without one, until
    /// there are no more. `None`: `mine` was parked.
    ///
    /// # Safety
    /// The caller has set `has_poller`, which was not set.
    unsafe fn poll_completions(
        &self,
        mine: Option<(u16, u32)>,
        complete: &dyn Complete,
        deadline: Deadline,
    ) -> Option<Reap> {
        let mut done = [Done::NONE; BATCH];
        loop {
            let left = deadline.left();
            // SAFETY: one thread has set `has_poller`, and that is this one.
            let arrived = unsafe { self.queue.collect(&mut done, left) };
            for done in &done[..arrived] {
                self.deliver(*done, complete);
            }
            let mut table = self.table.lock();
            let outcome = match mine {
                Some((slot, round)) if table.round(slot) != round => Some(Reap::NotInFlight),
                Some((slot, _)) if table.is_not_the_kernels(slot) => None,
                // A full batch: there may be more, and it costs no wait.
                _ if arrived == BATCH || left > 0 => continue,
                _ => Some(Reap::TimedOut),
            };
            table.has_poller = false;
            self.leave(table);
            return outcome;
        }
    }

    /// Delivers completions, after a wait of `wait_ns` for the first.
    ///
    /// # Safety
    /// This thread is the only one that ever reaps this ring.
    pub(crate) unsafe fn deliver_next(&self, complete: &dyn Complete, wait_ns: u64) {
        let mut done = [Done::NONE; BATCH];
        // SAFETY: the caller's promise.
        let arrived = unsafe { self.queue.collect(&mut done, wait_ns) };
        for done in &done[..arrived] {
            self.deliver(*done, complete);
        }
    }

    /// Takes one answer of the kernel in.
    fn deliver(&self, done: Done, complete: &dyn Complete) {
        let next = self.table.lock().answer(done.slot, done.answer);
        if let Next::Again(request, _) = next
            && done.answer == i64::from(-libc::EOPNOTSUPP)
            && !request.source.is_none()
        {
            // SAFETY: a store outlives its reads.
            unsafe { request.source.must_wait() };
        }
        match next {
            Next::Over(request, result) => {
                self.was_read(&request, true);
                self.deliver_result(done.slot, &request, result, complete);
            }
            Next::Again(request, done_bytes)
                if self.submit_rest(done.slot, &request, done_bytes) => {}
            Next::Again(..) | Next::Refused if self.is_apart => {
                self.leave_waiting(done.slot, complete);
            }
            // Past the page cache, to read it here would take as long as its device: this thread collects the reads of others
            // meanwhile, and may not need this one.
            Next::Park | Next::Again(..) | Next::Refused => self.park(done.slot, now_ms()),
        }
    }

    /// A read would have to be waited for. Not in [`deliver`](Self::deliver), which has a fault's handler's stack.
    #[cold]
    #[inline(never)]
    fn leave_waiting(&self, slot: u16, complete: &dyn Complete) {
        let request = self.table.lock().take_back(slot);
        self.deliver_result(slot, &request, Err(apart::WOULD_WAIT), complete);
    }

    /// Finishes a read that is nobody else's now, in this thread.
    #[inline(never)]
    pub(super) fn finish(&self, slot: u16, complete: &dyn Complete) {
        let request = self.table.lock().take_back(slot);
        // SAFETY: a store outlives its reads; the submitter lent the buffer until completion.
        let result = unsafe {
            let file = request.source.file();
            file.read_as(request.how, request.offset, request.buffer, request.bytes)
        };
        self.was_read(&request, false);
        let result = result.map_err(StoreError::Io);
        let result = result.and_then(|bytes| request.arrived(bytes));
        self.deliver_result(slot, &request, result, complete);
    }

    /// Tells the file how a read went; in tests, of no file.
    pub(super) fn was_read(&self, request: &Request, was_there: bool) {
        if !request.source.is_none() {
            // SAFETY: a store outlives its reads.
            let file = unsafe { request.source.file() };
            file.was_read(request.how, request.bytes, was_there);
            file.end_ahead(request.how, 1);
        }
    }

    /// A read is over.
    pub(super) fn deliver_result(
        &self,
        slot: u16,
        request: &Request,
        result: Result<usize, StoreError>,
        complete: &dyn Complete,
    ) {
        let result = match request.then {
            // SAFETY: a store outlives its reads.
            Some(then) => unsafe { then.finish(result) },
            None => result,
        };
        if request.how.drops_behind() {
            // SAFETY: a store outlives its reads.
            let file = unsafe { request.source.file() };
            file.drop_behind(request.offset, request.bytes);
        }
        complete.complete(request.cookie, result);
        self.give_back(slot);
    }

    /// The kernel has these reads, and waiters may poll.
    pub(super) fn were_handed_over(&self, submission: NonZero<u32>, slots: &[u16]) {
        let mut table = self.table.lock();
        table.were_handed_over(submission, slots);
        self.leave(table);
    }

    /// Frees a slot and wakes all waiters for its read.
    pub(super) fn give_back(&self, slot: u16) {
        let word = &self.words[usize::from(slot)];
        let mut table = self.table.lock();
        let waited = table.give_back(slot);
        // Relaxed: see the header.
        word.fetch_add(1, Relaxed);
        drop(table);
        if waited {
            word.wake(u32::MAX);
        }
    }

    /// Releases the lock for good: if no thread polls, a waiter is woken to poll.
    fn leave(&self, table: MutexGuard<'_, ReadTable>) {
        self.wake_a_poller(&table);
    }

    /// If no thread polls, one of those that wait is woken, and polls.
    fn wake_a_poller(&self, table: &MutexGuard<'_, ReadTable>) {
        if table.has_poller {
            return;
        }
        let Some(slot) = table.waited_for() else {
            return;
        };
        let word = &self.words[usize::from(slot)];
        // Relaxed: see the header.
        word.fetch_add(1, Relaxed);
        word.wake(1);
    }
}
