//! `softfault tour`: small versions of the lab's workloads, kernel and softfault side by side, over a file
//! four times larger than the budget. Ends with a table, and a page of charts.
//!
//! The speed of the kernel's mmap over a file is decided by how far its device reads ahead, so it is shown at two
//! such settings, and with MADV_RANDOM, which switches read-ahead off.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::lab::plan::{Files, Plan, RunArgs, SECONDS_MAX, Workload};
use crate::lab::read_ahead::Device;
use crate::lab::{Lab, command, files, table};
use crate::output;
use crate::report::{self, About};
use crate::results::row::Row;
use crate::size;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `tour`.
#[derive(Args, Debug)]
pub struct TourArgs {
    /// The directory for the file, and for swap; it needs room for five times --memory, 1.25 GiB by default. The files have no name, and
    /// are gone when the command ends
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The budget; the file is four times as large
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    memory: u64,
    /// Duration of a timed run, in seconds; a run that takes three times as long is given up
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Number of runs of each row; figures are medians
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// The HTML page to write at the end
    #[arg(long, value_name = "PATH", default_value = "softfault-tour.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
}

/// The read-ahead of the kernel's rows, in KiB: Linux's default, and that of some clouds' disks.
const READ_AHEADS: [u32; 2] = [128, 8192];

/// One stop: the run, and the figure to look at.
struct Stop {
    workload: Workload,
    say: &'static str,
    on: &'static str,
    patterns: &'static [&'static str],
    threads: usize,
}

/// `pread` reads the file too where a program without a cache tells something.
const STOPS: &[Stop] = &[
    Stop {
        workload: Workload::Sparse,
        say: "1 % of the file's pages is touched: read-ahead guesses wrong, and every guess is read",
        on: "kernel,kernel-random,softfault",
        patterns: &["random", "stride1021", "sequential"],
        threads: 1,
    },
    Stop {
        workload: Workload::Random,
        say: "32 threads touch random pages: pread has no cache, and reads the page of each touch",
        on: "kernel,kernel-random,pread,softfault",
        patterns: &[],
        threads: 32,
    },
    Stop {
        workload: Workload::Scan,
        say: "the whole file in order: the kernel does this well, unless it has MADV_RANDOM",
        on: "kernel,kernel-random,kernel-sequential,softfault",
        patterns: &["cold"],
        threads: 1,
    },
    Stop {
        workload: Workload::Scan,
        say: "the same once more, over the mapping that has just been read",
        on: "kernel,kernel-sequential,softfault",
        patterns: &["warm"],
        threads: 1,
    },
    Stop {
        workload: Workload::Anon,
        say: "8 threads read and write anonymous memory as large as the file: pages that do not fit are swapped",
        on: "kernel,softfault",
        patterns: &["zipf"],
        threads: 8,
    },
    Stop {
        workload: Workload::Thrash,
        say: "100 threads each map, touch and unmap a file of their own, together four times the memory: pread-cached is \
              a program that reads into a cache of that size",
        on: "kernel,kernel-random,pread-cached,softfault",
        patterns: &["data"],
        threads: 100,
    },
    Stop {
        workload: Workload::Thrash,
        say: "the same over holes, which is no race: a hole costs softfault no memory, so it pages nothing",
        on: "kernel,softfault",
        patterns: &["holes"],
        threads: 100,
    },
];

/// Takes the tour.
pub fn run(args: &TourArgs) -> Result<(), Error> {
    if !args.no_report {
        output::can_write_page(&args.report, &[])?;
    }
    let file_bytes = args.memory.saturating_mul(4);
    has_room(&args.dir, Workload::Anon.swap_bytes(file_bytes))?;
    let device = Device::of(&args.dir);
    let settable = match &device {
        Some(device) => device.may_set(),
        None => Err(format!(
            "the device that {} lies on is not known",
            args.dir.display()
        )),
    };
    let read_aheads = match settable {
        Ok(()) => &READ_AHEADS[..],
        Err(_) => &[],
    };
    let plans = STOPS
        .iter()
        .map(|stop| plan(stop, args, file_bytes, read_aheads))
        .collect::<Result<Vec<_>, _>>()?;
    let interrupt = Interrupt::catch()?;
    let lab = Lab::new(&interrupt);
    for plan in &plans {
        lab.probe(plan)?;
    }
    output::tell(&format!(
        "A file of {} and {} of memory for it, on the kernel's mmap ({}) and on softfault.\n{}\n",
        size::show(file_bytes),
        size::show(args.memory),
        match lab.has_cgroups() {
            true => "in a memory cgroup",
            false =>
                "without a limit: no memory cgroup can be made here, so the ratios do not compare like with like",
        },
        told_read_ahead(&settable, device.as_ref())
    ));
    let mut made = files::make_data(&args.dir, &[file_bytes], 1, &interrupt)?;
    let mut rows = Vec::new();
    let mut ran = Ok(());
    for (stop, plan) in STOPS.iter().zip(&plans) {
        let more = match stop.patterns {
            ["holes"] if lab.has_cgroups() => {
                "; the kernel's rows show the possible cost of reclaim in a cgroup"
            }
            _ => "",
        };
        output::tell(&format!("{}: {}{more}.\n", plan.workload.name(), stop.say));
        if matches!(plan.workload, Workload::Anon | Workload::Thrash) {
            // It swaps, or makes files of its own, which want the room; nobody reads this one any more.
            made.clear();
        }
        ran = lab.run_over(plan, &made, &mut rows);
        if ran.is_err() {
            break;
        }
    }
    // Its cgroup goes before a signal may end the process.
    drop(lab);
    if rows.is_empty() || matches!(ran, Err(Error::Interrupted(_))) {
        return ran;
    }
    let mut text = format!(
        "{}ratio: times the speed of the first of its kind; read: from the disk; given up: not done\n\
         after {} s (anon later, since it is populated first) and killed, its figures those of the part done.\n\
         thrash: the rounds of all threads together, most of which a few may have had: the table below it tells.\n",
        table::short(&rows),
        // As it is typed, without the rest of a product of fractions.
        (give_up_after(args.seconds) * 1e3).round() / 1e3
    );
    text += &table::read_ahead(&rows);
    for note in table::notes(&rows) {
        text += &format!("note: {note}\n");
    }
    // A page that cannot be written costs nobody the table.
    let written = match args.no_report {
        true => Ok(()),
        false => write_page(args, &rows).inspect(|()| {
            text += &format!("page: {}\n", args.report.display());
        }),
    };
    output::print(&text)?;
    written?;
    ran?;
    command::first_failure(&rows)
}

