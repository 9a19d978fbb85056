//! The most telling ratios: this project's engine against the kernel's mmap, the best and the worst.

use super::engines::Engines;
use crate::results::group::{Group, threads};
use crate::results::row::Row;
use crate::table::figure;
use maud::{Markup, html};

/// One ratio, with the two figures behind it.
struct Card<'a> {
    big: String,
    what: &'static str,
    at: String,
    /// Engine, figure, and its text.
    sides: [(&'a str, f64, String); 2],
}

/// The same work on two engines.
struct Duel<'a> {
    ours: &'a Group<'a>,
    theirs: &'a Group<'a>,
}

/// The cards; nothing where one engine was measured alone.
pub fn headline(groups: &[Group], engines: &Engines) -> Markup {
    let ours = ours(engines);
    let base = engines.names().next().expect("a page has rows");
    let kernels: Vec<&str> = engines.names().filter(|name| is_kernel(name)).collect();
    let against_base = match kernels.is_empty() {
        true => duels(groups, ours, base),
        false => duels_with_first(groups, ours, &kernels),
    };
    let against_base: Vec<Duel> = (against_base.into_iter())
        .filter(|duel| !duel.ours.key.is_of_holes())
        .collect();
    let base = kernels.first().copied().unwrap_or(base);
    let mut cards = Vec::new();
    cards.extend(ended(&against_base));
    cards.extend(fastest(&against_base));
    cards.extend(least_read(&against_base));
    let pread = beside_direct(
        &duels(groups, ours, "pread"),
        "of the speed of a direct read for each touch, without a cache",
    );
    let direct = "of the speed of direct reads and writes for each touch, without memory";
    cards.extend(pread.or_else(|| beside_direct(&duels(groups, ours, "direct"), direct)));
    cards.extend(beside_cache(&duels(groups, ours, "pread-cached")));
    cards.extend(slowest(&against_base));
    if cards.len() < 5 {
        cards.extend(calmest(groups, engines, ours));
    }
    if cards.len() < 5 {
        // Two policies: the first one is the baseline of the other.
        let mut policies = engines.names().filter(|name| name.starts_with("softfault"));
        let first = policies.next().unwrap_or(ours);
        if first != base {
            cards.extend(fastest(&duels(groups, ours, first)));
        }
    }
    html! {
        @if !cards.is_empty() {
            section class={ "headline of-" (cards.len()) } aria-label="The most telling ratios" {
                @for card in &cards { (draw(card, engines)) }
            }
        }
    }
}

/// The engine the page is about: softfault as it is, or its last policy, or the engine that was measured last.
fn ours(engines: &Engines) -> &str {
    let plain = engines.names().find(|name| *name == "softfault");
    let policy = engines
        .names()
        .filter(|name| name.starts_with("softfault"))
        .last();
    let last = engines.names().last();
    plain.or(policy).or(last).expect("a page has rows")
}

/// Whether it is the kernel's mmap without advice, at any setting of its device.
fn is_kernel(name: &str) -> bool {
    name == "kernel" || name.starts_with("kernel:")
}

/// The duels with that one of `theirs` which comes first of those that did the same work.
fn duels_with_first<'a>(groups: &'a [Group<'a>], ours: &str, theirs: &[&str]) -> Vec<Duel<'a>> {
    let mut all: Vec<Duel> = Vec::new();
    for theirs in theirs {
        for duel in duels(groups, ours, theirs) {
            if all.iter().all(|other| other.ours.key != duel.ours.key) {
                all.push(duel);
            }
        }
    }
    all
}

fn duels<'a>(groups: &'a [Group<'a>], ours: &str, theirs: &str) -> Vec<Duel<'a>> {
    let mine = groups
        .iter()
        .filter(|group| group.on == ours && ours != theirs);
    let duel = |ours: &'a Group<'a>| {
        let like = |group: &&Group| group.on == theirs && group.key == ours.key;
        let theirs = groups.iter().find(like)?;
        Some(Duel { ours, theirs })
    };
    mine.filter_map(duel).collect()
}

impl<'a> Duel<'a> {
    /// Our speed over theirs, where both have one.
    fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = (rate(self.ours)?, rate(self.theirs)?);
        let alike = self.ours.unit() == self.theirs.unit();
        (alike && ours > 0.0 && theirs > 0.0).then_some(ours / theirs)
    }

    /// Their bytes read for a byte used, over ours.
    fn read_ratio(&self) -> Option<f64> {
        let (ours, theirs) = (
            self.ours.median(Row::read_per_used)?,
            self.theirs.median(Row::read_per_used)?,
        );
        (ours > 0.0 && theirs > 0.0).then_some(theirs / ours)
    }

    fn card(
        &self,
        ratio: f64,
        what: &'static str,
        text: &dyn Fn(&Group) -> (f64, String),
    ) -> Card<'a> {
        let key = self.ours.key;
        let side = |group: &Group<'a>| {
            let (value, text) = text(group);
            (group.on, value, text)
        };
        Card {
            big: figure::times(ratio),
            what,
            at: format!("{}, {}", key.name(), threads(key.threads)),
            sides: [side(self.theirs), side(self.ours)],
        }
    }
}

