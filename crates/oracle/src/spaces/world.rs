//! The engine obeys operations, and the shadow is asked about its bytes.

use super::play::Stage;
use super::shadow::{Got, LANES, Shadow, Shows};
use crate::op::{MapAdvice, Op};
use crate::verbs;
use crate::{Rig, TestStore, TestSwap};
use core::ops::Range;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::FLOOR;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, Completion, FaultError, NeverInterrupted, Pin};
use softfault_engine::fault::{Stop, Stopped};
use softfault_engine::mm::ForkError;
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Backing, MmError, Protection};
use softfault_engine::mmu::Core;
use softfault_engine::store::NO_COOKIE;
use softfault_engine::{PAGE_SIZE, Store};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
// No thread is suspended with one of these in hand.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use sync::Arc;

/// Address of the first page in every space.
const ARENA: usize = 0x7000_0000_0000 + 5 * PAGE_SIZE;
/// Spaces at a time, forked ones included.
const MOST_SPACES: usize = 5;

/// The errno of swap that fails: as errors go, a common one.
const EIO: i32 = 5;

/// The mapping: pages of the file from one on, copies of them, or zeros.
#[derive(Clone, Copy)]
enum Shown {
    File(usize),
    Copy(usize),
    Zeros,
}

/// A space, and the thread that made it by forking.
#[derive(Clone)]
pub(super) struct Member {
    /// Left as it is when a test panics: it would say that it is not empty.
    pub(super) space: Arc<ManuallyDrop<AddressSpace>>,
    forked_by: Option<usize>,
}

pub(super) struct World {
    pub(super) rig: Rig,
    pub(super) store: Arc<TestStore>,
    pub(super) cache: Arc<PageCache>,
    pub(super) swap: Option<Arc<TestSwap>>,
    members: Mutex<Vec<Member>>,
    shadow: Mutex<Shadow>,
    /// True if there may be too little memory for an access.
    pub(super) may_be_short: bool,
    /// True if swap may fail.
    pub(super) may_fail: bool,
    /// Pages of the budget at the start.
    budget: u64,
    /// Accesses that found no memory. No thread is suspended at it, as at the next.
    pub(super) short: AtomicU64,
    /// Budgets that left less than was charged, with the floor.
    pub(super) lowered: AtomicU64,
}

/// One thread's view: its number, if it is not the only one, and its core.
pub(super) struct Player<'a> {
    pub(super) world: &'a World,
    pub(super) number: Option<usize>,
    pub(super) core: Core,
    /// Pages that this thread has locked, by space.
    pub(super) locked: BTreeSet<(usize, usize)>,
    /// Every access has to be served.
    pub(super) is_sure: bool,
}

pub(super) fn addresses(pages: &Range<usize>) -> Range<usize> {
    ARENA + pages.start * PAGE_SIZE..ARENA + pages.end * PAGE_SIZE
}

impl World {
    pub(super) fn new(
        rig: Rig,
        store: Arc<TestStore>,
        swap: Option<Arc<TestSwap>>,
        stage: &Stage,
    ) -> Self {
        let members = (0..stage.spaces).map(|_| Member {
            space: Arc::new(ManuallyDrop::new(rig.another_space())),
            forked_by: None,
        });
        Self {
            members: Mutex::new(members.collect()),
            shadow: Mutex::new(Shadow::new(stage)),
            cache: rig.map(&store),
            swap,
            may_be_short: stage.may_be_short,
            may_fail: stage.may_fail,
            budget: rig.node.budget.limit(),
            short: AtomicU64::new(0),
            lowered: AtomicU64::new(0),
            rig,
            store,
        }
    }

