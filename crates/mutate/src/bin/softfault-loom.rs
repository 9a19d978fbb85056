//! `softfault-loom [NAME...]`: runs the models, or those whose names contain one of these, under a loom that reorders
//! more than loom 0.7.2 does (see `crates/sync-loom/loom-0.7.2.patch`), in
//! a copy of the workspace and with a copy of loom. Takes minutes where
//! `cargo test` takes one.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use softfault_mutate::attempt::work_folder;
use softfault_mutate::mutation::{apply, edits};
use softfault_mutate::workspace::{copy, copy_workspace, fetch, root};

const PATCH: &str = "crates/sync-loom/loom-0.7.2.patch";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("softfault-loom: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(names: &[String]) -> Result<bool, String> {
    let root = root();
    let work = work_folder(&root).with_file_name("loom");
    let (source, loom) = (work.join("source"), work.join("loom-0.7.2"));
    let system = |error: std::io::Error| error.to_string();
    copy_workspace(&root, &source).map_err(system)?;
    fetch(&root)?;
    copy(&loom_source()?, &loom).map_err(system)?;
    let patch = std::fs::read_to_string(root.join(PATCH)).map_err(system)?;
    apply(&edits(&patch)?, &loom)?;
    // The warnings are loom's, not ours to read.
    let test = || {
        let mut test = Command::new(env!("CARGO"));
        test.current_dir(&source)
            .arg("--config")
            .arg(format!(
                "patch.crates-io.loom.path={:?}",
                loom.display().to_string()
            ))
            .args(["test", "--offline", "-p", "softfault-engine-loom", "--"])
            .env("CARGO_TARGET_DIR", work.join("target"))
            .env("RUST_BACKTRACE", "0")
            // Fewer preemptions are for .ci/run.
            .env_remove("SOFTFAULT_LOOM_PREEMPTIONS");
        test
    };
    // A name that no model has is a filter that leaves none, and that passes.
    if !names.is_empty() {
        let list = test().arg("--list").stderr(Stdio::inherit()).output();
        let list = list.map_err(system)?;
        if !list.status.success() {
            return Ok(false);
        }
        let list = String::from_utf8_lossy(&list.stdout);
        if let Some(name) = unknown(names, &list) {
            return Err(format!("no model's name contains {name}"));
        }
    }
    let status = test().arg("--nocapture").args(names).status();
    Ok(status.map_err(system)?.success())
}

/// The first of the names that no test contains, of those in the list that a test program prints.
fn unknown<'a>(names: &'a [String], list: &str) -> Option<&'a String> {
    let tests: Vec<&str> = (list.lines())
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let is_unknown = |name: &&String| !tests.iter().any(|test| test.contains(name.as_str()));
    names.iter().find(is_unknown)
}

/// Where cargo has unpacked the source of loom.
fn loom_source() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let sources = home.ok_or("no home folder")?.join("registry/src");
    let registries = std::fs::read_dir(&sources).map_err(|error| error.to_string())?;
    let mut looms = registries
        .filter_map(|registry| Some(registry.ok()?.path().join("loom-0.7.2")))
        .filter(|loom| loom.is_dir());
    let none = || format!("no loom-0.7.2 in {}", sources.display());
    looms.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_that_no_model_has_is_found() {
        let list = "budget::a_page_goes_round: test\nlocks::two: test\n\n2 tests, 0 benchmarks\n";
        let unknown = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            super::unknown(&names, list).cloned()
        };
        assert_eq!(unknown(&["budget", "two"]), None);
        assert_eq!(unknown(&["budget", "buget"]).as_deref(), Some("buget"));
        assert_eq!(
            unknown(&["tests"]).as_deref(),
            Some("tests"),
            "the list's last line"
        );
    }
}
