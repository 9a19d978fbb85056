//! A workload's part of the page: what it does, its charts, its table.

use super::about::about;
use super::bars::{Bar, Bars, Chart};
use super::engines::Engines;
use super::lines::{self, Line};
use super::scale::{bytes, short};
use super::{table, waits};
use crate::results::group::{Group, threads};
use crate::results::{PAGE, Row, figure};
use crate::size;
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
                && file_bytes(section.groups[0]) == file_bytes(group)
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

/// Length of one file: in rounds each thread has its own.
fn file_bytes(group: &Group) -> u64 {
    let rounds = group.runs.iter().any(|row| row.rounds.is_some());
    match rounds && group.key.threads > 0 {
        true => group.key.file_bytes / group.key.threads,
        false => group.key.file_bytes,
    }
}

impl<'a> Section<'a> {
    /// The section.
    pub fn draw(&self, engines: &Engines) -> Markup {
        let charts = [self.speed(), self.read(), self.cpu(), self.peak()];
        let waits = waits::cards(&self.groups, engines);
        let open = waits.len() <= 2;
        html! {
            section {
                h2 { (self.workload) }
                p.about {
                    @if let Some(about) = about(self.workload) { (about) " " }
                    span.setting { (self.setting()) }
                }
                div.cards {
                    @for lines in self.over_threads() { (lines::draw(&lines.0, &lines.1, &lines.2, engines)) }
                    @for chart in charts.iter().filter(|chart| !chart.is_empty()) { (chart.draw(engines)) }
                }
                @if !waits.is_empty() {
                    details open[open] {
                        summary { "How long locks were waited for" }
                        div.cards { @for card in &waits { (card) } }
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
        if first.key.file_bytes > 0 {
            let each = match file_bytes(first) == first.key.file_bytes {
                true => "",
                false => " for each thread",
            };
            parts.push(format!("file {}{each}", bytes(file_bytes(first) as f64)));
        }
        if first.key.memory_bytes > 0 {
            parts.push(format!("memory {}", bytes(first.key.memory_bytes as f64)));
        }
        parts.extend([counts, runs]);
        // Lines break between the parts, not between a figure and its unit.
        let parts: Vec<String> = parts
            .iter()
            .map(|part| part.replace(' ', "\u{a0}"))
            .collect();
        format!("{}.", capital(&parts.join(", ")))
    }

    /// A label for each pattern and number of threads, as far as they differ.
    fn labels(&self) -> Vec<(String, Vec<&'a Group<'a>>)> {
        let key = self.groups[0].key;
        let one_count = self
            .groups
            .iter()
            .all(|group| group.key.threads == key.threads);
        let one_pattern = self
            .groups
            .iter()
            .all(|group| group.key.pattern == key.pattern);
        let mut labels: Vec<(String, Vec<&Group>)> = Vec::new();
        for &group in &self.groups {
            let key = group.key;
            let label = match (one_count, one_pattern) {
                (true, _) => key.pattern.to_owned(),
                (false, true) => threads(key.threads),
                (false, false) => format!("{}, {}", key.pattern, threads(key.threads)),
            };
            match labels.iter_mut().find(|(other, _)| *other == label) {
                Some((_, groups)) => groups.push(group),
                None => labels.push((label, vec![group])),
            }
        }
        labels
    }

    fn chart(
        &self,
        title: &str,
        caption: &str,
        figure: fn(&Row) -> Option<f64>,
        text: fn(&Group, f64) -> String,
        tick: fn(f64) -> String,
    ) -> Chart<'a> {
        let bar = |group: &&'a Group<'a>| {
            let values = group.values(figure);
            let value = group.median(figure);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            Bar {
                on: group.on,
                value,
                spread: (values.len() > 1 && most > least).then_some((least, most)),
                text: match value {
                    Some(value) => text(group, value),
                    None if group.runs.is_empty() => "failed".into(),
                    None => "not known".into(),
                },
                gave_up: group.gave_up() > 0,
            }
        };
        let bars = |(label, groups): (String, Vec<&'a Group<'a>>)| Bars {
            label,
            bars: groups.iter().map(bar).collect(),
        };
        Chart {
            title: title.into(),
            caption: caption.into(),
            groups: self.labels().into_iter().map(bars).collect(),
            limit: None,
            tick,
            bytes: false,
        }
    }

    fn speed(&self) -> Chart<'a> {
        let unit = self.groups.iter().find(|group| !group.runs.is_empty());
        let caption = match unit.map(|group| group.unit()) {
            Some("rounds/s") => "rounds a second; more is better",
            _ => "pages touched a second; more is better",
        };
        let text = |group: &Group, value: f64| {
            let given_up = if group.gave_up() > 0 {
                ", given up"
            } else {
                ""
            };
            format!("{} /s{given_up}", figure::show(value))
        };
        self.chart("Speed", caption, Row::speed, text, short)
    }

    fn read(&self) -> Chart<'a> {
        let caption = "bytes read from the disk for each byte of the pages touched; less is better";
        let text = |_: &Group, value: f64| format!("{} ×", figure::show(value));
        // Of holes nothing is read.
        let mut chart = self.chart(
            "Read for a byte used",
            caption,
            Row::read_per_used,
            text,
            short,
        );
        let nothing = |bars: &Bars| bars.bars.iter().all(|bar| bar.value.unwrap_or(0.0) == 0.0);
        chart.groups.retain(|bars| !nothing(bars));
        chart
    }

    fn cpu(&self) -> Chart<'a> {
        let caption = "processor time for a page touched, in µs; less is better";
        let text = |_: &Group, value: f64| format!("{} µs", figure::show(value));
        self.chart(
            "CPU for a page",
            caption,
            Row::cpu_per_access_us,
            text,
            short,
        )
    }

