//! Runs a workload's simulations and shows their results.

use super::arguments::RunArgs;
use super::plan::{self, Planned};
use super::pool::{self, Ran};
use super::row;
use super::{hot, hugetlb, rates, sensitivity, slots, trace, waits};
use crate::error::Error;
use crate::interrupt::{Interrupt, Output};
use crate::output::{self, Sink};
use crate::results;
use crate::results::row::Row;
use crate::table::figure;
use softfault_sim::{Trouble, Workload, preset};
use std::path::Path;

/// Runs the command.
pub fn run(workload: Workload, args: &RunArgs) -> Result<(), Error> {
    let planned = plan::plan(workload, args)?;
    let topology = args.topology.as_deref().and_then(preset::file_of);
    let sink = |path: &Path| output::sink(path, topology.as_slice());
    let json = args.json.as_deref().map(sink).transpose()?;
    let traced = args.trace.as_deref().map(sink).transpose()?;
    if let (Some(Sink::File(json)), Some(Sink::File(trace))) = (&json, &traced)
        && output::is_same(json, trace)
    {
        return Err(Error::input("--json and --trace are the same file"));
    }
    let to_stdout = |sink: &Option<Sink>| matches!(sink, Some(Sink::Stdout));
    let (json_taken, trace_taken) = (to_stdout(&json), to_stdout(&traced));
    if json_taken && trace_taken {
        return Err(Error::input("--json and --trace cannot both go to stdout"));
    }
    let interrupt = Interrupt::catch()?;
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let ran = pool::run_all(&planned, args.jobs.unwrap_or(here), &interrupt)?;
    refused(&ran)?;
    let rows: Vec<Row> = (planned.iter().zip(&ran))
        .map(|(planned, (result, took))| row::row(planned, result, *took))
        .collect();
    let text = text(&planned, &ran, &rows, args.hot);
    let rows_json = results::json(&rows);
    let json = json.as_ref().map(|sink| (sink, &rows_json[..]));
    let written = output::both(json, &text, json_taken || trace_taken);
    if let (Some(sink), Ok(outcome)) = (&traced, &ran[0].0) {
        trace::write(sink, outcome, &interrupt)?;
    }
    written?;
    failures(&rows)
}

/// A job that cannot be run is the caller's, and none of the others can.
fn refused(ran: &[Ran]) -> Result<(), Error> {
    for (result, _) in ran {
        if let Err(trouble @ Trouble::Job(_)) = result {
            return Err(Error::input(trouble));
        }
    }
    Ok(())
}

fn text(planned: &[Planned], ran: &[Ran], rows: &[Row], hot_lines: usize) -> String {
    let mut text = String::new();
    if rows.iter().any(|row| row.error.is_none()) {
        text += &match (rows.last(), &rows[0].workload[..]) {
            (Some(last), _) if row::simulated(last).changed_cost.is_some() => {
                sensitivity::table(rows)
            }
            (_, "hugetlb") => hugetlb::table(rows),
            _ => rates::table(rows) + &slots::table(rows) + &waits::tables(rows),
        };
        text += &hot::tables(planned, ran, hot_lines);
        text += &format!("\n{}\n", speed(rows));
    }
    text
}

/// How fast it was simulated; a simulation is one thread.
fn speed(rows: &[Row]) -> String {
    let ended = || {
        let ended = rows.iter().filter(|row| row.error.is_none());
        ended.map(row::simulated)
    };
    let operations: u64 = ended().map(|row| row.operations).sum();
    let wall: f64 = ended().map(|row| row.wall_s).sum();
    let cpu: f64 = ended().map(|row| row.host_cpu_s).sum();
    let virtual_s: f64 = ended().map(|row| row.virtual_s).sum();
    format!(
        "{} runs: {virtual_s:.3} virtual seconds, {} facade operations, {} a second of wall clock and run, {} a second of \
         processor time",
        ended().count(),
        figure::rate(operations as f64),
        figure::rate(operations as f64 / wall.max(1e-9)),
        figure::rate(operations as f64 / cpu.max(1e-9)),
    )
}

/// All that failed, in full; a deadlock's text has a line for each thread.
fn failures(rows: &[Row]) -> Result<(), Error> {
    let failed: Vec<&Row> = rows.iter().filter(|row| row.error.is_some()).collect();
    let _output = Output::begin()?;
    for row in &failed {
        let why = row.error.as_deref().unwrap_or_default();
        output::tell(&format!("\n{}:\n{}\n", row::describe(row), why.trim_end()));
    }
    match failed.len() {
        0 => Ok(()),
        some => Err(Error::failed(format_args!(
            "{some} of {} runs failed",
            rows.len()
        ))),
    }
}
