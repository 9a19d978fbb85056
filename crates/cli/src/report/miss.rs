//! Document 003's question as a matrix: bytes read for each byte used, by order of access and by the rule for
//! a hit. The deeper the colour the more was read in vain, in factors.

use super::engines::Engines;
use crate::results::group::{Group, Key, threads};
use crate::results::names;
use crate::results::row::Row;
use crate::table::figure;
use maud::{Markup, html};

/// Whether the groups differ in how they count misses, in three ways or more.
pub fn is_told(groups: &[&Group]) -> bool {
    !names::variants(&columns(groups)).is_empty()
}

/// The matrix as a card; `None` if there is nothing to tell.
pub fn matrix(groups: &[&Group], engines: &Engines) -> Option<Markup> {
    let all = columns(groups);
    let variants = names::variants(&all);
    if variants.is_empty() {
        return None;
    }
    // The variants as document 003 calls them; the other measured engines come before them.
    let others = (0..all.len()).filter(|at| variants.iter().all(|(variant, _)| variant != at));
    let others = others.map(|at| (all[at], None));
    let variants = variants.iter().map(|&(at, name)| (all[at], Some(name)));
    let columns: Vec<(&str, Option<&str>)> = others.chain(variants).collect();
    let mut rows: Vec<Key> = Vec::new();
    for group in groups.iter().filter(|group| read(group).is_some()) {
        if !rows.contains(&group.key) {
            rows.push(group.key);
        }
    }
    let one_count = rows.iter().all(|key| key.threads == rows[0].threads);
    let label = |key: &Key| match one_count {
        true => key.variant(),
        false => format!("{}, {}", key.variant(), threads(key.threads)),
    };
    let of = |key: &Key, on: &str| {
        groups
            .iter()
            .find(|group| group.key == *key && group.on == on)
    };
    let all = || groups.iter().filter_map(|group| read(group));
    let (least, most) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
    );
    Some(html! {
        figure.card.wide {
            figcaption {
                strong { "Read for a byte used, by the rule for a hit" }
                span.caption {
                    "bytes read from the disk for each byte of the pages touched; less is better · \
                     colour in factors, log scale"
                }
            }
            div.scroll.inner tabindex="0" role="region" aria-label="Read for a byte used" {
                table.heat {
                    thead { tr {
                        th scope="col" {}
                        @for (on, name) in &columns {
                            th scope="col" {
                                (engines.mark(on)) strong { (name.unwrap_or(on)) }
                                @if name.is_some() { br; (on) }
                            }
                        }
                    } }
                    tbody { @for key in &rows { tr {
                        th scope="row" { (label(key)) }
                        @for (on, _) in &columns { (cell(of(key, on).copied(), least, most)) }
                    } } }
                }
            }
        }
    })
}

/// Those whose bytes read are known, in order of appearance.
fn columns<'a>(groups: &[&Group<'a>]) -> Vec<&'a str> {
    let mut columns = Vec::new();
    for group in groups.iter().filter(|group| read(group).is_some()) {
        if !columns.contains(&group.on) {
            columns.push(group.on);
        }
    }
    columns
}

fn read(group: &Group) -> Option<f64> {
    group.median(Row::read_per_used).filter(|read| *read > 0.0)
}

fn cell(group: Option<&Group>, least: f64, most: f64) -> Markup {
    let Some(read) = group.and_then(read) else {
        let why = match group.is_some_and(|group| group.runs.is_empty()) {
            true => "failed",
            false => "–",
        };
        return html! { td { (why) } };
    };
    let part = match most > least {
        true => (read / least).ln() / (most / least).ln(),
        false => 0.0,
    };
    let mark = group.map(Group::mark).unwrap_or_default();
    html! {
        td.tinted style=(format!("--t:{:.0}%", 4.0 + 46.0 * part)) { (figure::show(read)) " ×" (mark) }
    }
}
