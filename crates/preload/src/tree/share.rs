//! A process's share: its engine's budget, which a thread raises and lowers.
//!
//! A process wants everything while it evicts for want of memory; otherwise it wants its used memory and an
//! eighth, and half of that, and half again, each second in which it does nothing. Shares change only while a process is
//! short of memory: otherwise each stays where it is.

use super::TreeStats;
use super::member::{Member, OTHER, SHORT};
use super::page::{LockedPage, Page};
use super::robust::Locked;
use crate::inside;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use core::time::Duration;
use softfault::clock::now_ns;
use softfault::{Engine, MIN_MEMORY};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const LEAST: u64 = MIN_MEMORY as u64;
/// A new process waits so long for memory of the others, at most.
const FIRST: Duration = Duration::from_millis(50);
/// Between two looks while somebody is short: of one that is short itself, and of the others.
const SOON: Duration = Duration::from_millis(100);
/// A process is short of memory for so long after it has evicted.
const STAYS_SHORT: Duration = Duration::from_millis(500);
/// A process that does nothing for so long gives half of its share.
const IDLE: Duration = Duration::from_secs(1);
/// Processor time, of that, which is nothing.
const NOTHING: Duration = Duration::from_millis(10);
/// A process that could not give all that it was due to, since pages stay, does not try again for so long: all others of its pages are evicted
/// each time.
const KEEPS: Duration = Duration::from_secs(10);
/// Between two looks at the limits of a budget that nobody said.
const LIMITS: Duration = Duration::from_secs(1);
const STACK: usize = 256 << 10;
const PAGE_BYTES: u64 = crate::decide::PAGE as u64;

/// A process's place in its tree. Never dropped.
pub struct Seat {
    page: &'static Page,
    /// Its member's number. Immutable.
    number: usize,
    /// Bytes that the engine may have at first. Immutable.
    first: u64,
    /// To the thread: the engine, once it is made.
    engine: Mutex<Sender<Engine>>,
    /// The thread's: its own call evicts, and the process is not short. Relaxed: read in the same thread, or too late by one
    /// eviction.
    is_giving: AtomicBool,
    /// 1: there is no engine, and no thread soon. Release pairs with the thread's Acquire.
    is_left: AtomicU32,
}

impl Seat {
    /// Takes a place in the tree, and a share; `None` if the page is full or was given up, or there can be no thread.
    /// All signals are masked in the caller.
    pub fn take(page: &'static Page) -> Option<&'static Self> {
        let (give, taken) = channel();
        let thread = softfault::start_thread(c"softfault-tree", STACK, move || {
            // Its calls are softfault's.
            let _inside = inside::enter();
            live(page, &give);
        });
        drop(thread.ok()?);
        // The thread answers, or has ended.
        taken.recv().ok()?
    }

    /// Bytes that the engine may have at first.
    pub fn first_share(&self) -> usize {
        self.first as usize
    }

    /// The member's number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The engine was made.
    pub fn serve(&self, engine: Engine) {
        let to = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread is there until then.
        let _ = to.send(engine);
        self.member().wake(OTHER);
    }

    /// None was.
    pub fn leave(&self) {
        self.is_left.store(1, Release);
        self.member().wake(OTHER);
    }

    /// The engine evicts. In any state of the program.
    pub fn is_short(&self) {
        if !self.is_giving.load(Relaxed) {
            self.member().wake(SHORT);
        }
    }

    /// The tree's figures, by all reports so far.
    pub fn stats(&self) -> TreeStats {
        drop(self.page.lock());
        let (memory, peak, processes) = self.page.numbers();
        TreeStats {
            share: self.member().share.load(Relaxed),
            memory,
            peak,
            processes,
        }
    }

    /// Bytes that the share could come to: with all that is nobody's, or an even part. Where the page's lock cannot be had, all.
    pub fn could_have(&self) -> u64 {
        let Some(locked) = self.page.lock() else {
            let (memory, ..) = self.page.numbers();
            return memory;
        };
        let share = self.member().share.load(Relaxed) + locked.free();
        let even = locked.memory() / locked.members().count().max(1) as u64;
        share.max(even)
    }

    /// Tells the others the engine's peak.
    pub fn tell_peak(&self, bytes: u64) {
        self.member().peak.store(bytes, Relaxed);
    }

    fn member(&self) -> &'static Member {
        self.page.member(self.number)
    }
}

/// The loop of the thread, as long as the process lives.
fn live(page: &'static Page, give: &Sender<Option<&'static Seat>>) {
    let Some((number, first, _owned)) = begin(page) else {
        // The asking thread has nothing else to do.
        let _ = give.send(None);
        return;
    };
    let (engine, made) = channel();
    let seat: &'static Seat = Box::leak(Box::new(Seat {
        page,
        number,
        first,
        engine: Mutex::new(engine),
        is_giving: AtomicBool::new(false),
        is_left: AtomicU32::new(0),
    }));
    let _ = give.send(Some(seat));
    let Some(engine) = wait_for_engine(seat, &made) else {
        return;
    };
    Divider::new(seat, engine).run();
}

