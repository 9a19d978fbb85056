//! Whether each change of a file shows in its time stamp (multigrain stamps: Linux 6.13, on ext4, xfs,
//! btrfs and tmpfs). Without them two changes within a tick of the clock look like one.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::{Place, file_system};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

pub const CHECK: Check = Check {
    name: "time-stamps",
    costs: "a change within 20 ms of the last may hide, so files that young are read anew when mapped again",
    run: |place| match changes(place) {
        Ok((CHANGES, name)) => Tried::ok(format!(
            "{name}: {CHANGES} of {CHANGES} changes in a row showed"
        )),
        Ok((seen, name)) => Tried::slower(
            format!("{name}: {seen} of {CHANGES} changes in a row showed"),
            format!("{}, on ext4, xfs or btrfs", machine::newer_kernel(6, 13)),
        ),
        Err(e) => Tried::slower(
            format!("could not be tried: {e}"),
            "try another directory: --dir DIR",
        ),
    },
    whereabouts: Whereabouts::Child,
};

const CHANGES: usize = 64;

/// Changes a file without pause; how many changes showed, and the file system's name.
fn changes(place: &Place) -> io::Result<(usize, String)> {
    let file = place.file()?;
    let stamp = || {
        file.metadata()
            .map(|data| (data.mtime(), data.mtime_nsec()))
    };
    let mut last = stamp()?;
    let mut seen = 0;
    for change in 0..CHANGES {
        file.write_all_at(&[change as u8], 0)?;
        let now = stamp()?;
        seen += usize::from(now != last);
        last = now;
    }
    let name = file_system(&file).unwrap_or_else(|| "an unknown file system".to_owned());
    Ok((seen, name))
}
