//! The engine obeys operations, and the shadow is asked about what it shows.

use super::play::Stage;
use super::shadow::{Got, LANES, Shadow, Shows};
use crate::op::{MapAdvice, Op};
use crate::{Rig, TestStore};
use core::ops::Range;
use softfault_engine::anon::{Anonymous, ForkError};
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, Completion, FaultError, NeverInterrupted, Pin};
use softfault_engine::fault::{Stop, Stopped};
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Backing, MmError, Protection};
use softfault_engine::mmu::Core;
use softfault_engine::store::NO_COOKIE;
use softfault_engine::{PAGE_SIZE, Store};
use std::mem::ManuallyDrop;
// No thread is suspended with one of these in hand.
use std::sync::{Mutex, MutexGuard};
use sync::Arc;

/// Address of the first page in every space.
const ARENA: usize = 0x7000_0000_0000 + 5 * PAGE_SIZE;
/// Spaces at a time, forked ones included.
const MOST_SPACES: usize = 5;

/// A space, and the thread that made it by forking.
#[derive(Clone)]
struct Member {
    /// Left as it is when a test panics: it would say that it is not empty.
    space: Arc<ManuallyDrop<AddressSpace>>,
    forked_by: Option<usize>,
}

pub(super) struct World {
    pub(super) rig: Rig,
    pub(super) store: Arc<TestStore>,
    pub(super) cache: Arc<PageCache>,
    members: Mutex<Vec<Member>>,
    shadow: Mutex<Shadow>,
    /// True if there may be too little memory for an access.
    may_be_short: bool,
    /// Pages of the budget at the start.
    budget: u64,
}

/// One thread's view: its number, if it is not the only one, and its core.
pub(super) struct Player<'a> {
    pub(super) world: &'a World,
    pub(super) number: Option<usize>,
    pub(super) core: Core,
}

fn addresses(pages: &Range<usize>) -> Range<usize> {
    ARENA + pages.start * PAGE_SIZE..ARENA + pages.end * PAGE_SIZE
}

impl World {
    pub(super) fn new(rig: Rig, store: Arc<TestStore>, stage: &Stage) -> Self {
        let members = (0..stage.spaces).map(|_| Member {
            space: Arc::new(ManuallyDrop::new(rig.another_space())),
            forked_by: None,
        });
        Self {
            members: Mutex::new(members.collect()),
            shadow: Mutex::new(Shadow::new(stage)),
            cache: rig.map(&store),
            may_be_short: stage.may_be_short,
            budget: rig.node.budget.limit(),
            rig,
            store,
        }
    }

    pub(super) fn player(&self, number: Option<usize>) -> Player<'_> {
        Player {
            world: self,
            number,
            core: self.rig.mmu.core().expect("room for a core"),
        }
    }

    /// For one step without a scheduling point.
    pub(super) fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().expect("whoever panics ends the run")
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().expect("whoever panics ends the run")
    }

    fn space(&self, space: u8) -> (usize, Member) {
        let members = self.members();
        let number = usize::from(space) % members.len();
        (number, members[number].clone())
    }

    /// Delivers what was read and nobody waited for.
    pub(super) fn deliver(&self) {
        let completion = Completion(&self.rig.node);
        self.store.reap(NO_COOKIE, &completion, 0);
    }

    /// Takes everything down, and asserts that nothing is left.
    pub(super) fn finish(self) {
        self.deliver();
        for member in self.members.into_inner().expect("nobody panicked") {
            let space = Arc::into_inner(member.space).expect("no thread is left");
            let space = ManuallyDrop::into_inner(space);
            space.validate(&space.mmap_lock().read());
            space.exit(|_, _| {});
        }
        drop(self.cache);
        self.rig.finish();
    }
}

