//! Bar charts: rows of name, bar and figure, that fold up where there is little room.

use super::engines::Engines;
use super::scale::Scale;
use maud::{Markup, html};

/// One bar.
pub struct Bar<'a> {
    /// The engine.
    pub on: &'a str,
    /// Its length; without it only the text is there.
    pub value: Option<f64>,
    /// The least and the most of the runs, if there were several.
    pub spread: Option<(f64, f64)>,
    /// The figure with its unit.
    pub text: String,
    /// Whether the run was given up: hatched.
    pub gave_up: bool,
}

/// Bars under a label.
pub struct Bars<'a> {
    /// Their common part.
    pub label: String,
    /// One for each engine.
    pub bars: Vec<Bar<'a>>,
}

/// A chart.
pub struct Chart<'a> {
    /// Its title.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The bars; under one label or under several.
    pub groups: Vec<Bars<'a>>,
    /// A figure to draw a line at, with its name.
    pub limit: Option<(f64, String)>,
    /// A tick's label.
    pub tick: fn(f64) -> String,
    /// Figures of charts that this one is to be compared with: its scale holds them too.
    pub beside: Vec<f64>,
    /// Whether figures are bytes beside a limit: linear, in powers of two.
    pub bytes: bool,
}

impl Chart<'_> {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        let mut bars = self.groups.iter().flat_map(|group| &group.bars);
        bars.all(|bar| bar.value.is_none())
    }

    /// The chart as a card.
    pub fn draw(&self, engines: &Engines) -> Markup {
        let scale = self.scale();
        // A row for each label, if each label has one bar of the same engine.
        let first = self.groups[0].bars[0].on;
        let single = self.groups.len() > 1
            && (self.groups.iter()).all(|group| group.bars.len() == 1 && group.bars[0].on == first);
        html! {
            figure.card {
                figcaption {
                    strong { (self.title) }
                    span.caption {
                        (self.caption)
                        @if scale.log { " · log scale" }
                    }
                }
                div.bars {
                    @for group in &self.groups {
                        @if !single && self.groups.len() > 1 { div.label { (group.label) } }
                        @for bar in &group.bars {
                            (self.bar(bar, &scale, engines, single.then_some(&group.label)))
                        }
                    }
                    div.axis aria-hidden="true" {
                        @for tick in scale.ticks() {
                            @let percent = scale.at(tick);
                            span.start[percent < 6.0].end[percent > 94.0] style=(at(percent)) {
                                ((self.tick)(tick))
                            }
                        }
                    }
                    @if let Some((value, name)) = &self.limit {
                        div.limit-name { span.limit-key {} (name) " " ((self.tick)(*value)) }
                    }
                }
            }
        }
    }

    fn scale(&self) -> Scale {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let values = bars().filter_map(|bar| bar.value);
        let most = bars().filter_map(|bar| bar.spread.map(|(_, most)| most));
        let limit = self.limit.iter().map(|(value, _)| *value);
        let beside = self.beside.iter().copied();
        let all = values.chain(most).chain(limit).chain(beside);
        match self.bytes {
            true => Scale::of_bytes(all),
            false => Scale::over(all),
        }
    }

    fn bar(&self, bar: &Bar, scale: &Scale, engines: &Engines, label: Option<&String>) -> Markup {
        html! {
            div class={ "bar " (engines.class(bar.on)) } {
                span.name {
                    @match label {
                        Some(label) => (label),
                        None => (engines.name(bar.on)),
                    }
                }
                span.value { (bar.text) }
                span.track {
                    @for tick in scale.ticks() { i.grid style=(at(scale.at(tick))) {} }
                    @if let Some(value) = bar.value.filter(|value| *value > 0.0) {
                        i.fill.gave-up[bar.gave_up] style=(format!("width:{:.2}%", scale.at(value))) {}
                    }
                    @if let Some((low, high)) = bar.spread {
                        i.spread style=(between(scale.at(low), scale.at(high))) {}
                    }
                    @if let Some((limit, _)) = self.limit { i.limit style=(at(scale.at(limit))) {} }
                }
            }
        }
    }
}

fn at(percent: f64) -> String {
    format!("left:{percent:.2}%")
}

fn between(low: f64, high: f64) -> String {
    format!("left:{low:.2}%;width:{:.2}%", high - low)
}
