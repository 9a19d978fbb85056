//! A section's bar charts.

use super::bars::{Bar, Bars, Chart};
use super::miss;
use super::scale::{bytes, of_us, short};
use super::section::Section;
use crate::results::group::{Group, Rate, speed_of, threads};
use crate::results::row::{LONGEST_WAITS, LongestWait, PAGE, Row};
use crate::size;
use crate::table::figure;

impl<'a> Section<'a> {
    /// The main charts of the workload; some may be empty. Speed is left out where lines
    /// over threads tell it.
    pub fn charts(&self, speed_is_told: bool) -> Vec<Chart<'a>> {
        let of_faults = speed_of(&self.groups).0 == "faults/s";
        let mut charts = Vec::new();
        match (of_faults, speed_is_told) {
            (true, true) => {}
            (true, false) => charts.extend([self.speed(), self.faults_for_cpu()]),
            _ => charts.push(self.speed()),
        }
        charts.extend([self.in_memory(), self.maps(), self.miss_per_drop()]);
        if !(of_faults && speed_is_told) {
            charts.extend(self.longest_waits());
        }
        if !of_faults {
            if !miss::is_told(&self.groups) {
                charts.push(self.read());
            }
            charts.extend([self.cpu(), self.peak()]);
        }
        charts
    }

    /// The unit of its speeds, and the figure.
    pub fn unit(&self) -> (&'static str, Rate) {
        let (unit, speed) = speed_of(&self.groups);
        let words = match unit {
            "rounds/s" => "rounds a second",
            "faults/s" => "faults a second",
            "touches/s" => "touches of a huge page a second",
            _ => "pages touched a second",
        };
        (words, speed)
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
            .all(|group| group.key.variant() == key.variant());
        let mut labels: Vec<(String, Vec<&Group>)> = Vec::new();
        for &group in &self.groups {
            let key = group.key;
            let label = match (one_count, one_pattern) {
                (true, _) => key.variant(),
                (false, true) => threads(key.threads),
                (false, false) => format!("{}, {}", key.variant(), threads(key.threads)),
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
        let bars = |(label, groups): (String, Vec<&'a Group<'a>>)| Bars {
            label,
            bars: groups
                .iter()
                .map(|group| bar(group, figure, text))
                .collect(),
        };
        Chart {
            title: title.into(),
            caption: caption.into(),
            groups: self.labels().into_iter().map(bars).collect(),
            limit: None,
            beside: Vec::new(),
            tick,
            bytes: false,
        }
    }

    fn speed(&self) -> Chart<'a> {
        let (unit, speed) = self.unit();
        let caption = format!("{unit}; more is better");
        let text =
            |group: &Group, value: f64| format!("{} /s{}", figure::show(value), group.given_up());
        self.chart("Speed", &caption, speed, text, short)
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

    fn faults_for_cpu(&self) -> Chart<'a> {
        let caption = "faults for a second of processor time; more is better";
        let text = |_: &Group, value: f64| figure::show(value);
        self.chart(
            "Faults for CPU time",
            caption,
            Row::faults_per_cpu,
            text,
            short,
        )
    }

    fn maps(&self) -> Chart<'a> {
        let caption = "ranges mapped and unmapped a second; more is better";
        let text =
            |group: &Group, value: f64| format!("{} /s{}", figure::show(value), group.given_up());
        self.chart("Maps", caption, |row| row.maps_per_s, text, short)
    }

    /// The share that was found in memory, and the share that an exact LRU would have found.
    fn in_memory(&self) -> Chart<'a> {
        let caption = "percent of the accesses that needed no I/O; more is better. The table has the share that an \
                       exact LRU of the same memory would have found";
        let figure = |row: &Row| row.hit_rate.map(|rate| 100.0 * rate);
        let text = |group: &Group, value: f64| match group.median(|row| row.lru_hit_rate) {
            Some(lru) => format!("{value:.1} %, LRU {:.1} %", 100.0 * lru),
            None => format!("{value:.1} %"),
        };
        let mut chart = self.chart("Found in memory", caption, figure, text, short);
        let told = |bars: &Bars| bars.bars.iter().any(|bar| bar.value.is_some());
        chart.groups.retain(told);
        chart
    }

    /// Document 000's ratio.
    fn miss_per_drop(&self) -> Chart<'a> {
        let caption = "of the faults that let their lock go to wait for I/O, percent that found the folio \
                       gone when they came back; less is better";
        let text = |_: &Group, value: f64| format!("{} %", figure::show(value));
        let mut chart = self.chart("Waited in vain", caption, Row::miss_per_drop, text, short);
        // Engines that do not retry have no ratio.
        for bars in &mut chart.groups {
            bars.bars.retain(|bar| bar.value.is_some());
        }
        chart.groups.retain(|bars| !bars.bars.is_empty());
        let most = chart
            .groups
            .iter()
            .flat_map(|bars| &bars.bars)
            .filter_map(|bar| bar.value);
        if most.fold(0.0, f64::max) == 0.0 {
            chart.groups.clear();
        }
        chart
    }

    /// The longest waits of threads, a chart for each kind, all on one scale.
    fn longest_waits(&self) -> Vec<Chart<'a>> {
        let chart = |(kind, of): &(&str, LongestWait)| {
            let waits = |row: &Row| of(row.longest_waits.as_ref()?);
            let text = |group: &Group, us: f64| figure::seconds(us / 1e6) + group.given_up();
            let bars = |(label, groups): (String, Vec<&'a Group<'a>>)| {
                let bars = groups.iter().map(|group| bar(group, waits, text));
                let bars = bars.filter(|bar| bar.value.is_some()).collect();
                Bars { label, bars }
            };
            let groups = self.labels().into_iter().map(bars);
            Chart {
                title: format!("Longest wait: {}", kind.to_lowercase()),
                caption: "of any thread in a run; less is better".into(),
                groups: groups.filter(|group| !group.bars.is_empty()).collect(),
                limit: None,
                beside: Vec::new(),
                tick: of_us,
                bytes: false,
            }
        };
        let mut charts: Vec<Chart> = LONGEST_WAITS.iter().map(chart).collect();
        let bars = charts.iter().flat_map(|chart| &chart.groups);
        let bars = bars.flat_map(|group| &group.bars);
        let all = bars.flat_map(|bar| [bar.value, bar.spread.map(|(_, most)| most)]);
        let all: Vec<f64> = all.flatten().collect();
        for chart in &mut charts {
            chart.beside.clone_from(&all);
        }
        charts
    }
}

/// A group's bar: the median, with the least and the most of its runs.
fn bar<'a>(
    group: &'a Group<'a>,
    figure: impl Fn(&Row) -> Option<f64>,
    text: impl Fn(&Group, f64) -> String,
) -> Bar<'a> {
    let values = group.values(&figure);
    let value = group.median(&figure);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    Bar {
        on: group.on,
        value,
        spread: (values.len() > 1 && most > least).then_some((least, most)),
        text: match value {
            Some(value) => text(group, value),
            None => group.without().into(),
        },
        gave_up: group.gave_up() > 0,
    }
}
