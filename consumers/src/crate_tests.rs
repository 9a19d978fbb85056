//! The own tests of published crates that write to files through maps, with memmap2 and with softfault in its place.

use crate::interrupt;
use crate::programs::Maps;
use crate::sources::{cargo, folder_of};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A published crate, at the version whose tests are run.
struct Tested {
    name: &'static str,
    version: &'static str,
    /// Tests that do not end with memmap2 either.
    without: &'static [&'static str],
}

const CRATES: [Tested; 3] = [
    // A key-value store, whose maps are longer than their files, which grow under them.
    Tested {
        name: "parity-db",
        version: "0.5.7",
        without: &[],
    },
    // B-trees that copy on write, in maps of a file that becomes longer.
    Tested {
        name: "sanakirja",
        version: "1.4.3",
        // It begins to write while it writes, and waits for itself.
        without: &["tests::put_growth"],
    },
    // A writer and readers that share state by atomics in maps.
    Tested {
        name: "mmap-sync",
        version: "2.0.4",
        without: &[],
    },
];

/// The budget of the engine that has the maps: the least that is usual.
const MEMORY: &str = "9M";

/// The output of one run.
#[derive(Default)]
struct Outcome {
    passed: u64,
    failed: BTreeSet<String>,
    /// Test programs that were ended by something else than a failed test.
    died: u64,
    /// Bytes of maps that write to their file, of the kernel's own and over the engine.
    kernels: u64,
    engines: u64,
    written_back: u64,
}

/// Runs all of them, and prints a table. An error if one fails that passes with memmap2.
pub fn run(dir: &Path) -> Result<(), String> {
    let dir = dir.join("crate-tests");
    let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir.join("src")).map_err(fail)?;
    let dir = dir.canonicalize().map_err(fail)?;
    let wanted = CRATES.map(|tested| format!("{} = \"={}\"\n", tested.name, tested.version));
    let manifest = format!(
        "[package]\nname = \"crate-tests\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
         [dependencies]\n{}\n[workspace]\n",
        wanted.concat()
    );
    fs::write(dir.join("Cargo.toml"), manifest).map_err(fail)?;
    fs::write(dir.join("src/lib.rs"), "").map_err(fail)?;
    let mut rows = Vec::new();
    let mut worse = Vec::new();
    for tested in &CRATES {
        let of = format!("{}-{}", tested.name, tested.version);
        let source = folder_of(&dir, &of)?;
        let [theirs, ours] = Maps::BOTH.map(|maps| dir.join(format!("{of}-{}", maps.name())));
        for copy in [&theirs, &ours] {
            copy_to(&source, copy)?;
        }
        let test = |copy, maps, variables| test(tested, copy, &dir, maps, variables);
        let before = test(&theirs, Maps::Memmap2, &[])?;
        let kernel = test(&ours, Maps::Softfault, &[])?;
        let variables = [
            ("SOFTFAULT_COHERENCE", "engine"),
            ("SOFTFAULT_MEMORY", MEMORY),
        ];
        let engine = test(&ours, Maps::Softfault, &variables)?;
        for (outcome, how) in [
            (&kernel, "the kernel's maps"),
            (&engine, "the engine's maps"),
        ] {
            let new = outcome.failed.difference(&before.failed);
            worse.extend(new.map(|name| format!("{of}: {name}, with {how}")));
            if outcome.died > before.died || outcome.passed < before.passed {
                worse.push(format!("{of}: not all ran, with {how}"));
            }
        }
        let mapped = engine.engines + engine.kernels;
        rows.push(format!(
            "| {} {} | {} | {} | {} | {} of {} MiB | {} MiB |",
            tested.name,
            tested.version,
            before.text(),
            kernel.text(),
            engine.text(),
            engine.engines >> 20,
            mapped >> 20,
            engine.written_back >> 20,
        ));
    }
    println!(
        "| | memmap2 | softfault | `SOFTFAULT_COHERENCE=engine`, `SOFTFAULT_MEMORY={MEMORY}` | mapped to be written to: the engine's | written back |"
    );
    println!("|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    match worse.is_empty() {
        true => Ok(()),
        false => Err(format!("fail with softfault only: {}", worse.join("; "))),
    }
}