/// Becomes a member, with a first share.
fn begin(page: &'static Page) -> Option<(usize, u64, Locked<'static>)> {
    let locked = page.lock()?;
    let (number, owned) = locked.take()?;
    let member = page.member(number);
    let until = Instant::now() + FIRST;
    let mut locked = Some(locked);
    loop {
        if let Some(locked) = locked.take() {
            let due = member.due(locked.level());
            let share = member.share.load(Relaxed);
            let share = share + due.saturating_sub(share).min(locked.free());
            member.share.store(share, Relaxed);
            // Half of it is enough to begin with.
            let is_enough = share >= LEAST && share >= due / 2;
            if is_enough || Instant::now() >= until || !wake_for(&locked, number) {
                break;
            }
        }
        member.wait(OTHER, Some(until.saturating_duration_since(Instant::now())));
        locked = page.lock();
        if locked.is_none() && Instant::now() >= until {
            break;
        }
    }
    // The least is there for all, beyond the budget.
    let share = member.share.load(Relaxed).max(LEAST) & !(PAGE_BYTES - 1);
    member.share.store(share, Relaxed);
    Some((number, share, owned))
}

/// Wakes the members that have more than they are due; false if none has.
fn wake_for(locked: &LockedPage, own: usize) -> bool {
    let level = locked.level();
    let has_more = |&(number, member): &(usize, &Member)| {
        number != own && member.share.load(Relaxed) > member.due(level)
    };
    let woken = locked.members().filter(has_more);
    woken.map(|(_, member)| member.wake(OTHER)).count() > 0
}

fn wait_for_engine(seat: &Seat, made: &Receiver<Engine>) -> Option<Engine> {
    loop {
        if let Ok(engine) = made.try_recv() {
            return Some(engine);
        }
        // Acquire pairs with the Release in `leave`.
        if seat.is_left.load(Acquire) == 1 {
            return None;
        }
        seat.member().wait(OTHER, None);
    }
}

/// The thread's own.
struct Divider {
    seat: &'static Seat,
    engine: Engine,
    /// When it evicted last.
    short_at: Option<Instant>,
    /// When it could not give as much as it was due to, if it could not the last time.
    kept_at: Option<Instant>,
    activity: Activity,
}

/// The activity of a process since a moment.
struct Activity {
    since: Instant,
    processor_time: Duration,
    faults: u64,
    /// Seconds in a row in which it did nothing.
    idle: u32,
}

/// The result of a look.
struct Found {
    /// The engine's new budget, if it changes.
    now: Option<u64>,
    /// Others are short, or this one is.
    is_tight: bool,
    is_alone: bool,
    has_all: bool,
}

impl Divider {
    fn new(seat: &'static Seat, engine: Engine) -> Self {
        Self {
            seat,
            engine,
            short_at: None,
            kept_at: None,
            activity: Activity::new(),
        }
    }

