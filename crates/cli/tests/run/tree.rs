//! One budget for a tree of processes.

#[path = "../../../preload/src/tree/level.rs"]
mod level;

use crate::stats::{self, ProcessStats};
use crate::{assert_same, compile, directory, file, preload_library, softfault_run, text, ways};
use level::level;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MEMORY: u64 = 24 << 20;
/// The memory that each process may have, whatever the others have.
const LEAST: u64 = softfault::MIN_MEMORY as u64;
/// Several budgets.
const BYTES: usize = 72 << 20;
/// Anonymous memory that each process has beside: the program's own, the library's heap, stacks of its threads.
const BESIDE: u64 = 1 << 20;
/// Then something hangs.
const AT_LAST: Duration = Duration::from_secs(60);

struct Workers {
    directory: PathBuf,
    program: PathBuf,
    data: PathBuf,
}

impl Workers {
    fn get() -> Option<&'static Self> {
        static WORKERS: OnceLock<Option<Workers>> = OnceLock::new();
        let workers = WORKERS.get_or_init(|| {
            let directory = directory("tree");
            let program = compile("workers.c", &directory.join("workers"), &[])?;
            let data = file(&directory, BYTES);
            Some(Self {
                directory,
                program,
                data,
            })
        });
        workers.as_ref()
    }

    fn stats_file(&self, name: &str) -> PathBuf {
        let file = self.directory.join(format!("{name}.stats"));
        let _ = std::fs::remove_file(&file);
        file
    }

    /// Softfault with the budget, which writes its statistics to a file of this name.
    fn run(&self, name: &str) -> Command {
        let mut run = softfault_run();
        run.args([
            "--memory",
            &MEMORY.to_string(),
            "--stats=json",
            "--stats-file",
        ]);
        run.arg(self.stats_file(name)).arg("--");
        run
    }

    /// A process of the tree that the environment of `first` names.
    fn member(&self, what: &str, page: &str, stats: &str) -> Member {
        let mut command = Command::new(&self.program);
        command.arg(what).arg(&self.data);
        command.env("LD_PRELOAD", preload_library());
        command.env("SOFTFAULT_MEMORY", MEMORY.to_string());
        command.env("SOFTFAULT_RUN_TREE", page);
        command.env("SOFTFAULT_RUN_STATS", "json");
        command.env("SOFTFAULT_RUN_STATS_FILE", self.stats_file(stats));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Member(command.spawn().unwrap())
    }

    fn stats(&self, name: &str) -> Vec<ProcessStats> {
        stats::read(&self.directory.join(format!("{name}.stats")))
    }
}

/// A process that the test goes on with.
struct Member(Child);

impl Member {
    /// Waits until it says that it has its share.
    fn hear(&mut self) {
        let mut said = [0];
        let out = self.0.stdout.as_mut().unwrap();
        out.read_exact(&mut said).unwrap();
        assert_eq!(&said, b".");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
    }

