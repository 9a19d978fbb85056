//! Which page each access of each thread goes to: a function of the seed, so that a replay sees the same.

use super::super::fill::mix;
use super::super::work::sparse::uniform;
use serde::{Deserialize, Serialize};

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
    /// Chance for whoever needs more of it.
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

/// Zipf's law by inversion (Gray, Sundaresan, Englert, Baclawski, Weinberger: "Quickly generating
/// billion-record synthetic databases", 1994), as YCSB does it. Immutable.
struct Zipf {
    pages: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// Shares no factor with `pages`, so that each rank has a page of its own.
    step: u64,
}

impl Zipf {
    fn new(pages: u64, theta: f64) -> Self {
        let n = pages as f64;
        let zeta: f64 = (1..=pages).map(|rank| (rank as f64).powf(-theta)).sum();
        let zeta_2 = 1.0 + 0.5f64.powf(theta);
        // The golden section keeps ranks that follow one another far apart.
        let golden = (n * 0.618_033_988_749_895) as u64 | 1;
        let step = (golden..).find(|&step| greatest_common_divisor(step, pages) == 1);
        Self {
            pages,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta,
            eta: (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - zeta_2 / zeta),
            step: step.expect("a prime is somewhere"),
        }
    }

    fn page(&self, word: u64) -> u64 {
        let rank = self.rank((word >> 11) as f64 / (1u64 << 53) as f64);
        ((u128::from(rank) * u128::from(self.step)) % u128::from(self.pages)) as u64
    }

    /// From 0; `u` is uniform in [0, 1).
    fn rank(&self, u: f64) -> u64 {
        let uz = u * self.zeta;
        let rank = match () {
            _ if uz < 1.0 => 0,
            _ if uz < 1.0 + 0.5f64.powf(self.theta) => 1,
            _ => (self.pages as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64,
        };
        rank.min(self.pages - 1)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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

    #[test]
    fn every_rank_has_its_own_page() {
        for pages in [1, 2, 3, 64, 1000, 1024, 6 * 5 * 7 * 11] {
            let zipf = Zipf::new(pages, 0.99);
            let all: BTreeSet<u64> = (0..pages)
                .map(|rank| (u128::from(rank) * u128::from(zipf.step) % u128::from(pages)) as u64)
                .collect();
            assert_eq!(all.len() as u64, pages);
        }
    }

    /// Of 1,000 pages and theta 0.99, zeta is 7.7290: the first has 12.94 %, the second 6.51 %, the first
    /// hundred 68.8 %.
    #[test]
    fn zipf_is_zipfs() {
        let zipf = Zipf::new(1000, 0.99);
        let ranks: Vec<u64> = (0..100_000)
            .map(|n| zipf.rank((mix(n) >> 11) as f64 / (1u64 << 53) as f64))
            .collect();
        let part = |below| ranks.iter().filter(|&&rank| rank < below).count() as f64 / 1e5;
        let exact =
            |below: u64| (1..=below).map(|r| (r as f64).powf(-0.99)).sum::<f64>() / zipf.zeta;
        for below in [1, 2, 100, 1000] {
            assert!(
                (part(below) - exact(below)).abs() < 0.015,
                "{below}: {} {}",
                part(below),
                exact(below)
            );
        }
        assert!(Zipf::new(1, 0.5).rank(0.999) == 0);
    }
}
