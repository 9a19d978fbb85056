//! A barrier that can be abandoned: when one thread fails, none waits for it for ever.

use std::sync::{Condvar, Mutex};

/// Where a number of threads meet, again and again.
pub struct Meeting {
    /// How many have to come. Immutable.
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// Protected by `Meeting::state`.
struct State {
    /// Threads that wait now.
    here: usize,
    /// Meetings that were complete.
    complete: u64,
    abandoned: bool,
}

/// One thread's seat: a thread that gives it up, by whatever way, ends all meetings to come.
pub struct Seat<'a>(&'a Meeting);

impl Meeting {
    /// Of so many threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            state: Mutex::new(State {
                here: 0,
                complete: 0,
                abandoned: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// A thread's seat; each thread takes one.
    pub fn seat(&self) -> Seat<'_> {
        Seat(self)
    }
}

impl Seat<'_> {
    /// Waits for all others; the last to come does `last` while they wait. False if one will not come.
    pub fn meet(&self, last: impl FnOnce()) -> bool {
        let meeting = self.0;
        let mut state = meeting.state.lock().expect("no thread panics here");
        if state.abandoned {
            return false;
        }
        let number = state.complete;
        state.here += 1;
        if state.here == meeting.threads {
            last();
            state.here = 0;
            state.complete += 1;
            meeting.changed.notify_all();
            return true;
        }
        let waits = |state: &mut State| state.complete == number && !state.abandoned;
        let state = meeting.changed.wait_while(state, waits);
        state.expect("no thread panics here").complete > number
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.abandoned = true;
        }
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    #[test]
    fn all_see_the_work_of_the_last() {
        let meeting = Meeting::new(3);
        let rounds = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let seat = meeting.seat();
                    for round in 0..100 {
                        assert_eq!(rounds.load(Ordering::Relaxed), round);
                        assert!(seat.meet(|| ()));
                        assert!(seat.meet(|| rounds.store(round + 1, Ordering::Relaxed)));
                    }
                });
            }
        });
        assert_eq!(rounds.into_inner(), 100);
    }

    #[test]
    fn a_thread_that_has_left_is_not_waited_for() {
        let meeting = Meeting::new(3);
        thread::scope(|scope| {
            let waiters = [0, 1].map(|_| scope.spawn(|| meeting.seat().meet(|| ())));
            drop(meeting.seat());
            for waiter in waiters {
                assert!(!waiter.join().unwrap());
            }
        });
        assert!(!meeting.seat().meet(|| ()));
    }
}
