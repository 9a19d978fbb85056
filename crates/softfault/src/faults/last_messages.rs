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
//!
//! A thread that is in a system call and has a signal pending does not sleep in its touch: the kernel repeats that until the page is there,
//! with a message each time. One is served, and the others are dropped as long as it is: each would have a thread wait for the same page,
//! until none is left.

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
    /// How often SIGBUS was the answer since the thread has touched this page, and nothing else.
    raises: u32,
    /// It is being served.
    served: bool,
    /// The thread, the page that it touched, and the descriptor of the message.
    of: (u32, usize, u8),
}

struct Messages {
    /// Messages so far.
    count: u64,
    /// By the number of the thread that sleeps, modulo [`PLACES`]. Two threads in one place make an
    /// error look outdated, and the touch is repeated.
    last: Box<[LastMessage]>,
}

/// The last messages of threads.
pub(super) struct LastMessages(Mutex<Messages>);

impl LastMessages {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Messages {
            count: 0,
            last: vec![LastMessage::default(); PLACES].into(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message of `thread`, which has touched `page`, by a descriptor, and gives it a number. None if the last one was the same
    /// and is still being served: then both end together.
    pub(super) fn note(&self, thread: u32, page: usize, from: u8) -> Option<u64> {
        let mut inner = self.lock();
        let (number, of) = (inner.count + 1, (thread, page, from));
        let last = &mut inner.last[thread as usize % PLACES];
        if last.served && last.of == of {
            return None;
        }
        let same_page = (last.of.0, last.of.1) == (thread, page);
        *last = LastMessage {
            number,
            raises: if same_page { last.raises } else { 0 },
            raised: false,
            after_raise: last.raised,
            served: true,
            of,
        };
        inner.count = number;
        Some(number)
    }

    /// A message has been served: before the thread is woken, so that a message that came before is of a touch that this wakes.
    pub(super) fn end(&self, thread: u32, number: u64) {
        let mut inner = self.lock();
        let last = &mut inner.last[thread as usize % PLACES];
        if last.number == number {
            last.served = false;
        }
    }

    /// Answers a message whose touch has failed: calls `raise`, or leaves it to the next touch. `raise` gets how often that was the answer
    /// before, while the thread has touched this page and no other.
    pub(super) fn refuse(&self, thread: u32, number: u64, raise: impl FnOnce(u32)) {
        let mut inner = self.lock();
        let last = &mut inner.last[thread as usize % PLACES];
        if last.number == number && !last.after_raise {
            last.raised = true;
            let before = last.raises;
            last.raises = before.saturating_add(1);
            raise(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LastMessages;

    /// A message of a touch that none is being served of.
    fn note(asked: &LastMessages, thread: u32) -> u64 {
        let number = asked.note(thread, 0, 0).unwrap();
        asked.end(thread, number);
        number
    }

    fn raises(asked: &LastMessages, thread: u32, number: u64) -> bool {
        let mut raised = false;
        asked.refuse(thread, number, |_| raised = true);
        raised
    }

    /// How often SIGBUS was the answer before, if it is now.
    fn raises_before(asked: &LastMessages, thread: u32, page: usize) -> Option<u32> {
        let mut before = None;
        let number = asked.note(thread, page, 0).unwrap();
        asked.refuse(thread, number, |raises| before = Some(raises));
        asked.end(thread, number);
        before
    }

    #[test]
    fn answers_for_one_page_are_counted() {
        let asked = LastMessages::new();
        for before in 0..3 {
            assert_eq!(raises_before(&asked, 7, 4096), Some(before));
            assert_eq!(raises_before(&asked, 7, 4096), None);
        }
        assert_eq!(raises_before(&asked, 7, 8192), Some(0), "another page");
        assert_eq!(raises_before(&asked, 7, 4096), None);
        assert_eq!(raises_before(&asked, 7, 4096), Some(0));
    }

    #[test]
    fn the_last_message_is_answered_and_no_other() {
        let asked = LastMessages::new();
        let (old, new) = (note(&asked, 7), note(&asked, 7));
        assert!(!raises(&asked, 7, old));
        assert!(raises(&asked, 7, new));
    }

    #[test]
    fn a_message_of_a_touch_that_sigbus_interrupted_is_not_answered() {
        let asked = LastMessages::new();
        let first = note(&asked, 7);
        assert!(raises(&asked, 7, first));
        // Read late: the thread is in its handler by now.
        let stale = note(&asked, 7);
        assert!(!raises(&asked, 7, stale));
        let again = note(&asked, 7);
        assert!(raises(&asked, 7, again), "a touch after the handler");
        assert!(!raises(&asked, 7, stale));
    }

    #[test]
    fn threads_do_not_answer_for_each_other() {
        let asked = LastMessages::new();
        let (one, other) = (note(&asked, 7), note(&asked, 8));
        assert!(raises(&asked, 7, one));
        assert!(raises(&asked, 8, other));
    }

    #[test]
    fn a_touch_that_is_repeated_while_it_is_served_is_dropped() {
        let asked = LastMessages::new();
        let first = asked.note(7, 4096, 0).unwrap();
        assert_eq!(asked.note(7, 4096, 0), None);
        // Another page, in a handler; another thread in the same place; another descriptor, which has a wake of its own.
        let page = asked.note(7, 8192, 0).unwrap();
        assert!(asked.note(7 + super::PLACES as u32, 8192, 0).is_some());
        assert!(asked.note(7, 8192, 1).is_some());
        let again = asked.note(7, 4096, 0).unwrap();
        // Of an older message: the last one is still being served.
        asked.end(7, first);
        asked.end(7, page);
        assert_eq!(asked.note(7, 4096, 0), None);
        assert!(raises(&asked, 7, again), "no number was given since");
        asked.end(7, again);
        assert!(asked.note(7, 4096, 0).is_some());
    }
}
