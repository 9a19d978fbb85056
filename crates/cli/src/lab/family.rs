//! Orders of access: all pages of a file, or some of each of its records, once, in an order that a program might
//! have.
//!
//! ```text
//!   sequential          one page after the other
//!   gaps3of8            of each record of 8 pages the first 3
//!   0213                groups of 4 pages, each in this order
//!   shuffle64           groups of 64, shuffled
//!   reverse16           groups of 16, each from behind
//!   anywhere8           records of 8 pages, at places drawn
//!   backwards           all of that from the end of the file
//!   streams4            four parts of the file, a page of each in turn
//!   gaps6of8+shuffle64+streams4        one after the other
//!   drawn3              a family drawn by the run's seed and this number
//! ```

use super::fill::{mix, uniform};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the order that is none of the others.
const IN_ORDER: &str = "sequential";

/// How pages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Pages of a record that are touched, and pages that it has.
    gaps: (u64, u64),
    /// Pages of a group, and how it is walked.
    group: Option<(u64, Walk)>,
    backwards: bool,
    streams: u64,
}

/// How the pages of a group are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Walk {
    Shuffle,
    Reverse,
    /// Groups follow each other in a drawn order, and some are never met.
    Anywhere,
    /// Of at most sixteen pages: which comes when, four bits each.
    Given(u64),
}

impl Family {
    const IN_ORDER: Family = Family {
        gaps: (1, 1),
        group: None,
        backwards: false,
        streams: 1,
    };

    /// The family of this name. None if it has no meaning.
    pub fn parse(name: &str, seed: u64) -> Option<Family> {
        let mut family = Family::IN_ORDER;
        if let Some(number) = name.strip_prefix("drawn") {
            return Some(Family::drawn(mix(seed ^ number.parse::<u64>().ok()?)));
        }
        if name == IN_ORDER {
            return Some(family);
        }
        for part in name.split('+') {
            family.add(part)?;
        }
        Some(family)
    }

    fn add(&mut self, part: &str) -> Option<()> {
        let number = |prefix: &str| part.strip_prefix(prefix)?.parse::<u64>().ok();
        let group = |size: u64, walk| (size > 1).then_some(Some((size, walk)));
        if let Some(gaps) = part.strip_prefix("gaps") {
            let (take, of) = gaps.split_once("of")?;
            self.gaps = (take.parse().ok()?, of.parse().ok()?);
            return (0 < self.gaps.0 && self.gaps.0 < self.gaps.1).then_some(());
        }
        if let Some(size) = number("shuffle") {
            self.group = group(size, Walk::Shuffle)?;
        } else if let Some(size) = number("reverse") {
            self.group = group(size, Walk::Reverse)?;
        } else if let Some(size) = number("anywhere") {
            self.group = group(size, Walk::Anywhere)?;
        } else if let Some(streams) = number("streams") {
            self.streams = (1..=1024).contains(&streams).then_some(streams)?;
        } else if part == "backwards" {
            self.backwards = true;
        } else {
            let places: Vec<u64> = part
                .chars()
                .map(|digit| digit.to_digit(16).map(u64::from))
                .collect::<Option<_>>()?;
            let mut sorted = places.clone();
            sorted.sort_unstable();
            if !(2..=16).contains(&places.len())
                || sorted.iter().copied().ne(0..places.len() as u64)
            {
                return None;
            }
            let given = places
                .iter()
                .rev()
                .fold(0, |given, place| given << 4 | place);
            self.group = Some((places.len() as u64, Walk::Given(given)));
        }
        Some(())
    }

    /// Any of them.
    fn drawn(seed: u64) -> Family {
        let draw = |of: u64, end: u64| uniform(mix(seed ^ of), end);
        let gaps = match draw(1, 3) {
            0 => {
                let of = 2 + draw(2, 99);
                (1 + draw(3, of - 1), of)
            }
            _ => (1, 1),
        };
        let size = 2 << draw(4, 12);
        let group = match draw(5, 5) {
            0 => None,
            1 => Some((size, Walk::Reverse)),
            2 => Some((size.min(256), Walk::Anywhere)),
            _ => Some((size, Walk::Shuffle)),
        };
        Family {
            gaps,
            group,
            backwards: draw(6, 4) == 0,
            streams: [1, 1, 1, 2, 4, 16][draw(7, 6) as usize],
        }
    }

