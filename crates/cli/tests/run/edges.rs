//! Calls at the edges of what is covered, and limits: `edges.c`, `resolver.c`.

use crate::stats::ProcessStats;
use crate::{
    assert_same, compile, directory, has_messages, run_with, same_case, same_each_way, text, ways,
};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program(case: &str) -> Option<(PathBuf, PathBuf)> {
    let directory = directory(&format!("edges-{case}"));
    let program = compile("edges.c", &directory.join("program"), &[])?;
    Some((directory, program))
}

fn with(
    case: &str,
    how: &str,
    (directory, program): (&Path, &Path),
) -> (Output, Vec<ProcessStats>) {
    let written = directory.join(format!("{how}.stats"));
    let swap = format!("{}:100M", directory.display());
    let mut options = vec!["--min-size", "1M", "--anonymous", "--swap", &swap];
    options.extend(["--faults", how]);
    // A touch that waits for ever ends, too.
    let ends = ["timeout", "100"].map(OsStr::new);
    let own = [program.as_ref(), OsStr::new(case)];
    run_with(&options, &[&ends[..], &own].concat(), &written)
}

/// Prints the same each way as without softfault.
fn same(case: &str) {
    same_case("edges.c", case, (None, "100M"), |stats, how| {
        assert!(stats.taken() > 0, "{how}");
    });
}

#[test]
fn programs_get_lists_of_arguments() {
    same("lists");
}

#[test]
fn names_are_looked_up_by_threads_of_the_c_library() {
    same("names");
}

#[test]
fn names_are_asked_for_by_the_programs_own_buffers() {
    let directory = directory("resolver");
    let Some(program) = compile("resolver.c", &directory.join("program"), &["-lresolv"]) else {
        return;
    };
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    same_each_way(&directory, &[program.as_ref()], &options, |stats, how| {
        let taken: u64 = stats.iter().map(ProcessStats::taken).sum();
        assert!(taken > 0, "{how}");
    });
}

#[test]
fn vectors_of_another_process_are_written_to_whole() {
    same("vectors");
}

#[test]
fn many_messages_come_in_time() {
    same("messages");
}

#[test]
fn what_a_socket_drops_is_not_written() {
    same("dropped");
}

#[test]
fn memory_that_the_kernel_does_not_give_is_not_taken() {
    same_case("edges.c", "nothing-given", (None, "100M"), |stats, how| {
        // Nothing was tried that the budget could be blamed for.
        let declined = stats.declined();
        assert!(
            declined.iter().all(|(why, _)| why != "error"),
            "{how}: {declined:?}"
        );
        assert!(stats.taken() > 0, "{how}");
    });
}

#[test]
fn parts_of_several_servers_are_populated() {
    same("populate");
}

#[test]
fn others_map_while_a_thread_populates() {
    same("populate-beside");
}

#[test]
fn a_mapping_that_grows_where_it_is_stays_taken() {
    same("grows");
}

/// A ring's requests are served by messages. By signals they are not covered: EFAULT, and not bytes of something else.
#[test]
fn rings_say_that_memory_is_missing() {
    let case = "rings";
    let Some((directory, program)) = program(case) else {
        return;
    };
    let without = Command::new(&program).arg(case).output().unwrap();
    if text(&without.stdout) == "none\n" {
        return softfault_skip::skipped("kernel", "there is no io_uring");
    }
    if has_messages() {
        let (output, _) = with(case, "messages", (&directory, &program));
        assert_same(&output, &without, case);
    }
    let (output, _) = with(case, "signals", (&directory, &program));
    let (missing, there) = (-libc::EFAULT, 4096);
    let expected = format!("read {missing}\nwrite {missing}\nthere {there}\n");
    assert_eq!(text(&output.stdout), expected);
}

/// Memory is handed over before, and a line says so; what is mapped then is the kernel's, until there is no such limit any more.
#[test]
fn a_limit_on_the_size_of_files_is_less_than_swap_has() {
    let case = "file-size";
    let Some((directory, program)) = program(case) else {
        return;
    };
    let without = Command::new(&program).arg(case).output().unwrap();
    for how in ways() {
        let (output, stats) = with(case, how, (&directory, &program));
        assert_eq!(text(&output.stdout), text(&without.stdout), "{how}");
        assert_eq!(output.status, without.status, "{how}");
        let said = text(&output.stderr);
        let lines: Vec<_> = said.lines().collect();
        let [handed_over, declined] = lines[..] else {
            panic!("{how}: {said}");
        };
        let limit = "RLIMIT_FSIZE, 1000000 bytes, is less than the swap file's size: raise it (`ulimit -f`), or make swap smaller (--swap DIR:SIZE)";
        assert!(handed_over.ends_with(limit), "{how}: {said}");
        let why = format!("swap_full, --swap has no room for all of it; {limit}");
        assert!(declined.ends_with(&why), "{how}: {said}");
        let stats = stats.last().expect("its own");
        assert_eq!((stats.taken(), stats.handed_back()), (2, 1), "{how}");
        assert_eq!(stats.declined(), [("swap_full".to_owned(), 1)], "{how}");
        assert_eq!(stats.number(&["failed_touches"]), 0, "{how}");
    }
}

#[test]
fn a_limit_that_is_set_by_the_number_of_a_thread_is_the_processs() {
    let case = "file-size-of-a-thread";
    let Some((directory, program)) = program(case) else {
        return;
    };
    let without = Command::new(&program).arg(case).output().unwrap();
    for how in ways() {
        let (output, stats) = with(case, how, (&directory, &program));
        assert_eq!(text(&output.stdout), text(&without.stdout), "{how}");
        assert_eq!(output.status, without.status, "{how}");
        let stats = stats.last().expect("its own");
        assert_eq!((stats.taken(), stats.handed_back()), (1, 1), "{how}");
    }
}

/// The limit concerns no memory of the program: its mapping stays taken.
#[track_caller]
fn nothing_is_handed_back(case: &str) {
    let Some((directory, program)) = program(case) else {
        return;
    };
    let without = Command::new(&program).arg(case).output().unwrap();
    for how in ways() {
        let (output, stats) = with(case, how, (&directory, &program));
        assert_same(&output, &without, how);
        let stats = stats.last().expect("its own");
        assert_eq!((stats.taken(), stats.handed_back()), (1, 0), "{how}");
    }
}

#[test]
fn a_limit_that_the_kernel_refuses_takes_nothing() {
    nothing_is_handed_back("file-size-refused");
}

#[test]
fn a_limit_of_a_child_takes_nothing_of_its_parent() {
    nothing_is_handed_back("file-size-of-a-child");
}

#[test]
fn a_program_that_has_few_descriptors_is_the_kernels_and_a_line_says_why() {
    let case = "descriptors";
    let Some((directory, program)) = program(case) else {
        return;
    };
    let without = Command::new(&program).arg(case).output().unwrap();
    assert!(text(&without.stdout).starts_with("wrong 0\nopened "));
    for how in ways() {
        let (output, stats) = with(case, how, (&directory, &program));
        assert_eq!(text(&output.stdout), text(&without.stdout), "{how}");
        let said = text(&output.stderr);
        assert!(said.starts_with("softfault: program["), "{how}: {said}");
        let raise = "; RLIMIT_NOFILE is 6, and 24 are needed: raise it with `ulimit -n`\n";
        assert!(said.ends_with(raise), "{how}: {said}");
        assert_eq!(said.lines().count(), 1, "{how}: {said}");
        let stats = stats.last().expect("its own");
        assert_eq!(stats.declined(), [("no_engine".to_owned(), 1)], "{how}");
    }
}