    /// Sends it a signal, and waits until all of its threads have stopped (WSTOPPED) or ended (WEXITED) by it. It can still be waited
    /// for, and until then has its number.
    fn signal_and_see(&self, signal: i32, event: i32) {
        self.signal(signal);
        // SAFETY: zeros are a valid one, and the call fills it; a child that was not waited for.
        let seen = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, self.0.id(), &mut about, event | libc::WNOWAIT)
        };
        assert_eq!(seen, 0);
    }

    fn anonymous(&self) -> u64 {
        anonymous(self.0.id()).unwrap_or(0)
    }

    /// Lets it end.
    fn end(mut self) {
        let _ = self.0.stdin.take().unwrap().write_all(b".");
        self.ends();
    }

    /// Lets it run to its end, and prints nothing.
    fn end_alone(mut self) {
        drop(self.0.stdin.take());
        self.ends();
    }

    fn ends(&mut self) {
        let mut said = String::new();
        let stdout = self.0.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The page of a tree whose first process is this one, removed with the test.
struct PageName(String);

impl PageName {
    fn new(name: &str) -> Self {
        // SAFETY: only asks.
        let user = unsafe { libc::geteuid() };
        let process = std::process::id();
        Self(format!("/dev/shm/softfault-run-{user}-{process}-{name}"))
    }
}

impl Drop for PageName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Bytes of anonymous memory of a process.
fn anonymous(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The state of a process or thread, and the group that it is in.
fn state_and_group(place: &str) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("{place}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split(' ').collect();
    Some((fields[0].chars().next()?, fields[2].parse().ok()?))
}

fn numbers_in(place: &str) -> Vec<u32> {
    let all = std::fs::read_dir(place).into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The processes of a group that live, and whether none of their threads runs.
fn group_of(group: u32) -> (Vec<u32>, bool) {
    let lives = |&process: &u32| {
        let found = state_and_group(&format!("/proc/{process}"));
        found.is_some_and(|(state, of)| of == group && state != 'Z')
    };
    let members: Vec<_> = numbers_in("/proc").into_iter().filter(lives).collect();
    // One that waits for a child of vfork, which is stopped, sleeps.
    let rests =
        |place: &str| state_and_group(place).is_none_or(|(state, _)| "TDZX".contains(state));
    let still = members.iter().all(|process| {
        let tasks = format!("/proc/{process}/task");
        let all = numbers_in(&tasks);
        all.iter().all(|task| rests(&format!("{tasks}/{task}")))
    });
    (members, still)
}

/// Anonymous memory of all processes of a group at one moment, in which they are stopped, and how many they are.
fn anonymous_of_group(group: u32) -> (u64, u64) {
    // SAFETY: processes of a child that is not waited for yet.
    let signal = |signal| unsafe { libc::kill(-(group as libc::pid_t), signal) };
    signal(libc::SIGSTOP);
    let until = Instant::now() + AT_LAST;
    let members = loop {
        // One that was about to be made is stopped, too.
        signal(libc::SIGSTOP);
        let (members, still) = group_of(group);
        if still || Instant::now() > until {
            break members;
        }
        std::thread::yield_now();
    };
    let all: Vec<_> = members.into_iter().filter_map(anonymous).collect();
    signal(libc::SIGCONT);
    (all.iter().sum(), all.len() as u64)
}

/// Runs it to its end, and the most anonymous memory that its processes had, beyond their share.
fn watched(command: &mut Command) -> (Output, u64) {
    command.process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let group = child.id();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut beyond = 0;
            while !ended.load(Relaxed) {
                let (bytes, count) = anonymous_of_group(group);
                let may = MEMORY + count * (LEAST + BESIDE);
                beyond = beyond.max(bytes.saturating_sub(may));
                std::thread::sleep(Duration::from_millis(15));
            }
            beyond
        });
        let output = child.wait_with_output().unwrap();
        ended.store(true, Relaxed);
        (output, watcher.join().unwrap())
    })
}

/// All were told the same budget, which was kept.
fn assert_one_budget(all: &[ProcessStats], processes: u64) {
    for stats in all {
        assert_eq!(stats.taken(), 1);
        let tree = |name| stats.number(&["tree", name]);
        assert_eq!(tree("budget_bytes"), MEMORY);
        let may = MEMORY + processes * LEAST;
        assert!(tree("peak_bytes") <= may, "{} of {may}", tree("peak_bytes"));
        assert!(tree("processes") <= processes);
        assert!(stats.number(&["peak_bytes"]) <= MEMORY);
    }
    let last = all.last().expect("processes");
    assert!(last.number(&["tree", "peak_bytes"]) > MEMORY / 2);
}

#[test]
fn members_below_the_level_get_all_that_they_want() {
    let all = u64::MAX;
    assert_eq!(level(100, &[]), all);
    assert_eq!(level(100, &[30, 40]), all);
    assert_eq!(level(100, &[all]), 100);
    assert_eq!(level(100, &[all, all]), 50);
    assert_eq!(level(100, &[10, all, all]), 45);
    assert_eq!(
        level(100, &[40, all, 10, 45]),
        30,
        "40 is more than there is for each"
    );
    assert_eq!(level(100, &[20, all, 10, 35]), 35);
    assert_eq!(level(0, &[all, 1]), 0);
}

