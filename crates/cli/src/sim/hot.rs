//! Where simulated time went: the places in the source that waited most for cache lines, and those that slept most.

use super::plan::Planned;
use super::pool::Ran;
use crate::table::{Table, figure};
use softfault_sim::Report;

/// The `count` hottest places of the first seed of each run.
pub fn tables(planned: &[Planned], ran: &[Ran], count: usize) -> String {
    let mut text = String::new();
    for (planned, (result, _)) in planned.iter().zip(ran) {
        let (Ok(outcome), 0) = (result, planned.number) else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let header = [
            "Place",
            "Misses",
            "Queued",
            "Queue (us)",
            "Transfer (us)",
            "Share",
        ];
        let mut table = Table::plain(&header, 1);
        let lines = &outcome.report.hot;
        let all: u64 = lines.iter().map(|line| line.ns()).sum();
        for line in lines.iter().take(count) {
            table.row([
                line.place.clone(),
                figure::whole(line.misses),
                figure::whole(line.queued),
                figure::whole(line.queue_ns / 1000),
                figure::whole(line.transfer_ns / 1000),
                format!("{:.1}%", 100.0 * line.ns() as f64 / all.max(1) as f64),
            ]);
        }
        let title = format!(
            "Waits for cache lines: {} on {} cores, {}",
            planned.job.workload, planned.job.cores, planned.policy
        );
        text += &table.titled(&title);
        text += &sleeps(planned, &outcome.report, count);
    }
    text
}

fn sleeps(planned: &Planned, report: &Report, count: usize) -> String {
    let header = ["Place", "Sleeps", "Total (ms)", "Average (us)", "Share"];
    let mut table = Table::plain(&header, 1);
    let all: u64 = report.sleeps.iter().map(|sleep| sleep.ns).sum();
    for sleep in report.sleeps.iter().take(count) {
        table.row([
            sleep.place.clone(),
            figure::whole(sleep.sleeps),
            figure::whole(sleep.ns / 1_000_000),
            figure::whole(sleep.ns / sleep.sleeps.max(1) / 1000),
            format!("{:.1}%", 100.0 * sleep.ns as f64 / all.max(1) as f64),
        ]);
    }
    table.titled(&format!(
        "Sleeps: {} on {} cores, {}",
        planned.job.workload, planned.job.cores, planned.policy
    ))
}
