//! Ctrl-C at any moment: exit code 130, and no child, file or cgroup stays.

use super::{directory, is_empty, softfault, words};
use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Starts the command with its output held back. It ends with the test, and so restores what it has set.
pub fn start(command: &mut Command) -> Child {
    let end_with_the_test = || {
        // SAFETY: one system call.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        Ok(())
    };
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(end_with_the_test) };
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until `event` gives something; a test that waits in vain is stopped from outside.
pub fn until<T>(lab: &mut Child, mut event: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = event() {
            return found;
        }
        assert!(lab.try_wait().unwrap().is_none(), "the command ended early");
        sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a child of ours, or a child's.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: kill takes two numbers; the process is our child, not waited for yet.
    assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
}

/// The command's child that is at work. It has several threads of its own; one that only tries an engine has but softfault's beside its first.
pub fn worker(lab: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{lab}/task/{lab}/children")).ok()?;
    let own_threads = |child: &str| {
        let threads = fs::read_dir(format!("/proc/{child}/task")).into_iter();
        let names = threads.flatten().flatten();
        let names = names.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.filter(|name| !name.starts_with("softfault")).count()
    };
    let mut children = children.split_whitespace();
    // A thread of softfault's has its name a moment after its beginning.
    let child = children.find(|child| own_threads(child) > 2)?;
    child.parse().ok()
}

/// Whether any thread of the process is there and not merely unreaped.
pub fn lives(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| {
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
            state.is_some_and(|state| state != b'Z' && state != b'X')
        })
    })
}

fn groups_of(lab: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                if name
                    .to_string_lossy()
                    .starts_with(&format!("softfault-lab-{lab}-"))
                {
                    found.push(entry.path());
                }
                dirs.push(entry.path());
            }
        }
    }
    found
}

/// Waits for a lab that was told to end, and asserts that it left nothing behind and said nothing.
pub fn assert_interrupted(lab: Child, code: i32, dir: &Path) {
    let process = lab.id();
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(groups_of(process), Vec::<PathBuf>::new());
    assert!(!swaps_to(dir) && is_empty(dir));
}

/// Whether the kernel swaps to a file in `dir`.
fn swaps_to(dir: &Path) -> bool {
    let dir = fs::canonicalize(dir).unwrap();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| Path::new(line).starts_with(&dir))
}

#[test]
fn while_files_are_made() {
    for make in [false, true] {
        let dir = directory();
        let mut command = match make {
            true => softfault(&["lab", "make", "--file-size", "2G"]),
            false => softfault(&words("lab run sparse --on kernel --file-size 2G")),
        };
        match make {
            true => command.arg(dir.path().join("made")),
            false => command.arg("--dir").arg(dir.path()),
        };
        let mut lab = start(&mut command);
        let process = lab.id();
        until(&mut lab, || {
            let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
            let links = files
                .flatten()
                .filter_map(|fd| fs::read_link(fd.path()).ok());
            links.into_iter().find(|link| link.starts_with(dir.path()))
        });
        signal(process, libc::SIGINT);
        assert_interrupted(lab, 130, dir.path());
    }
}

#[test]
fn while_threads_are_stuck_in_reads() {
    for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let dir = directory();
        let mut lab = start(&mut thrash(dir.path()));
        let process = lab.id();
        let child = until(&mut lab, || worker(process));
        signal(process, number);
        assert_interrupted(lab, code, dir.path());
        assert!(!lives(child));
    }
}

#[test]
fn while_threads_map_and_fork() {
    for arguments in [
        "warm-start --on kernel,softfault --file-size 32M --memory 24M",
        "storm --on softfault --file-size 32M --memory 24M",
        "pft --on kernel --file-size 1M",
        "spf --on softfault --memory 24M",
        "anon --on kernel --memory 24M",
        "anon --on direct --memory 24M",
        "swap-retry --on kernel --memory 24M",
    ] {
        let dir = directory();
        let mut command = softfault(&["lab", "run"]);
        command.args(arguments.split(' '));
        command.args(["--threads", "4", "--seconds", "100000", "--dir"]);
        let mut lab = start(command.arg(dir.path()));
        let process = lab.id();
        let Some(child) = until_child_or_end(&mut lab) else {
            let output = lab.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let why = said.lines().find(|line| line.contains("no memory cgroup"));
            let why = why.unwrap_or_else(|| panic!("{arguments}: the command ended early: {said}"));
            softfault_skip::skipped("root", format_args!("{arguments}: {why}"));
            continue;
        };
        signal(process, libc::SIGINT);
        assert_interrupted(lab, 130, dir.path());
        assert!(!lives(child));
    }
}

