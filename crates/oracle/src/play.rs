//! Driving worlds with operations.

use crate::model::{Model, Shown};
use crate::op::{MapAdvice, Op};
use crate::random::Random;
use crate::together::together;
use softfault_engine::PAGE_SIZE;
use std::ops::Range;

/// The result of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// The bytes are in the buffer.
    Done,
    /// The file ends before the page.
    Beyond,
    /// Nothing is mapped there.
    Unmapped,
    /// The page may not be read.
    Forbidden,
}

/// Something that obeys operations on maps of one file. Maps have numbers;
/// ranges are bytes of a map.
pub trait World: Sync {
    /// Maps bytes of the file.
    fn map(&mut self, map: usize, offset: u64, len: u64);
    /// Drops a map.
    fn unmap(&mut self, map: usize);
    /// Reads bytes of one page.
    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> Touched;
    /// The file has another length now.
    fn truncate(&mut self, len: u64);

    /// True if a touch that cannot be served is an answer and not the end.
    fn answers_errors(&self) -> bool {
        false
    }
    /// Unmaps the pages of some bytes; false if it has no such operation.
    fn unmap_part(&mut self, _map: usize, _bytes: Range<u64>) -> bool {
        false
    }
    /// Forbids or allows reading; false if it has no such operation.
    fn protect(&mut self, _map: usize, _bytes: Range<u64>, _readable: bool) -> bool {
        false
    }
    /// Says how bytes will be used.
    fn advise(&mut self, _map: usize, _bytes: Range<u64>, _advice: MapAdvice) {}
    /// Pins bytes that can be read; returns them, or None where pins have
    /// reached their limit, or there are none.
    fn pin(&mut self, _map: usize, _bytes: Range<u64>) -> Option<Vec<u8>> {
        None
    }
    /// Unpins the pinned pages of a map.
    fn unpin(&mut self, _map: usize) {}
    /// Begins to read.
    fn prefetch(&mut self, _map: usize, _bytes: Range<u64>) {}
    /// Forgets pages.
    fn invalidate(&mut self, _map: usize, _bytes: Range<u64>) {}
    /// Changes the budget, in bytes.
    fn set_memory(&mut self, _bytes: u64) {}
    /// Evicts everything.
    fn evict(&mut self) {}
    /// Asserts the invariants between two operations.
    fn check(&self) {}
}

/// Lets the worlds obey the operations one by one, and asserts that each byte
/// they show is the model's.
pub fn play(model: &mut Model, worlds: &mut [&mut dyn World], ops: &[Op]) {
    for op in ops {
        one(model, worlds, op);
        for world in worlds.iter() {
            world.check();
        }
    }
    for map in model.maps.keys().copied().collect::<Vec<_>>() {
        unmap(model, worlds, map);
    }
}

