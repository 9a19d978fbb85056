//! The page around the charts.

use super::About;
use super::engines::Engines;
use super::{commands, headline, machine, section};
use crate::results::group::{Group, group};
use crate::results::names;
use crate::results::row::Row;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Nothing is fetched, nothing runs: the page keeps to itself even if a name in the rows were hostile.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page.
pub fn page(rows: &[Row], about: &About) -> String {
    let groups = group(rows);
    let engines = Engines::of(rows.iter().map(|row| row.on.as_str()));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (about.title) " · softfault" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    p.project { "softfault lab" }
                    h1 { (about.title) }
                    p.lead {
                        "Page faults under a memory budget: the cost of the same work on each engine. " (rows.len()) " runs"
                        @if groups.iter().any(|group| group.runs.len() > 1) {
                            ", medians; the thin line on a bar spans the runs"
                        }
                        "."
                    }
                    (legend(&engines))
                }
                main {
                    (headline::headline(&groups, &engines))
                    @for section in section::sections(&groups) { (section.draw(&engines)) }
                    (notes(rows))
                    (how(about, &groups))
                }
                footer { "Written by softfault " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    page.into_string()
}

/// The engines, explained for a reader that does not know the lab.
fn legend(engines: &Engines) -> Markup {
    html! {
        ul.legend {
            @for on in engines.names() {
                li { (engines.mark(on)) span { strong { (on) } " " span.soft { (names::words(on)) } } }
            }
        }
    }
}

/// Problems of runs, each once, and failures.
fn notes(rows: &[Row]) -> Markup {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let notes = row.notes.iter().map(|note| format!("{}: {note}", row.on));
        let error = row.error.iter().map(|error| {
            format!(
                "{} {} on {} failed: {error}",
                row.workload, row.pattern, row.on
            )
        });
        for line in notes.chain(error) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    html! {
        @if !lines.is_empty() {
            section {
                h2 { "Notes of the runs" }
                ul.notes { @for line in &lines { li { (line) } } }
            }
        }
    }
}

/// The machine and the commands.
fn how(about: &About, groups: &[Group]) -> Markup {
    let commands = match about.command {
        Some(command) => vec![command.to_owned()],
        None => commands::commands(groups),
    };
    html! {
        section.how {
            div {
                h2 { "The machine" }
                @if about.command.is_none() {
                    p.about { "On which this page was written; the rows do not name their machines." }
                }
                dl.machine {
                    @for (name, value) in machine::machine(about.disk) { div { dt { (name) } dd { (value) } } }
                }
            }
            div {
                h2 { @if about.command.is_some() { "The command" } @else { "To measure it again" } }
                pre tabindex="0" { @for command in &commands { (broken_at_options(command)) } }
            }
        }
    }
}

/// A command that breaks between its options, and not within one.
fn broken_at_options(command: &str) -> Markup {
    let mut parts = command.split(" --");
    let program = parts.next().unwrap_or("");
    html! {
        code {
            span { (program) }
            @for option in parts { " " span { "--" (option) } }
        }
        "\n"
    }
}
