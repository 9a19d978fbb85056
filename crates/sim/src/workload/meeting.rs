//! Where a number of threads meet, again and again, and go on at one moment.

use crate::job::Job;
use crate::world;
use softfault_engine::lock::Mutex;
use sync::atomic::Ordering::Relaxed;
use sync::wait::WaitWord;

/// The values that threads agree on when they have met.
#[derive(Debug, Clone, Copy)]
pub struct Met {
    /// The latest of their values.
    pub latest_ns: u64,
    /// When they go on.
    pub at_ns: u64,
    /// The decision of the last to come.
    pub over: bool,
}

/// The meeting of so many threads.
pub struct Meeting {
    /// How many have to come. Immutable.
    threads: usize,
    /// From the last one's coming to all going on: time to wake them all, so
    /// that none is ahead. Immutable.
    pause_ns: u64,
    state: Mutex<State>,
    /// The word that waiters sleep on; changed by each end of their wait.
    word: WaitWord,
}

/// Protected by `Meeting::state`.
struct State {
    /// Threads that wait now.
    here: usize,
    latest_ns: u64,
    /// Meetings that were complete.
    complete: u64,
    /// The values of the last one.
    met: Met,
    abandoned: bool,
}

/// A thread's seat: giving it up ends all meetings to come.
pub struct Seat<'a>(&'a Meeting);

impl Meeting {
    /// Of so many threads on the job's machine.
    pub fn new(job: &Job, threads: usize) -> Self {
        let costs = &job.topology.scheduler;
        let turns = threads.div_ceil(job.cores) as u64;
        let wake_ps = costs.wake * threads as u64 + costs.wake_latency + costs.switch * turns;
        Self {
            threads,
            pause_ns: 2 * wake_ps / 1000 + 5_000,
            state: Mutex::new(State {
                here: 0,
                latest_ns: 0,
                complete: 0,
                met: Met {
                    latest_ns: 0,
                    at_ns: 0,
                    over: false,
                },
                abandoned: false,
            }),
            word: WaitWord::new(0),
        }
    }

    /// A thread's seat; each thread takes one.
    pub fn seat(&self) -> Seat<'_> {
        Seat(self)
    }
}

impl Seat<'_> {
    /// Waits for all others. Each brings a moment; the last to come decides
    /// whether it is `over`. `None` if one will not come.
    pub fn meet(&self, brought_ns: u64, over: impl FnOnce() -> bool) -> Option<Met> {
        let meeting = self.0;
        let mut state = meeting.state.lock();
        if state.abandoned {
            return None;
        }
        let number = state.complete;
        state.here += 1;
        state.latest_ns = state.latest_ns.max(brought_ns);
        if state.here == meeting.threads {
            state.met = Met {
                latest_ns: state.latest_ns,
                at_ns: world::now_ns() + meeting.pause_ns,
                over: over(),
            };
            state.here = 0;
            state.latest_ns = 0;
            state.complete += 1;
            let met = state.met;
            drop(state);
            meeting.end_waits();
            world::sleep_until_ns(met.at_ns);
            return Some(met);
        }
        loop {
            // Relaxed: changed after the state was, which the lock hands on.
            let seen = meeting.word.load(Relaxed);
            if state.complete > number {
                // Nobody can come to the next one without this thread: it is
                // this meeting's.
                let met = state.met;
                drop(state);
                world::sleep_until_ns(met.at_ns);
                return Some(met);
            }
            if state.abandoned {
                return None;
            }
            drop(state);
            meeting.word.wait(seen, None);
            state = meeting.state.lock();
        }
    }
}

impl Meeting {
    fn end_waits(&self) {
        self.word.fetch_add(1, Relaxed);
        self.word.wake(u32::MAX);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.state.lock().abandoned = true;
        self.0.end_waits();
    }
}