#[test]
fn a_pool_of_workers_has_one_budget() {
    let Some(workers) = Workers::get() else {
        return;
    };
    let pool = |command: &mut Command| {
        command.arg(&workers.program).arg("pool").arg(&workers.data);
    };
    let mut without = Command::new(&workers.program);
    let without = without.arg("pool").arg(&workers.data).output().unwrap();
    for how in ways() {
        let mut run = workers.run("pool");
        pool(run.env("SOFTFAULT_RUN_FAULTS", how));
        let (with, beyond) = watched(&mut run);
        assert_same(&with, &without, how);
        assert_eq!(beyond, 0, "bytes beyond the budget");
        let all = workers.stats("pool");
        assert_eq!(
            all.len(),
            7,
            "three that were forked, three that called exec, and their parent"
        );
        assert_one_budget(&all, 7);
    }
}

#[test]
fn a_pool_of_python_answers_the_same() {
    let Some(workers) = Workers::get() else {
        return;
    };
    if !crate::programs::there_is("python3") {
        return;
    }
    let program = "\
import hashlib, mmap, multiprocessing, sys
def work(part):
    f = open(sys.argv[1], 'rb')
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    return hashlib.md5(m).hexdigest()
if __name__ == '__main__':
    with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        print(set(pool.map(work, range(3), chunksize=1)))
        pool.close()
        pool.join()
";
    let script = workers.directory.join("pool.py");
    std::fs::write(&script, program).unwrap();
    let expected = Command::new("python3")
        .arg(&script)
        .arg(&workers.data)
        .arg("fork")
        .output();
    let expected = expected.unwrap();
    assert!(expected.status.success(), "{}", text(&expected.stderr));
    // The second closes all descriptors on the way to its workers, and executes the program anew.
    for how in ["fork", "spawn"] {
        let mut run = workers.run("python");
        run.arg("python3").arg(&script).arg(&workers.data).arg(how);
        assert_same(&run.output().unwrap(), &expected, how);
    }
}

#[test]
fn the_jobs_of_make_have_one_budget() {
    let Some(workers) = Workers::get() else {
        return;
    };
    if !crate::programs::there_is("make") {
        return;
    }
    let makefile = workers.directory.join("Makefile");
    std::fs::write(
        &makefile,
        "all: a b c d\na b c d:\n\t@./workers once data\n",
    )
    .unwrap();
    let mut run = workers.run("make");
    run.args(["make", "-j3", "-f", "Makefile"]);
    let (with, beyond) = watched(run.current_dir(&workers.directory));
    assert!(with.status.success(), "{}", text(&with.stderr));
    assert_eq!((text(&with.stdout), beyond), (String::new(), 0));
    let all = workers.stats("make");
    assert_eq!(all.len(), 4, "make has mapped nothing");
    assert_one_budget(&all, 4);
}

#[test]
fn a_page_that_cannot_be_had_leaves_the_least() {
    let Some(workers) = Workers::get() else {
        return;
    };
    workers
        .member("once", "/nowhere/softfault-run-0-1-0", "nowhere")
        .end_alone();
    let stats = workers.stats("nowhere");
    assert_eq!(stats[0].number(&["budget_bytes"]), LEAST);
    assert!(stats[0].number(&["peak_bytes"]) <= LEAST);
}

