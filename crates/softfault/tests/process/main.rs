//! softfault in a process that does whatever a process may do: each call of the
//! matrix in `rows`, made in a process of its own, and `chaos`, many of them at once.
//! `docs/process.md` has the table.

mod call;
mod chaos;
#[path = "../child/mod.rs"]
mod child;
#[path = "../files/mod.rs"]
mod files;
mod row;
mod rows;
mod scene;
mod table;
mod watch;

use row::Row;
use std::os::fd::AsFd;

/// The test that a row's process runs.
const IN_CHILD: &str = "a_row_in_a_process_of_its_own";

#[test]
fn a_row_in_a_process_of_its_own() {
    if let Some(name) = child::scenario() {
        row::play(&name);
    }
}

/// Plays all rows of a part of the matrix, and fails if one is not as it says.
fn play(part: &str, rows: &[Row]) {
    let only = std::env::var("SOFTFAULT_ROWS").ok();
    let file = files::made_file(part, scene::BYTES);
    let mut wrong = Vec::new();
    for row in rows {
        for &kind in row.kinds {
            let name = format!("{}/{}", row.name, kind.name());
            if only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            if let Err(why) = row::run(row, &name, file.as_fd()) {
                println!("{why}");
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "not as they say: {wrong:?}");
}

#[test]
fn locking_memory() {
    play("locking", rows::locking::ROWS);
}

#[test]
fn advice_to_the_kernel() {
    play("advice", rows::advice::ROWS);
}

#[test]
fn the_places_of_mappings() {
    play("mapping", rows::mapping::ROWS);
}

#[test]
fn others_read_memory() {
    play("reading", rows::reading::ROWS);
}

#[test]
fn descriptors_of_others() {
    play("descriptors", rows::descriptors::ROWS);
}

#[test]
fn limits_of_the_process() {
    play("limits", rows::limits::ROWS);
}

#[test]
fn signals_and_threads() {
    play("signals", rows::signals::ROWS);
}

#[test]
fn children_and_surroundings() {
    play("processes", rows::processes::ROWS);
}