/// The rate that a group is compared by: of rounds those of the median thread, where that is known. The rate of all of them is
/// high where few threads have had all turns.
fn rate(group: &Group) -> Option<f64> {
    let median =
        |row: &Row| Some(median_rounds(row)? / row.elapsed_s).filter(|rate| rate.is_finite());
    group.median(median).or(group.speed())
}

/// The rounds of the median thread, where they took the whole time: those of loops took the verb's part of it, and threads
/// meet for each.
fn median_rounds(row: &Row) -> Option<f64> {
    row.median_rounds.filter(|_| row.workload != "loops")
}

fn speed(group: &Group) -> (f64, String) {
    let (rate, unit, given_up) = (rate(group).unwrap_or(0.0), group.unit(), group.given_up());
    let least = group.count(|row| row.min_rounds);
    let turns = least.zip(group.median(median_rounds));
    let turns = turns.map_or(String::new(), |(least, median)| {
        let [least, median] = [least, median].map(figure::count);
        format!(" of the median thread, which had {median} of them; the least {least}")
    });
    let text = format!("{} {unit}{turns}{given_up}", figure::show(rate));
    (rate, text)
}

/// The runs that the other one could not end at all.
fn ended<'a>(duels: &[Duel<'a>]) -> Option<Card<'a>> {
    let none = |duel: &&Duel| {
        let nothing = duel.theirs.speed() == Some(0.0) && duel.theirs.gave_up() > 0;
        nothing && duel.ours.speed() > Some(0.0)
    };
    let duel = duels.iter().find(none)?;
    let key = duel.ours.key;
    let theirs = duel.theirs.median(|row| Some(row.elapsed_s)).unwrap_or(0.0);
    let (ours, text) = speed(duel.ours);
    Some(Card {
        big: format!("{} /s", figure::show(ours)),
        what: "where the other ended not one round",
        at: format!("{}, {}", key.name(), threads(key.threads)),
        sides: [
            (
                duel.theirs.on,
                0.0,
                format!("0 in {}, given up", figure::seconds(theirs)),
            ),
            (duel.ours.on, ours, text),
        ],
    })
}

fn fastest<'a>(duels: &[Duel<'a>]) -> Option<Card<'a>> {
    let (ratio, duel) = extreme(duels, |duel| duel.ratio(), 1.0)?;
    (ratio > 1.0).then(|| duel.card(ratio, "as fast", &speed))
}

fn least_read<'a>(duels: &[Duel<'a>]) -> Option<Card<'a>> {
    let (ratio, duel) = extreme(duels, |duel| duel.read_ratio(), 1.0)?;
    let read = |group: &Group| {
        let read = group.median(Row::read_per_used).unwrap_or(0.0);
        let given_up = group.given_up();
        (
            read,
            format!("{} × the bytes used{given_up}", figure::show(read)),
        )
    };
    (ratio > 1.0).then(|| duel.card(ratio, "less read from the disk", &read))
}

