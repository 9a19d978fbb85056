//! Driving worlds of anonymous memory with operations.

use super::model::{AnonModel, Expected};
use super::op::ARENA_PAGES;
use crate::op::Op;
use crate::together::together;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{MmError, Protection};

/// Spaces at a time.
const MOST_SPACES: usize = 4;
/// Accesses of each thread of [`Op::SpaceThreads`].
const STEPS: usize = 60;

/// A thread's way to the bytes of a world. `at` is a byte of the arena; bytes
/// are of one page.
pub trait Access {
    /// Reads bytes.
    fn read(&mut self, space: usize, at: usize, bytes: &mut [u8]) -> Expected;
    /// Writes bytes.
    fn write(&mut self, space: usize, at: usize, bytes: &[u8]) -> Expected;
}

/// Something that obeys operations on anonymous memory. It begins with one
/// space, 0, in which nothing is mapped.
pub trait AnonWorld: Sync {
    /// A way to the bytes, for one thread.
    fn access(&self) -> Box<dyn Access + '_>;
    /// Maps zeros.
    fn map(&mut self, space: usize, pages: Range<usize>) -> Result<(), MmError>;
    /// Unmaps what is there.
    fn unmap(&mut self, space: usize, pages: Range<usize>);

    /// True if it has spaces that fork, protections, and moves, and if an
    /// access that cannot be served is an answer and not the end.
    fn is_whole(&self) -> bool {
        false
    }
    /// Changes what may be done.
    fn protect(&mut self, _: usize, _: Range<usize>, _: Protection) -> Result<(), MmError> {
        unreachable!("the world is not whole")
    }
    /// Moves what is there.
    fn remap(&mut self, _: usize, _: Range<usize>, _: usize) -> Result<(), MmError> {
        unreachable!("the world is not whole")
    }
    /// Copies a space to another number.
    fn fork(&mut self, _space: usize, _child: usize) {
        unreachable!("the world is not whole")
    }
    /// Ends a space.
    fn exit(&mut self, _space: usize) {
        unreachable!("the world is not whole")
    }
    /// Asserts what always holds, and that so many pages of a space are paid
    /// for.
    fn check(&self, _space: usize, _resident: usize) {}
}

/// Lets the worlds obey the operations one by one, and asserts that every byte,
/// error and number of pages is the model's.
pub fn play_anon(worlds: &mut [&mut dyn AnonWorld], ops: &[Op]) {
    let mut model = AnonModel::new();
    for op in ops {
        one(&mut model, worlds, op);
        for space in model.spaces() {
            let resident = model.resident(space);
            worlds.iter().for_each(|world| world.check(space, resident));
        }
    }
    // Everything that was ever touched, once more.
    for space in model.spaces() {
        read(&mut model, worlds, space, 0..ARENA_PAGES * PAGE_SIZE, false);
    }
}

fn one(model: &mut AnonModel, worlds: &mut [&mut dyn AnonWorld], op: &Op) {
    let whole = worlds.iter().all(|world| world.is_whole());
    match op {
        Op::MapZeros { space, pages } => {
            let space = model.pick(*space);
            let expected = model.map(space, pages);
            for world in worlds {
                assert_eq!(world.map(space, pages.clone()), expected);
            }
        }
        Op::UnmapPages { space, pages } => {
            let space = model.pick(*space);
            look(model, worlds, space, pages.start);
            model.unmap(space, pages);
            for world in worlds.iter_mut() {
                world.unmap(space, pages.clone());
            }
            look(model, worlds, space, pages.start);
        }
        Op::ProtectPages {
            space,
            pages,
            protection,
        } if whole => {
            let space = model.pick(*space);
            look(model, worlds, space, pages.start);
            let expected = model.protect(space, pages, *protection);
            for world in worlds.iter_mut() {
                assert_eq!(world.protect(space, pages.clone(), *protection), expected);
            }
            look(model, worlds, space, pages.start);
        }
        Op::RemapPages { space, pages, to } if whole => {
            let space = model.pick(*space);
            let pages = pages.start..pages.end.min(pages.start + ARENA_PAGES - to);
            look(model, worlds, space, pages.start);
            let expected = model.remap(space, &pages, *to);
            for world in worlds.iter_mut() {
                assert_eq!(world.remap(space, pages.clone(), *to), expected);
            }
            look(model, worlds, space, pages.start);
            look(model, worlds, space, *to);
        }
        Op::Fork { space } if whole && model.spaces().len() < MOST_SPACES => {
            let space = model.pick(*space);
            let child = model.fork(space);
            for world in worlds.iter_mut() {
                world.fork(space, child);
            }
        }
        Op::Exit { space } if whole && model.spaces().len() > 1 => {
            let space = model.pick(*space);
            model.exit(space);
            for world in worlds {
                world.exit(space);
            }
        }
        Op::WriteBytes { space, bytes, seed } => {
            let space = model.pick(*space);
            write(model, worlds, space, bytes.clone(), *seed);
        }
        Op::ReadBytes { space, bytes } => {
            let space = model.pick(*space);
            read(model, worlds, space, bytes.clone(), true);
        }
        Op::SpaceThreads {
            space,
            threads,
            seed,
        } => {
            let space = model.pick(*space);
            run_threads(model, worlds, space, usize::from(*threads), *seed);
        }
        // The world has no such thing, or the operation is not of this kind.
        _ => {}
    }
}

