//! A workload over numbers of threads: lines for each pattern, all patterns on one scale.

use super::lines::{Line, Lines};
use super::scale::Scale;
use super::section::Section;
use crate::results::group::Group;
use crate::results::row::Row;

impl<'a> Section<'a> {
    /// A chart for each pattern that was measured with several numbers of threads; of faults also one for
    /// each of their costs.
    pub fn over_threads(&self) -> Vec<Lines<'a>> {
        let (unit, speed) = self.unit();
        let speed = self.lines("Speed", &format!("{unit}; more is better"), speed);
        let caption = "faults for a second of processor time; more is better";
        let cost = self.lines("Faults for CPU time", caption, Row::faults_per_cpu);
        // Beside each other: speed and its cost, or two patterns of it.
        let wide = speed.len() + cost.len() == 1 || cost.is_empty();
        let charts = speed.into_iter().chain(cost);
        charts.map(|chart| Lines { wide, ..chart }).collect()
    }

    fn lines(&self, what: &str, caption: &str, figure: fn(&Row) -> Option<f64>) -> Vec<Lines<'a>> {
        let mut charts: Vec<(String, Vec<Line>)> = Vec::new();
        for group in &self.groups {
            let Some(value) = group.median(figure) else {
                continue;
            };
            let variant = group.key.variant();
            let at = charts.iter().position(|(other, _)| *other == variant);
            let at = at.unwrap_or_else(|| {
                charts.push((variant, Vec::new()));
                charts.len() - 1
            });
            add(&mut charts[at].1, group, value);
        }
        for (_, lines) in &mut charts {
            lines.retain(|line| line.points.len() > 1 && line.points[0].0 > 0);
            for line in lines {
                line.points.sort_unstable_by_key(|(threads, _)| *threads);
            }
        }
        charts.retain(|(_, lines)| !lines.is_empty());
        let lines = charts.iter().flat_map(|(_, lines)| lines);
        let points = lines.flat_map(|line| &line.points);
        let scale = Scale::of_lines(points.map(|(_, value)| *value));
        let chart = |(pattern, lines): (String, _)| Lines {
            title: match pattern == self.workload {
                true => format!("{what} over threads"),
                false => format!("{what} over threads: {pattern}"),
            },
            caption: caption.to_owned(),
            lines,
            scale,
            wide: true,
        };
        charts.into_iter().map(chart).collect()
    }
}

fn add<'a>(lines: &mut Vec<Line<'a>>, group: &Group<'a>, value: f64) {
    let point = (group.key.threads, value);
    match lines.iter_mut().find(|line| line.on == group.on) {
        Some(line) => line.points.push(point),
        None => lines.push(Line {
            on: group.on,
            points: vec![point],
        }),
    }
}