/// It had everything, and the next has it.
#[test]
fn a_process_that_was_killed_gives_its_share_back() {
    let Some(workers) = Workers::get() else {
        return;
    };
    let page = PageName::new("killed");
    for round in 0..2 {
        let mut first = workers.member("fill", &page.0, "none");
        first.hear();
        assert!(first.anonymous() > MEMORY / 2, "it has filled its share");
        let mut other = workers.member("fill", &page.0, "none");
        other.hear();
        other.signal(libc::SIGKILL);
        first.signal(libc::SIGKILL);
        for mut killed in [first, other] {
            assert_eq!(killed.0.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        workers.member("once", &page.0, "killed").end_alone();
        let stats = workers.stats("killed");
        assert_one_budget(&stats, 2);
        assert_eq!(
            stats[0].number(&["tree", "share_bytes"]),
            MEMORY,
            "round {round}"
        );
        assert_eq!(stats[0].number(&["tree", "processes"]), 2);
    }
}

#[test]
fn a_process_that_is_stopped_holds_nobody_up() {
    let Some(workers) = Workers::get() else {
        return;
    };
    let page = PageName::new("stopped");
    let mut first = workers.member("fill", &page.0, "none");
    first.hear();
    first.signal_and_see(libc::SIGSTOP, libc::WSTOPPED);
    workers.member("once", &page.0, "stopped").end_alone();
    let stats = workers.stats("stopped");
    assert_eq!(stats[0].number(&["tree", "share_bytes"]), LEAST);
    assert_eq!(stats[0].number(&["failed_touches"]), 0);
    first.signal(libc::SIGCONT);
    first.end();
}

#[test]
fn an_idle_process_gives_memory_that_others_need() {
    let Some(workers) = Workers::get() else {
        return;
    };
    let page = PageName::new("idle");
    let mut idle = workers.member("fill", &page.0, "none");
    idle.hear();
    let before = idle.anonymous();
    assert!(before > MEMORY / 2);
    let other = workers.member("read", &page.0, "idle");
    let until = Instant::now() + AT_LAST;
    while idle.anonymous() > LEAST + BESIDE || other.anonymous() < MEMORY / 2 {
        assert!(
            Instant::now() < until,
            "{} of {before} bytes stay",
            idle.anonymous()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    other.end();
    assert!(workers.stats("idle")[0].number(&["tree", "share_bytes"]) >= MEMORY / 2);
    idle.end();
}

#[test]
fn each_process_may_have_its_own() {
    let Some(workers) = Workers::get() else {
        return;
    };
    let mut run = softfault_run();
    run.args(["--memory-per-process", "8M", "--stats=json", "--stats-file"]);
    run.arg(workers.stats_file("own"))
        .arg("--")
        .arg(&workers.program);
    let output = run.arg("pool").arg(&workers.data).output().unwrap();
    assert!(output.status.success());
    let all = workers.stats("own");
    assert_eq!(all.len(), 7, "the program, and six workers");
    for stats in all {
        assert_eq!(stats.number(&["budget_bytes"]), 8 << 20);
        assert_eq!(
            stats.number(&["tree", "budget_bytes"]),
            0,
            "there is no tree"
        );
    }
}

/// The last process removes it, and the next tree removes files left by processes that were killed.
#[test]
fn nothing_is_left_of_a_tree() {
    let Some(workers) = Workers::get() else {
        return;
    };
    // SAFETY: only asks.
    let user = unsafe { libc::geteuid() };
    let pages = |process: u32| {
        let name = format!("softfault-run-{user}-{process}-");
        let all = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        all.filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|found| found.starts_with(&name))
        })
        .count()
    };
    if !std::path::Path::new("/dev/shm").is_dir() {
        softfault_skip::skipped("shm", "there is no /dev/shm");
        return;
    }
    let start = |what: &str| {
        let mut run = workers.run("left");
        run.arg(&workers.program).arg(what).arg(&workers.data);
        Member(
            run.stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    };
    let mut killed = start("fill");
    let process = killed.0.id();
    killed.hear();
    assert_eq!(pages(process), 1);
    killed.signal_and_see(libc::SIGKILL, libc::WEXITED);
    // As long as its number is in use: afterwards any tree, another test's too, removes it.
    assert_eq!(pages(process), 1, "there was nobody to remove it");
    killed.0.wait().unwrap();
    let mut next = start("fill");
    next.hear();
    assert_eq!(pages(process), 0);
    let process = next.0.id();
    assert_eq!(pages(process), 1);
    next.end();
    assert_eq!(pages(process), 0);
}