/// The command's child that is at work; `None` if the command has ended.
fn until_child_or_end(lab: &mut Child) -> Option<u32> {
    let process = lab.id();
    loop {
        if let Some(child) = worker(process) {
            return Some(child);
        }
        if lab.try_wait().unwrap().is_some() {
            return None;
        }
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_command_leaves_its_swap_to_the_next_one() {
    let dir = directory();
    let anon = |seconds: &str| {
        let mut command = softfault(&["lab", "run", "anon", "--on", "kernel", "--pattern", "zipf"]);
        command.args([
            "--memory",
            "24M",
            "--size",
            "32M",
            "--threads",
            "2",
            "--seconds",
            seconds,
        ]);
        command.arg("--dir").arg(dir.path());
        command
    };
    let mut lab = start(&mut anon("100000"));
    // Where swap is not allowed there is nothing to leave.
    while !swaps_to(dir.path()) {
        if lab.try_wait().unwrap().is_some() {
            let output = lab.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return softfault_skip::skipped("root", "the kernel may not be told to swap here");
        }
        sleep(Duration::from_millis(2));
    }
    // Before it is killed: from then on any lab, another test's too, may clean up.
    assert!(!is_empty(dir.path()));
    signal(lab.id(), libc::SIGKILL);
    lab.wait().unwrap();
    assert!(anon("0.1").output().unwrap().status.success());
    assert!(!swaps_to(dir.path()) && is_empty(dir.path()));
}

#[test]
fn a_killed_command_takes_its_child_with_it_and_the_next_one_its_cgroups() {
    let dir = directory();
    let mut lab = start(&mut thrash(dir.path()));
    let process = lab.id();
    let child = until(&mut lab, || worker(process));
    signal(process, libc::SIGKILL);
    lab.wait().unwrap();
    while lives(child) {
        sleep(Duration::from_millis(10));
    }
    assert!(is_empty(dir.path()));
    let run = words("lab run thrash --on pread --files holes --threads 1");
    let next = softfault(&run)
        .args(["--seconds", "0.1", "--dir"])
        .arg(dir.path())
        .output();
    assert!(next.unwrap().status.success());
    assert_eq!(groups_of(process), Vec::<PathBuf>::new());
}

#[test]
fn threads_that_wait_in_our_own_faults_die_of_ctrl_c_themselves() {
    let dir = directory();
    let mut random = softfault(&words("lab run random --on softfault --memory 24M"));
    random
        .args(["--file-size", "128M", "--seconds", "100000", "--dir"])
        .arg(dir.path());
    let mut lab = start(&mut random);
    let process = lab.id();
    let child = until(&mut lab, || {
        worker(process).filter(|&child| has_read(child))
    });
    // As from a terminal, but to the child alone: the command has no need to kill it.
    signal(child, libc::SIGINT);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("died of signal 2"), "{told}");

    // 64 GiB of holes: no reading, and minutes of hashing.
    let path = dir.path().join("holes");
    fs::File::create(&path).unwrap().set_len(64 << 30).unwrap();
    let mut sum = start(softfault(&["sum", "--memory", "32M"]).arg(&path));
    let process = sum.id();
    until(&mut sum, || {
        let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let links = files
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        links.into_iter().find(|link| *link == path)
    });
    signal(process, libc::SIGINT);
    assert_eq!(sum.wait().unwrap().signal(), Some(libc::SIGINT));
}

/// Whether the process has read anything from storage: its threads are at work.
fn has_read(process: u32) -> bool {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    io.lines()
        .any(|line| line.starts_with("read_bytes: ") && !line.ends_with(" 0"))
}

/// A run that nothing but a signal ends, in a memory that keeps its threads in reclaim.
pub fn thrash(dir: &Path) -> Command {
    let mut command = softfault(&["lab", "run", "thrash", "--on", "kernel", "--memory", "24M"]);
    command.args("--threads 32 --file-size 2M --seconds 100000".split(' '));
    command.arg("--dir").arg(dir);
    command
}

/// Failed before: the signal only set a flag that nobody looked at any more.
#[test]
fn while_nobody_reads_the_results() {
    let sim = "sim pft --cores 1 --seeds 1 --seconds 0.0001 --region 64K --policies default";
    for arguments in [
        sim,
        "lab run sparse --on softfault --memory 8M --file-size 1M",
    ] {
        let dir = directory();
        let pipe = dir.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a live C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut command = softfault(&words(arguments));
        command.arg("--json").arg(&pipe).current_dir(dir.path());
        let mut command = start(&mut command);
        let process = command.id();
        // It waits in open(2) for a reader.
        until(&mut command, || {
            let call = fs::read_to_string(format!("/proc/{process}/syscall")).ok()?;
            let open = format!("{} ", libc::SYS_openat);
            call.starts_with(&open).then_some(())
        });
        signal(process, libc::SIGTERM);
        let status = command.wait().unwrap();
        let ended = status.signal() == Some(libc::SIGTERM) || status.code() == Some(143);
        assert!(ended, "{arguments}: {status:?}");
    }
    // A reader that has read something, and reads no more.
    let mut sim = softfault(&words(
        "sim pft --cores 1 --seeds 60 --seconds 0.0001 --region 64K --json -",
    ));
    let mut sim = start(&mut sim);
    let mut first = [0];
    sim.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal(sim.id(), libc::SIGTERM);
    assert_eq!(sim.wait().unwrap().signal(), Some(libc::SIGTERM));
}
