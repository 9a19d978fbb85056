//! Libraries that a program is linked with, `linked.c`: their constructors, and threads that these start, run before softfault's
//! library is initialised.

use crate::stats::ProcessStats;
use crate::{BYTES, compile, directory, file, same_each_way};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The program of a scene, linked with the library.
fn program(directory: &Path) -> Option<PathBuf> {
    let library = directory.join("liblinked.so");
    let library = compile("linked.c", &library, &["-shared", "-fPIC", "-fno-builtin"])?;
    let arguments = ["-DPROGRAM", "-Wl,--no-as-needed", library.to_str().unwrap()];
    compile("linked.c", &directory.join("program"), &arguments)
}

/// Prints the same each way as without softfault; `check` gets the statistics of its first process.
fn same(scene: &str, check: impl Fn(&ProcessStats)) {
    let directory = directory(&format!("linked-{scene}"));
    let Some(program) = program(&directory) else {
        return;
    };
    let data = file(&directory, BYTES);
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    // A thread that waits for ever ends, too, also with all signals masked.
    let command = ["timeout", "--kill-after=10", "100"].map(OsStr::new);
    let own = [program.as_os_str(), scene.as_ref(), data.as_os_str()];
    let command = [&command[..], &own].concat();
    same_each_way(&directory, &command, &options, |stats, _| {
        check(stats.last().expect("a report"));
    });
}

/// Failed before: a thread that found another one at the look-up got -1, as if the C library did not have the function. The second
/// one comes while the first waits for the loader, which has locked itself for the constructor.
#[test]
fn threads_look_the_same_function_up() {
    let directory = directory("linked-looked-up");
    let Some(program) = program(&directory) else {
        return;
    };
    let opened = directory.join("opened.so");
    let arguments = ["-shared", "-fPIC", "-DOPENED"];
    let Some(opened) = compile("linked.c", &opened, &arguments) else {
        return;
    };
    let command = ["timeout", "100"].map(OsStr::new);
    let own = [
        program.as_os_str(),
        "looked-up".as_ref(),
        opened.as_os_str(),
    ];
    same_each_way(&directory, &[&command[..], &own].concat(), &[], |_, _| {});
}

/// Failed before, by signals: the thread, and the handler, ended the process when they touched, and the program had forgotten that
/// it had blocked the signal.
#[test]
fn a_constructor_blocks_sigbus() {
    same("blocked", |stats| assert_eq!(stats.taken(), 3));
}

/// Failed before, by signals: with a mapping that was taken already, the handler was dropped.
#[test]
fn a_constructor_handles_sigbus() {
    same("handled", |stats| assert_eq!(stats.taken(), 2));
}

/// Failed before: such a handler ran while softfault was held for the fork, and glibc was handed a block that it did not know.
#[test]
fn blocks_are_resized_in_handlers_of_a_fork() {
    same("forks", |stats| assert!(stats.taken() >= 1));
}

/// A library that finds `__register_atfork` by dlsym(3) comes past our hook: its handlers do run while softfault is held for the fork.
#[test]
fn blocks_are_resized_in_handlers_that_were_registered_past_us() {
    same("forks-unseen", |stats| assert!(stats.taken() >= 1));
}

/// Failed before: the library's handler ran in the child while nothing was where the files were mapped. Its new memory came to be there, and
/// the child had no mapping, or touched it in vain.
#[test]
fn a_handler_starts_a_thread_in_the_child() {
    same("restarts", |stats| assert_eq!(stats.taken(), 1));
}

#[test]
fn handlers_of_a_fork_read_what_is_mapped() {
    same("reads", |stats| assert_eq!(stats.taken(), 1));
    same("maps", |stats| assert_eq!(stats.taken(), 2));
}

/// Failed before: the fork held the table when the handler waited for a thread that waited for the table.
#[test]
fn a_handler_waits_for_a_thread_that_maps() {
    same("holds", |stats| assert!(stats.taken() > 0));
}
