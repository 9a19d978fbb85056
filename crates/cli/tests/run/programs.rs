//! Programs that are on most machines, byte for byte as without softfault, by messages and by signals.

use crate::stats::{self, ProcessStats};
use crate::{BYTES, MEMORY, assert_same, directory, file, softfault_run, text, ways};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// True if there is such a program; otherwise a line that says so.
pub fn there_is(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|said| said.status.success());
    if !there {
        softfault_skip::skipped("program", format_args!("there is no {program}"));
    }
    there
}

fn in_order(command: &mut Command, directory: &Path) -> Output {
    let output = command.current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Runs a program in a directory without softfault and in all ways with it; the statistics of its processes each time.
fn same(directory: &Path, arguments: &[&str]) -> Vec<Vec<ProcessStats>> {
    let without = in_order(Command::new(arguments[0]).args(&arguments[1..]), directory);
    let each = ways().iter().map(|way| {
        let file = directory.join(format!("{way}.stats"));
        let _ = std::fs::remove_file(&file);
        let mut with = softfault_run();
        with.args([
            "--faults",
            way,
            "--memory",
            MEMORY,
            "--stats=json",
            "--stats-file",
        ])
        .arg(&file);
        let with = in_order(with.arg("--").args(arguments), directory);
        assert_same(&with, &without, &format!("{way}: {arguments:?}"));
        stats::read(&file)
    });
    each.collect()
}

/// All that was mapped of large files was taken.
fn takes_all(processes: &[ProcessStats], bytes: u64) {
    let taken: u64 = processes
        .iter()
        .map(|process| process.number(&["taken", "bytes"]))
        .sum();
    assert!(taken >= bytes, "{taken} of {bytes} bytes were taken");
    for process in processes {
        let declined = process.declined();
        assert!(
            (declined.iter()).all(|(name, _)| ["too_small", "small_mapping"].contains(&&**name)),
            "{declined:?}"
        );
        assert_eq!(process.handed_back(), 0);
    }
}

/// A directory that is empty.
fn fresh(name: &str) -> PathBuf {
    let path = directory(name);
    std::fs::remove_dir_all(&path).unwrap();
    directory(name)
}

#[test]
fn python_reads_a_mapping() {
    if !there_is("python3") {
        return;
    }
    let directory = fresh("python");
    file(&directory, BYTES);
    let program = "\
import hashlib, mmap, os, sys
f = open('data', 'rb')
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
print(hashlib.sha256(m).hexdigest(), m.find(b'\\x12\\x34\\x56'), m[5000000:5000010], len(m))
m.madvise(mmap.MADV_RANDOM)
sys.stdout.flush()
os.write(1, m[9000000:9005000].hex().encode())
open('out', 'wb').write(m)
if os.fork() == 0:
    print(hashlib.sha256(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)).hexdigest(), hashlib.sha256(m).hexdigest())
    sys.exit(0)
os.wait()
print(hashlib.sha256(open('out', 'rb').read()).hexdigest())
";
    for processes in same(&directory, &["python3", "-c", program]) {
        takes_all(&processes, 2 * BYTES as u64);
    }
}

#[test]
fn sqlite_reads_a_database() {
    if !there_is("sqlite3") {
        return;
    }
    let directory = fresh("sqlite");
    let fill = "create table t(id integer primary key, k text, v blob);
        with recursive c(x) as (select 1 union all select x + 1 from c where x < 22000)
        insert into t select x, hex(x * 2654435761 % 4294967296), zeroblob(900) || x from c;
        create index i on t(k);";
    in_order(Command::new("sqlite3").args(["t.db", fill]), &directory);
    let bytes = std::fs::metadata(directory.join("t.db")).unwrap().len();
    let query = "pragma mmap_size = 1000000000; pragma integrity_check; select count(*), sum(length(v)), max(k) from t;
        select id, k, substr(v, 901) from t where id % 79 = 3; select id from t where k > 'F' order by k limit 500;";
    for processes in same(&directory, &["sqlite3", "file:t.db?mode=ro", query]) {
        takes_all(&processes, bytes);
        assert!(processes[0].number(&["evicted"]) > 0);
    }
}

#[test]
fn git_reads_a_pack() {
    if !there_is("git") {
        return;
    }
    let directory = fresh("git");
    file(&directory, BYTES);
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "core.packedGitWindowSize=8m",
        ]);
        git.args(["-c", "gc.auto=0", "-c", "core.compression=0"]);
        in_order(git.args(arguments), &directory)
    };
    git(&["init", "-q", "."]);
    git(&["add", "data"]);
    git(&["commit", "-qm", "one"]);
    for change in 0..5 {
        std::fs::write(directory.join("text"), format!("{change}\n")).unwrap();
        git(&["add", "text"]);
        git(&["commit", "-qm", "more"]);
    }
    git(&["repack", "-adq"]);
    let window = "core.packedGitWindowSize=8m";
    for processes in same(&directory, &["git", "-c", window, "fsck", "--full"]) {
        // The last window may be too small.
        takes_all(&processes, BYTES as u64 - (128 << 10));
    }
    for processes in same(
        &directory,
        &["git", "-c", window, "--no-pager", "log", "-p", "--stat"],
    ) {
        takes_all(&processes, 1);
    }
}
