//! Where the time of one touch goes, for `softfault lab profile`.
//!
//! A touch has a *stage* at any moment, a number that the caller gives a meaning to. The time between two
//! changes is the first one's, so that the stages sum to the whole by construction:
//!
//! ```text
//!   begin ──── enter(h) ── span(v) ── drop ── span(c) ── drop ── enter(r) ──── end
//!     stage 0      h          v         h        c         h         r
//! ```
//!
//! One touch is recorded at a time, whichever threads it passes through: it is at one of them, which alone
//! changes the stage, and which another takes it over from. Other threads' touches are not recorded.
//!
//! Switched off, as it is but for that command, a span is a look at a byte that nobody writes to.

use crate::clock::now_ns;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// Stages at most.
pub const STAGES: usize = 24;
/// No stage: the span is not recorded.
const NOT_RECORDED: u8 = u8::MAX;
/// The touch is at no thread: over, or between two.
const NOBODY: usize = 0;

/// Whether touches are recorded.
static ON: AtomicBool = AtomicBool::new(false);

/// The touch that is recorded. All but `busy` is for whoever has set that.
static RECORD: Record = Record {
    busy: AtomicBool::new(false),
    open: AtomicBool::new(false),
    thread: AtomicUsize::new(NOBODY),
    stage: AtomicU8::new(0),
    since: AtomicU64::new(0),
    ns: [const { AtomicU64::new(0) }; STAGES],
    entered: [const { AtomicU32::new(0) }; STAGES],
};

struct Record {
    busy: AtomicBool,
    /// Between `begin` and `end`.
    open: AtomicBool,
    /// The thread that the touch is at, or nobody.
    thread: AtomicUsize,
    stage: AtomicU8,
    /// When that began.
    since: AtomicU64,
    ns: [AtomicU64; STAGES],
    entered: [AtomicU32; STAGES],
}

/// A touch that is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Touched {
    /// Nanoseconds in each stage.
    pub ns: [u64; STAGES],
    /// How often each was begun; not how often it was come back to.
    pub entered: [u32; STAGES],
}

impl Touched {
    /// The whole touch.
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }
}

/// Switches recording on or off, for the whole process. No touch is being recorded meanwhile.
pub fn switch(on: bool) {
    ON.store(on, Relaxed);
}

/// Begins to record a touch of this thread's, which has stage 0.
pub fn begin() {
    let record = Taken::new();
    for stage in 0..STAGES {
        record.ns[stage].store(0, Relaxed);
        record.entered[stage].store(0, Relaxed);
    }
    record.entered[0].store(1, Relaxed);
    record.thread.store(this_thread(), Relaxed);
    record.open.store(true, Relaxed);
    record.stage.store(0, Relaxed);
    record.since.store(now_ns(), Relaxed);
}

/// The touch is over, wherever it was.
pub fn end() -> Touched {
    let record = Taken::new();
    record.charge(0);
    record.open.store(false, Relaxed);
    record.thread.store(NOBODY, Relaxed);
    Touched {
        ns: core::array::from_fn(|stage| record.ns[stage].load(Relaxed)),
        entered: core::array::from_fn(|stage| record.entered[stage].load(Relaxed)),
    }
}

/// A stage that lasts until this is dropped. Then the one before goes on.
#[must_use]
pub struct Span {
    before: u8,
}

/// Begins a stage of the touch, if it is at this thread.
#[inline(always)]
pub fn span(stage: u8) -> Span {
    let before = match ON.load(Relaxed) {
        false => NOT_RECORDED,
        true => change(stage),
    };
    Span { before }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.before != NOT_RECORDED {
            come_back(self.before);
        }
    }
}

/// Begins a stage of the touch, if it is at this thread, which lasts until another begins.
#[inline(always)]
pub fn enter(stage: u8) {
    if ON.load(Relaxed) {
        change(stage);
    }
}

