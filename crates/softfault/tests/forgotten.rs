//! Values that the program forgets, as safe code may: nothing waits for them, and the memory they kept
//! comes back with the map.

mod child;
mod files;

use files::{byte_at, check, made_file};
use softfault::{Engine, Mmap};
use std::future::Future;
use std::mem::forget;
use std::pin::Pin;
use std::task::{Context, Waker};

const MIB: usize = 1 << 20;
const BYTES: usize = 16 * MIB;
/// Half of the budget, less the part that a pin counts for at its ends.
const PINNED: usize = 3 * MIB;

fn engine() -> Engine {
    files::engine(8 * MIB)
}

fn map(engine: &Engine, name: &str) -> Mmap {
    // SAFETY: nobody writes to the file.
    unsafe { engine.map(&made_file(name, BYTES)) }.unwrap()
}

/// Runs each of `scenarios` in a process of its own, which may not hang.
fn each(test: &str, scenarios: &[(&str, fn())]) {
    let Some(scenario) = child::scenario() else {
        for (name, _) in scenarios {
            child::succeeds(test, name);
        }
        return;
    };
    // SAFETY: a process that hangs is killed.
    unsafe { libc::alarm(300) };
    let run = scenarios.iter().find(|(name, _)| *name == scenario);
    run.unwrap().1();
}

#[test]
fn pins_are_forgotten() {
    fn a_file() {
        let engine = engine();
        let before = engine.stats().resident_bytes;
        for round in 0..3 {
            let map = map(&engine, "pins");
            let pinned = map.pin(..PINNED).unwrap();
            assert_eq!(pinned[7], byte_at(7));
            forget(pinned);
            // Twice over the same pages.
            forget(map.pin(5..8).unwrap());
            map.pin(..PINNED).unwrap_err();
            map.invalidate(..).unwrap();
            check(&map, BYTES - 1);
            check(&map, round * 4096);
        }
        engine.close_idle();
        assert_eq!(engine.stats().resident_bytes, before);
        drop(engine);
    }
    fn the_engine_first() {
        let engine = engine();
        let map = map(&engine, "engine-first");
        forget(map.pin(..PINNED).unwrap());
        drop(engine);
        check(&map, 0);
    }
    fn one_of_two_maps() {
        let engine = engine();
        let file = made_file("two", BYTES);
        // SAFETY: nobody writes to the file.
        let (one, other) = unsafe { (engine.map(&file).unwrap(), engine.map(&file).unwrap()) };
        forget(one.pin(..PINNED).unwrap());
        drop(one);
        check(&other, 0);
        check(&other, BYTES - 1);
        drop(other);
        forget(map(&engine, "next").pin(..PINNED).unwrap());
    }
    fn private_memory() {
        let engine = engine();
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map_copy(&made_file("private", BYTES)) }.unwrap();
        let map = map.make_read_only().unwrap();
        forget(map.pin(..PINNED).unwrap());
        drop(map);
        forget(self::map(&engine, "next").pin(..PINNED).unwrap());
    }
    fn soft() {
        let engine = files::soft_engine(8 * MIB);
        for _ in 0..3 {
            let map = engine.map(&made_file("soft", BYTES)).unwrap();
            forget(map.pin(..PINNED).unwrap());
        }
    }
    each(
        "pins_are_forgotten",
        &[
            ("a file", a_file),
            ("the engine first", the_engine_first),
            ("one of two maps", one_of_two_maps),
            ("private memory", private_memory),
            ("soft", soft),
        ],
    );
}

#[test]
fn futures_maps_and_locks_are_forgotten() {
    fn polled_once(map: &Mmap) {
        let mut future = map.fault_in(..PINNED);
        let mut context = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut future).poll(&mut context);
        forget(future);
    }
    fn futures() {
        let engine = engine();
        for _ in 0..10 {
            polled_once(&map(&engine, "future"));
        }
    }
    fn maps() {
        let engine = engine();
        let map = map(&engine, "map");
        polled_once(&map);
        map.lock().unwrap_err();
        forget(map);
        check(&self::map(&engine, "another"), BYTES - 1);
    }
    fn private_memory() {
        let engine = engine();
        let mut memory = engine.map_anon(MIB).unwrap();
        memory[0] = 1;
        memory.lock().unwrap();
        forget(memory);
        check(&map(&engine, "beside"), BYTES - 1);
    }
    each(
        "futures_maps_and_locks_are_forgotten",
        &[
            ("futures", futures),
            ("maps", maps),
            ("private memory", private_memory),
        ],
    );
}
