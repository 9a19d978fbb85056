//! `softfault-loom [NAME...]`: runs the models, or those whose names contain one of these, under a loom that reorders
//! more than loom 0.7.2 does (see `crates/sync-loom/loom-0.7.2.patch`), in
//! a copy of the workspace and with a copy of loom. Takes minutes where
//! `cargo test` takes one.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

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
    let status = Command::new(env!("CARGO"))
        .current_dir(&source)
        .arg("--config")
        .arg(format!(
            "patch.crates-io.loom.path={:?}",
            loom.display().to_string()
        ))
        .args(["test", "--offline", "-p", "softfault-engine-loom"])
        .args(["--", "--nocapture"])
        .args(names)
        .env("CARGO_TARGET_DIR", work.join("target"))
        .env("RUST_BACKTRACE", "0")
        .status()
        .map_err(system)?;
    Ok(status.success())
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
