//! A workload's part of the page: its text, its charts, its table.

use super::about::about;
use super::engines::Engines;
use super::scale::bytes;
use super::{miss, table, waits};
use crate::results::group::{Group, threads};
use maud::{Markup, html};

/// The groups of one workload over the same file and memory.
pub struct Section<'a> {
    /// The workload.
    pub workload: &'a str,
    /// Its groups.
    pub groups: Vec<&'a Group<'a>>,
}

/// The page's sections, in the order of their first rows.
pub fn sections<'a>(groups: &'a [Group<'a>]) -> Vec<Section<'a>> {
    let mut sections: Vec<Section> = Vec::new();
    for group in groups {
        let like = |section: &&mut Section| {
            let first = section.groups[0].key;
            section.workload == group.key.workload
                && first.memory_bytes == group.key.memory_bytes
                && bytes_of(section.groups[0]) == bytes_of(group)
        };
        match sections.iter_mut().find(like) {
            Some(section) => section.groups.push(group),
            None => sections.push(Section {
                workload: group.key.workload,
                groups: vec![group],
            }),
        }
    }
    for section in &mut sections {
        // Patterns stay in the order in which they were run; threads go up.
        let groups = section.groups.clone();
        section.groups.sort_by_key(|group| {
            let like = |other: &&Group| other.key.pattern == group.key.pattern;
            (groups.iter().position(like), group.key.threads)
        });
    }
    sections
}

impl<'a> Section<'a> {
    /// The section.
    pub fn draw(&self, engines: &Engines) -> Markup {
        let lines = self.over_threads();
        let charts = self.charts(!lines.is_empty());
        let (waits, quiet) = waits::cards(&self.groups, engines);
        let open = waits.len() <= 3 || self.workload == "warm-start";
        html! {
            section {
                h2 { (self.workload) }
                p.about {
                    @if let Some(about) = about(self.workload) { (about) " " }
                    span.setting { (self.setting()) }
                }
                div.cards {
                    @for lines in &lines { (lines.draw(engines)) }
                    @if let Some(matrix) = miss::matrix(&self.groups, engines) { (matrix) }
                    @for chart in charts.iter().filter(|chart| !chart.is_empty()) { (chart.draw(engines)) }
                }
                @if !(waits.is_empty() && quiet.is_empty()) {
                    details open[open] {
                        summary { "How long locks were waited for" }
                        div.cards { @for card in &waits { (card) } }
                        @if !quiet.is_empty() {
                            p.about.quiet { "Taken, and never waited for as long as a microsecond: " (quiet.join("; ")) "." }
                        }
                    }
                }
                details open {
                    summary { "All figures" }
                    (table::table(&self.groups, engines))
                }
            }
        }
    }

    /// File, memory, threads and repeats, in a sentence.
    fn setting(&self) -> String {
        let first = self.groups[0];
        let mut counts: Vec<u64> = self.groups.iter().map(|group| group.key.threads).collect();
        counts.sort_unstable();
        counts.dedup();
        let counts = match &counts[..] {
            [one] => threads(*one),
            [few @ .., last] => {
                let few: Vec<String> = few.iter().map(u64::to_string).collect();
                format!("{} and {last} threads", few.join(", "))
            }
            [] => String::new(),
        };
        let runs = |group: &&Group| group.runs.len() + group.failed;
        let (least, most) = (
            self.groups.iter().map(runs).min().unwrap_or(0),
            self.groups.iter().map(runs).max().unwrap_or(0),
        );
        let runs = match (least, most) {
            (1, 1) => "one run".into(),
            (least, most) if least == most => format!("medians of {most} runs"),
            (least, most) => format!("medians of {least} to {most} runs"),
        };
        let mut parts = Vec::new();
        let shown = |n: u64| bytes(n as f64);
        match (first.key.thread_bytes(), first.key.is_anonymous()) {
            _ if first.key.file_bytes == 0 => {}
            (Some(each), _) if first.key.workload == "loops" => {
                parts.push(format!("regions of {}", shown(each)));
            }
            (Some(each), true) => parts.push(format!("{} of memory for each thread", shown(each))),
            (Some(each), false) => parts.push(format!("file {} for each thread", shown(each))),
            (None, _) if first.key.swaps() => {
                parts.push(format!("{} of memory touched", shown(first.key.file_bytes)));
            }
            (None, _) => parts.push(format!("file {}", shown(first.key.file_bytes))),
        }
        if first.key.memory_bytes > 0 {
            parts.push(format!("memory {}", bytes(first.key.memory_bytes as f64)));
        }
        let swaps_in = |group: &&Group| group.runs.iter().find_map(|row| row.page_cluster);
        let cluster = self.groups.iter().find_map(swaps_in);
        parts.extend(cluster.map(|cluster| format!("vm.page-cluster {cluster}")));
        parts.extend([counts, runs]);
        // Lines break between the parts, not between a figure and its unit.
        let parts: Vec<String> = parts
            .iter()
            .map(|part| part.replace(' ', "\u{a0}"))
            .collect();
        format!("{}.", capital(&parts.join(", ")))
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// The lengths that tell sections apart: of the memory touched, for each thread if it is the thread's own.
fn bytes_of(group: &Group) -> u64 {
    group.key.thread_bytes().unwrap_or(group.key.file_bytes)
}
