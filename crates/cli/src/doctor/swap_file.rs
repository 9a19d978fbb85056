//! A swap file of the library in the directory: how it is read and written, and how much room there is.

use super::check::{Check, State, Tried, Whereabouts};
use super::child::answer_of_child;
use super::place::{PAGE, Place, UNKNOWN_FILE_SYSTEM, file_system};
use crate::lab::files;
use crate::size;
use softfault::Swap;
use std::fs::File;
use std::path::Path;

pub const CHECK: Check = Check {
    name: "swap-file",
    costs: "anonymous memory above the budget cannot go to a file there",
    run: look,
    whereabouts: Whereabouts::Child,
};

/// Why no swap file can be made in a directory; `None`: one can, as far as is known. It is tried in a child, for the library starts
/// threads for it.
pub fn no_swap(directory: &Path) -> Option<String> {
    let tried =
        answer_of_child(
            || match Swap::in_dir(directory).bytes(PAGE as u64).open(0, None) {
                Ok(_) => Tried::ok("a file can be made there"),
                Err(why) => Tried::missing(why.to_string(), ELSEWHERE),
            },
        )?;
    (tried.state != State::Ok).then_some(tried.found)
}

const ELSEWHERE: &str = "name a directory on a disk in Swap::in_dir; try: --dir DIR";

/// Bytes of the file that is tried.
const BYTES: u64 = 1 << 20;

fn look(place: &Place) -> Tried {
    let file = match Swap::in_dir(&place.dir).bytes(BYTES).open(0, None) {
        Ok(file) => file,
        Err(error) => return Tried::missing(error.to_string(), ELSEWHERE),
    };
    let dir = File::open(&place.dir).ok();
    let name = dir.as_ref().and_then(file_system);
    let name = name.unwrap_or_else(|| UNKNOWN_FILE_SYSTEM.to_owned());
    let free = match files::room(&place.dir) {
        Some(bytes) => format!("{} free", size::show(bytes)),
        None => "free space unknown".to_owned(),
    };
    let found = format!("{name} in {}: {free}", place.dir.display());
    match file.is_direct() {
        _ if ["tmpfs", "ramfs"].contains(&name.as_str()) => {
            Tried::slower(found, ELSEWHERE).costing("pages swapped there stay in memory")
        }
        true => Tried::ok(found + ", direct reads and writes"),
        false => Tried::slower(found + ", through the page cache", ELSEWHERE)
            .costing("each page is copied once more, and each write waits for the disk"),
    }
}