    pub(super) fn player(&self, number: Option<usize>) -> Player<'_> {
        Player {
            world: self,
            number,
            core: self.rig.mmu.core().expect("room for a core"),
            locked: BTreeSet::new(),
            is_sure: false,
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

    pub(super) fn member(&self, number: usize) -> Member {
        self.members()[number].clone()
    }

    /// Delivers completed reads without a waiter.
    pub(super) fn deliver(&self) {
        let completion = Completion(&self.rig.node);
        self.store.reap(NO_COOKIE, &completion, 0);
        if let Some(swap) = &self.swap {
            swap.reap(NO_COOKIE, &completion, 0);
        }
    }

    /// Lets so many reads and writes end that are held back.
    pub(super) fn release(&self, count: usize) {
        self.store.release(count);
        if let Some(swap) = &self.swap {
            swap.release(count);
        }
    }

    /// Holds reads and writes back from now on.
    pub(super) fn close(&self) {
        self.store.close();
        if let Some(swap) = &self.swap {
            swap.close();
        }
    }

    /// Lets all of them end.
    pub(super) fn open(&self) {
        self.store.open();
        if let Some(swap) = &self.swap {
            swap.open();
        }
    }

    /// Changes the budget, while others use it.
    fn change_memory(&self, pages: u64) {
        if self.rig.node.budget.charged() + FLOOR > pages {
            // Relaxed, here and below: looked at when the threads are over.
            self.lowered.fetch_add(1, Ordering::Relaxed);
        }
        self.rig.change_memory(pages);
    }

    /// There is as much memory as at the start, and swap does not fail any more.
    pub(super) fn lift_shortage(&self) {
        if let Some(swap) = &self.swap {
            swap.fail_reads(0, EIO);
            swap.fail_writes(0, EIO);
        }
        self.rig.change_memory(self.budget);
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
    /// Obeys an operation. False if it was left out: it is not for what is there.
    pub(super) fn obey(&mut self, op: &Op) -> bool {
        match op {
            Op::ReadBytes { space, bytes } => {
                self.each_page(*space, bytes, Self::read);
            }
            Op::WriteBytes { space, bytes, .. } => {
                self.each_page(*space, bytes, Self::write);
            }
            Op::MapZeros { space, pages } => return self.map(*space, pages, Shown::Zeros),
            Op::MapFile { space, pages, from } => {
                return self.map(*space, pages, Shown::File(*from));
            }
            Op::MapCopy { space, pages, from } => {
                return self.map(*space, pages, Shown::Copy(*from));
            }
            Op::ManagePages { space, pages, verb } => return self.manage(*space, pages, *verb),
            Op::FailSwapReads { reads } => {
                let swap = self.world.swap.as_ref();
                let failing = swap.inspect(|swap| swap.fail_reads(usize::from(*reads), EIO));
                return failing.is_some();
            }
            Op::FailSwapWrites { writes } => {
                let swap = self.world.swap.as_ref();
                let failing = swap.inspect(|swap| swap.fail_writes(usize::from(*writes), EIO));
                return failing.is_some();
            }
            Op::UnmapPages { space, pages } => return self.unmap(*space, pages),
            Op::ProtectPages {
                space,
                pages,
                protection,
            } => return self.protect(*space, pages, *protection),
            Op::AdvisePages {
                space,
                pages,
                advice,
            } => return self.advise(*space, pages, *advice),
            Op::RemapPages { space, pages, to } => return self.remap(*space, pages, *to),
            Op::Fork { space } => return self.fork(*space),
            Op::Exit { space } => return self.exit(*space),
            Op::PrefetchFile { pages } => {
                fault::prefetch(&self.world.cache, self.window(pages));
            }
            Op::InvalidateFile { pages } => self.world.cache.invalidate(self.window(pages)),
            Op::PinFile { pages } => return self.pin(pages),
            Op::Truncate { len } => self.truncate(*len),
            Op::Memory { more } => {
                let pages = self.world.budget + u64::from(*more) / 4;
                self.world.change_memory(pages);
            }
            Op::Evict => {
                self.world.deliver();
                self.world.rig.evict_all();
            }
            Op::Release { reads } => self.world.release(usize::from(*reads)),
            // On maps by their numbers.
            _ => return false,
        }
        true
    }

    /// Pages of the file, as addresses of its window.
    fn window(&self, pages: &Range<usize>) -> Range<usize> {
        let all = self.world.cache.addresses();
        let at = |page: usize| (all.start + page * PAGE_SIZE).min(all.end);
        at(pages.start)..at(pages.end)
    }

    /// The space, if this thread may change its mappings.
    pub(super) fn own(&self, space: u8) -> Option<(usize, Member)> {
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
            Err(Stop::Error(FaultError::NoMemory)) if self.world.may_be_short && !self.is_sure => {
                self.world.short.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Err(Stop::Error(FaultError::Io(EIO) | FaultError::Short))
                if self.world.may_fail && !self.is_sure =>
            {
                return None;
            }
            Err(why) => panic!("{why:?}"),
        })
    }

    fn map(&mut self, space: u8, pages: &Range<usize>, shown: Shown) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
        };
        let cache = self.world.cache.clone();
        if let Shown::File(from) | Shown::Copy(from) = shown
            && cache.addresses().len() < (from + pages.len()) * PAGE_SIZE
        {
            return false;
        }
        let anonymous = |anon| Backing::from(anon);
        let (node, bytes) = (self.world.rig.node.clone(), pages.len() * PAGE_SIZE);
        let (backing, pgoff, protection) = match shown {
            Shown::File(from) => (Backing::from(cache), from as u64, Protection::Read),
            Shown::Copy(from) => {
                let copy = verbs::private_copy(node, bytes, &self.world.store, from);
                (anonymous(copy), 0, Protection::ReadWrite)
            }
            Shown::Zeros => {
                let anon = Anonymous::new(node, bytes).expect("room for a window");
                (anonymous(anon), 0, Protection::ReadWrite)
            }
        };
        {
            let mut shadow = self.world.shadow();
            let last = shadow.last(number, pages);
            if last.iter().any(|values| **values != [Shows::Nothing]) {
                return false;
            }
            let mut page = |nth: usize| match shown {
                Shown::File(from) => Shows::File((from + nth) as u64, protection),
                Shown::Copy(from) => {
                    let page = shadow.new_page(number, Some((from + nth) as u64));
                    Shows::Zeros(page, protection)
                }
                Shown::Zeros => Shows::Zeros(shadow.new_page(number, None), protection),
            };
            let shows = (0..pages.len())
                .map(&mut page)
                .map(|shows| vec![shows])
                .collect();
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
        true
    }

