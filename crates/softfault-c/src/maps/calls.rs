//! Calls under way, and the unmaps that wait for their end.
//!
//! A call that copies bytes of a map touches its pages, and so does a system call that it makes. A map that is unmapped as a whole
//! stays until such calls end, since each has a reference to it. A part of a map stays in the same way: the unmap takes it out of
//! the table, where no later call finds it, and whoever is the last to use it gives it back. Nobody waits: a call may be
//! blocked in a read of a socket for as long as it likes.

use super::take_out::Cut;
use super::{Range, common};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A call that uses pages of a window.
#[derive(Default)]
pub(crate) struct Call {
    /// Unmaps of any of them since it began; dropped with it, and not under the table's lock.
    unmapped: Mutex<Vec<Arc<Cut>>>,
}

impl Call {
    /// Keeps a part that is unmapped until the call ends.
    pub(super) fn keep(&self, cut: &Arc<Cut>) {
        let unmapped = self.unmapped.lock();
        let mut unmapped = unmapped.unwrap_or_else(PoisonError::into_inner);
        unmapped.push(cut.clone());
    }
}

/// The calls that use pages of a window, with these. Locked under the lock of the table, and over nothing.
#[derive(Default)]
pub(super) struct Calls(Mutex<Vec<Entry>>);

/// The pages of a call, and the call.
type Entry = (Range<usize>, Weak<Call>);

fn forget_ended(calls: &mut Vec<Entry>) {
    calls.retain(|(_, call)| call.strong_count() > 0);
}

impl Calls {
    /// A call that ends when the result is dropped.
    pub(super) fn begin(&self, pages: Range<usize>) -> Arc<Call> {
        let call = Arc::<Call>::default();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() == calls.capacity() {
            // Only then: one call of many ranges has as many of these.
            forget_ended(&mut calls);
        }
        calls.push((pages, Arc::downgrade(&call)));
        call
    }

    /// Those that use any of some pages. Each may be the last reference: they are dropped without the table's lock.
    pub(super) fn of(&self, pages: &[Range<usize>]) -> Vec<Arc<Call>> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        forget_ended(&mut calls);
        let has_any = |of: &Range<usize>| pages.iter().any(|pages| !common(pages, of).is_empty());
        let calls = calls.iter().filter(|(of, _)| has_any(of));
        calls.filter_map(|(_, call)| call.upgrade()).collect()
    }

    /// Gives back the memory of those that have ended: after a call of many ranges, each of which has been one of these.
    pub(super) fn forget_ended(&self) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        forget_ended(&mut calls);
        let left = calls.len();
        calls.shrink_to(2 * left);
    }

    /// Those that it has memory for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.0.lock().unwrap().capacity()
    }

    /// In a child of fork, where no thread is within a call.
    pub(super) fn forget(&mut self) {
        let calls = self.0.get_mut();
        calls.unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_have_ended_are_forgotten() {
        let calls = Calls::default();
        let of = |page: Range<usize>| calls.of(core::slice::from_ref(&page)).len();
        let entries = || calls.0.lock().unwrap().len();
        for _ in 0..1000 {
            drop(calls.begin(0..1));
        }
        assert!(entries() < 10, "{}", entries());
        let under_way: Vec<_> = (0..1000).map(|_| calls.begin(0..1)).collect();
        assert_eq!(of(0..1), under_way.len());
        assert_eq!(of(1..2), 0);
        drop(under_way);
        assert_eq!(of(0..1), 0);
        assert_eq!(entries(), 0);
    }
}