/// Copies a crate as it was published, under another name first, so that a copy that is there is whole. It gets a lock file of its own: one that names an older memmap2 would
/// keep the patch from being used.
fn copy_to(source: &Path, copy: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", copy.display());
    if copy.exists() {
        return Ok(());
    }
    let mut name = OsString::from("unfinished-");
    name.push(copy.file_name().expect("a crate's name"));
    let unfinished = copy.with_file_name(name);
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(fail)?;
    }
    copy_folder(source, &unfinished).map_err(fail)?;
    if unfinished.join("Cargo.lock").exists() {
        fs::remove_file(unfinished.join("Cargo.lock")).map_err(fail)?;
    }
    let manifest = unfinished.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(fail)?;
    fs::write(&manifest, format!("{text}\n[workspace]\n")).map_err(fail)?;
    fs::rename(&unfinished, copy).map_err(fail)
}

fn copy_folder(source: &Path, copy: &Path) -> std::io::Result<()> {
    fs::create_dir_all(copy)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let to = copy.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &to)?,
            // Files in the registry's cache may be there to be read only.
            false => fs::write(to, fs::read(entry.path())?)?,
        }
    }
    Ok(())
}

/// Builds and runs a crate's tests.
fn test(
    tested: &Tested,
    copy: &Path,
    dir: &Path,
    maps: Maps,
    variables: &[(&str, &str)],
) -> Result<Outcome, String> {
    let patch = patch();
    let patched = |command: &mut Command| {
        if maps == Maps::Softfault {
            command.args(["--config", &patch]);
        }
    };
    let mut tree = cargo(copy);
    patched(&mut tree);
    let tree = tree.args(["tree", "-i", "memmap2"]).output();
    let tree = tree.map_err(|error| format!("cargo tree: {error}"))?;
    let is_ours = String::from_utf8_lossy(&tree.stdout).contains("0.9.999");
    if is_ours != (maps == Maps::Softfault) {
        let said = String::from_utf8_lossy(&tree.stderr);
        return Err(format!(
            "{}: not the maps that are wanted: {said}",
            copy.display()
        ));
    }
    eprintln!("{} {variables:?}", copy.display());
    let mut command = cargo(copy);
    patched(&mut command);
    command.args(["test", "--no-fail-fast", "--target-dir"]);
    command.arg(dir.join("target")).arg("--");
    for without in tested.without {
        command.args(["--skip", without]);
    }
    command.env("SOFTFAULT_STATS", "1");
    // Lints that came after the crate was published are no test of it.
    command.env("RUSTFLAGS", "--cap-lints=warn");
    for ours in ["SOFTFAULT_COHERENCE", "SOFTFAULT_MEMORY"] {
        command.env_remove(ours);
    }
    let output = command.envs(variables.iter().copied()).output();
    let output = output.map_err(|error| format!("cargo test: {error}"))?;
    interrupt::check()?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let log = match variables.is_empty() {
        true => copy.join("tests.log"),
        false => copy.join("tests-engine.log"),
    };
    let text = format!("{err}\n{out}");
    fs::write(&log, &text).map_err(|error| format!("{}: {error}", log.display()))?;
    let outcome = Outcome::of(&out, &err);
    match outcome.passed {
        0 => Err(format!(
            "{}: no test ran: see {}",
            copy.display(),
            log.display()
        )),
        _ => Ok(outcome),
    }
}

/// The options that put softfault in the place of memmap2.
fn patch() -> String {
    let ours: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("memmap2");
    format!("patch.crates-io.memmap2.path={ours:?}")
}

impl Outcome {
    /// Of what cargo and the test programs said.
    fn of(out: &str, err: &str) -> Self {
        let mut outcome = Self::default();
        for line in out.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                let passed =
                    (counts.split([' ', ';', '.'])).find_map(|word| word.parse::<u64>().ok());
                outcome.passed += passed.unwrap_or(0);
            }
            let name = line
                .strip_prefix("test ")
                .and_then(|line| line.strip_suffix(" ... FAILED"));
            outcome.failed.extend(name.map(str::to_owned));
        }
        outcome.died = err.matches("(signal: ").count() as u64;
        for line in err.lines() {
            let Some(counts) = line
                .split_once("softfault-stats:")
                .map(|(_, counts)| counts)
            else {
                continue;
            };
            for (name, count) in counts.split(' ').filter_map(|word| word.split_once('=')) {
                let of = match name {
                    "shared_bytes" => &mut outcome.kernels,
                    "writable_bytes" => &mut outcome.engines,
                    "written_back_bytes" => &mut outcome.written_back,
                    _ => continue,
                };
                *of += count.parse::<u64>().unwrap_or(0);
            }
        }
        outcome
    }

    fn text(&self) -> String {
        let all = self.passed + self.failed.len() as u64;
        let died = match self.died {
            0 => "",
            _ => ", killed",
        };
        format!("{} of {all}{died}", self.passed)
    }
}