/// Fails if `dir` has less room than the tour needs in it at a time: that of swap, which is more than the file.
fn has_room(dir: &Path, bytes: u64) -> Result<(), Error> {
    match files::room(dir) {
        Some(room) if room < bytes => Err(Error::input(format_args!(
            "the tour needs {} in {}, and there are {}",
            size::show(bytes),
            dir.display(),
            size::show(room)
        ))),
        // Where that is not known, it is tried.
        _ => Ok(()),
    }
}

/// The page over the rows.
fn write_page(args: &TourArgs, rows: &[Row]) -> Result<(), Error> {
    let mut command = format!(
        "softfault tour --memory {} --seconds {}",
        size::argument(args.memory),
        args.seconds
    );
    if args.repeat > 1 {
        command += &format!(" --repeat {}", args.repeat);
    }
    let about = About {
        title: "A tour of softfault",
        command: Some(&command),
        disk: &args.dir,
    };
    report::write(rows, &about, &args.report)
}

/// At which read-ahead the kernel's rows are, and why at no other.
fn told_read_ahead(settable: &Result<(), String>, device: Option<&Device>) -> String {
    let [low, high] = READ_AHEADS;
    let own = device.and_then(Device::read_ahead_kb);
    match (settable, own) {
        (Ok(()), _) => format!(
            "Over files the kernel's mmap is shown reading {low} and {high} KiB ahead, and with MADV_RANDOM."
        ),
        (Err(why), Some(own)) => format!(
            "The kernel reads {own} KiB ahead on this device, and is shown at that alone: {why}."
        ),
        (Err(why), None) => format!("How far the kernel reads ahead here is not known: {why}."),
    }
}

/// Seconds after which a run is given up: at most the longest timeout of a run, so that the error about too many seconds names
/// --seconds.
fn give_up_after(seconds: f64) -> f64 {
    (seconds * 3.0).min(SECONDS_MAX)
}

/// Whether a cgroup of so much memory outlives all threads that read so far ahead at a time: with many more pages under
/// I/O than it has, the kernel kills them.
fn fits(stop: &Stop, read_ahead_kb: u32, memory: u64) -> bool {
    stop.threads as u64 * (u64::from(read_ahead_kb) << 10) <= memory.saturating_mul(4)
}

fn plan(stop: &Stop, args: &TourArgs, file_bytes: u64, read_aheads: &[u32]) -> Result<Plan, Error> {
    let thrashes = stop.workload == Workload::Thrash;
    let on = stop.on.split(',');
    Plan::new(&RunArgs {
        workload: stop.workload,
        on: on.map(|on| on.parse().expect("an engine")).collect(),
        file: None,
        file_size: Some(match thrashes {
            true => file_bytes / stop.threads as u64,
            false => file_bytes,
        }),
        dir: args.dir.clone(),
        memory: args.memory,
        threads: vec![stop.threads],
        seconds: Some(args.seconds),
        touch: None,
        flush_every: None,
        pattern: match thrashes {
            true => Vec::new(),
            false => stop.patterns.iter().map(|name| name.to_string()).collect(),
        },
        read_ahead_kb: match stop.workload.reads_files() {
            true => (read_aheads.iter().copied())
                .filter(|&kb| stop.patterns != ["data"] || fits(stop, kb, args.memory))
                .collect(),
            false => Vec::new(),
        },
        theta: None,
        writes: None,
        files: match stop.patterns {
            ["data"] => vec![Files::Data],
            ["holes"] => vec![Files::Holes],
            _ => Vec::new(),
        },
        repeat: args.repeat,
        seed: 1,
        // Populating takes its time on any engine.
        timeout: (!stop.workload.swaps()).then_some(give_up_after(args.seconds)),
        json: None,
        keep_system_caches: false,
    })
}
