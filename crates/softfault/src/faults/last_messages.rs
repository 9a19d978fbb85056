//! Which touch an error belongs to: SIGBUS is raised for a touch that still sleeps, and once.
//!
//! A signal interrupts a touch, whose message has been read or will be, and the touch is repeated
//! afterwards: a second message. SIGBUS is such a signal itself. So of a thread's messages
//!
//! - only the **last** is answered by SIGBUS: an older one is of a touch that was interrupted;
//! - the **first after a SIGBUS** is not, either. It may be of a touch that was interrupted by that very
//!   SIGBUS, and be read only now, while the thread is in its handler, where another SIGBUS ends the
//!   process. The thread is woken. If it did sleep in that touch, it touches again, and this message is
//!   the second.
//!
//! SIGBUS is sent under the lock under which messages get their numbers, so that each message comes either
//! before it or after.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Places for the last messages of threads.
const PLACES: usize = 256;

/// A thread's last message.
#[derive(Default, Clone, Copy)]
struct LastMessage {
    number: u64,
    /// It was answered by SIGBUS.
    raised: bool,
    /// The one before it was.
    after_raise: bool,
}

struct Messages {
    /// Messages so far.
    count: u64,
    /// By the number of the thread that sleeps, modulo [`PLACES`]. Two threads in one place make an
    /// error look outdated, and the touch is repeated.
    last: [LastMessage; PLACES],
}

/// The last messages of threads.
pub(super) struct LastMessages(Mutex<Messages>);

impl LastMessages {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Messages {
            count: 0,
            last: [LastMessage::default(); PLACES],
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message of `thread`, and gives it a number.
    pub(super) fn note(&self, thread: u32) -> u64 {
        let mut inner = self.lock();
        inner.count += 1;
        let number = inner.count;
        let last = &mut inner.last[thread as usize % PLACES];
        *last = LastMessage {
            number,
            raised: false,
            after_raise: last.raised,
        };
        number
    }

    /// Answers a message whose touch has failed: calls `raise`, or leaves it to the next touch.
    pub(super) fn refuse(&self, thread: u32, number: u64, raise: impl FnOnce()) {
        let mut inner = self.lock();
        let last = &mut inner.last[thread as usize % PLACES];
        if last.number == number && !last.after_raise {
            last.raised = true;
            raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LastMessages;

    fn raises(asked: &LastMessages, thread: u32, number: u64) -> bool {
        let mut raised = false;
        asked.refuse(thread, number, || raised = true);
        raised
    }

    #[test]
    fn the_last_message_is_answered_and_no_other() {
        let asked = LastMessages::new();
        let (old, new) = (asked.note(7), asked.note(7));
        assert!(!raises(&asked, 7, old));
        assert!(raises(&asked, 7, new));
    }

    #[test]
    fn a_message_of_a_touch_that_sigbus_interrupted_is_not_answered() {
        let asked = LastMessages::new();
        let first = asked.note(7);
        assert!(raises(&asked, 7, first));
        // Read late: the thread is in its handler by now.
        let stale = asked.note(7);
        assert!(!raises(&asked, 7, stale));
        let again = asked.note(7);
        assert!(raises(&asked, 7, again), "a touch after the handler");
        assert!(!raises(&asked, 7, stale));
    }

    #[test]
    fn threads_do_not_answer_for_each_other() {
        let asked = LastMessages::new();
        let (one, other) = (asked.note(7), asked.note(8));
        assert!(raises(&asked, 7, one));
        assert!(raises(&asked, 8, other));
    }
}
