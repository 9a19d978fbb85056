//! How it is known that nobody writes to a file, and the fate of a mapping when somebody does.

use crate::cases::Cases;
use crate::{WAS_OPENED, same_variables, stats, text};
use std::fs::File;
use std::process::Command;

/// Rounds in which a file is written to; many with `SOFTFAULT_RUN_ROUNDS`.
fn rounds() -> u64 {
    let rounds = std::env::var("SOFTFAULT_RUN_ROUNDS").ok();
    rounds.map_or(12, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn a_file_that_somebody_writes_to_is_handed_back_before() {
    let Some(cases) = Cases::of_its_own("written") else {
        return;
    };
    let file = cases.stats_file("written");
    let mut with = cases.with("written", &file);
    let with = with.env("ROUNDS", rounds().to_string()).output().unwrap();
    let said = text(&with.stdout);
    assert!(said.ends_with("wrong 0\n"), "{said} {}", text(&with.stderr));
    // Told once.
    let told = text(&with.stderr);
    let path = format!("{:?}, ", cases.data);
    assert!(told.contains(&path) && told.ends_with(WAS_OPENED), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let stats = stats::read(&file);
    let last = stats.last().unwrap();
    // Each began with a mapping that was taken.
    assert_eq!(
        (last.taken(), last.handed_back()),
        (rounds(), rounds()),
        "{:?}",
        last.declined()
    );
}

#[test]
fn a_program_writes_to_its_maps() {
    let Some(cases) = Cases::of_its_own("writes-itself") else {
        return;
    };
    let copy = cases.data.with_extension("copy");
    std::fs::copy(&cases.data, &copy).unwrap();
    crate::unwritten::wait(&copy);
    let without = Command::new(&cases.program)
        .arg("writes-itself")
        .arg(&copy)
        .output()
        .unwrap();
    let file = cases.stats_file("writes-itself");
    let with = cases.with("writes-itself", &file).output().unwrap();
    let stats = stats::read(&file);
    crate::assert_same_but_told(&with, &without, &stats, "writes-itself");
    let stats = &stats[0];
    // Before, and when nobody has it open for writing any more.
    assert_eq!((stats.taken(), stats.handed_back()), (3, 2));
    assert_eq!(stats.declined(), [("open_for_writing".to_owned(), 1)]);
}

#[test]
fn a_file_that_is_open_for_writing_is_declined() {
    let Some(cases) = Cases::of_its_own("open") else {
        return;
    };
    let file = cases.stats_file("open");
    let writer = File::options().append(true).open(&cases.data).unwrap();
    let mut with = cases.with("whole", &file);
    assert!(with.output().unwrap().status.success());
    let stats = &stats::read(&file)[0];
    assert_eq!(stats.declined(), [("open_for_writing".to_owned(), 1)]);
    // Unless the user says that nobody writes.
    let file = cases.stats_file("assumed");
    let with = cases
        .with("whole", &file)
        .env("SOFTFAULT_RUN_ASSUME_IMMUTABLE", "1")
        .output();
    assert!(with.unwrap().status.success());
    assert_eq!(stats::read(&file)[0].taken(), 1);
    drop(writer);
}

/// Runs a case on a file system that is made for the test, in a mount namespace of its own; its statistics.
fn on(kind: &str, then: &str, name: &str) -> Option<stats::ProcessStats> {
    let cases = Cases::of_its_own(name)?;
    let place = cases.directory.join("place");
    std::fs::create_dir_all(&place).unwrap();
    let mount = format!(
        "mount -t {kind} none {place} && cp {data} {place}/data && {then} || exit 77; exec \"$@\"",
        place = place.display(),
        data = cases.data.display(),
        then = then.replace("PLACE", &place.display().to_string()),
    );
    let file = cases.stats_file("mounted");
    let there = place.join("data");
    let run = cases.with_file("whole", &file, &there);
    let may_mount = Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        softfault_skip::skipped("root", "nothing can be mounted here");
        return None;
    }
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-m", "sh", "-c", &mount, "sh"])
        .arg(run.get_program())
        .args(run.get_args());
    same_variables(&run, &mut unshare);
    let output = unshare.output().unwrap();
    match output.status.code() {
        Some(0) => stats::read(&file).pop(),
        Some(77) => {
            softfault_skip::skipped(
                "root",
                format_args!("nothing can be mounted here: {}", text(&output.stderr)),
            );
            None
        }
        _ => panic!("{output:?}"),
    }
}

#[test]
fn a_file_system_without_leases_of_its_own_is_declined() {
    if let Some(stats) = on("ramfs", "true", "ramfs") {
        assert_eq!(stats.declined(), [("file_may_change".to_owned(), 1)]);
    }
}

/// It may be mounted anew to be written to, and a network's is written to by others.
#[test]
fn a_file_system_that_is_mounted_read_only_assures_nothing() {
    if let Some(stats) = on("ramfs", "mount -o remount,ro none PLACE", "read-only") {
        assert_eq!(stats.declined(), [("file_may_change".to_owned(), 1)]);
    }
    // Under a lease.
    if let Some(stats) = on("tmpfs", "mount -o remount,ro none PLACE", "leased") {
        assert_eq!(stats.taken(), 1, "{:?}", stats.declined());
    }
}
