//! An exact LRU over the accesses that were made: the share of them that it would have found in memory.
//!
//! Threads take turns, each until it has made as many accesses as it did. It starts as the populating pass
//! leaves it: the pages written last are in memory.

use super::accesses::Accesses;

/// More accesses than anybody wants to wait for.
const MOST: u64 = 400_000_000;

/// The part of the accesses that an LRU of `frames` pages finds in memory; `made` is how many each thread
/// made. `None` where there were none, or too many to replay.
pub fn hit_rate(accesses: &Accesses, pages: u64, frames: u64, made: &[u64]) -> Option<f64> {
    let all: u64 = made.iter().sum();
    if all == 0 || all > MOST || frames == 0 {
        return None;
    }
    let mut lru = Lru::new(pages as usize, frames as usize);
    for page in populated(pages, made.len() as u64) {
        lru.touch(page as u32);
    }
    let mut hits = 0u64;
    for number in 0..made.iter().copied().max().unwrap_or(0) {
        for (thread, _) in made.iter().enumerate().filter(|(_, made)| number < **made) {
            hits += u64::from(lru.touch(accesses.at(thread, number).page as u32));
        }
    }
    Some(hits as f64 / all as f64)
}

/// Pages in the order in which `threads` threads populate them, each a range of its own.
fn populated(pages: u64, threads: u64) -> impl Iterator<Item = u64> {
    let each = pages.div_ceil(threads);
    (0..each).flat_map(move |at| {
        let of = (0..threads).map(move |thread| thread * each + at);
        of.filter(move |&page| page < pages)
    })
}

/// Pages in the order of their last touch: a ring with a head that is no page.
struct Lru {
    /// Of each page the one touched before it, and the one touched after it; the last is the head's.
    links: Vec<[u32; 2]>,
    /// Pages that are in memory.
    resident: Vec<bool>,
    /// How many more fit.
    free: usize,
}

impl Lru {
    fn new(pages: usize, frames: usize) -> Self {
        let head = pages as u32;
        Self {
            links: vec![[head; 2]; pages + 1],
            resident: vec![false; pages],
            free: frames,
        }
    }

    /// Touches `page`; whether it was in memory.
    fn touch(&mut self, page: u32) -> bool {
        let hit = self.resident[page as usize];
        match hit {
            true => self.unlink(page),
            false => {
                self.resident[page as usize] = true;
                match self.free {
                    0 => {
                        let [_, oldest] = self.links[self.head() as usize];
                        self.unlink(oldest);
                        self.resident[oldest as usize] = false;
                    }
                    _ => self.free -= 1,
                }
            }
        }
        let head = self.head();
        let [newest, _] = self.links[head as usize];
        self.links[page as usize] = [newest, head];
        self.links[newest as usize][1] = page;
        self.links[head as usize][0] = page;
        hit
    }

    fn head(&self) -> u32 {
        self.resident.len() as u32
    }

    fn unlink(&mut self, page: u32) {
        let [before, after] = self.links[page as usize];
        self.links[before as usize][1] = after;
        self.links[after as usize][0] = before;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fill::mix;
    use super::super::accesses::Spread;
    use super::*;

    #[test]
    fn it_forgets_the_oldest_touches() {
        let mut lru = Lru::new(5, 3);
        let hits = [0, 1, 2, 0, 3, 1, 0, 2, 4, 0].map(|page| lru.touch(page));
        let expected = [
            false, false, false, true, false, false, true, false, false, true,
        ];
        assert_eq!(hits, expected);
    }

    #[test]
    fn it_agrees_with_a_slow_one() {
        let mut lru = Lru::new(50, 20);
        let mut slow: Vec<u32> = Vec::new();
        for number in 0..5000 {
            let page = (mix(number) % 50).min(mix(!number) % 50) as u32;
            let at = slow.iter().position(|&other| other == page);
            at.map(|at| slow.remove(at));
            slow.push(page);
            if slow.len() > 20 {
                slow.remove(0);
            }
            assert_eq!(lru.touch(page), at.is_some());
        }
    }

    #[test]
    fn uniform_accesses_hit_as_much_as_fits() {
        let accesses = Accesses::new(1, 4000, 50, Spread::Uniform);
        let rate = hit_rate(&accesses, 4000, 1000, &[20_000, 30_000]).unwrap();
        assert!((rate - 0.25).abs() < 0.01, "{rate}");
        assert_eq!(hit_rate(&accesses, 4000, 4000, &[500]), Some(1.0));
        assert_eq!(hit_rate(&accesses, 4000, 1000, &[0, 0]), None);
    }

    #[test]
    fn every_page_is_populated_once() {
        let mut all: Vec<u64> = populated(10, 4).collect();
        assert_eq!(&all[..4], [0, 3, 6, 9]);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10));
    }
}
