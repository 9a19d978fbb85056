//! The command and the library of two builds refuse each other.

use crate::elsewhere::Elsewhere;
use crate::{refuses, softfault_run, text};
use std::fs;
use std::path::Path;
use std::process::Command;

const BUILD: &str = "SOFTFAULT_RUN_BUILD";

/// The stamp of this build, as a program sees it.
fn stamp() -> String {
    let run = softfault_run().args(["--", "printenv", BUILD]).output();
    let stamp = text(&run.unwrap().stdout).trim_end().to_owned();
    assert!(stamp.starts_with(env!("CARGO_PKG_VERSION")), "{stamp}");
    stamp
}

/// The same, with another last letter.
fn other(stamp: &str) -> String {
    let (rest, last) = stamp.split_at(stamp.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

/// What `doctor` says of the library.
fn doctor(place: &Elsewhere) -> String {
    let said = place.softfault(&["doctor", "--json"]).output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "run-library").unwrap();
    row["state"].as_str().unwrap().to_owned()
}

#[test]
fn the_command_refuses_a_library_of_another_build() {
    let (ours, place) = (stamp(), Elsewhere::new());
    assert_eq!(doctor(&place), "ok");
    let theirs = other(&ours);
    let mut library = fs::read(place.library()).unwrap();
    let stamps = library.windows(ours.len()).enumerate();
    let stamps = stamps.filter(|(_, bytes)| *bytes == ours.as_bytes());
    let stamps: Vec<_> = stamps.map(|(at, _)| at).collect();
    assert!(!stamps.is_empty());
    for at in stamps {
        library[at..at + theirs.len()].copy_from_slice(theirs.as_bytes());
    }
    fs::write(place.library(), library).unwrap();
    assert_eq!(doctor(&place), "missing");
    let arguments = ["run", "--strict", "--", "echo", "ran"];
    for named in [&ours, &theirs] {
        let named = format!("of softfault {named}");
        refuses(&mut place.softfault(&arguments), 125, &named);
    }
    // One of a time before the stamps, and none at all.
    for odd in ["/bin/true", "/etc/passwd"] {
        place.copy(Path::new(odd), "libsoftfault_preload.so");
        refuses(&mut place.softfault(&arguments), 125, "of an unknown build");
    }
}

#[test]
fn the_library_refuses_a_command_of_another_build() {
    let ours = stamp();
    let theirs = other(&ours);
    let with = |stamp: &str| {
        let preload = softfault_run();
        let mut all = preload.get_envs();
        let library = all.find(|(name, _)| *name == "SOFTFAULT_PRELOAD");
        let mut command = Command::new("/bin/echo");
        command.env("LD_PRELOAD", library.unwrap().1.unwrap());
        command.env(BUILD, stamp).arg("ran");
        command
    };
    for named in [&ours, &theirs] {
        refuses(&mut with(&theirs), 125, &format!("of softfault {named}"));
    }
    // A user who loads it himself gives none.
    for fits in ["", &ours] {
        assert_eq!(text(&with(fits).output().unwrap().stdout), "ran\n");
    }
}
