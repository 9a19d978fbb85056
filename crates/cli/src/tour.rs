//! `softfault tour`: small versions of the lab's workloads, kernel and softfault side by side, over a file
//! four times larger than the budget. Ends with a table, and a page of charts.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::lab::plan::{Files, Plan, RunArgs, Workload};
use crate::lab::row::Row;
use crate::lab::{Lab, command, files, table};
use crate::report::{self, About};
use crate::results;
use crate::size;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `tour`.
#[derive(Args, Debug)]
pub struct TourArgs {
    /// Where to make the file; it has no name and vanishes with the command
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The budget; the file is four times as large
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    memory: u64,
    /// Length of a timed run; what has not ended after three times as long is given up
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// The page to write at the end
    #[arg(long, value_name = "PATH", default_value = "softfault-tour.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
}

/// One stop: what is run, and what to look at.
struct Stop {
    workload: Workload,
    say: &'static str,
    on: &'static str,
    patterns: &'static [&'static str],
    threads: usize,
}

/// The file is read once more by `pread` where the question is how near the device's own speed we come.
const STOPS: &[Stop] = &[
    Stop {
        workload: Workload::Sparse,
        say: "1 % of the file's pages is touched: read-ahead guesses wrong, and every guess is read",
        on: "kernel,softfault",
        patterns: &["random", "stride1021", "sequential"],
        threads: 1,
    },
    Stop {
        workload: Workload::Random,
        say: "32 threads touch random pages: pread is what the device can give",
        on: "kernel,pread,softfault",
        patterns: &[],
        threads: 32,
    },
    Stop {
        workload: Workload::Scan,
        say: "the whole file in order: what the kernel does well",
        on: "kernel,softfault",
        patterns: &["cold"],
        threads: 1,
    },
    Stop {
        workload: Workload::Anon,
        say: "8 threads read and write anonymous memory as large as the file: what does not fit is swapped",
        on: "kernel,softfault",
        patterns: &["zipf"],
        threads: 8,
    },
    Stop {
        workload: Workload::Thrash,
        say: "100 threads each map, touch and unmap a file of their own, of holes: only faults, no reading",
        on: "kernel,softfault",
        patterns: &[],
        threads: 100,
    },
];

/// Takes the tour.
pub fn run(args: &TourArgs) -> Result<(), Error> {
    if !args.no_report {
        report::can_write(&args.report)?;
    }
    let file_bytes = args.memory.saturating_mul(4);
    let plans = STOPS
        .iter()
        .map(|stop| plan(stop, args, file_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let interrupt = Interrupt::catch()?;
    let lab = Lab::new(&interrupt);
    for plan in &plans {
        lab.probe(plan)?;
    }
    eprintln!(
        "A file of {} and {} of memory for it, on the kernel's mmap (in a memory cgroup) and on softfault.",
        size::show(file_bytes),
        size::show(args.memory)
    );
    let made = files::make_data(&args.dir, &[file_bytes], 1, &interrupt)?;
    let mut rows = Vec::new();
    for (stop, plan) in STOPS.iter().zip(&plans) {
        eprintln!("{}: {}.", plan.workload.name(), stop.say);
        rows.extend(lab.run_over(plan, &made)?);
    }
    drop(made);
    let mut text = format!(
        "{}\nratio: times the speed of the first of its kind; read: from the disk; given up: not done\n\
         after {} s (anon later, since it is populated first) and killed, its figures those of what it had done.\n",
        table::table(&rows),
        args.seconds * 3.0
    );
    for note in table::notes(&rows) {
        text += &format!("note: {note}\n");
    }
    if !args.no_report {
        write_page(args, &rows)?;
        text += &format!("page: {}\n", args.report.display());
    }
    command::print(&text)?;
    command::first_failure(&rows)
}

/// The page over the rows, read as it would read a result file.
fn write_page(args: &TourArgs, rows: &[Row]) -> Result<(), Error> {
    let rows = results::parse(&command::json(rows)).map_err(Error::failed)?;
    let command = format!(
        "softfault tour --memory {} --seconds {}",
        size::argument(args.memory),
        args.seconds
    );
    let about = About {
        title: "A tour of softfault",
        command: Some(&command),
        disk: &args.dir,
    };
    report::write(&rows, &about, &args.report)
}

fn plan(stop: &Stop, args: &TourArgs, file_bytes: u64) -> Result<Plan, Error> {
    let holes = stop.workload == Workload::Thrash;
    let on = stop.on.split(',');
    Plan::new(&RunArgs {
        workload: stop.workload,
        on: on.map(|on| on.parse().expect("an engine")).collect(),
        file: None,
        file_size: (!holes).then_some(file_bytes),
        dir: args.dir.clone(),
        memory: args.memory,
        threads: vec![stop.threads],
        seconds: Some(args.seconds),
        touch: None,
        pattern: stop.patterns.iter().map(|name| name.to_string()).collect(),
        read_ahead_kb: Vec::new(),
        shared: false,
        theta: None,
        writes: None,
        files: if holes {
            vec![Files::Holes]
        } else {
            Vec::new()
        },
        repeat: 1,
        seed: 1,
        // What is populated first takes its time on any engine.
        give_up: (!stop.workload.swaps()).then_some(args.seconds * 3.0),
        json: None,
        keep_system_caches: false,
    })
}
