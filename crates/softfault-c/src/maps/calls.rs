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
pub(super) struct Calls(Mutex<Vec<(Range<usize>, Weak<Call>)>>);

impl Calls {
    /// A call that ends when the result is dropped.
    pub(super) fn begin(&self, pages: Range<usize>) -> Arc<Call> {
        let call = Arc::<Call>::default();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|(_, call)| call.strong_count() > 0);
        calls.push((pages, Arc::downgrade(&call)));
        call
    }

    /// Those that use any of some pages. Each may be the last reference: they are dropped without the table's lock.
    pub(super) fn of(&self, pages: &[Range<usize>]) -> Vec<Arc<Call>> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_any = |of: &Range<usize>| pages.iter().any(|pages| !common(pages, of).is_empty());
        let calls = calls.iter().filter(|(of, _)| has_any(of));
        calls.filter_map(|(_, call)| call.upgrade()).collect()
    }

    /// In a child of fork, where no thread is within a call.
    pub(super) fn forget(&mut self) {
        let calls = self.0.get_mut();
        calls.unwrap_or_else(PoisonError::into_inner).clear();
    }
}
