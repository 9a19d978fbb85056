//! `cargo run -p softfault-mutate [NAME...]`: applies each mutation (or those
//! whose names contain one of the given) to a copy of the workspace and runs
//! the model that must reject it. Exit code 1 if one survives.

use std::fs::{File, read_to_string};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use softfault_mutate::{Mutation, all, copy_workspace, root};

/// A model that a mutation keeps from ending. Those on unbroken source take
/// seconds.
const GIVE_UP: Duration = Duration::from_secs(300);

/// What the last run of a model printed, in the work folder.
const OUTPUT: &str = "output";

enum Verdict {
    /// The model's words.
    Rejected(String),
    Survived,
    /// It could not be found out, and why.
    Broken(String),
}

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("softfault-mutate: {error}");
            ExitCode::from(2)
        }
    }
}

/// True if every mutation was rejected.
fn run(wanted: &[String]) -> Result<bool, String> {
    let root = root();
    let mut mutations = all(&root)?;
    if !wanted.is_empty() {
        mutations.retain(|mutation| wanted.iter().any(|name| mutation.name.contains(name)));
    }
    if mutations.is_empty() {
        return Err("no such mutation".into());
    }
    let work = work_folder(&root);
    let source = work.join("source");
    let restore =
        || copy_workspace(&root, &source).map_err(|error| format!("{}: {error}", source.display()));

    // On unbroken source every one of the models must pass.
    restore()?;
    let mut files: Vec<&str> = mutations.iter().map(|m| m.test_file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        if !cargo(&work, file, &[], &[])? {
            return Err(format!("the models in {file} fail on the source as it is"));
        }
    }

    let width = mutations.iter().map(|m| m.name.len()).max().unwrap_or(0);
    let mut good = 0;
    for mutation in &mutations {
        restore()?;
        let begin = Instant::now();
        let verdict = judge(mutation, &work, &source);
        let seconds = begin.elapsed().as_secs_f32();
        let word = match &verdict {
            Verdict::Rejected(_) => "rejected",
            Verdict::Survived => "SURVIVED",
            Verdict::Broken(_) => "BROKEN",
        };
        let (name, what) = (&mutation.name, &mutation.what);
        println!("{word}  {name:width$}  {seconds:5.1} s  {what}");
        match verdict {
            Verdict::Rejected(why) => {
                good += 1;
                println!("          {why}");
            }
            Verdict::Survived => println!("          {}::{}", mutation.test_file, mutation.test),
            Verdict::Broken(why) => println!("          {why}"),
        }
    }
    restore()?;
    println!("{good} of {} mutations rejected", mutations.len());
    Ok(good == mutations.len())
}

fn judge(mutation: &Mutation, work: &Path, source: &Path) -> Verdict {
    if let Err(error) = mutation.apply(source) {
        return Verdict::Broken(format!("does not apply: {error}"));
    }
    let file = &mutation.test_file;
    match cargo(work, file, &["--no-run"], &[]) {
        Ok(true) => {}
        Ok(false) => return Verdict::Broken("does not compile".into()),
        Err(error) => return Verdict::Broken(error),
    }
    match cargo(work, file, &[], &["--exact", &mutation.test]) {
        Ok(true) => Verdict::Survived,
        Ok(false) => Verdict::Rejected(reason(work)),
        Err(error) => Verdict::Broken(error),
    }
}

/// Runs `cargo test` of one file of models in the copy; true if it passed.
fn cargo(work: &Path, file: &str, flags: &[&str], test_flags: &[&str]) -> Result<bool, String> {
    let output = File::create(work.join(OUTPUT)).map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut child = Command::new(env!("CARGO"))
        .current_dir(work.join("source"))
        .args(["test", "--quiet", "-p", "softfault-engine-loom"])
        .args(["--test", file])
        .args(flags)
        .arg("--")
        .args(test_flags)
        .env("CARGO_TARGET_DIR", work.join("target"))
        .env("RUST_BACKTRACE", "0")
        .stdout(output)
        .stderr(errors)
        // A group of its own, so that the model ends with its cargo.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cargo: {error}"))?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.success());
        }
        if begin.elapsed() > GIVE_UP {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            return Err(format!("not ended after {} s", GIVE_UP.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first panic's message in the last run.
fn reason(work: &Path) -> String {
    let output = read_to_string(work.join(OUTPUT)).unwrap_or_default();
    let mut lines = output.lines();
    let panicked = lines.any(|line| line.contains(" panicked at "));
    let message: String = lines.next().unwrap_or_default().chars().take(100).collect();
    if panicked {
        message
    } else {
        "it ended without a panic".into()
    }
}

/// Where the copy and its build live: in the target folder, so that the next
/// run finds them.
fn work_folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("mutate")
}
