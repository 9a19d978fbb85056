//! The rows that belong together: the cases that are compared, and the work that was done on all of them.

use crate::results::group::{Group, group, threads};
use crate::results::names;
use crate::results::row::Row;
use crate::size;

/// The same work on each of the cases.
pub struct Line<'a> {
    /// The name of the work, with the engine if all cases are the same one.
    pub name: String,
    /// The engine, if all cases are the same one.
    pub on: Option<&'a str>,
    /// The runs of each case, in the cases' order; `None` where a case did not do it.
    pub groups: Vec<Option<Group<'a>>>,
}

/// The cases to compare: the first case is the baseline of the others. All fields immutable.
pub struct Cases<'a> {
    /// The names of the cases; two or more.
    pub names: Vec<String>,
    /// The work that was done.
    pub lines: Vec<Line<'a>>,
    /// The rows that were not compared, and the reasons.
    pub lonely: Vec<String>,
}

impl<'a> Cases<'a> {
    /// Two sides. `engines` names those to compare; without it each engine of `before` is compared with
    /// itself of `after`, of those that `only` names if it names any.
    pub fn two(
        before: &'a [Row],
        after: &'a [Row],
        engines: Option<[&str; 2]>,
        only: &[&str],
        names: [String; 2],
    ) -> Self {
        let of = |rows: &'a [Row], side: usize| {
            group(rows.iter().filter(|row| match engines {
                Some(engines) => names::same(&row.on, engines[side]),
                None => only.is_empty() || only.iter().any(|only| names::same(&row.on, only)),
            }))
        };
        let mut rest = of(after, 1);
        let (mut lines, mut lonely) = (Vec::new(), Vec::new());
        for before in of(before, 0) {
            let like = |after: &Group| {
                after.key == before.key && (engines.is_some() || names::same(after.on, before.on))
            };
            match rest.iter().position(like) {
                Some(at) => {
                    let on = engines.is_none().then_some(before.on);
                    let after = rest.remove(at);
                    lines.push(Line::new(on, vec![Some(before), Some(after)]));
                }
                None => lonely.push(describe(&before, "only before")),
            }
        }
        lonely.extend(rest.iter().map(|after| describe(after, "only after")));
        Self::new(names.into(), lines, lonely)
    }

    /// All `engines` of one file, two or more.
    pub fn all(rows: &'a [Row], engines: &[&str]) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        for group in group(rows) {
            let case = |engine: &&str| names::same(engine, group.on);
            let Some(at) = engines.iter().position(case) else {
                continue;
            };
            let like =
                |line: &&mut Line| line.first().key == group.key && line.groups[at].is_none();
            match lines.iter_mut().find(like) {
                Some(line) => line.groups[at] = Some(group),
                None => {
                    let mut groups = vec![None; engines.len()];
                    groups[at] = Some(group);
                    lines.push(Line::new(None, groups));
                }
            }
        }
        let names = engines.iter().map(|engine| engine.to_string()).collect();
        Self::new(names, lines, Vec::new())
    }

    fn new(names: Vec<String>, mut lines: Vec<Line<'a>>, lonely: Vec<String>) -> Self {
        // Tables leave out lengths unless names would be the same without them.
        let same = |a: &Line, b: &Line| {
            (&a.name, a.first().key.threads) == (&b.name, b.first().key.threads)
        };
        let twice: Vec<bool> = (lines.iter())
            .map(|line| lines.iter().filter(|other| same(line, other)).count() > 1)
            .collect();
        for (line, _) in lines.iter_mut().zip(twice).filter(|(_, twice)| *twice) {
            let key = line.first().key;
            let lengths = [key.file_bytes, key.memory_bytes].map(size::show);
            line.name += &format!(" {}/{}", lengths[0], lengths[1]);
        }
        let mut cases = Self {
            names,
            lines,
            lonely,
        };
        let more = [cases.failed(), cases.skipped()].concat();
        cases.lonely.extend(more);
        cases
    }

    /// A line of text for each group that the machine did not allow.
    fn skipped(&self) -> Vec<String> {
        let groups = self
            .lines
            .iter()
            .flat_map(|line| line.groups.iter().flatten());
        let text = |group: &Group| Some(describe(group, &format!("not run: {}", group.skipped?)));
        groups.filter_map(text).collect()
    }

    /// A line of text for each group that has failures.
    fn failed(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for line in &self.lines {
            for (at, group) in line.groups.iter().enumerate() {
                let Some(group) = group.as_ref().filter(|group| group.failed > 0) else {
                    continue;
                };
                let all = group.failed + group.runs.len();
                let side = match self.is_two() {
                    true => [" before", " after"][at],
                    false => "",
                };
                texts.push(describe(
                    group,
                    &format!("{} of {all} runs failed{side}", group.failed),
                ));
            }
        }
        texts
    }

    /// A row of each side that the other has not.
    pub fn first_of_each(&self) -> Vec<&str> {
        let first = |side: &str| self.lonely.iter().find(|line| line.ends_with(side));
        let both = [first("before"), first("after")];
        both.into_iter().flatten().map(String::as_str).collect()
    }

    /// The names and the runs of those cases alone of `line` whose runs are as asked for; a before and an
    /// after stay together.
    pub fn narrowed(
        &self,
        line: &Line<'a>,
        has: impl Fn(&Group) -> bool,
    ) -> (Vec<String>, Line<'a>) {
        let keep = |group: &Option<Group>| self.is_two() || group.as_ref().is_some_and(&has);
        let kept = self
            .names
            .iter()
            .zip(&line.groups)
            .filter(|(_, group)| keep(group));
        let (names, groups) = kept
            .map(|(name, group)| (name.clone(), group.clone()))
            .unzip();
        let line = Line {
            name: line.name.clone(),
            on: line.on,
            groups,
        };
        (names, line)
    }

    /// Whether there is a before and an after, and not one more.
    pub fn is_two(&self) -> bool {
        self.names.len() == 2
    }
}

impl<'a> Line<'a> {
    fn new(on: Option<&'a str>, groups: Vec<Option<Group<'a>>>) -> Self {
        let name = match (groups.iter().flatten().next(), on) {
            (Some(group), Some(on)) => format!("{} {on}", group.key.name()),
            (Some(group), None) => group.key.name(),
            (None, _) => unreachable!("a line is made of a group"),
        };
        Self { name, on, groups }
    }

    /// The first case's runs, or those of the first case that has some.
    pub fn first(&self) -> &Group<'a> {
        let mut groups = self.groups.iter().flatten();
        groups.next().expect("a line is made of a group")
    }

    /// Its name and its threads.
    pub fn title(&self) -> String {
        format!("{}, {}", self.name, threads(self.first().key.threads))
    }

    /// A figure of each case.
    pub fn figures(&self, figure: impl Fn(&Group) -> Option<f64>) -> Vec<Option<f64>> {
        let of = |group: &Option<Group>| figure(group.as_ref()?);
        self.groups.iter().map(of).collect()
    }
}

fn describe(group: &Group, why: &str) -> String {
    format!("{} on {}: {why}", group.key.describe(), group.on)
}
