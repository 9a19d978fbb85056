//! A run that cannot go on, and its waits.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::kernel::Machine;
use super::thread::State;

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// All threads wait for each other, and no time-out is set.
    Deadlock,
    /// A thread waited, or only asked again and again, for too long.
    Starvation,
}

/// A thread that had not ended.
#[derive(Debug, Clone)]
pub struct Unended {
    /// Its name.
    pub name: String,
    /// Its operation, or its wait.
    pub state: String,
    /// Where in the source: file, line and column.
    pub place: String,
    /// For how long, in nanoseconds.
    pub since_ns: u64,
    /// True if it was longer than the run's patience.
    pub starved: bool,
}

/// A run that could not go on.
#[derive(Debug, Clone)]
pub struct Stuck {
    /// Why.
    pub cause: Cause,
    /// The run's seed.
    pub seed: u64,
    /// The virtual time, in nanoseconds.
    pub now_ns: u64,
    /// All threads that had not ended.
    pub threads: Vec<Unended>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Deadlock => "deadlock: nobody can run and no time-out is set",
            Cause::Starvation => "starvation: a thread got nowhere for too long",
        };
        writeln!(f, "{cause} (seed {}, at {} ns)", self.seed, self.now_ns)?;
        for thread in &self.threads {
            writeln!(
                f,
                "  {}{}: {} at {} for {} ns",
                if thread.starved { "* " } else { "" },
                thread.name,
                thread.state,
                thread.place,
                thread.since_ns
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Stuck {}

impl Machine {
    /// The waits now.
    pub fn stuck(&self, cause: Cause) -> Stuck {
        let unended = (self.threads.iter()).filter(|thread| thread.state != State::Ended);
        let threads = unended.map(|thread| {
            let state = match thread.state {
                State::Running => "runs, last seen".to_owned(),
                State::Ready => "is ready to run, last seen".to_owned(),
                State::Waits { word, expected, .. } => {
                    // SAFETY: a thread that waits on a word lives, and so does its word.
                    let now = unsafe {
                        let word = core::ptr::with_exposed_provenance_mut(word);
                        AtomicU32::from_ptr(word).load(Relaxed)
                    };
                    format!("waits for a word that held {expected:#x} and holds {now:#x}")
                }
                State::Sleeps { until } => format!("sleeps until {} ns", until / 1000),
                State::Joins { thread } => {
                    format!(
                        "waits for the end of {}",
                        self.threads[thread as usize].name
                    )
                }
                State::Ended => "has ended".to_owned(),
            };
            Unended {
                name: thread.name.clone(),
                state,
                place: super::hot::place_of(thread.at),
                since_ns: self.now.saturating_sub(self.idle_since(thread)) / 1000,
                starved: self.starves(thread),
            }
        });
        Stuck {
            cause,
            seed: self.seed,
            now_ns: self.now / 1000,
            threads: threads.collect(),
        }
    }

    /// Since when a thread gets nowhere.
    fn idle_since(&self, thread: &super::thread::Thread) -> u64 {
        match thread.state {
            State::Running => thread.progress,
            _ => thread.since,
        }
    }

    /// True if a thread has waited for longer than the run's patience for something that
    /// others should give it: a word, or a CPU.
    fn starves(&self, thread: &super::thread::Thread) -> bool {
        let waits = match thread.state {
            State::Ready => true,
            State::Waits { until, .. } => until.is_none(),
            _ => false,
        };
        waits && self.now.saturating_sub(thread.since) > self.patience
    }

    /// Looks for starving threads, from time to time.
    pub fn look_for_starved(&mut self) {
        self.look_at = self.now.saturating_add(self.patience / 4 + 1);
        if self.threads.iter().any(|thread| self.starves(thread)) {
            self.stuck = Some(self.stuck(Cause::Starvation));
        }
    }

    /// The running thread asks in vain: true if it has done so for too long.
    pub fn asks_in_vain(&mut self, at: super::kernel::At) -> bool {
        // SAFETY: threads stay where they are, and only this one is borrowed.
        let running = unsafe { &mut *self.running };
        running.at = at;
        let starved = self.now.saturating_sub(running.progress) > self.patience;
        if starved {
            self.own(|machine| {
                let mut stuck = machine.stuck(Cause::Starvation);
                let name = &machine.threads[machine.thread as usize].name;
                for thread in &mut stuck.threads {
                    if thread.name == *name {
                        thread.state = "asks again and again".to_owned();
                        thread.starved = true;
                    }
                }
                machine.stuck = Some(stuck);
            });
        }
        starved
    }
}
