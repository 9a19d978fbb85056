//! What a lab run is to do: the arguments, checked and with their defaults filled in.

use super::engine::On;
use super::fill::PAGE;
use super::job::{Order, Pass, Work};
use crate::error::Error;
use crate::size;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Below this not even an empty process fits into a cgroup and does anything.
const MEMORY_MIN: u64 = 4 << 20;
/// Page numbers are below 2^32, so that products of two are words.
pub const FILE_MAX: u64 = PAGE << 32;
/// More threads than any machine here makes sense of.
const THREADS_MAX: usize = 10_000;

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Touch 1 % of a file's pages once, in one of several orders.
    Sparse,
    /// Touch uniformly random pages for a time.
    Random,
    /// Read the whole file: cold, warm (second pass) and remapped.
    Scan,
    /// Each thread maps its own file, touches every page and unmaps, for a time.
    Thrash,
}

/// What the files of a thrash are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Files {
    /// Random data on the disk.
    Data,
    /// Nothing: no reading, only faults.
    Holes,
}

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// What to run
    pub workload: Workload,
    /// Engines to run it on; ratios are against the first
    #[arg(long, value_delimiter = ',', default_value = "kernel,softfault")]
    pub on: Vec<On>,
    /// A file to read; what is read is checked if `lab make` made it
    #[arg(long, value_name = "PATH", conflicts_with = "file_size")]
    pub file: Option<PathBuf>,
    /// Length of the file to make [default: 4G; thrash: 16M for each thread]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub file_size: Option<u64>,
    /// Where to make files; they have no name and vanish with the command
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// The budget: softfault's own, and the kernel's cgroup limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    pub memory: u64,
    /// Threads [default: sparse and scan 1, random 32, thrash 500]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How long random and thrash run [default: 10, thrash 20]
    #[arg(long, value_name = "N")]
    pub seconds: Option<f64>,
    /// Part of the file's pages that sparse touches [default: 1]
    #[arg(long, value_name = "PERCENT")]
    pub touch: Option<f64>,
    /// sparse: random, sequential, strideN [default: random,stride1021,stride2053,stride4099,sequential];
    /// scan: cold, warm, remap [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pattern: Vec<String>,
    /// What thrash's files hold [default: data]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub files: Vec<Files>,
    /// Runs of each row
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeat: u32,
    /// Seed of the data and of random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Kill a run that has not ended after so many seconds [default: three times --seconds, or 120]
    #[arg(long, value_name = "SECONDS")]
    pub give_up: Option<f64>,
    /// Write all single runs as a JSON array; `-` is stdout (the table then goes to stderr)
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Leave the rest of the system's caches alone: drop only the file's own pages before a run
    #[arg(long)]
    pub keep_system_caches: bool,
}

/// Arguments of `lab make`.
#[derive(Args, Debug)]
pub struct MakeArgs {
    /// The file to make; it must not be there yet
    pub path: PathBuf,
    /// Its length
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    pub file_size: u64,
    /// Seed of its data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// One pattern: its name in rows, and what the child does.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The name.
    pub name: String,
    /// Filled in for the file at hand: a sparse walk's accesses depend on its length.
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sparse(Order),
    Random,
    Scan(Pass),
    Thrash(Files),
}

/// Where the file comes from.
#[derive(Clone, Debug)]
pub enum FileFrom {
    /// The caller has it.
    Path(PathBuf),
    /// It is made, of so many bytes.
    Made(u64),
}

/// A checked plan. All fields immutable.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to run.
    pub workload: Workload,
    /// Its patterns.
    pub patterns: Vec<Pattern>,
    /// On which engines.
    pub on: Vec<On>,
    /// Over which file.
    pub file: FileFrom,
    /// Where files are made.
    pub dir: PathBuf,
    /// Budget in bytes.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
    /// Length of timed runs.
    pub seconds: f64,
    /// Percent of the pages that sparse touches.
    pub touch: f64,
    /// Runs of each row.
    pub repeat: u32,
    /// Seed.
    pub seed: u64,
    /// When a run is killed.
    pub give_up: Duration,
    /// Whether the whole system's caches are dropped before a run.
    pub drop_system_caches: bool,
}

impl Workload {
    /// The name in arguments, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Random => "random",
            Self::Scan => "scan",
            Self::Thrash => "thrash",
        }
    }

    /// Whether its speed is told in rounds.
    pub fn has_rounds(self) -> bool {
        self == Self::Thrash
    }

    fn patterns(self, names: &[String], files: &[Files]) -> Result<Vec<Pattern>, Error> {
        let or = |defaults: &[&str]| match names.is_empty() {
            true => defaults.iter().map(|name| name.to_string()).collect(),
            false => names.to_vec(),
        };
        let named = |names: Vec<String>, kind: fn(&str) -> Result<Kind, Error>| {
            let pattern = |name: String| kind(&name).map(|kind| Pattern { name, kind });
            names.into_iter().map(pattern).collect()
        };
        match self {
            Self::Sparse => {
                let all = [
                    "random",
                    "stride1021",
                    "stride2053",
                    "stride4099",
                    "sequential",
                ];
                named(or(&all), sparse_kind)
            }
            Self::Scan => named(or(&["cold", "warm", "remap"]), scan_kind),
            Self::Random | Self::Thrash if !names.is_empty() => {
                Err(Error::input("--pattern is for sparse and scan"))
            }
            Self::Random => Ok(vec![Pattern {
                name: "random".into(),
                kind: Kind::Random,
            }]),
            Self::Thrash => {
                let files = if files.is_empty() {
                    &[Files::Data]
                } else {
                    files
                };
                let pattern = |&files: &Files| Pattern {
                    name: match files {
                        Files::Data => "data".into(),
                        Files::Holes => "holes".into(),
                    },
                    kind: Kind::Thrash(files),
                };
                Ok(files.iter().map(pattern).collect())
            }
        }
    }
}

