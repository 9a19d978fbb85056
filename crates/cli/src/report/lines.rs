//! A line chart: speed over threads. The lines are SVG that stretches, the words are text that does not.

use super::engines::Engines;
use super::scale::{Scale, short};
use maud::{Markup, html};

/// Points of one engine, by threads.
pub struct Line<'a> {
    /// The engine.
    pub on: &'a str,
    /// Threads and speed, in order of threads.
    pub points: Vec<(u64, f64)>,
}

/// Height of the plot in pixels, as in `style.css`: labels keep apart in these.
const HEIGHT: f64 = 220.0;
/// Pixels between two labels' middles.
const APART: f64 = 17.0;

/// A chart. All fields immutable.
pub struct Lines<'a> {
    /// Its title.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// One for each engine.
    pub lines: Vec<Line<'a>>,
    /// Holds all points; those of other charts too, where they are to be compared.
    pub scale: Scale,
    /// Whether it has the page's whole width.
    pub wide: bool,
}

/// Letters of a name that find room at the end of its line.
const ROOM: usize = 15;

impl Lines<'_> {
    /// The chart as a card.
    pub fn draw(&self, engines: &Engines) -> Markup {
        let Self { lines, scale, .. } = self;
        let points = lines.iter().flat_map(|line| &line.points);
        let mut threads: Vec<u64> = points.map(|(threads, _)| *threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let ends = (threads[0] as f64, threads[threads.len() - 1] as f64);
        // A step to the right is a factor too: threads are measured as 1, 2, 4, 8.
        let x = |threads: u64| 100.0 * (threads as f64 / ends.0).ln() / (ends.1 / ends.0).ln();
        let y = |speed: f64| 100.0 - scale.at(speed);
        // Long names, and those of narrow charts, stand below.
        let keyed = !self.wide || lines.iter().any(|line| line.on.chars().count() > ROOM);
        let last = |line: &Line| y(line.points[line.points.len() - 1].1);
        let named = apart(lines.iter().map(last));
        html! {
            figure.card.wide[self.wide] {
                figcaption {
                    strong { (self.title) }
                    span.caption {
                        (self.caption)
                        @if scale.log { " · log scale" }
                    }
                }
                div.plot.keyed[keyed] {
                    div.field {
                        svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true" {
                            @for tick in scale.ticks() {
                                line.rule x1="0" x2="100" y1=(y(tick)) y2=(y(tick)) {}
                            }
                            @for line in lines {
                                polyline class=(engines.class(line.on)) points=(path(line, &x, &y)) {}
                            }
                        }
                        @for tick in scale.ticks() {
                            span.tick-y style=(format!("top:{:.2}%", y(tick))) { (short(tick)) }
                        }
                        @for &threads in &labelled(&threads, &x) {
                            span.tick-x style=(format!("left:{:.2}%", x(threads))) { (threads) }
                        }
                        @for (line, name_at) in lines.iter().zip(named) {
                            @for &(threads, speed) in &line.points {
                                span.point style=(format!("left:{:.2}%;top:{:.2}%", x(threads), y(speed))) {
                                    (engines.mark(line.on))
                                }
                            }
                            @if !keyed {
                                span.line-name style=(format!("top:{name_at:.2}%")) {
                                    (engines.mark(line.on)) (line.on)
                                }
                            }
                        }
                    }
                    div.axis-name { "threads" }
                }
                @if keyed {
                    ul.key { @for line in lines { li { (engines.name(line.on)) } } }
                }
            }
        }
    }
}

fn path(line: &Line, x: &impl Fn(u64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let point = |&(threads, speed): &(u64, f64)| format!("{:.2},{:.2}", x(threads), y(speed));
    line.points.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// The thread counts that have room for a label; the last one always.
fn labelled(threads: &[u64], x: &impl Fn(u64) -> f64) -> Vec<u64> {
    let mut labelled: Vec<u64> = Vec::new();
    for &n in threads.iter().rev() {
        if labelled.last().is_none_or(|&right| x(right) - x(n) >= 12.0) {
            labelled.push(n);
        }
    }
    labelled
}

/// Where to put names (percent of the height), each at its line's end or as near to it as there is room.
fn apart(ends: impl Iterator<Item = f64>) -> Vec<f64> {
    let gap = 100.0 * APART / HEIGHT;
    let ends: Vec<f64> = ends.collect();
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| ends[a].total_cmp(&ends[b]));
    let mut placed = ends.clone();
    let mut least = f64::NEG_INFINITY;
    for &at in &order {
        placed[at] = placed[at].max(least);
        least = placed[at] + gap;
    }
    let mut most = 100.0;
    for &at in order.iter().rev() {
        placed[at] = placed[at].min(most);
        most = placed[at] - gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_inside() {
        let placed = apart([50.0, 50.0, 99.0, 100.0, 51.0].into_iter());
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        let gap = 100.0 * APART / HEIGHT;
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] > gap - 1e-9));
        assert!(sorted[0] >= 0.0 && sorted[4] <= 100.0);
        assert!(placed[2] < placed[3] && placed[0] < placed[4]);
    }
}
