//! Files that a map writes to while they are made shorter, or cannot be.

mod by_others;
#[path = "../write_scene/mod.rs"]
mod write_scene;

use softfault::{Engine, MmapMut};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use write_scene::{PAGE, Scratch, engine, read, write};

/// Pages of the file, and those that stay when it is cut.
const PAGES: usize = 64;
const KEPT: usize = 10;
/// In the page that the file would end in, and behind it.
const PLACES: [usize; 2] = [KEPT * PAGE + 64, 40 * PAGE];

/// The word at an offset of a map.
fn word(map: &MmapMut, offset: usize) -> *mut u64 {
    // SAFETY: within the map.
    unsafe { map.as_ptr().add(offset).cast::<u64>().cast_mut() }
}

/// Has `what` done again and again by another thread until `done` is.
fn while_another(what: impl Fn() + Sync, done: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                what();
            }
        });
        let _over = softfault_oracle::Finally(|| over.store(true, Relaxed));
        done();
    });
}

fn cut(engine: &Engine, file: &File) -> std::io::Result<()> {
    engine.truncate(file, (KEPT * PAGE + 8) as u64)
}

/// Stores while a file refuses to become shorter: each is there when it is looked for, and in the file in the end.
#[test]
fn a_cut_that_is_refused_loses_no_store() {
    const ROUNDS: u64 = 20_000;
    let scratch = Scratch::new("refused-cut", PAGES * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let map = write(&engine, &file);
    let only_read = File::open(&scratch.0).unwrap();
    let refused = || {
        cut(&engine, &only_read).unwrap_err();
    };
    while_another(refused, || {
        for round in 0..ROUNDS {
            for place in PLACES.map(|offset| word(&map, offset)) {
                // SAFETY: in the map; no other thread has a reference to it.
                unsafe {
                    if round > 0 {
                        assert_eq!(place.read_volatile(), round - 1);
                    }
                    place.write_volatile(round);
                }
            }
        }
    });
    map.flush().unwrap();
    let content = scratch.content();
    for offset in PLACES {
        assert_eq!(content[offset..offset + 8], (ROUNDS - 1).to_le_bytes());
    }
}

/// Pages that are pinned and dirty are written back while their file is made shorter: that does not make it longer again.
#[test]
fn a_write_back_does_not_undo_a_cut() {
    const ROUNDS: usize = 2_000;
    let scratch = Scratch::new("undone-cut", PAGES * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let map = write(&engine, &file);
    // The same window, by a map that pins.
    let pinned = read(&engine, &file);
    let pin = pinned.pin(..).unwrap();
    let flush = || map.flush().unwrap();
    while_another(flush, || {
        for round in 0..ROUNDS {
            for offset in PLACES {
                // SAFETY: as above.
                unsafe { word(&map, offset).write_volatile(round as u64) };
            }
            cut(&engine, &file).unwrap();
            map.flush().unwrap();
            assert_eq!(file.metadata().unwrap().len(), (KEPT * PAGE + 8) as u64);
            engine.truncate(&file, (PAGES * PAGE) as u64).unwrap();
            // SAFETY: as above.
            let again = unsafe { word(&map, PLACES[1]).read_volatile() };
            assert_eq!(again, 0, "round {round}: of a page that was cut off");
        }
    });
    drop(pin);
    let content = scratch.content();
    assert_eq!(content[PLACES[1]..PLACES[1] + 8], [0; 8]);
}
