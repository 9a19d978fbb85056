//! The comparisons: each row is run with both, in changing order, and its medians are printed.

use crate::cgroup::Cgroup;
use crate::programs::{B3SUM, Maps, Program, RIPGREP, TANTIVY};
use crate::read_ahead::ReadAhead;
use crate::run::{Limit, Took, run as run_one};
use crate::{Args, files};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A program with both maps, and what it reads.
struct Built {
    with: [PathBuf; 2],
    reads: PathBuf,
    /// Bytes that softfault has to have served, or the kernel for it.
    least_served: u64,
}

/// One line of the table.
struct Row<'a> {
    name: String,
    built: &'a Built,
    args: Vec<String>,
    cold: bool,
    limit: Option<Limit>,
}

/// Of what a program maps and reads whole, so many hundredths have to have been served.
const ALL: u64 = 95;
/// The same of an index that is searched: of 1.1 GiB the searches read some 300 MiB.
const SEARCHED: u64 = 12;
/// A word that no file has.
const NOWHERE: &str = "zzzzqqqq";

/// Builds what is wanted, and prints a table for each read-ahead.
pub fn run(args: &Args) -> Result<(), String> {
    fs::create_dir_all(&args.dir).map_err(|error| format!("{}: {error}", args.dir.display()))?;
    let read_aheads = match args.read_ahead_kb.is_empty() {
        true => vec![None],
        false => args.read_ahead_kb.iter().copied().map(Some).collect(),
    };
    let groups = Cgroup::is_there();
    if !groups {
        eprintln!("no memory cgroup can be made here (not root?): rows with a limit are left out");
    }
    let wanted = |program: &Program| {
        args.only.is_empty() || args.only.iter().any(|name| name == program.name)
    };
    let b3sum = wanted(&B3SUM).then(|| b3sum(args)).transpose()?;
    let ripgrep = wanted(&RIPGREP).then(|| ripgrep(args)).transpose()?;
    let tantivy = wanted(&TANTIVY).then(|| tantivy(args)).transpose()?;
    let mut rows = Vec::new();
    for built in b3sum.iter() {
        for threads in ["1", "2"] {
            let line =
                ["--num-threads", threads, &built.reads.display().to_string()].map(str::to_owned);
            rows.extend(cold_and_warm(
                &format!("b3sum --num-threads {threads}"),
                built,
                &line,
            ));
        }
    }
    for (name, built) in ripgrep.iter().flatten() {
        let reads = built.reads.display().to_string();
        let line = ["--mmap", "--sort", "path", "-c", NOWHERE, &reads].map(str::to_owned);
        let both = cold_and_warm(name, built, &line);
        // A tree is only read from the page cache.
        rows.extend(
            both.into_iter()
                .filter(|row| !row.cold || built.reads.is_file()),
        );
    }
    for built in tantivy.iter() {
        let reads = built.reads.display().to_string();
        let line = ["run".to_owned(), reads, args.queries.to_string()];
        rows.extend(cold_and_warm("tantivy", built, &line));
        let limited = |name: &str, limit| Row {
            name: format!("tantivy, {name}"),
            built,
            args: line.to_vec(),
            cold: true,
            limit: Some(limit),
        };
        if groups {
            let (little, plenty) = (256 << 20, 2 << 30);
            rows.push(limited(
                "in 256 MiB",
                Limit {
                    bytes: little,
                    then: None,
                },
            ));
            // In the middle of the searches: a cold run takes a second.
            let then = Some((Duration::from_millis(300), little));
            rows.push(limited(
                "2 GiB, after 0.3 s 256 MiB",
                Limit {
                    bytes: plenty,
                    then,
                },
            ));
        }
    }
    for kb in read_aheads {
        let kept = kb.map(|kb| ReadAhead::set(&args.dir, kb)).transpose()?;
        println!(
            "\nThe disk's read_ahead_kb: {}\n",
            ReadAhead::now(&args.dir)
        );
        println!("| | memmap2 | softfault | times | processor | read, MiB | peak, MiB |");
        println!("|---|---|---|---|---|---|---|");
        rows.iter().try_for_each(|row| row.print(args))?;
        drop(kept);
    }
    Ok(())
}

fn b3sum(args: &Args) -> Result<Built, String> {
    let reads = files::bytes(&args.dir, args.size_mib).map_err(|error| error.to_string())?;
    built(args, &B3SUM, reads)
}

/// A large file, and a tree of small ones.
fn ripgrep(args: &Args) -> Result<[(String, Built); 2], String> {
    let text = files::text(&args.dir, args.size_mib / 2).map_err(|error| error.to_string())?;
    let tree = files::tree(&args.dir, args.tree).map_err(|error| error.to_string())?;
    let of_text = built(args, &RIPGREP, text)?;
    let of_tree = Built {
        with: of_text.with.clone(),
        least_served: files::size(&tree).map_err(|error| error.to_string())? / 100 * ALL,
        reads: tree,
    };
    Ok([
        ("ripgrep, one file".to_owned(), of_text),
        (format!("ripgrep, {} files", args.tree), of_tree),
    ])
}

