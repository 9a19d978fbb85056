//! A process that is watched: one that hangs is a failure, and says where.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Far more than any row takes, on a busy machine too.
const DEADLINE_SECONDS: u64 = 300;

/// How a process ended, and its output.
pub struct Ended {
    /// `None` if it had to be killed.
    pub status: Option<ExitStatus>,
    pub said: String,
}

/// Runs a row's command to its end, or to the deadline.
pub fn run(command: &mut Command) -> Ended {
    let seconds = std::env::var("SOFTFAULT_ROW_SECONDS").ok();
    let seconds = seconds.map_or(DEADLINE_SECONDS, |text| text.parse().expect("seconds"));
    run_for(command, Duration::from_secs(seconds))
}

/// Runs a command to its end, or for so long.
pub fn run_for(command: &mut Command, most: Duration) -> Ended {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test can be started again");
    let mut out = child.stdout.take().expect("piped");
    let mut err = child.stderr.take().expect("piped");
    std::thread::scope(|scope| {
        let out = scope.spawn(move || text(&mut out));
        let err = scope.spawn(move || text(&mut err));
        let status = wait(&mut child, most);
        let mut said = String::new();
        if status.is_none() {
            said = threads(child.id());
            let _ = child.kill();
            let _ = child.wait();
        }
        said += &out.join().expect("read to its end");
        said += &err.join().expect("read to its end");
        Ended { status, said }
    })
}

fn text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The waits of a process's threads, as the kernel tells them.
pub fn threads(process: u32) -> String {
    let mut said = String::new();
    let folder = format!("/proc/{process}/task");
    for thread in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        for what in ["comm", "wchan", "syscall", "stack"] {
            let text = std::fs::read_to_string(thread.path().join(what));
            said += &format!("{what}: {}\n", text.unwrap_or_default().trim());
        }
    }
    said
}