/// Reads and writes a byte of a page: what remembers where it is, and what may
/// be done there, remembers it now.
fn look(model: &mut AnonModel, worlds: &[&mut dyn AnonWorld], space: usize, page: usize) {
    let at = page * PAGE_SIZE + 123;
    read(model, worlds, space, at..at + 1, true);
    write(model, worlds, space, at..at + 1, 55);
}

/// The parts of `bytes` that are in one page each.
fn by_page(bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let first = bytes.start / PAGE_SIZE * PAGE_SIZE;
    let pages = (first..bytes.end).step_by(PAGE_SIZE);
    pages.map(move |page| page.max(bytes.start)..(page + PAGE_SIZE).min(bytes.end))
}

fn byte(seed: u8, at: usize) -> u8 {
    (at.wrapping_mul(0x9E37_79B1) >> 9) as u8 ^ seed
}

fn write(
    model: &mut AnonModel,
    worlds: &[&mut dyn AnonWorld],
    space: usize,
    bytes: Range<usize>,
    seed: u8,
) {
    let mut ways: Vec<_> = worlds.iter().map(|world| world.access()).collect();
    for part in by_page(bytes) {
        let data: Vec<u8> = part.clone().map(|at| byte(seed, at)).collect();
        let page = part.start / PAGE_SIZE;
        let expected = model.expected(space, page, true);
        for (world, way) in worlds.iter().zip(&mut ways) {
            if expected == Expected::Done || world.is_whole() {
                let found = way.write(space, part.start, &data);
                assert_eq!(found, expected, "space {space}, write at {part:?}");
            }
        }
        if expected == Expected::Done {
            let start = part.start % PAGE_SIZE;
            model.touch(space, page)[start..start + data.len()].copy_from_slice(&data);
        }
    }
}

/// Reads bytes; pages that were never touched only if `absent`.
fn read(
    model: &mut AnonModel,
    worlds: &[&mut dyn AnonWorld],
    space: usize,
    bytes: Range<usize>,
    absent: bool,
) {
    let mut ways: Vec<_> = worlds.iter().map(|world| world.access()).collect();
    let mut buffer = [0; PAGE_SIZE];
    for part in by_page(bytes) {
        let page = part.start / PAGE_SIZE;
        let expected = model.expected(space, page, false);
        let start = part.start % PAGE_SIZE;
        if expected == Expected::Done && !absent && !model.is_touched(space, page) {
            continue;
        }
        for (world, way) in worlds.iter().zip(&mut ways) {
            if expected != Expected::Done && !world.is_whole() {
                continue;
            }
            let found = &mut buffer[..part.len()];
            let touched = way.read(space, part.start, found);
            assert_eq!(touched, expected, "space {space}, read at {part:?}");
            if expected == Expected::Done {
                let shown = &model.touch(space, page)[start..start + part.len()];
                let wrong = found
                    .iter()
                    .zip(shown)
                    .position(|(one, other)| one != other);
                if let Some(wrong) = wrong {
                    let at = part.start + wrong;
                    panic!(
                        "space {space} at {at:#x}: {:#x}, not {:#x}",
                        found[wrong], shown[wrong]
                    );
                }
            }
        }
    }
}

/// One access of a thread.
#[derive(Clone, Copy)]
struct Step {
    at: usize,
    /// The byte to write, or to read.
    value: u8,
    write: bool,
    expected: Expected,
}

/// Threads write bytes of their own, next to those of others, and read them
/// back.
fn run_threads(
    model: &mut AnonModel,
    worlds: &[&mut dyn AnonWorld],
    space: usize,
    threads: usize,
    seed: u32,
) {
    let mut state = u64::from(seed);
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) as usize
    };
    // A few pages, so that threads meet.
    let pages: Vec<_> = (0..6).map(|_| random() % ARENA_PAGES).collect();
    let mut plans = Vec::new();
    for thread in 0..threads {
        let mut plan = Vec::with_capacity(STEPS);
        for _ in 0..STEPS {
            let page = pages[random() % pages.len()];
            let write = !random().is_multiple_of(3);
            let lane = random() % (PAGE_SIZE / threads) * threads + thread;
            let at = page * PAGE_SIZE + lane;
            let expected = model.expected(space, page, write);
            let mut value = random() as u8;
            if expected == Expected::Done {
                let place = &mut model.touch(space, page)[lane];
                match write {
                    true => *place = value,
                    false => value = *place,
                }
            }
            plan.push(Step {
                at,
                value,
                write,
                expected,
            });
        }
        plans.push(plan);
    }
    for world in worlds {
        let whole = world.is_whole();
        together(plans.iter().map(|plan| {
            move || {
                let mut way = world.access();
                for step in plan {
                    if step.expected == Expected::Done || whole {
                        run(&mut *way, space, step);
                    }
                }
            }
        }));
    }
}

fn run(way: &mut dyn Access, space: usize, step: &Step) {
    let mut byte = [step.value];
    let found = match step.write {
        true => way.write(space, step.at, &byte),
        false => way.read(space, step.at, &mut byte),
    };
    assert_eq!(found, step.expected, "space {space} at {:#x}", step.at);
    if found == Expected::Done {
        assert_eq!(byte[0], step.value, "space {space} at {:#x}", step.at);
    }
}
