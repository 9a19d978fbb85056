//! Driving worlds of anonymous memory with operations.

use super::model::{AnonModel, Expected, Paid};
use super::op::ARENA_PAGES;
use crate::op::{MemoryVerb, Op};
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
    /// Copies a space to another number. `false` if there is no room for it, and
    /// nothing is left of the attempt.
    fn fork(&mut self, _space: usize, _child: usize) -> bool {
        unreachable!("the world is not whole")
    }
    /// Ends a space.
    fn exit(&mut self, _space: usize) {
        unreachable!("the world is not whole")
    }

    /// True if it has private copies of a file, and verbs on what is mapped.
    fn is_managed(&self) -> bool {
        false
    }
    /// Maps private copies of pages of the file, from `from` on. They can be
    /// written to. Its bytes are those of [`byte_at`](crate::byte_at) of seed 0.
    fn map_copy(&mut self, _: usize, _: Range<usize>, _from: usize) -> Result<(), MmError> {
        unreachable!("the world is not managed")
    }
    /// Does something with pages that are all mapped and allow it; done, or
    /// [`Expected::Failed`].
    fn manage(&mut self, _: usize, _: Range<usize>, _: MemoryVerb) -> Expected {
        unreachable!("the world is not managed")
    }
    /// What is under the spaces obeys: memory, what is evicted, swap that fails.
    fn beneath(&mut self, _op: &Op) {}
    /// True if an access may get [`Expected::Failed`], and is then not done.
    fn may_fail(&self) -> bool {
        false
    }
    /// How many pages, of all spaces, may be locked at a time.
    fn most_locked(&self) -> usize {
        0
    }
    /// True if a page that is locked is in memory.
    fn is_resident(&self, _space: usize, _page: usize) -> bool {
        true
    }

    /// Asserts what holds of all spaces together.
    fn check_all(&self) {}

    /// Asserts what always holds, and that as many pages of a space are paid
    /// for as there should be.
    fn check(&self, _space: usize, _paid: Paid) {}
}

/// Lets the worlds obey the operations one by one, and asserts that every byte,
/// error and number of pages is the model's.
pub fn play_anon(worlds: &mut [&mut dyn AnonWorld], ops: &[Op]) {
    // A page that may become zeros does so in one world and not in another.
    let models = worlds.iter().map(|_| AnonModel::new()).collect();
    let mut play = Play { models, worlds };
    for op in ops {
        play.obey(op);
        play.check();
    }
    // Everything that was ever touched, once more.
    for space in play.models[0].spaces() {
        play.read(space, 0..ARENA_PAGES * PAGE_SIZE, false);
    }
    play.check();
}

/// Pages of the file that private copies are made of.
pub const COPIED_PAGES: usize = 600;

struct Play<'a, 'b> {
    /// One a world.
    models: Vec<AnonModel>,
    worlds: &'a mut [&'b mut dyn AnonWorld],
}

impl Play<'_, '_> {
    /// Lets all models and worlds do something, with the same result.
    fn both<R: PartialEq + core::fmt::Debug>(
        &mut self,
        model: impl Fn(&mut AnonModel) -> R,
        world: impl Fn(&mut dyn AnonWorld) -> R,
    ) {
        for (one, other) in self.models.iter_mut().zip(self.worlds.iter_mut()) {
            assert_eq!(world(&mut **other), model(one));
        }
    }

    fn check(&self) {
        for (model, world) in self.models.iter().zip(self.worlds.iter()) {
            world.check_all();
            for space in model.spaces() {
                world.check(space, model.paid(space));
                for page in model.locked(space) {
                    let there = world.is_resident(space, page);
                    assert!(there, "page {page} of space {space} is locked, and went");
                }
            }
        }
    }

