//! A queue whose answers a test gives, in the order and at the moment it
//! wants. It can refuse reads, cut them short, and take fewer than it is given.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::queue::{BATCH, Done, RingEntry, Taken};

#[derive(Debug, Default)]
pub(super) struct HeldQueue {
    state: Mutex<HeldState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct HeldState {
    /// Reads that were submitted and not answered.
    entries: VecDeque<RingEntry>,
    answers: VecDeque<Done>,
    /// Submissions take no more than this, together.
    room: Option<usize>,
    /// The next submissions are refused with these.
    refusals: VecDeque<i32>,
    /// Submissions wait until this is over.
    is_busy: bool,
    /// Threads in `collect`: one at most.
    collecting: usize,
}

// SAFETY: the entries' buffers are the tests', which outlive them.
unsafe impl Send for HeldQueue {}
// SAFETY: all is behind a mutex.
unsafe impl Sync for HeldQueue {}

impl HeldQueue {
    fn state(&self) -> std::sync::MutexGuard<'_, HeldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, count: usize, entry: impl Fn(usize) -> RingEntry) -> Taken {
        let mut state = (self.answered)
            .wait_while(self.state(), |state| state.is_busy)
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(refusal) = state.refusals.pop_front() {
            return Taken { count: 0, refusal };
        }
        let taken = count.min(state.room.unwrap_or(count));
        state.room = state.room.map(|room| room - taken);
        state.entries.extend((0..taken).map(entry));
        taken.into()
    }

    pub(super) fn collect(&self, done: &mut [Done; BATCH], wait_ns: u64) -> usize {
        let until = Instant::now() + Duration::from_nanos(wait_ns);
        let mut state = self.state();
        state.collecting += 1;
        assert_eq!(state.collecting, 1, "two threads poll");
        while state.answers.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = (self.answered.wait_timeout(state, left))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let arrived = state.answers.len().min(BATCH);
        for (done, answer) in done.iter_mut().zip(state.answers.drain(..arrived)) {
            *done = answer;
        }
        state.collecting -= 1;
        arrived
    }

    /// From now on no more than so many are taken.
    pub(super) fn limit(&self, room: usize) {
        self.state().room = Some(room);
    }

    /// Refuses the next submission.
    pub(super) fn refuse(&self, errno: i32) {
        self.state().refusals.push_back(errno);
    }

    /// Lets submissions wait, or go on.
    pub(super) fn be_busy(&self, is_busy: bool) {
        self.state().is_busy = is_busy;
        self.answered.notify_all();
    }

    /// Takes the oldest read that is not answered.
    pub(super) fn next(&self) -> Option<RingEntry> {
        self.state().entries.pop_front()
    }

    /// Answers a read.
    pub(super) fn answer(&self, entry: RingEntry, answer: i64) {
        self.state().answers.push_back(Done {
            slot: entry.slot,
            answer,
        });
        self.answered.notify_all();
    }

    /// True while a thread waits for answers.
    pub(super) fn has_poller(&self) -> bool {
        self.state().collecting > 0
    }
}
