//! The next thread to run, as one seed draws it.
//!
//! Each schedule draws its own way of choosing:
//!
//! | one in | chooses |
//! |---|---|
//! | 4 | anybody, at each point |
//! | 4 | whoever ran, with 7 in 8, else anybody: long critical sections |
//! | 2 | by priority (PCT): the highest that can run, and at 1 to 4 drawn points whoever runs becomes the lowest |
//!
//! PCT is that of "A Randomized Scheduler with Probabilistic Guarantees of
//! Finding Bugs" (ASPLOS 2010): a bug that needs d - 1 preemptions in n points of
//! k threads is found with at least 1 / (k n^(d-1)). It is our own and not
//! shuttle's, which learns n from the schedules before: here each schedule comes
//! from its seed alone, and n is drawn (64 to 8,192, each doubling alike).
//!
//! It draws too how many processors there are: one, two, or one for each thread.
//!
//! A thread that sleeps with a timeout is not chosen before it is woken, unless no other
//! thread can run; or, in every second schedule, up to three times as drawn.

use crate::point::{self, with_sleepers};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::{Arc, Mutex};

/// Points after which priorities no longer count: whoever waits for another by
/// looking again and again would do so for ever.
const FAIR_AFTER: u64 = 20_000;

/// SplitMix64: each number of a seed, in order.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

#[derive(Debug)]
enum Way {
    Anybody,
    Sticky,
    /// Highest first; a thread that is not there yet is put in at random. At
    /// each of the points whoever runs goes to the end.
    Priority {
        order: Vec<usize>,
        points: Vec<u64>,
    },
}

/// The results of schedules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explored {
    /// Schedules that ran to their end.
    pub schedules: u64,
    /// Points of all of them where there was a choice.
    pub points: u64,
    /// The most points of one.
    pub longest: u64,
    /// Timeouts that the seeds let end early.
    pub timeouts: u64,
    /// Timeouts that ended because nobody else could run.
    pub stalls: u64,
    /// Of all choices, in order: the same seeds give the same.
    pub digest: u64,
}

/// State that the scheduler shares with the thread that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) way: String,
    pub(crate) explored: Explored,
}

/// The scheduler: the schedules of a list of seeds, one after the other.
pub(crate) struct Seeded<I> {
    seeds: I,
    shared: Arc<Mutex<Shared>>,
    random: Random,
    way: Way,
    /// Timeouts that may still end early in this schedule.
    timeouts: u64,
    points: u64,
    explored: Explored,
}

impl<I: Iterator<Item = u64>> Seeded<I> {
    pub(crate) fn new(seeds: I, shared: Arc<Mutex<Shared>>) -> Self {
        Self {
            seeds,
            shared,
            random: Random::new(0),
            way: Way::Anybody,
            timeouts: 0,
            points: 0,
            explored: Explored::default(),
        }
    }

    fn share(&self, f: impl FnOnce(&mut Shared)) {
        f(&mut self.shared.lock().expect("no panic in here"));
    }

    fn draw_way(&mut self) -> Way {
        let random = &mut self.random;
        match random.below(4) {
            0 => Way::Anybody,
            1 => Way::Sticky,
            _ => {
                let span = 64 << random.below(8);
                let count = 1 + random.below(4);
                Way::Priority {
                    order: Vec::new(),
                    points: (0..count).map(|_| 1 + random.below(span)).collect(),
                }
            }
        }
    }

    fn choose(&mut self, able: &[usize], current: Option<usize>, is_yielding: bool) -> usize {
        self.points += 1;
        let others = || able.iter().copied().filter(|&task| Some(task) != current);
        let stays = current.filter(|current| able.contains(current) && !is_yielding);
        match &mut self.way {
            Way::Priority { order, points } if self.points <= FAIR_AFTER => {
                for &task in able {
                    if !order.contains(&task) {
                        let place = self.random.below(order.len() as u64 + 1);
                        order.insert(place as usize, task);
                    }
                }
                let goes_down = is_yielding || points.contains(&self.points);
                if let Some(current) = current.filter(|_| goes_down) {
                    order.retain(|&task| task != current);
                    order.push(current);
                }
                let highest = order.iter().find(|task| able.contains(task));
                *highest.expect("everybody has a priority")
            }
            Way::Sticky if stays.is_some() && self.random.below(8) > 0 => {
                stays.expect("just looked")
            }
            _ if is_yielding && others().count() > 0 => {
                let others: Vec<_> = others().collect();
                others[self.random.below(others.len() as u64) as usize]
            }
            _ => able[self.random.below(able.len() as u64) as usize],
        }
    }
}

impl<I: Iterator<Item = u64>> Scheduler for Seeded<I> {
    fn new_execution(&mut self) -> Option<Schedule> {
        // The schedule before has ended well, or this would not be called.
        self.explored.stalls += point::stalls();
        self.explored.points += self.points;
        self.explored.longest = self.explored.longest.max(self.points);
        let seed = self.seeds.next();
        let explored = self.explored.clone();
        self.share(|shared| shared.explored = explored);
        let seed = seed?;
        self.explored.schedules += 1;
        self.random = Random::new(seed);
        self.points = 0;
        point::reset([1, 2, usize::MAX][self.random.below(3) as usize]);
        self.way = self.draw_way();
        self.timeouts = match self.random.below(2) {
            0 => 0,
            _ => 1 + self.random.below(3),
        };
        let way = format!("{:?}, {} early timeouts", self.way, self.timeouts);
        self.share(|shared| (shared.seed, shared.way) = (seed, way));
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let current = current.map(usize::from);
        let mut able: Vec<usize> = runnable.iter().map(|task| task.id().into()).collect();
        // Those whose time may be up, the longest-waiting first.
        let mut timed = Vec::new();
        with_sleepers(|sleepers| {
            for sleeper in sleepers.iter().filter(|sleeper| !sleeper.woken) {
                able.retain(|&task| task != sleeper.task);
                timed.extend(sleeper.timed.then_some(sleeper.task));
            }
        });
        if able.is_empty() {
            let Some(&longest) = timed.first() else {
                panic!("deadlock: {}", point::asleep());
            };
            point::count_stall();
            able.push(longest);
        } else if !timed.is_empty() && self.timeouts > 0 && self.random.below(64) == 0 {
            self.timeouts -= 1;
            self.explored.timeouts += 1;
            able = vec![timed[self.random.below(timed.len() as u64) as usize]];
        }
        let chosen = match able[..] {
            [one] => one,
            _ => self.choose(&able, current, is_yielding),
        };
        self.explored.digest = (self.explored.digest ^ chosen as u64)
            .wrapping_mul(0x0000_0100_0000_01B3)
            .rotate_left(5);
        Some(TaskId::from(chosen))
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}