    fn peak(&self) -> Chart<'a> {
        let caption = "the most memory at any time, page cache and page tables included";
        let text = |_: &Group, value: f64| size::show(value as u64);
        let figure = |row: &Row| row.peak_bytes.map(|bytes| bytes as f64);
        let mut chart = self.chart("Peak of memory", caption, figure, text, bytes);
        chart.bytes = true;
        let budget = self.groups[0].key.memory_bytes as f64;
        if budget >= PAGE {
            chart.limit = Some((budget, "the budget:".into()));
        }
        chart
    }

    /// A chart for each pattern that was measured with several numbers of threads: title, caption, lines.
    fn over_threads(&self) -> Vec<(String, String, Vec<Line<'a>>)> {
        let mut charts: Vec<(&str, Vec<Line>)> = Vec::new();
        for group in &self.groups {
            let Some(speed) = group.speed() else { continue };
            let at = match charts
                .iter()
                .position(|(pattern, _)| *pattern == group.key.pattern)
            {
                Some(at) => at,
                None => {
                    charts.push((group.key.pattern, Vec::new()));
                    charts.len() - 1
                }
            };
            let lines = &mut charts[at].1;
            let point = (group.key.threads, speed);
            match lines.iter_mut().find(|line| line.on == group.on) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    on: group.on,
                    points: vec![point],
                }),
            }
        }
        let unit = self
            .speed()
            .caption
            .split(';')
            .next()
            .unwrap_or("")
            .to_owned();
        let mut finished = Vec::new();
        for (pattern, mut lines) in charts {
            lines.retain(|line| line.points.len() > 1 && line.points[0].0 > 0);
            for line in &mut lines {
                line.points.sort_unstable_by_key(|(threads, _)| *threads);
            }
            if !lines.is_empty() {
                let title = match pattern == self.workload {
                    true => "Speed over threads".into(),
                    false => format!("Speed over threads: {pattern}"),
                };
                finished.push((title, unit.clone(), lines));
            }
        }
        finished
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