fn sparse_kind(name: &str) -> Result<Kind, Error> {
    let stride = name.strip_prefix("stride").and_then(|n| n.parse().ok());
    match (name, stride) {
        ("random", _) => Ok(Kind::Sparse(Order::Random)),
        ("sequential", _) => Ok(Kind::Sparse(Order::Stride(1))),
        (_, Some(stride)) if stride > 0 => Ok(Kind::Sparse(Order::Stride(stride))),
        _ => Err(Error::input(format_args!(
            "sparse has no pattern `{name}`: random, sequential or strideN"
        ))),
    }
}

fn scan_kind(name: &str) -> Result<Kind, Error> {
    match name {
        "cold" => Ok(Kind::Scan(Pass::Cold)),
        "warm" => Ok(Kind::Scan(Pass::Warm)),
        "remap" => Ok(Kind::Scan(Pass::Remap)),
        _ => Err(Error::input(format_args!(
            "scan has no pattern `{name}`: cold, warm or remap"
        ))),
    }
}

impl Pattern {
    /// What the child does, over a file of `pages` pages.
    pub fn work(&self, plan: &Plan, pages: u64) -> Work {
        match self.kind {
            Kind::Sparse(order) => Work::Sparse {
                order,
                accesses: ((pages as f64 * plan.touch / 100.0) as u64).clamp(1, pages),
            },
            Kind::Random => Work::Random,
            Kind::Scan(pass) => Work::Scan(pass),
            Kind::Thrash(_) => Work::Thrash,
        }
    }

    /// What the files of a thrash hold; `None` for the others.
    pub fn files(&self) -> Option<Files> {
        match self.kind {
            Kind::Thrash(files) => Some(files),
            _ => None,
        }
    }
}

impl Plan {
    /// Checks the arguments and fills in the defaults.
    pub fn new(args: &RunArgs) -> Result<Self, Error> {
        let workload = args.workload;
        let is = |wanted| workload == wanted;
        let refuse = |text: &str| Err(Error::input(text));
        if args.memory < MEMORY_MIN {
            let min = size::show(MEMORY_MIN);
            return Err(Error::input(format_args!(
                "--memory must be at least {min}"
            )));
        }
        if args.touch.is_some() && !is(Workload::Sparse) {
            return refuse("--touch is for sparse");
        }
        if !args.files.is_empty() && !is(Workload::Thrash) {
            return refuse("--files is for thrash");
        }
        if args.file.is_some() && is(Workload::Thrash) {
            return refuse("--file is not for thrash: each thread has a file of its own");
        }
        let touch = args.touch.unwrap_or(1.0);
        if !(touch > 0.0 && touch <= 100.0) {
            return refuse("--touch must be above 0 and at most 100");
        }
        let (threads, seconds) = match workload {
            Workload::Sparse | Workload::Scan => (1, 10.0),
            Workload::Random => (32, 10.0),
            Workload::Thrash => (500, 20.0),
        };
        let threads = args.threads.unwrap_or(threads);
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(Error::input(format_args!(
                "--threads must be 1 to {THREADS_MAX}"
            )));
        }
        if args.repeat == 0 {
            return refuse("--repeat must be at least 1");
        }
        let timed = matches!(workload, Workload::Random | Workload::Thrash);
        let seconds_given = args.seconds.or(timed.then_some(seconds));
        let give_up = args
            .give_up
            .or(seconds_given.map(|s| 3.0 * s))
            .unwrap_or(120.0);
        let seconds = args.seconds.unwrap_or(seconds);
        for (name, value) in [("--seconds", seconds), ("--give-up", give_up)] {
            if !(value > 0.0 && value <= 1e6) {
                return Err(Error::input(format_args!(
                    "{name} must be above 0 and at most 1000000"
                )));
            }
        }
        let file = match &args.file {
            Some(path) => FileFrom::Path(path.clone()),
            None if args.dir.is_dir() => FileFrom::Made(made_bytes(args)?),
            None => {
                let dir = args.dir.display();
                return Err(Error::input(format_args!("{dir} is not a directory")));
            }
        };
        Ok(Self {
            workload,
            patterns: workload.patterns(&args.pattern, &args.files)?,
            on: args.on.clone(),
            file,
            dir: args.dir.clone(),
            memory: args.memory,
            threads,
            seconds,
            touch,
            repeat: args.repeat,
            seed: args.seed,
            give_up: Duration::from_secs_f64(give_up),
            drop_system_caches: !args.keep_system_caches,
        })
    }
}

fn made_bytes(args: &RunArgs) -> Result<u64, Error> {
    let default = match args.workload {
        Workload::Thrash => 16 << 20,
        _ => 4 << 30,
    };
    whole_pages(args.file_size.unwrap_or(default))
}

/// Made files are of whole pages: what is asked for is rounded up.
pub fn whole_pages(bytes: u64) -> Result<u64, Error> {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) if bytes <= FILE_MAX => Ok(bytes),
        _ => Err(Error::input(format_args!(
            "--file-size must be at most {}",
            size::show(FILE_MAX)
        ))),
    }
}
