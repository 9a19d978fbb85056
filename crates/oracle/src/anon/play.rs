//! Driving worlds of anonymous memory with operations.

use super::model::{AnonModel, Expected};
use super::op::ARENA_PAGES;
use super::threads;
use super::world::{Access, AnonWorld};
use crate::op::{MemoryVerb, Op};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;

/// Spaces at a time.
const MOST_SPACES: usize = 4;
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
    // Everything that was ever touched, once more. Nothing fails any more: a page that cannot be read now is lost.
    (play.worlds.iter_mut()).for_each(|world| world.lift_shortage());
    for space in play.models[0].spaces() {
        let skipped = play.read(space, 0..ARENA_PAGES * PAGE_SIZE, false);
        assert_eq!(skipped, 0, "pages of space {space} cannot be read");
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
                let locked: Vec<_> = model.locked(space).collect();
                let absent = world.absent(space, &locked);
                assert_eq!(absent, None, "pages of space {space} are locked");
            }
        }
    }

    fn obey(&mut self, op: &Op) {
        let whole = self.worlds.iter().all(|world| world.is_whole());
        let managed = self.worlds.iter().all(|world| world.is_managed());
        let by_map = self.by_map();
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
            } if by_map => {
                let space = pick(space);
                let protection = match protection {
                    Protection::ReadWrite => Protection::ReadWrite,
                    _ => Protection::Read,
                };
                if let Some(map) = self.models[0].whole_map(space, pages) {
                    self.protect(space, &map, protection);
                }
            }
            Op::RemapPages { space, pages, to } if by_map => {
                let space = pick(space);
                if let Some(map) = self.models[0].whole_map(space, pages) {
                    self.resize(space, &map, to % pages.len().max(map.len()) + 1);
                }
            }
            Op::ProtectPages {
                space,
                pages,
                protection,
            } if whole => {
                self.protect(pick(space), pages, *protection);
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
                        let threads = usize::from(*threads);
                        let plans = threads::plans(model, space, threads, *seed);
                        world.run(space, &plans);
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

    /// True if the worlds change whole maps.
    fn by_map(&self) -> bool {
        self.worlds.iter().all(|world| world.is_by_map())
    }

    fn protect(&mut self, space: usize, pages: &Range<usize>, protection: Protection) {
        self.look(space, pages.start);
        self.both(
            |model| model.protect(space, pages, protection),
            |world| world.protect(space, pages.clone(), protection),
        );
        self.look(space, pages.start);
    }

    /// Lets a map have `pages` pages, if there is room.
    fn resize(&mut self, space: usize, map: &Range<usize>, pages: usize) {
        let mut pages = pages.min(self.models[0].room_for(space, map, COPIED_PAGES));
        if self.models[0].locked(space).any(|page| page == map.start) {
            pages = pages.min(map.len() + self.may_lock());
        }
        if pages == map.len() {
            return;
        }
        let shorter = pages.min(map.len());
        self.look(space, map.start + shorter - 1);
        self.both(
            |model| model.resize(space, map, pages),
            |world| world.resize(space, map.clone(), pages),
        );
        self.look(space, map.start + shorter - 1);
        self.look(space, map.start + pages - 1);
        if pages < map.len() {
            self.look(space, map.start + pages);
        }
    }

    /// Pages that may be locked beyond those that are.
    fn may_lock(&self) -> usize {
        let most = (self.worlds.iter().map(|world| world.most_locked())).min();
        (most.unwrap_or(0)).saturating_sub(self.models[0].count_locked())
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
        let Some(pages) = self.subject(space, pages, verb) else {
            return;
        };
        for (model, world) in self.models.iter_mut().zip(self.worlds.iter_mut()) {
            let done = world.manage(space, pages.clone(), verb);
            let failed = done == Expected::Failed && world.may_fail();
            assert!(
                done == Expected::Done || failed,
                "{verb:?} of {pages:?}: {done:?}"
            );
            model.manage(space, &pages, verb, done == Expected::Done);
        }
        // Is all that was known of them still so?
        let end = pages.end.min(pages.start + 3);
        self.read(space, pages.start * PAGE_SIZE..end * PAGE_SIZE, true);
    }

    /// The pages that a verb is for.
    fn subject(
        &self,
        space: usize,
        pages: &Range<usize>,
        verb: MemoryVerb,
    ) -> Option<Range<usize>> {
        let locks = verb == MemoryVerb::Lock;
        if self.by_map() && (locks || verb == MemoryVerb::Unlock) {
            let map = self.models[0].whole_map(space, pages)?;
            return (!locks || map.len() <= self.may_lock()).then_some(map);
        }
        let mut pages = self.models[0].subject(space, pages, verb);
        if locks {
            pages.end = pages.end.min(pages.start + self.may_lock());
        }
        (!pages.is_empty()).then_some(pages)
    }

    /// Reads and writes a byte of a page: a world that caches its place and its
    /// protection caches them now.
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

    /// Reads bytes; pages that were never touched only if `absent`. Returns how many could not be read, in all worlds.
    fn read(&mut self, space: usize, bytes: Range<usize>, absent: bool) -> usize {
        let both = self.models.iter_mut().zip(self.worlds.iter());
        both.map(|(model, world)| read(model, &**world, space, bytes.clone(), absent))
            .sum()
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

/// Makes a failed access again, a few times: an injected error comes once.
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
        let name = world.name();
        assert_eq!(found, expected, "{name}, space {space}: write at {part:?}");
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

/// Looks whether a page that may be zeros is, before `part` of it, if
/// `written`, was written. From then on it stays as found.
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
        "{}, page {page} of space {space} is neither what it was nor zeros",
        world.name()
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
) -> usize {
    let mut way = world.access();
    let mut buffer = [0; PAGE_SIZE];
    let mut skipped = 0;
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
            skipped += 1;
            continue;
        }
        let found = &mut buffer[..part.len()];
        let touched = insist(world, || way.read(space, part.start, found));
        if touched == Expected::Failed && world.may_fail() {
            skipped += 1;
            continue;
        }
        let name = world.name();
        assert_eq!(touched, expected, "{name}, space {space}: read at {part:?}");
        // Pages that may still become zeros may just have.
        if expected == Expected::Done && !model.is_free(space, page) {
            let shown = &model.touch(space, page)[start..start + part.len()];
            let mut both = found.iter().zip(shown);
            if let Some(wrong) = both.position(|(one, other)| one != other) {
                let at = part.start + wrong;
                panic!(
                    "{name}, space {space} at {at:#x} (page {page}): {:#x}, not {:#x}",
                    found[wrong], shown[wrong]
                );
            }
        }
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault_engine::mm::MmError;
    use std::collections::BTreeMap;
    use std::panic::catch_unwind;
    use std::sync::Mutex;

    /// Two pages of plain memory, and what is wrong with them once they were written to.
    #[derive(Default)]
    struct Wrong {
        pages: Mutex<BTreeMap<usize, Vec<u8>>>,
        /// Page 0 cannot be read.
        fails: bool,
        /// Only for as long as memory is short.
        fails_when_short: bool,
        /// Page 1 has other bytes.
        lies: bool,
    }

    struct Way<'a>(&'a Wrong);

    impl Access for Way<'_> {
        fn read(&mut self, _: usize, at: usize, bytes: &mut [u8]) -> Expected {
            let page = at / PAGE_SIZE;
            let pages = self.0.pages.lock().unwrap();
            let start = at % PAGE_SIZE;
            bytes.copy_from_slice(&pages[&page][start..start + bytes.len()]);
            if page == 0 && (self.0.fails || self.0.fails_when_short) {
                return Expected::Failed;
            }
            if page == 1 && self.0.lies {
                bytes[0] ^= 1;
            }
            Expected::Done
        }

        fn write(&mut self, _: usize, at: usize, bytes: &[u8]) -> Expected {
            let mut pages = self.0.pages.lock().unwrap();
            let start = at % PAGE_SIZE;
            let page = pages.get_mut(&(at / PAGE_SIZE)).unwrap();
            page[start..start + bytes.len()].copy_from_slice(bytes);
            Expected::Done
        }
    }

    impl AnonWorld for Wrong {
        fn access(&self) -> Box<dyn Access + '_> {
            Box::new(Way(self))
        }

        fn map(&mut self, _: usize, pages: Range<usize>) -> Result<(), MmError> {
            let zeros = pages.map(|page| (page, vec![0; PAGE_SIZE]));
            self.pages.get_mut().unwrap().extend(zeros);
            Ok(())
        }

        fn unmap(&mut self, _: usize, _: Range<usize>) {}

        fn lift_shortage(&mut self) {
            self.fails_when_short = false;
        }

        fn may_fail(&self) -> bool {
            true
        }
    }

    fn is_accepted(mut world: Wrong) -> bool {
        let (space, pages) = (0, 0..2);
        let bytes = 0..2 * PAGE_SIZE;
        let ops = [
            Op::MapZeros { space, pages },
            Op::WriteBytes {
                space,
                bytes,
                seed: 7,
            },
        ];
        let play = move || play_anon(&mut [&mut world], &ops);
        catch_unwind(std::panic::AssertUnwindSafe(play)).is_ok()
    }

    /// Failed before: the pages behind one that could not be read were not compared, and nobody asked for that page again.
    #[test]
    fn a_page_that_cannot_be_read_hides_no_other() {
        assert!(is_accepted(Wrong::default()));
        let fails_when_short = true;
        assert!(is_accepted(Wrong {
            fails_when_short,
            ..Wrong::default()
        }));
        assert!(!is_accepted(Wrong {
            fails_when_short,
            lies: true,
            ..Wrong::default()
        }));
        assert!(!is_accepted(Wrong {
            fails: true,
            ..Wrong::default()
        }));
    }
}
