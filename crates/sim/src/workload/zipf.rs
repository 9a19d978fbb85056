//! Zipf's law over pages: the page of rank r as often as 1 / r^theta. Pages of
//! neighbouring ranks are no neighbours. The lab and the simulator draw alike.

/// By inversion (Gray, Sundaresan, Englert, Baclawski, Weinberger: "Quickly
/// generating billion-record synthetic databases", 1994), as YCSB does it.
/// Immutable.
pub struct Zipf {
    pages: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// Shares no factor with `pages`, so that each rank has a page of its own.
    step: u64,
}

impl Zipf {
    /// Over so many pages; `theta` above 0 and below 1.
    pub fn new(pages: u64, theta: f64) -> Self {
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

    /// The page that a mixed word draws.
    pub fn page(&self, word: u64) -> u64 {
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
    use crate::random::mix;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_rank_comes_as_often_as_the_law_says_and_all_pages_come() {
        let zipf = Zipf::new(100, 0.9);
        let draws = 200_000;
        let drawn: Vec<u64> = (0..draws).map(|n| zipf.page(mix(n))).collect();
        // Rank 0 is page 0.
        let first = drawn.iter().filter(|&&page| page == 0).count() as f64;
        assert!((first / draws as f64 * zipf.zeta - 1.0).abs() < 0.05);
        assert_eq!(drawn.into_iter().collect::<BTreeSet<_>>().len(), 100);
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
