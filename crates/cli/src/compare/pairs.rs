//! Which rows of the two sides belong together.

use crate::results::Row;
use crate::results::group::{Group, group};

/// A group of one side and its like of the other.
pub struct Pair<'a> {
    /// The left one.
    pub before: Group<'a>,
    /// The right one.
    pub after: Group<'a>,
}

/// Two sides, matched. All fields immutable.
pub struct Sides<'a> {
    /// What the sides are called.
    pub names: [String; 2],
    /// What both have.
    pub pairs: Vec<Pair<'a>>,
    /// Whether the sides are two engines: a pair then has no engine of its own.
    pub engines: bool,
    only_before: Vec<Group<'a>>,
    only_after: Vec<Group<'a>>,
}

impl<'a> Sides<'a> {
    /// Matches the rows; `on` names no engine, the one to look at, or the two to compare.
    pub fn new(before: &'a [Row], after: &'a [Row], on: &[&str], names: [String; 2]) -> Self {
        let engines = on.len() == 2;
        let of = |rows: &'a [Row], engine: Option<&&str>| {
            group(
                rows.iter()
                    .filter(|row| engine.is_none_or(|on| row.on == **on)),
            )
        };
        let mut only_after = of(after, on.last());
        let (mut pairs, mut only_before) = (Vec::new(), Vec::new());
        for before in of(before, on.first()) {
            let like =
                |after: &Group| after.key == before.key && (engines || after.on == before.on);
            match only_after.iter().position(like) {
                Some(at) => {
                    let after = only_after.remove(at);
                    pairs.push(Pair { before, after });
                }
                None => only_before.push(before),
            }
        }
        Self {
            names,
            pairs,
            engines,
            only_before,
            only_after,
        }
    }

    /// A row of each side that the other has not.
    pub fn first_of_each(&self) -> Vec<String> {
        let lines = self.lonely();
        let first = |side: &str| lines.iter().find(|line| line.ends_with(side)).cloned();
        [first("before"), first("after")]
            .into_iter()
            .flatten()
            .collect()
    }

    /// A line for each row that one side lacks, and each that has only failures.
    pub fn lonely(&self) -> Vec<String> {
        let line =
            |group: &Group, why: &str| format!("{} on {}: {why}", group.key.describe(), group.on);
        let before = self.only_before.iter().map(|g| line(g, "only before"));
        let after = self.only_after.iter().map(|g| line(g, "only after"));
        let sides = self.pairs.iter().flat_map(|pair| {
            let Pair { before, after } = pair;
            [(before, "before"), (after, "after")]
        });
        let failed = sides
            .filter(|(group, _)| group.failed > 0)
            .map(|(group, side)| {
                let all = group.failed + group.runs.len();
                line(
                    group,
                    &format!("{} of {all} runs failed {side}", group.failed),
                )
            });
        before.chain(after).chain(failed).collect()
    }

    /// What a pair is called in a table's first column.
    pub fn name(&self, pair: &Pair) -> String {
        let name = pair.before.key.name();
        let name = match self.engines {
            true => name,
            false => format!("{name} {}", pair.before.on),
        };
        // Tables leave out lengths unless names would be the same without them.
        let like = |other: &&Pair| {
            let (a, b) = (&pair.before, &other.before);
            (a.key.workload, a.key.pattern, a.key.threads, a.on)
                == (b.key.workload, b.key.pattern, b.key.threads, b.on)
        };
        match self.pairs.iter().filter(like).count() {
            1 => name,
            _ => {
                let show = crate::size::show;
                let key = &pair.before.key;
                format!("{name} {}/{}", show(key.file_bytes), show(key.memory_bytes))
            }
        }
    }
}