    fn obey(&mut self, op: &Op) {
        let whole = self.worlds.iter().all(|world| world.is_whole());
        let managed = self.worlds.iter().all(|world| world.is_managed());
        let pick = |space: &u8| self.models[0].pick(*space);
        match op {
            Op::MapZeros { space, pages } => {
                let space = pick(space);
                self.both(
                    |model| model.map(space, pages, None),
                    |world| world.map(space, pages.clone()),
                );
            }
            Op::MapCopy { space, pages, from } if managed => {
                let space = pick(space);
                let from = from % COPIED_PAGES;
                let most = (COPIED_PAGES - from).min(pages.len());
                let pages = pages.start..pages.start + most;
                self.both(
                    |model| model.map(space, &pages, Some(from)),
                    |world| world.map_copy(space, pages.clone(), from),
                );
            }
            Op::UnmapPages { space, pages } => {
                let space = pick(space);
                self.look(space, pages.start);
                self.both(
                    |model| model.unmap(space, pages),
                    |world| world.unmap(space, pages.clone()),
                );
                self.look(space, pages.start);
            }
            Op::ProtectPages {
                space,
                pages,
                protection,
            } if whole => {
                let space = pick(space);
                self.look(space, pages.start);
                self.both(
                    |model| model.protect(space, pages, *protection),
                    |world| world.protect(space, pages.clone(), *protection),
                );
                self.look(space, pages.start);
            }
            Op::RemapPages { space, pages, to } if whole => {
                let space = pick(space);
                let pages = pages.start..pages.end.min(pages.start + ARENA_PAGES - to);
                self.look(space, pages.start);
                self.both(
                    |model| model.remap(space, &pages, *to),
                    |world| world.remap(space, pages.clone(), *to),
                );
                self.look(space, pages.start);
                self.look(space, *to);
            }
            Op::Fork { space } if whole && self.models[0].spaces().len() < MOST_SPACES => {
                let space = pick(space);
                self.fork(space);
            }
            Op::Exit { space } if whole && self.models[0].spaces().len() > 1 => {
                let space = pick(space);
                self.both(|model| model.exit(space), |world| world.exit(space));
            }
            Op::WriteBytes { space, bytes, seed } => {
                let space = pick(space);
                self.write(space, bytes.clone(), *seed);
            }
            Op::ReadBytes { space, bytes } => {
                let space = pick(space);
                self.read(space, bytes.clone(), true);
            }
            Op::SpaceThreads {
                space,
                threads,
                seed,
            } => {
                let space = pick(space);
                for (model, world) in self.models.iter_mut().zip(self.worlds.iter_mut()) {
                    if !world.may_fail() {
                        run_threads(model, &**world, space, usize::from(*threads), *seed);
                    }
                }
            }
            Op::ManagePages { space, pages, verb } if managed => {
                let space = pick(space);
                self.manage(space, pages, *verb);
            }
            Op::Memory { .. }
            | Op::Evict
            | Op::Release { .. }
            | Op::FailSwapReads { .. }
            | Op::FailSwapWrites { .. } => {
                (self.worlds.iter_mut()).for_each(|world| world.beneath(op));
            }
            // The world has no such thing, or the operation is not of this kind.
            _ => {}
        }
    }

    fn fork(&mut self, space: usize) {
        let mut refused = false;
        for (model, world) in self.models.iter_mut().zip(self.worlds.iter_mut()) {
            let child = model.fork(space);
            if !world.fork(space, child) {
                assert!(world.may_fail(), "there is no room for a fork");
                model.exit(child);
                refused = true;
            }
        }
        assert!(
            !refused || self.worlds.len() == 1,
            "all worlds have the same spaces"
        );
    }

    fn manage(&mut self, space: usize, pages: &Range<usize>, verb: MemoryVerb) {
        let mut pages = self.models[0].subject(space, pages, verb);
        if verb == MemoryVerb::Lock {
            let most = (self.worlds.iter().map(|world| world.most_locked())).min();
            let left = (most.unwrap_or(0)).saturating_sub(self.models[0].count_locked());
            pages.end = pages.end.min(pages.start + left);
        }
        if pages.is_empty() {
            return;
        }
        for (model, world) in self.models.iter_mut().zip(self.worlds.iter_mut()) {
            let done = world.manage(space, pages.clone(), verb);
            let failed = done == Expected::Failed && world.may_fail();
            assert!(
                done == Expected::Done || failed,
                "{verb:?} of {pages:?}: {done:?}"
            );
            model.manage(space, &pages, verb, done == Expected::Done);
        }
        // What was known of them, is it still so?
        let end = pages.end.min(pages.start + 3);
        self.read(space, pages.start * PAGE_SIZE..end * PAGE_SIZE, true);
    }

    /// Reads and writes a byte of a page: what remembers where it is, and what
    /// may be done there, remembers it now.
    fn look(&mut self, space: usize, page: usize) {
        let at = page * PAGE_SIZE + 123;
        self.read(space, at..at + 1, true);
        self.write(space, at..at + 1, 55);
    }

    fn write(&mut self, space: usize, bytes: Range<usize>, seed: u8) {
        for (model, world) in self.models.iter_mut().zip(self.worlds.iter()) {
            write(model, &**world, space, bytes.clone(), seed);
        }
    }

