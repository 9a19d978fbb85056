//! What `softfault run` costs a program of which it takes nothing, beside a preloaded library that is empty.

use crate::unmodified::{Place, done};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs of `true` with each library, in turn.
const STARTS: usize = 200;
/// Runs of the program that measures calls, in turn.
const RUNS: usize = 5;

pub fn run(dir: &Path) -> Result<(), String> {
    let place = Place::new(dir)?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("unmodified");
    let [source, empty, program, file] =
        ["empty.c", "empty.so", "overhead", "bytes"].map(|name| place.dir.join(name));
    let fail = |error: std::io::Error| format!("{}: {error}", place.dir.display());
    fs::write(&source, "").map_err(fail)?;
    fs::write(&file, vec![1; 64 << 10]).map_err(fail)?;
    done(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&empty, &source]),
    )?;
    let calls = here.join("overhead.c");
    // The compiler would leave out calls that it knows as malloc.
    done(
        Command::new("cc")
            .args(["-O2", "-fno-builtin", "-o"])
            .args([&program, &calls]),
    )?;
    let library = place.softfault.with_file_name("libsoftfault_preload.so");
    let swap = place.dir.display().to_string();
    let options = |anonymous: bool| {
        let mut options = vec![("SOFTFAULT_MEMORY", "67108864".to_owned())];
        if anonymous {
            options.push(("SOFTFAULT_RUN_ANONYMOUS", "1".to_owned()));
            options.push(("SOFTFAULT_SWAP", swap.clone()));
        }
        options
    };
    let columns = [
        ("an empty library", empty, vec![]),
        ("ours", library.clone(), options(false)),
        ("ours, --anonymous --swap", library, options(true)),
    ];
    let preloaded = |program: &Path, (_, library, options): &Column| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library).envs(options.clone());
        command.stdin(Stdio::null());
        command
    };
    let titles = columns.each_ref().map(|(title, ..)| *title);
    println!("| where nothing is taken | {} |", titles.join(" | "));
    println!("|---|---|---|---|");
    let mut starts = [const { Vec::new() }; 3];
    for _ in 0..STARTS {
        for (column, took) in columns.iter().zip(&mut starts) {
            took.push(processor(preloaded(Path::new("/bin/true"), column))?);
        }
    }
    let starts = starts.map(|mut took| median(&mut took));
    println!("| processor time of `true`, µs | {} |", joined(&starts));
    let mut all: Vec<(String, [Vec<f64>; 3])> = Vec::new();
    for _ in 0..RUNS {
        for (at, column) in columns.iter().enumerate() {
            let output = preloaded(&program, column).arg(&file).output();
            let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let (name, took) = line.split_once(' ').ok_or("a line without a number")?;
                let took: f64 = took.parse().map_err(|_| "no number")?;
                match all.iter_mut().find(|(known, _)| known == name) {
                    Some((_, runs)) => runs[at].push(took),
                    None => {
                        let mut runs = [const { Vec::new() }; 3];
                        runs[at].push(took);
                        all.push((name.to_owned(), runs));
                    }
                }
            }
        }
    }
    for (name, runs) in all {
        let took = runs.map(|mut took| median(&mut took));
        println!("| {name}, ns | {} |", joined(&took));
    }
    Ok(())
}

type Column = (&'static str, PathBuf, Vec<(&'static str, String)>);

fn joined(took: &[f64]) -> String {
    let took: Vec<_> = took.iter().map(|took| format!("{took:.1}")).collect();
    took.join(" | ")
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Microseconds of processor time of a run: of the kernel and of the program.
fn processor(mut command: Command) -> Result<f64, String> {
    let child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    // SAFETY: zeros are a valid structure.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    let mut status = 0;
    // SAFETY: waits for our child, and fills both.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    if waited < 0 || status != 0 {
        return Err(format!("{command:?} failed"));
    }
    let microseconds = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(microseconds(usage.ru_utime) + microseconds(usage.ru_stime))
}