impl Player<'_> {
    pub(super) fn obey(&mut self, op: &Op) {
        match op {
            Op::ReadBytes { space, bytes } => self.each_page(*space, bytes, Self::read),
            Op::WriteBytes { space, bytes, .. } => self.each_page(*space, bytes, Self::write),
            Op::MapZeros { space, pages } => self.map(*space, pages, None),
            Op::MapFile { space, pages, from } => self.map(*space, pages, Some(*from)),
            Op::UnmapPages { space, pages } => self.unmap(*space, pages),
            Op::ProtectPages {
                space,
                pages,
                protection,
            } => self.protect(*space, pages, *protection),
            Op::AdvisePages {
                space,
                pages,
                advice,
            } => self.advise(*space, pages, *advice),
            Op::RemapPages { space, pages, to } => self.remap(*space, pages, *to),
            Op::Fork { space } => self.fork(*space),
            Op::Exit { space } => self.exit(*space),
            Op::PrefetchFile { pages } => {
                fault::prefetch(&self.world.cache, self.window(pages));
            }
            Op::InvalidateFile { pages } => self.world.cache.invalidate(self.window(pages)),
            Op::PinFile { pages } => self.pin(pages),
            Op::Truncate { len } => self.truncate(*len),
            Op::Memory { more } => {
                let pages = self.world.budget + u64::from(*more) / 4;
                self.world.rig.change_memory(pages);
            }
            Op::Evict => {
                self.world.deliver();
                self.world.rig.evict_all();
            }
            Op::Release { reads } => self.world.store.release(usize::from(*reads)),
            // On maps by their numbers.
            _ => {}
        }
    }

    /// Pages of the file, as addresses of its window.
    fn window(&self, pages: &Range<usize>) -> Range<usize> {
        let all = self.world.cache.addresses();
        let at = |page: usize| (all.start + page * PAGE_SIZE).min(all.end);
        at(pages.start)..at(pages.end)
    }

    /// The space, if this thread may change what it shows.
    fn own(&self, space: u8) -> Option<(usize, Member)> {
        let (number, member) = self.world.space(space);
        let own = member.forked_by.is_none() || member.forked_by == self.number;
        own.then_some((number, member))
    }

    fn each_page(&mut self, space: u8, bytes: &Range<usize>, f: fn(&mut Self, u8, usize, usize)) {
        let lane = bytes.start % PAGE_SIZE * LANES.len() / PAGE_SIZE;
        let pages = self.world.shadow().pages();
        let end = bytes.end.div_ceil(PAGE_SIZE).min(pages);
        for page in bytes.start / PAGE_SIZE..end {
            f(self, space, page, lane);
        }
    }

    fn read(&mut self, space: u8, page: usize, lane: usize) {
        let (number, member) = self.world.space(space);
        let from = self.world.shadow().tick();
        let addr = ARENA + page * PAGE_SIZE + LANES[lane];
        let mut word = [0; 8];
        let core = &mut self.core;
        let read = fault::read_at(core, &member.space, addr, &mut word, &NeverInterrupted);
        let got = self.got(read, Got::Word(u64::from_ne_bytes(word)));
        if let Some(got) = got {
            let mut shadow = self.world.shadow();
            shadow.check_read(number, page, lane, from, got);
        }
    }

    fn write(&mut self, space: u8, page: usize, lane: usize) {
        let (number, member) = self.world.space(space);
        let value = {
            let mut shadow = self.world.shadow();
            let value = shadow.tick();
            shadow.begin_write(number, page, lane, value);
            value
        };
        let addr = ARENA + page * PAGE_SIZE + LANES[lane];
        let word = value.to_ne_bytes();
        let core = &mut self.core;
        let written = fault::write_at(core, &member.space, addr, &word, &NeverInterrupted);
        let got = self.got(written, Got::Written);
        self.world.shadow().end_write(value, got);
    }

    /// None if there was no memory, where that may be.
    fn got(&self, result: Result<(), Stopped>, done: Got) -> Option<Got> {
        Some(match result.map_err(|stopped| stopped.why) {
            Ok(()) => done,
            Err(Stop::Error(FaultError::NotMapped)) => Got::NotMapped,
            Err(Stop::Error(FaultError::Protection)) => Got::Forbidden,
            Err(Stop::Error(FaultError::BeyondEnd)) => Got::BeyondEnd,
            Err(Stop::Error(FaultError::NoMemory)) if self.world.may_be_short => return None,
            Err(why) => panic!("{why:?}"),
        })
    }

    fn map(&mut self, space: u8, pages: &Range<usize>, from: Option<usize>) {
        let Some((number, member)) = self.own(space) else {
            return;
        };
        let (backing, pgoff, protection) = match from {
            Some(from) => {
                let cache = self.world.cache.clone();
                if cache.addresses().len() < (from + pages.len()) * PAGE_SIZE {
                    return;
                }
                (Backing::File(cache), from as u64, Protection::Read)
            }
            None => {
                let anon = Anonymous::new(self.world.rig.node.clone(), pages.len() * PAGE_SIZE);
                let anon = anon.expect("room for a window");
                (Backing::Anonymous(anon), 0, Protection::ReadWrite)
            }
        };
        {
            let mut shadow = self.world.shadow();
            let last = shadow.last(number, pages);
            if last.iter().any(|values| **values != [Shows::Nothing]) {
                return;
            }
            let shows = match from {
                Some(from) => (from..from + pages.len())
                    .map(|page| vec![Shows::File(page as u64, protection)])
                    .collect(),
                None => {
                    let zeros = shadow.new_zeros(number, pages.len());
                    let zeros = zeros.map(|zero| vec![Shows::Zeros(zero, protection)]);
                    zeros.collect()
                }
            };
            shadow.begin(number, pages.start, shows);
        }
        let attributes = Attributes {
            backing,
            pgoff,
            protection,
            ..Attributes::default()
        };
        let mapped = member.space.mmap(addresses(pages), attributes);
        mapped.expect("nothing is there");
        self.world.shadow().end(number, pages);
    }

    fn unmap(&mut self, space: u8, pages: &Range<usize>) {
        let Some((number, member)) = self.own(space) else {
            return;
        };
        let nothing = vec![vec![Shows::Nothing]; pages.len()];
        self.world.shadow().begin(number, pages.start, nothing);
        let unmapped = member.space.munmap(addresses(pages), |_, _| {});
        unmapped.expect("room for a VMA");
        self.world.shadow().end(number, pages);
    }

    fn protect(&mut self, space: u8, pages: &Range<usize>, protection: Protection) {
        let Some((number, member)) = self.own(space) else {
            return;
        };
        let last = self.world.shadow().last(number, pages);
        let after = last.iter().map(|values| {
            let values = values.iter().map(|shows| shows.protected(protection));
            values.collect()
        });
        let after = after.collect();
        self.world.shadow().begin(number, pages.start, after);
        let done = member.space.mprotect(addresses(pages), protection);
        self.world.shadow().end(number, pages);
        assert_covered(&last, done);
    }

    fn advise(&mut self, space: u8, pages: &Range<usize>, advice: MapAdvice) {
        let Some((number, member)) = self.own(space) else {
            return;
        };
        let advice = match advice {
            MapAdvice::Normal => Advice::Normal,
            MapAdvice::Random => Advice::Random,
            MapAdvice::Sequential | MapAdvice::WillNeed => Advice::Sequential,
        };
        let last = self.world.shadow().last(number, pages);
        let done = member.space.madvise(addresses(pages), advice);
        assert_covered(&last, done);
    }

    fn remap(&mut self, space: u8, pages: &Range<usize>, to: usize) {
        let Some((number, member)) = self.own(space) else {
            return;
        };
        let new = to..to + pages.len();
        {
            let mut shadow = self.world.shadow();
            let overlap = new.start < pages.end && pages.start < new.end;
            if overlap || new.end > shadow.pages() {
                return;
            }
            let moved = shadow.last(number, pages);
            let is_there = |values: &Vec<Shows>| !values.contains(&Shows::Nothing);
            let mut target = shadow.last(number, &new).into_iter();
            if !moved.iter().all(is_there) || !target.all(|values| values == [Shows::Nothing]) {
                return;
            }
            let nothing = vec![vec![Shows::Nothing]; pages.len()];
            shadow.begin(number, pages.start, nothing);
            shadow.begin(number, new.start, moved);
        }
        let start = addresses(&new).start;
        let moved = member.space.mremap(addresses(pages), start);
        moved.expect("all is there, and room for it");
        let mut shadow = self.world.shadow();
        shadow.end(number, pages);
        shadow.end(number, &new);
    }

    fn fork(&mut self, space: u8) {
        let (number, member) = self.world.space(space);
        if self.world.members().len() >= MOST_SPACES {
            return;
        }
        let child = ManuallyDrop::new(self.world.rig.another_space());
        let from = self.world.shadow().tick();
        match member.space.fork(&child) {
            Ok(()) => {}
            Err(ForkError::Budget) if self.world.may_be_short => {
                // Empty, as it was.
                drop(ManuallyDrop::into_inner(child));
                return;
            }
            Err(error) => panic!("{error:?}"),
        }
        let mut members = self.world.members();
        let copy = self.world.shadow().forked(number, from);
        assert_eq!(copy, members.len(), "both have the same spaces");
        members.push(Member {
            space: Arc::new(child),
            forked_by: self.number,
        });
    }

    fn exit(&mut self, space: u8) {
        let (number, member) = self.world.space(space);
        if member.forked_by.is_none() || member.forked_by != self.number {
            return;
        }
        let all = 0..self.world.shadow().pages();
        let nothing = vec![vec![Shows::Nothing]; all.len()];
        self.world.shadow().begin(number, 0, nothing);
        member.space.exit(|_, _| {});
        self.world.shadow().end(number, &all);
    }

    fn truncate(&mut self, len: u32) {
        let world = self.world;
        let len = u64::from(len) % (world.cache.addresses().len() as u64 + 1);
        world.shadow().begin_truncate(len);
        world.store.set_len(len);
        world.cache.truncate(len);
        world.shadow().end_truncate();
    }

    /// Pins pages in the window, where the rig has mapped the whole file.
    fn pin(&mut self, pages: &Range<usize>) {
        let world = self.world;
        let (node, range) = (&world.rig.node, self.window(pages));
        let most = pages.len() as u64 + 32;
        if range.is_empty() || !node.try_pin(most) {
            return;
        }
        let (space, cache) = (&*world.rig.space, &world.cache);
        match fault::pin(space, cache, range.clone(), range.start, &NeverInterrupted) {
            Pin::Done => {
                let before = world.shadow().tick();
                let byte = world.rig.touch(range.start);
                let offset = (range.start - world.cache.addresses().start) as u64;
                if world.shadow().is_untruncated() {
                    assert_eq!(byte, Ok(world.store.byte(offset)), "pinned since {before}");
                }
                fault::unpin(cache, range);
            }
            Pin::Failed(FaultError::BeyondEnd) if !world.shadow().is_untruncated() => {}
            Pin::Failed(FaultError::NoMemory) if world.may_be_short => {}
            other => panic!("{other:?}"),
        }
        node.unpin_pages(most);
    }
}

/// Asserts that a change of all that is mapped in a range said rightly whether
/// there was a hole in it.
fn assert_covered(before: &[Vec<Shows>], done: Result<(), MmError>) {
    let hole = before.iter().any(|values| *values == [Shows::Nothing]);
    let perhaps = before.iter().any(|values| values.contains(&Shows::Nothing));
    match done {
        Ok(()) => assert!(!hole, "a hole was not noticed"),
        Err(MmError::Unmapped) => assert!(perhaps, "there was no hole"),
        Err(error) => panic!("{error:?}"),
    }
}