    /// Reads bytes; pages that were never touched only if `absent`.
    fn read(&mut self, space: usize, bytes: Range<usize>, absent: bool) {
        for (model, world) in self.models.iter_mut().zip(self.worlds.iter()) {
            read(model, &**world, space, bytes.clone(), absent);
        }
    }
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

/// Makes an access again that failed, a few times: what is injected fails once.
fn insist(world: &dyn AnonWorld, mut access: impl FnMut() -> Expected) -> Expected {
    let mut found = access();
    for _ in 0..4 {
        if found == Expected::Failed && world.may_fail() {
            found = access();
        }
    }
    found
}

fn write(
    model: &mut AnonModel,
    world: &dyn AnonWorld,
    space: usize,
    bytes: Range<usize>,
    seed: u8,
) {
    let mut way = world.access();
    for part in by_page(bytes) {
        let data: Vec<u8> = part.clone().map(|at| byte(seed, at)).collect();
        let page = part.start / PAGE_SIZE;
        let expected = model.expected(space, page, true);
        if expected != Expected::Done && !world.is_whole() {
            continue;
        }
        let found = insist(world, || way.write(space, part.start, &data));
        if found == Expected::Failed && world.may_fail() {
            return;
        }
        assert_eq!(found, expected, "space {space}, write at {part:?}");
        if expected != Expected::Done {
            continue;
        }
        let start = part.start % PAGE_SIZE;
        let around = settle(model, world, &mut *way, space, &part, Some(&data));
        if around == Expected::Done {
            model.write(space, page)[start..start + data.len()].copy_from_slice(&data);
        }
    }
}

/// Looks what has become of a page that may be zeros, before `part` of it, if
/// `written`, was written. What it is then, it stays.
fn settle(
    model: &mut AnonModel,
    world: &dyn AnonWorld,
    way: &mut dyn Access,
    space: usize,
    part: &Range<usize>,
    written: Option<&[u8]>,
) -> Expected {
    let page = part.start / PAGE_SIZE;
    if !model.is_free(space, page) {
        return Expected::Done;
    }
    let mut found = [0; PAGE_SIZE];
    let read = insist(world, || way.read(space, page * PAGE_SIZE, &mut found));
    if read == Expected::Failed && world.may_fail() && written.is_none() {
        return read;
    }
    assert_eq!(read, Expected::Done, "what was just touched");
    let mut zeros = [0; PAGE_SIZE];
    let mut before = *model.touch(space, page);
    if let Some(data) = written {
        let range = part.start % PAGE_SIZE..part.start % PAGE_SIZE + data.len();
        zeros[range.clone()].copy_from_slice(data);
        before[range].copy_from_slice(data);
    }
    let is_zeros = found != before;
    assert!(
        !is_zeros || found == zeros,
        "page {page} of space {space} is neither what it was nor zeros"
    );
    model.settle(space, page, is_zeros, written.is_some());
    Expected::Done
}

fn read(
    model: &mut AnonModel,
    world: &dyn AnonWorld,
    space: usize,
    bytes: Range<usize>,
    absent: bool,
) {
    let mut way = world.access();
    let mut buffer = [0; PAGE_SIZE];
    for part in by_page(bytes) {
        let page = part.start / PAGE_SIZE;
        let expected = model.expected(space, page, false);
        let start = part.start % PAGE_SIZE;
        if expected == Expected::Done && !absent && !model.is_touched(space, page)
            || expected != Expected::Done && !world.is_whole()
        {
            continue;
        }
        if expected == Expected::Done
            && settle(model, world, &mut *way, space, &part, None) == Expected::Failed
        {
            return;
        }
        let found = &mut buffer[..part.len()];
        let touched = insist(world, || way.read(space, part.start, found));
        if touched == Expected::Failed && world.may_fail() {
            return;
        }
        assert_eq!(touched, expected, "space {space}, read at {part:?}");
        // What may still become zeros may just have.
        if expected == Expected::Done && !model.is_free(space, page) {
            let shown = &model.touch(space, page)[start..start + part.len()];
            let mut both = found.iter().zip(shown);
            if let Some(wrong) = both.position(|(one, other)| one != other) {
                let at = part.start + wrong;
                panic!(
                    "space {space} at {at:#x} (page {page}): {:#x}, not {:#x}",
                    found[wrong], shown[wrong]
                );
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
    world: &dyn AnonWorld,
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
            if model.is_free(space, page) {
                continue;
            }
            match (expected, write) {
                (Expected::Done, true) => model.write(space, page)[lane] = value,
                (Expected::Done, false) => value = model.touch(space, page)[lane],
                _ => {}
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