fn tantivy(args: &Args) -> Result<Built, String> {
    let index = args.dir.join(format!("index-{}", args.documents));
    let mut built = built(args, &TANTIVY, index.clone())?;
    if !index.exists() {
        eprintln!("making {}", index.display());
        let unfinished = index.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|error| error.to_string())?;
        let mut make = Command::new(&built.with[0]);
        make.arg("make")
            .arg(&unfinished)
            .arg(args.documents.to_string());
        let status = make.status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err("the index could not be made".to_owned());
        }
        fs::rename(unfinished, &index).map_err(|error| error.to_string())?;
    }
    built.least_served = files::size(&index).map_err(|error| error.to_string())? / 100 * SEARCHED;
    Ok(built)
}

/// A program that maps all that it reads, if that is there already.
fn built(args: &Args, program: &Program, reads: PathBuf) -> Result<Built, String> {
    let [one, other] = Maps::BOTH.map(|maps| program.build(&args.dir, maps));
    let bytes = match reads.exists() {
        true => files::size(&reads).map_err(|error| error.to_string())?,
        false => 0,
    };
    Ok(Built {
        with: [one?, other?],
        least_served: bytes / 100 * ALL,
        reads,
    })
}

fn cold_and_warm<'a>(name: &str, built: &'a Built, args: &[String]) -> [Row<'a>; 2] {
    [true, false].map(|cold| Row {
        name: format!(
            "{name}, {}",
            if cold { "cold" } else { "in the page cache" }
        ),
        built,
        args: args.to_vec(),
        cold,
        limit: None,
    })
}

impl Row<'_> {
    fn print(&self, args: &Args) -> Result<(), String> {
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..args.repeat as usize {
            for turn in 0..2 {
                let which = (turn + round) % 2;
                eprint!("\r\x1b[K{}: {} of {}", self.name, round + 1, args.repeat);
                took[which].push(self.run(args, which)?);
            }
        }
        eprint!("\r\x1b[K");
        self.check(&took)?;
        let [theirs, ours] = took
            .each_ref()
            .map(|took| median(took, |took| took.seconds.unwrap_or(f64::INFINITY)));
        let of = |seconds: f64| match seconds.is_finite() {
            true => format!("{seconds:.2} s"),
            false => format!("not done in {} s, or killed", args.timeout),
        };
        let times = match theirs.is_finite() && ours.is_finite() {
            true => format!("{:.2}", ours / theirs),
            false => "–".to_owned(),
        };
        let both = |what: fn(&Took) -> f64, digits: usize| {
            let [theirs, ours] = took.each_ref().map(|took| median(took, what));
            format!("{theirs:.digits$} / {ours:.digits$}")
        };
        println!(
            "| {} | {} | {} | {times} | {} | {} | {} |",
            self.name,
            of(theirs),
            of(ours),
            both(|took| took.processor, 2),
            both(|took| took.read_mib as f64, 0),
            both(|took| took.peak_mib as f64, 0),
        );
        Ok(())
    }

    fn run(&self, args: &Args, which: usize) -> Result<Took, String> {
        let reads = &self.built.reads;
        let prepared = match self.cold {
            true => files::cool(reads),
            false => files::warm(reads),
        };
        crate::interrupt::check()?;
        prepared.map_err(|error| format!("{}: {error}", reads.display()))?;
        let mut command = Command::new(&self.built.with[which]);
        command.args(&self.args);
        run_one(command, self.limit, Duration::from_secs(args.timeout))
    }

    /// The same answers, and from softfault's maps.
    fn check(&self, [theirs, ours]: &[Vec<Took>; 2]) -> Result<(), String> {
        for took in theirs.iter().chain(ours) {
            if let Some(how) = took.failed {
                return Err(format!("{}: {how}: {}", self.name, took.said.trim()));
            }
        }
        let done = |took: &&Took| took.seconds.is_some();
        let mut answers = theirs
            .iter()
            .chain(ours)
            .filter(done)
            .map(|took| &took.answer);
        if let Some(first) = answers.next()
            && answers.any(|answer| answer != first)
        {
            return Err(format!("{}: the answers differ", self.name));
        }
        for took in ours.iter().filter(done) {
            let least = self.built.least_served;
            if took.served < least {
                let served = took.served;
                return Err(format!(
                    "{}: softfault served {served} bytes, of at least {least}",
                    self.name
                ));
            }
        }
        Ok(())
    }
}

pub fn median(took: &[Took], of: impl Fn(&Took) -> f64) -> f64 {
    let mut all: Vec<f64> = took.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