/// The rate of a program that keeps nothing in memory and reads the page of each touch, at the most threads.
fn beside_direct<'a>(duels: &[Duel<'a>], what: &'static str) -> Option<Card<'a>> {
    let is_random = |duel: &&Duel| {
        let key = duel.ours.key;
        key.workload == "random" || (key.workload, key.pattern) == ("anon", "uniform")
    };
    let random = duels.iter().filter(is_random);
    let duel = random.max_by_key(|duel| duel.ours.key.threads)?;
    let ratio = duel.ratio()?;
    let mut card = duel.card(ratio, what, &speed);
    card.big = format!("{} %", figure::show(100.0 * ratio));
    Some(card)
}

/// The rate of a program without a map, that keeps a cache of its own.
fn beside_cache<'a>(duels: &[Duel<'a>]) -> Option<Card<'a>> {
    let of_data = duels.iter().find(|duel| !duel.ours.key.is_of_holes())?;
    let what = "the speed of direct reads into a cache of the same size";
    Some(of_data.card(of_data.ratio()?, what, &speed))
}

/// How much shorter the longest wait of a thread of high priority is than on the first policy, or else on
/// the kernel.
fn calmest<'a>(groups: &'a [Group<'a>], engines: &Engines, ours: &str) -> Option<Card<'a>> {
    let wait = |group: &Group| group.longest_wait(|waits| waits.priority_touch_us);
    let waited = |on: &&str| {
        groups
            .iter()
            .any(|group| group.on == *on && wait(group).is_some())
    };
    let policies = engines
        .names()
        .filter(|name| name.starts_with("softfault:"));
    let theirs = policies.chain(["kernel"]).find(waited)?;
    let against = duels(groups, ours, theirs);
    let ratio = |duel: &Duel| Some(wait(duel.theirs)? / wait(duel.ours).filter(|us| *us > 0.0)?);
    let (ratio, duel) = extreme(&against, ratio, 1.0)?;
    let text = |group: &Group| {
        let us = wait(group).unwrap_or(0.0);
        (us, figure::seconds(us / 1e6))
    };
    let what = "shorter, the longest wait of the thread of high priority";
    (ratio > 1.0).then(|| duel.card(ratio, what, &text))
}

/// The row that speaks for us least.
fn slowest<'a>(duels: &[Duel<'a>]) -> Option<Card<'a>> {
    let (ratio, duel) = extreme(duels, |duel| duel.ratio(), -1.0)?;
    let only = duels.iter().filter(|duel| duel.ratio().is_some()).count() < 2;
    let what = match ratio < 1.0 {
        true => "the speed: the worst row",
        false => "as fast: the row with the least gain",
    };
    (!only).then(|| duel.card(ratio, what, &speed))
}

/// The duel with the most, or with `sign` -1 the least, of a ratio.
fn extreme<'d, 'a>(
    duels: &'d [Duel<'a>],
    ratio: impl Fn(&Duel) -> Option<f64>,
    sign: f64,
) -> Option<(f64, &'d Duel<'a>)> {
    let ratios = duels.iter().filter_map(|duel| Some((ratio(duel)?, duel)));
    ratios.max_by(|(a, _), (b, _)| (sign * a).total_cmp(&(sign * b)))
}

fn draw(card: &Card, engines: &Engines) -> Markup {
    // The ratio is the message: a linear scale in any case.
    let most = card.sides[0].1.max(card.sides[1].1).max(f64::MIN_POSITIVE);
    html! {
        div.big-card {
            p.big { (card.big) }
            p.what { (card.what) }
            p.at { (card.at) }
            dl {
                @for (on, value, text) in &card.sides {
                    div class=(engines.class(on)) {
                        dt { (engines.name(on)) }
                        dd { (text) }
                        span.track { @if *value > 0.0 {
                            i.fill style=(format!("width:{:.2}%", 100.0 * value / most)) {}
                        } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::group::group;

    #[test]
    fn loops_are_compared_by_the_time_of_the_verb() {
        let mut row = Row {
            workload: "loops".into(),
            elapsed_s: 10.0,
            rounds_per_s: Some(600.0),
            min_rounds: Some(90),
            median_rounds: Some(100.0),
            ..Row::default()
        };
        let shown = |row: &Row| speed(&group([row])[0]);
        let (loops, text) = shown(&row);
        assert_eq!((loops, text.contains("median")), (600.0, false), "{text}");
        row.workload = "thrash".into();
        let (thrash, text) = shown(&row);
        assert_eq!((thrash, text.contains("median")), (10.0, true), "{text}");
    }
}
