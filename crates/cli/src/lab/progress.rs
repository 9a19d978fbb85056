//! The progress on a terminal while a run is under way.

use super::WhichRun;
use super::counters::Counters;
use super::done::Done;
use super::fill::PAGE;
use super::plan::Plan;
use crate::size;
use indicatif::{ProgressBar, ProgressStyle};

/// A line for one run.
pub fn bar(plan: &Plan, which: WhichRun) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {spinner} {elapsed} {msg}");
    let workload = plan.workload.name();
    let WhichRun {
        pattern,
        threads,
        on,
        number,
        total,
        ..
    } = which;
    let mut prefix = format!("[{number}/{total}] {workload}");
    if workload != pattern.name {
        prefix += &format!(" {}", pattern.name);
    }
    if plan.threads.len() > 1 {
        prefix += &format!(", {threads} threads,");
    }
    ProgressBar::new_spinner()
        .with_style(style.expect("a well-formed template"))
        .with_prefix(format!("{prefix} on {on}"))
}

/// Brings the line up to date; if they are `huge`, touches are of huge pages.
pub fn show(bar: &ProgressBar, counters: &Counters, workers: usize, huge: bool) {
    let done = Done::of(counters, workers);
    bar.tick();
    bar.set_message(match (counters.started(), done.rounds) {
        (None, _) => "preparing".into(),
        (_, 0) if huge => format!("{} touches", done.accesses),
        (_, 0) => format!(
            "{} pages ({})",
            done.accesses,
            size::show(done.accesses * PAGE)
        ),
        (_, rounds) => format!("{rounds} rounds"),
    });
}