fn one(model: &mut Model, worlds: &mut [&mut dyn World], op: &Op) {
    match *op {
        Op::Map { offset, len } => {
            if model.is_empty() || model.maps.len() == 6 {
                return;
            }
            let offset = u64::from(offset) % model.len();
            let rest = model.len() - offset;
            // Every second one to the end.
            let len = match len % 2 {
                0 => rest,
                _ => u64::from(len) % rest + 1,
            };
            let map = model.map(offset, len);
            for world in worlds {
                world.map(map, offset, len);
            }
        }
        Op::Unmap { map } => {
            if let Some(map) = model.pick(map) {
                unmap(model, worlds, map);
            }
        }
        Op::UnmapPart { map, at, len } => {
            let Some((map, bytes)) = part(model, map, at, len) else {
                return;
            };
            release(model, worlds, map);
            let mut all = true;
            for world in worlds {
                all &= world.unmap_part(map, bytes.clone());
            }
            if all {
                model.unmap_part(map, &bytes);
            }
        }
        Op::Protect {
            map,
            at,
            len,
            readable,
        } => {
            let Some((map, bytes)) = part(model, map, at, len) else {
                return;
            };
            let mut all = true;
            for world in worlds {
                all &= world.protect(map, bytes.clone(), readable);
            }
            if all {
                model.protect(map, &bytes, readable);
            }
        }
        Op::Advise {
            map,
            at,
            len,
            advice,
        } => {
            if let Some((map, bytes)) = part(model, map, at, len) {
                for world in worlds {
                    world.advise(map, bytes.clone(), advice);
                }
            }
        }
        Op::Touch { map, at } => {
            if let Some((map, bytes)) = part(model, map, at, 1) {
                check(model, worlds, map, bytes);
            }
        }
        Op::Read { map, at, len } => {
            if let Some((map, bytes)) = part(model, map, at, len) {
                check(model, worlds, map, bytes);
            }
        }
        Op::Stride {
            map,
            at,
            step,
            count,
        } => {
            let Some((map, bytes)) = part(model, map, at, 1) else {
                return;
            };
            let len = model.maps[&map].len;
            for touch in 0..u64::from(count) {
                let at = (bytes.start + touch * u64::from(step)) % len;
                check(model, worlds, map, at..at + 1);
            }
        }
        Op::Threads { map, threads, seed } => {
            let Some(map) = model.pick(map) else {
                return;
            };
            let (model, worlds) = (&*model, &*worlds);
            together((0..u64::from(threads)).map(|thread| {
                let mut random = Random::new(u64::from(seed) << 8 | thread);
                move || {
                    for _ in 0..40 {
                        let at = random.below(model.maps[&map].len as usize) as u64;
                        check(model, worlds, map, at..at + 1);
                    }
                }
            }));
        }
        Op::Pin { map, at, len } => {
            let Some((map, bytes)) = part(model, map, at, len) else {
                return;
            };
            let readable = |at| matches!(model.shown(map, at), Shown::Byte(_));
            let pages = bytes.clone().step_by(PAGE_SIZE).chain([bytes.end - 1]);
            if model.maps[&map].pinned.is_some() || !pages.clone().all(readable) {
                return;
            }
            for world in worlds.iter_mut() {
                let Some(found) = world.pin(map, bytes.clone()) else {
                    continue;
                };
                for (place, at) in bytes.clone().enumerate() {
                    assert_eq!(
                        Shown::Byte(found[place]),
                        model.shown(map, at),
                        "pinned {at}"
                    );
                }
            }
            let pinned = &mut model.maps.get_mut(&map).expect("picked").pinned;
            *pinned = Some(bytes);
        }
        Op::Unpin { map } => {
            if let Some(map) = model.pick(map) {
                release(model, worlds, map);
            }
        }
        Op::Prefetch { map, at, len } => {
            if let Some((map, bytes)) = part(model, map, at, len) {
                for world in worlds {
                    world.prefetch(map, bytes.clone());
                }
            }
        }
        Op::Invalidate { map, at, len } => {
            if let Some((map, bytes)) = part(model, map, at, len) {
                for world in worlds {
                    world.invalidate(map, bytes.clone());
                }
            }
        }
        Op::Memory { more } => {
            let least = model.setting().memory;
            for world in worlds {
                world.set_memory(least + least / 256 * u64::from(more));
            }
        }
        Op::Truncate { len } => {
            // Pinned pages would stay as they are: unpin them.
            for map in model.maps.keys().copied().collect::<Vec<_>>() {
                release(model, worlds, map);
            }
            let len = u64::from(len) % (model.setting().file_bytes + 1);
            for world in worlds {
                world.truncate(len);
            }
            model.truncate(len);
        }
        Op::Evict => {
            for world in worlds {
                world.evict();
            }
        }
        // On spaces.
        _ => {}
    }
}

/// The map and the bytes of it that an operation means.
fn part(model: &Model, map: u8, at: u32, len: u32) -> Option<(usize, Range<u64>)> {
    let map = model.pick(map)?;
    let all = model.maps[&map].len;
    let at = u64::from(at) % all;
    Some((map, at..(at + u64::from(len.max(1))).min(all)))
}

fn unmap(model: &mut Model, worlds: &mut [&mut dyn World], map: usize) {
    release(model, worlds, map);
    for world in worlds {
        world.unmap(map);
    }
    model.maps.remove(&map);
}

fn release(model: &mut Model, worlds: &mut [&mut dyn World], map: usize) {
    let pinned = &mut model.maps.get_mut(&map).expect("picked").pinned;
    if pinned.take().is_some() {
        for world in worlds {
            world.unpin(map);
        }
    }
}

/// Reads bytes in every world, a page at a time.
fn check(model: &Model, worlds: &[&mut dyn World], map: usize, bytes: Range<u64>) {
    let page = PAGE_SIZE as u64;
    let offset = model.maps[&map].offset;
    let mut at = bytes.start;
    while at < bytes.end {
        let end = (((offset + at) / page + 1) * page - offset).min(bytes.end);
        let mut buffer = [0; PAGE_SIZE];
        let expected = match model.shown(map, at) {
            Shown::Byte(_) => Touched::Done,
            Shown::Beyond => Touched::Beyond,
            Shown::Unmapped => Touched::Unmapped,
            Shown::Forbidden => Touched::Forbidden,
        };
        for (number, world) in worlds.iter().enumerate() {
            if expected != Touched::Done && !world.answers_errors() {
                continue;
            }
            let found = &mut buffer[..(end - at) as usize];
            let touched = world.read(map, at, found);
            assert_eq!(touched, expected, "world {number}, map {map} at {at}");
            if expected != Touched::Done {
                continue;
            }
            for (place, &byte) in found.iter().enumerate() {
                let at = at + place as u64;
                let expected = model.shown(map, at);
                assert_eq!(
                    Shown::Byte(byte),
                    expected,
                    "world {number}, map {map} at {at}"
                );
            }
        }
        at = end;
    }
}