    fn unmap(&mut self, space: u8, pages: &Range<usize>) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
        };
        let nothing = vec![vec![Shows::Nothing]; pages.len()];
        self.unlock(number, pages);
        self.world.shadow().begin(number, pages.start, nothing);
        let unmapped = member.space.munmap(addresses(pages), |_, _| {});
        unmapped.expect("room for a VMA");
        self.world.shadow().end(number, pages);
        true
    }

    fn protect(&mut self, space: u8, pages: &Range<usize>, protection: Protection) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
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
        true
    }

    fn advise(&mut self, space: u8, pages: &Range<usize>, advice: MapAdvice) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
        };
        let advice = match advice {
            MapAdvice::Normal => Advice::Normal,
            MapAdvice::Random => Advice::Random,
            MapAdvice::Sequential | MapAdvice::WillNeed => Advice::Sequential,
        };
        let last = self.world.shadow().last(number, pages);
        let done = member.space.madvise(addresses(pages), advice);
        assert_covered(&last, done);
        true
    }

    fn remap(&mut self, space: u8, pages: &Range<usize>, to: usize) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
        };
        let new = to..to + pages.len();
        {
            let mut shadow = self.world.shadow();
            let overlap = new.start < pages.end && pages.start < new.end;
            if overlap || new.end > shadow.pages() {
                return false;
            }
            let moved = shadow.last(number, pages);
            let is_there = |values: &Vec<Shows>| !values.contains(&Shows::Nothing);
            let mut target = shadow.last(number, &new).into_iter();
            if !moved.iter().all(is_there) || !target.all(|values| values == [Shows::Nothing]) {
                return false;
            }
            let nothing = vec![vec![Shows::Nothing]; pages.len()];
            shadow.begin(number, pages.start, nothing);
            shadow.begin(number, new.start, moved);
        }
        self.unlock(number, pages);
        let start = addresses(&new).start;
        let moved = member.space.mremap(addresses(pages), start);
        moved.expect("all is there, and room for it");
        let mut shadow = self.world.shadow();
        shadow.end(number, pages);
        shadow.end(number, &new);
        true
    }

    fn fork(&mut self, space: u8) -> bool {
        let (number, member) = self.world.space(space);
        if self.world.members().len() >= MOST_SPACES {
            return false;
        }
        let child = ManuallyDrop::new(self.world.rig.another_space());
        let from = self.world.shadow().tick();
        match member.space.fork(&child) {
            Ok(()) => {}
            Err(ForkError::Budget) if self.world.may_be_short => {
                // Empty, as it was.
                drop(ManuallyDrop::into_inner(child));
                return false;
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
        true
    }

    fn exit(&mut self, space: u8) -> bool {
        let (number, member) = self.world.space(space);
        if member.forked_by.is_none() || member.forked_by != self.number {
            return false;
        }
        let all = 0..self.world.shadow().pages();
        self.unlock(number, &all);
        let nothing = vec![vec![Shows::Nothing]; all.len()];
        self.world.shadow().begin(number, 0, nothing);
        member.space.exit(|_, _| {});
        self.world.shadow().end(number, &all);
        true
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
    fn pin(&mut self, pages: &Range<usize>) -> bool {
        let world = self.world;
        let (space, cache) = (&*world.rig.space, &world.cache);
        let range = self.window(pages);
        let admitted = cache.admit_pin(&range).filter(|_| !range.is_empty());
        let Some(admitted) = admitted else {
            return false;
        };
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
        cache.dismiss_pin(admitted);
        true
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