    fn run(mut self) {
        // A child goes on with private memory of its parent's, under its parent's budget.
        let share = self.seat.member().share.load(Relaxed);
        if self.engine.stats().budget_bytes != share {
            self.set(share);
        }
        let mut bits = SHORT | OTHER;
        let mut most = Some(SOON);
        loop {
            let woken = self.seat.member().wait(bits, most);
            if woken & SHORT != 0 {
                self.short_at = Some(Instant::now());
            }
            let found = self.look();
            if let Some(bytes) = found.as_ref().and_then(|found| found.now) {
                self.set(bytes);
            }
            let (tight, alone, has_all) = match found {
                Some(found) => (found.is_tight, found.is_alone, found.has_all),
                // The holder of the page's lock does not go on.
                None => (true, false, false),
            };
            // A process that has all of the budget has nothing to gain.
            let listens = if has_all { OTHER } else { SHORT | OTHER };
            if listens & !bits != 0 {
                // It may have been woken long ago.
                self.seat.member().wake_word.fetch_and(!SHORT, Relaxed);
            }
            bits = listens;
            most = match () {
                () if tight => Some(SOON),
                () if self.seat.page.follows() => Some(LIMITS),
                () if alone || !self.activity.is_active() => None,
                () => Some(SOON),
            };
            // Evictions wake this thread all the time: the others and the program have some of the processor.
            if woken & SHORT != 0 && !has_all {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn is_short(&self) -> bool {
        self.short_at.is_some_and(|at| at.elapsed() < STAYS_SHORT)
    }

    /// True if there is no use in giving again yet.
    fn keeps(&self) -> bool {
        self.kept_at.is_some_and(|at| at.elapsed() < KEEPS)
    }

    /// Reports its use and its demand, takes free memory, and computes the part that it has to give.
    fn look(&mut self) -> Option<Found> {
        let stats = self.engine.stats();
        let member = self.seat.member();
        self.activity.look(stats.faults);
        let limits = self.seat.page.follows().then(softfault::default_memory);
        let locked = self.seat.page.lock()?;
        if let Some(limits) = limits {
            locked.follow((limits as u64).max(LEAST));
        }
        let memory = locked.memory();
        let is_short = self.is_short();
        let used = stats.resident_bytes;
        let want = match is_short {
            true => u64::MAX,
            false => (used + used / 8)
                .checked_shr(self.activity.idle)
                .unwrap_or(0),
        };
        member.peak.store(stats.peak_bytes, Relaxed);
        member.want.store(want.max(LEAST), Relaxed);
        member.is_short.store(is_short.into(), Relaxed);
        member.looks();
        let level = locked.level();
        let due = member.due(level);
        let share = member.share.load(Relaxed);
        let shares: u64 = (locked.members())
            .map(|(_, member)| member.share.load(Relaxed))
            .sum();
        let mut others = locked
            .members()
            .filter(|&(number, _)| number != self.seat.number);
        let now_ns = now_ns();
        let is_short_of = |(_, other): (usize, &Member)| {
            other.takes_more(now_ns) && other.share.load(Relaxed) < other.due(level)
        };
        let is_alone = locked.members().count() == 1;
        let are_short = others.any(is_short_of);
        let mut now = None;
        if is_short && share < due {
            // Not more at a time than it has, where others may want some too.
            let step = if is_alone { due } else { share };
            let more = (due - share).min(locked.free()).min(step) & !(PAGE_BYTES - 1);
            if more > 0 {
                member.share.store(share + more, Relaxed);
                now = Some(share + more);
            }
            if share + more < due {
                wake_for(&locked, self.seat.number);
            }
        } else if share > due && (are_short || shares > memory) && !self.keeps() {
            now = Some(due.next_multiple_of(PAGE_BYTES));
        } else if share != stats.budget_bytes {
            // The page was locked when the engine could not have it.
            now = Some(share);
        }
        let share = member.share.load(Relaxed);
        Some(Found {
            now: now.filter(|&bytes| bytes != stats.budget_bytes || bytes != share),
            is_tight: is_short && share < due.min(memory) || are_short || shares > memory,
            is_alone,
            has_all: share >= memory,
        })
    }

    /// Sets the engine's budget; and where that is less, gives the others the rest.
    fn set(&mut self, bytes: u64) {
        let member = self.seat.member();
        let before = self.engine.stats().budget_bytes;
        if bytes > before {
            // The engine may need memory for itself that it cannot have.
            if self.engine.set_memory(bytes as usize).is_err() {
                self.give(before);
            }
            return;
        }
        self.seat.is_giving.store(true, Relaxed);
        // Pinned pages, and private pages without swap, stay: then less is given.
        let _ = self.engine.approach_memory(bytes as usize);
        self.seat.is_giving.store(false, Relaxed);
        let given = self.engine.stats().budget_bytes;
        self.kept_at = (given > bytes).then(Instant::now);
        self.give(given);
        // Pages evicted for the others say nothing of this one.
        member.wake_word.fetch_and(!SHORT, Relaxed);
    }

    /// The share is less from now on.
    fn give(&self, bytes: u64) {
        // If a process that does not go on has the page locked, the next look finds another share than the engine has.
        let Some(locked) = self.seat.page.lock() else {
            return;
        };
        self.seat.member().share.store(bytes, Relaxed);
        for (number, member) in locked.members() {
            if number != self.seat.number && member.is_short.load(Relaxed) == 1 {
                member.wake(OTHER);
            }
        }
    }
}

impl Activity {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            processor_time: processor_time(),
            faults: 0,
            idle: 0,
        }
    }

    fn look(&mut self, faults: u64) {
        if self.since.elapsed() < IDLE {
            return;
        }
        let now = processor_time();
        let is_idle = now.saturating_sub(self.processor_time) < NOTHING && faults == self.faults;
        *self = Self {
            since: Instant::now(),
            processor_time: now,
            faults,
            idle: if is_idle { self.idle + 1 } else { 0 },
        };
    }

    /// True if it did something of late.
    fn is_active(&self) -> bool {
        self.idle == 0
    }
}

/// Of all threads of the process.
fn processor_time() -> Duration {
    let mut time = core::mem::MaybeUninit::zeroed();
    // SAFETY: zeros are a valid time, and the call fills it.
    let time: libc::timespec = unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
