//! One try: the tests of a world, built in the copy, and run until one fails.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::world::{OF_THE_CRATE, Tests};

/// A look at a test that runs.
const LOOK: Duration = Duration::from_millis(25);

/// Where mutations are built and run.
pub struct Bench {
    /// The copy of the workspace.
    pub source: PathBuf,
    /// Cargo's target folder for it.
    pub target: PathBuf,
    /// The output of the last command.
    pub output: PathBuf,
    /// Somebody wants the program to end.
    pub stop: Arc<AtomicBool>,
}

/// A test binary.
#[derive(Debug, Clone)]
pub struct Binary {
    /// Its test file's or folder's name.
    pub name: String,
    /// The program.
    path: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// Tests of a binary.
#[derive(Debug, Clone, Copy)]
pub enum Chosen<'a> {
    /// These, by their whole names.
    Tests(&'a [&'a str]),
    /// Those whose names contain one of these; all, where there is none.
    Matching(&'a [&'a str]),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// Somebody wants the program to end.
    Stopped,
    /// The compiler's error, in a line.
    NotBuilt(String),
    /// The system.
    System(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All tests passed.
    Passed,
    /// This test failed, and how.
    Failed(String, String),
    /// It was ended before it ended.
    TimeOut,
    /// Somebody else ended it by SIGKILL, as the kernel does where memory is short.
    Killed,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Succeeded,
    Failed,
    /// By SIGKILL, and not by us.
    Killed,
    /// By us: its time was up, or enough was seen in the new part of its output.
    Cut,
}

impl Bench {
    /// Builds test binaries of a crate: these files', or all.
    pub fn build(&self, tests: &Tests, files: &[&str]) -> Result<Vec<Binary>, Trouble> {
        let mut command = Command::new(env!("CARGO"));
        command
            .current_dir(&self.source)
            .args(["test", "--offline", "--no-run", "--message-format=json"])
            .args(["-p", tests.package]);
        match files {
            [] => command.args(["--test", "*"]),
            [OF_THE_CRATE] => command.arg("--lib"),
            files => command.args(files.iter().flat_map(|file| ["--test", file])),
        };
        command
            .env("CARGO_TARGET_DIR", &self.target)
            // Nobody looks at a backtrace, and without its tables a test is linked
            // in half of the time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1");
        let is_built = self.run(command, Duration::MAX, |_| false)?;
        let output = fs::read_to_string(&self.output)?;
        if is_built != End::Succeeded {
            let error = output.lines().filter_map(compiler_error).next();
            return Err(Trouble::NotBuilt(error.unwrap_or_default()));
        }
        let folder = self.source.join("crates").join(tests.folder);
        let binary = |line: &str| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let path = message.get("executable")?.as_str()?;
            // A crate's programs are built with its tests.
            let is_test = message["profile"]["test"] == true;
            is_test.then_some(Binary {
                name: message["target"]["name"].as_str()?.to_owned(),
                path: path.into(),
                folder: folder.clone(),
            })
        };
        Ok(output.lines().filter_map(binary).collect())
    }

    /// Runs tests of a binary until one fails or the time is up.
    pub fn test(
        &self,
        binary: &Binary,
        chosen: Chosen<'_>,
        environment: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Ended, Trouble> {
        let (exact, tests): (&[_], _) = match chosen {
            Chosen::Tests(tests) => (&["--exact"], tests),
            Chosen::Matching(parts) => (&[], parts),
        };
        let mut command = Command::new(&binary.path);
        command
            .current_dir(&binary.folder)
            .args(["--nocapture", "--test-threads", "2"])
            .args(exact)
            .args(tests)
            .envs(environment.iter().copied())
            // A mutation may need all the preemptions of its model.
            .env_remove("SOFTFAULT_LOOM_PREEMPTIONS")
            .env("RUST_BACKTRACE", "0");
        let mut seen = String::new();
        let end = self.run(command, limit, |output| {
            seen.clear();
            output.read_to_string(&mut seen).is_ok() && seen.contains("FAILED")
        })?;
        let output = String::from_utf8_lossy(&fs::read(&self.output)?).into_owned();
        let has_failed = output.contains("FAILED");
        Ok(match end {
            End::Succeeded => Ended::Passed,
            End::Cut if !has_failed => Ended::TimeOut,
            End::Killed if !has_failed => Ended::Killed,
            End::Failed | End::Killed | End::Cut => {
                let (test, why) = failure(&output);
                Ended::Failed(test, why)
            }
        })
    }

    /// Runs a command until it ends, its time is up, or `enough` is seen in the new part of its output.
    fn run(
        &self,
        mut command: Command,
        limit: Duration,
        mut enough: impl FnMut(&mut File) -> bool,
    ) -> Result<End, Trouble> {
        let output = File::create(&self.output)?;
        let errors = output.try_clone()?;
        let mut look = File::open(&self.output)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A group of its own, which ends as one.
            .process_group(0)
            .spawn()?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(match status.signal() {
                    Some(libc::SIGKILL) => End::Killed,
                    _ if status.success() => End::Succeeded,
                    _ => End::Failed,
                });
            }
            if self.stop.load(Ordering::Relaxed) {
                end(&mut child);
                return Err(Trouble::Stopped);
            }
            if begin.elapsed() > limit || enough(&mut look) {
                end(&mut child);
                return Ok(End::Cut);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Ends a child and all that it has started.
fn end(child: &mut Child) {
    // SAFETY: signals a process group that this program has made and not waited for.
    unsafe { libc::killpg(child.id() as libc::pid_t, libc::SIGKILL) };
    let _ = child.wait();
}

fn compiler_error(line: &str) -> Option<String> {
    // Cargo's own errors are lines between the compiler's.
    if let Some(error) = line.strip_prefix("error: ") {
        return Some(error.to_owned());
    }
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = message.get("message")?;
    let is_error = message["level"] == "error";
    is_error.then(|| message["message"].as_str().unwrap_or_default().to_owned())
}

/// The first test that failed, and its panic's message.
fn failure(output: &str) -> (String, String) {
    let mut lines = output.lines();
    let by_panic = lines.find_map(|line| {
        let (thread, _) = line.strip_prefix("thread '")?.split_once("' ")?;
        line.contains(" panicked at ").then(|| thread.to_owned())
    });
    let why: String = lines.next().unwrap_or_default().chars().take(120).collect();
    let by_name = output.lines().find_map(|line| {
        let name = line.strip_prefix("test ")?.split_once(" ... ")?.0;
        line.ends_with("FAILED").then(|| name.to_owned())
    });
    match by_panic {
        Some(thread) => (by_name.unwrap_or(thread), why),
        None => (
            by_name.unwrap_or_default(),
            "it ended without a panic".into(),
        ),
    }
}

/// The folder in which the copy and its build live, so that the next run finds
/// them.
pub fn work_folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("mutate")
}