/// The touch, if there is one, is at this thread from now on, in this stage.
#[inline(always)]
pub fn take_over(stage: u8) {
    #[cold]
    fn take(stage: u8) {
        let record = Taken::new();
        if record.open.load(Relaxed) {
            record.thread.store(this_thread(), Relaxed);
            record.begin(stage);
        }
    }
    if ON.load(Relaxed) {
        take(stage);
    }
}

/// The touch, if it is still at this thread, is at none from now on, in this stage.
#[inline(always)]
pub fn let_go(stage: u8) {
    #[cold]
    fn leave(stage: u8) {
        let record = Taken::new();
        if record.thread.load(Relaxed) == this_thread() {
            record.begin(stage);
            record.thread.store(NOBODY, Relaxed);
        }
    }
    if ON.load(Relaxed) {
        leave(stage);
    }
}

/// Begins a stage, and answers which one was before, if the touch is at this thread.
#[cold]
fn change(stage: u8) -> u8 {
    let record = Taken::new();
    match record.thread.load(Relaxed) == this_thread() {
        true => record.begin(stage),
        false => NOT_RECORDED,
    }
}

#[cold]
fn come_back(stage: u8) {
    let record = Taken::new();
    if record.thread.load(Relaxed) == this_thread() {
        record.charge(stage);
    }
}

/// The record, while this thread alone has it.
struct Taken;

impl Taken {
    fn new() -> Self {
        // Acquire pairs with the Release in `drop`: whoever had it has written all of it.
        while RECORD.busy.swap(true, Acquire) {
            core::hint::spin_loop();
        }
        Self
    }

    fn begin(&self, stage: u8) -> u8 {
        self.entered[usize::from(stage)].fetch_add(1, Relaxed);
        self.charge(stage)
    }

    /// The time since the last change is the stage's that was; it is `next` now.
    fn charge(&self, next: u8) -> u8 {
        let now = now_ns();
        let stage = self.stage.swap(next, Relaxed);
        let ns = now.saturating_sub(self.since.swap(now, Relaxed));
        self.ns[usize::from(stage)].fetch_add(ns, Relaxed);
        stage
    }
}

impl core::ops::Deref for Taken {
    type Target = Record;

    fn deref(&self) -> &Record {
        &RECORD
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `new`.
        RECORD.busy.store(false, Release);
    }
}

/// An address that no other thread has: that of its errno. A thread-local of ours might have to be made, and in a handler none may be.
fn this_thread() -> usize {
    // SAFETY: takes no arguments, and is made for any thread at any time.
    unsafe { libc::__errno_location() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: there is one record.
    #[test]
    fn time_is_charged_to_one_stage_and_to_one_thread() {
        let entered = |touched: &Touched| -> Vec<u32> { touched.entered[..5].to_vec() };
        // Off, nothing but the whole is recorded.
        begin();
        drop(span(1));
        take_over(2);
        let touched = end();
        assert_eq!(entered(&touched), [1, 0, 0, 0, 0]);
        assert_eq!(touched.ns[0], touched.total_ns());

        switch(true);
        // No touch is under way.
        drop(span(1));
        take_over(1);
        let before = now_ns();
        begin();
        enter(1);
        for _ in 0..3 {
            let _outer = span(2);
            let _inner = span(3);
        }
        std::thread::scope(|scope| {
            let other = || {
                drop(span(4));
                enter(4);
                let_go(4);
            };
            scope.spawn(other);
        });
        let touched = end();
        assert_eq!(
            entered(&touched),
            [1, 1, 3, 3, 0],
            "others are not recorded"
        );
        let whole = touched.total_ns();
        assert!(whole <= now_ns() - before);
        assert_eq!(whole, touched.ns[..4].iter().sum::<u64>());

        // From thread to thread.
        begin();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                take_over(1);
                drop(span(2));
                let_go(3);
                drop(span(2));
            });
        });
        // It is not here either.
        drop(span(4));
        let touched = end();
        switch(false);
        assert_eq!(entered(&touched), [1, 1, 1, 1, 0]);
    }
}