    /// The pages of a file of so many, in the order of the touches.
    pub fn pages(&self, pages: u64, seed: u64) -> Vec<u32> {
        let (take, of) = self.gaps;
        let all = (0..pages).filter(|page| page % of < take);
        let mut order: Vec<u32> = all.map(|page| page as u32).collect();
        if let Some((size, walk)) = self.group {
            order = walked(&order, size as usize, walk, seed);
        }
        if self.backwards {
            order.reverse();
        }
        if self.streams > 1 {
            let part = order.len().div_ceil(self.streams as usize).max(1);
            let parts: Vec<&[u32]> = order.chunks(part).collect();
            let turn = |at: usize| parts.iter().filter_map(move |part| part.get(at));
            order = (0..part).flat_map(turn).copied().collect();
        }
        order
    }
}

fn walked(order: &[u32], size: usize, walk: Walk, seed: u64) -> Vec<u32> {
    let mut groups: Vec<Vec<u32>> = order.chunks(size).map(<[u32]>::to_vec).collect();
    match walk {
        Walk::Reverse => groups.iter_mut().for_each(|group| group.reverse()),
        Walk::Shuffle => {
            for (group, number) in groups.iter_mut().zip(1..) {
                shuffle(group, mix(seed ^ mix(number)));
            }
        }
        Walk::Anywhere => shuffle(&mut groups, seed),
        Walk::Given(given) => {
            for group in groups.iter_mut().filter(|group| group.len() == size) {
                let places = (0..size).map(|at| (given >> (4 * at) & 15) as usize);
                *group = places.map(|place| group[place]).collect();
            }
        }
    }
    groups.concat()
}

fn shuffle<T>(items: &mut [T], seed: u64) {
    for at in (1..items.len()).rev() {
        items.swap(at, uniform(mix(seed ^ at as u64), at as u64 + 1) as usize);
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.gaps != (1, 1) {
            parts.push(format!("gaps{}of{}", self.gaps.0, self.gaps.1));
        }
        match self.group {
            None => {}
            Some((size, Walk::Shuffle)) => parts.push(format!("shuffle{size}")),
            Some((size, Walk::Reverse)) => parts.push(format!("reverse{size}")),
            Some((size, Walk::Anywhere)) => parts.push(format!("anywhere{size}")),
            Some((size, Walk::Given(given))) => {
                parts.push(
                    (0..size)
                        .map(|at| format!("{:x}", given >> (4 * at) & 15))
                        .collect(),
                );
            }
        }
        if self.backwards {
            parts.push("backwards".to_owned());
        }
        if self.streams > 1 {
            parts.push(format!("streams{}", self.streams));
        }
        if parts.is_empty() {
            parts.push(IN_ORDER.to_owned());
        }
        write!(f, "{}", parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(name: &str, pages: u64) -> Vec<u32> {
        let family = Family::parse(name, 1).expect("a name");
        family.pages(pages, 7)
    }

    #[test]
    fn names_mean_orders() {
        assert_eq!(pages("0213", 9), [0, 2, 1, 3, 4, 6, 5, 7, 8]);
        assert_eq!(pages("reverse3", 7), [2, 1, 0, 5, 4, 3, 6]);
        assert_eq!(pages("gaps2of4+backwards", 8), [5, 4, 1, 0]);
        assert_eq!(pages("streams2", 5), [0, 3, 1, 4, 2]);
        for none in [
            "", "0214", "shuffle1", "gaps4of4", "gaps1", "streams0", "drawnx", "x",
        ] {
            assert_eq!(Family::parse(none, 1), None, "{none}");
        }
    }

    #[test]
    fn a_seed_draws_each_group_of_a_shuffle() {
        let family = Family::parse("shuffle8", 1).expect("a name");
        let [one, other] = [1, 2].map(|seed| family.pages(64, seed));
        let groups = one.chunks(8).zip(other.chunks(8));
        assert!(groups.filter(|(one, other)| one != other).count() > 6);
        assert_eq!(one, family.pages(64, 1));
    }

    #[test]
    fn every_drawn_family_touches_each_of_its_pages_once() {
        for number in 0..200 {
            let family = Family::drawn(mix(number));
            let name = family.to_string();
            assert_eq!(Family::parse(&name, 0), Some(family), "{name}");
            let mut touched = family.pages(5000, number);
            touched.sort_unstable();
            let (take, of) = family.gaps;
            let wanted = (0..5000u32).filter(|&page| u64::from(page) % of < take);
            assert!(touched.into_iter().eq(wanted), "{name}");
        }
    }
}
