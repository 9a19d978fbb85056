//! Which page each access of each thread goes to: a function of the seed, so that a replay sees the same.

use super::super::fill::{mix, uniform};
use serde::{Deserialize, Serialize};
use softfault_sim::Zipf;

/// How accesses are spread over pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Spread {
    /// Every page alike.
    Uniform,
    /// The page of rank r (from 1) as often as 1 / r^theta; ranks have no neighbours.
    Zipf {
        /// Above 0 and below 1.
        theta: f64,
    },
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which page.
    pub page: u64,
    /// Whether it writes.
    pub writes: bool,
    /// Random numbers for callers that need more of them.
    pub word: u64,
}

/// All accesses there are. Immutable.
pub struct Accesses {
    seed: u64,
    pages: u64,
    /// Of 100.
    writes: u64,
    zipf: Option<Zipf>,
}

impl Accesses {
    /// Over so many pages, above zero; `writes` percent of them writes.
    pub fn new(seed: u64, pages: u64, writes: u64, spread: Spread) -> Self {
        let zipf = match spread {
            Spread::Uniform => None,
            Spread::Zipf { theta } => Some(Zipf::new(pages, theta)),
        };
        Self {
            seed,
            pages,
            writes,
            zipf,
        }
    }

    /// Access `number` of thread `thread`.
    pub fn at(&self, thread: usize, number: u64) -> Access {
        let word = mix(mix(self.seed ^ mix(thread as u64)) ^ number);
        let more = mix(word);
        let page = match &self.zipf {
            None => uniform(word, self.pages),
            Some(zipf) => zipf.page(word),
        };
        Access {
            page,
            writes: more % 100 < self.writes,
            word: more >> 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_accesses_and_threads_differ() {
        let of = |seed, thread| {
            let accesses = Accesses::new(seed, 1000, 50, Spread::Uniform);
            (0..100)
                .map(|n| accesses.at(thread, n).page)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
    }

    #[test]
    fn as_many_writes_as_asked_for() {
        for (percent, range) in [
            (0, 0..1),
            (10, 800..1200),
            (50, 4700..5300),
            (100, 10_000..10_001),
        ] {
            let accesses = Accesses::new(7, 1000, percent, Spread::Uniform);
            let writes = (0..10_000).filter(|&n| accesses.at(0, n).writes).count();
            assert!(range.contains(&writes), "{percent} %: {writes}");
        }
    }
}
