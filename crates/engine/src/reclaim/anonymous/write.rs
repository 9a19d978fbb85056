//! Protecting dirty pages, and writing them to swap.

use super::{BATCH, Copies, EvictOutcome, PrivateBatch, Victim};
use crate::PAGE_SIZE;
use crate::mmu::Mmu;
use crate::stage::Stage;
use crate::swap::Swap;
use core::ops::Range;

/// Residents that stay between two pages of one range to protect. Each of them faults
/// at its next write, and that costs about as much as a range of its own does for so
/// many. None where pages of the window may stay for ever: they may be handed to system
/// calls, which fail where a page is protected.
const STAYING: u32 = 4;
/// The bytes from one page to the next of one range to protect. Pages between them that are not there cost next to nothing, unless a
/// part of the range is not the window's any more: then each page is protected by a call of its own.
const APART: usize = 64 * PAGE_SIZE;

/// Where a page's bytes are.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Source(*const u8);

// SAFETY: an address, which is looked at only while its page is locked.
unsafe impl Send for Source {}

impl PrivateBatch {
    /// Takes the leave to write away from those that have to be written.
    pub(super) fn protect(&mut self, mmu: &dyn Mmu) {
        let Self {
            victims,
            windows,
            ranges,
            ..
        } = self;
        ranges.clear();
        let mut skipped = 0;
        let mut last: Option<&Victim> = None;
        for victim in victims.iter() {
            skipped += victim.skipped;
            if victim.fate != EvictOutcome::Writes {
                continue;
            }
            let end = victim.addr + PAGE_SIZE;
            let joins = last.is_some_and(|last| {
                let is_next = last.addr + PAGE_SIZE == victim.addr;
                let keeps = || windows[victim.window].get().keeps();
                last.window == victim.window
                    && last.addr < victim.addr
                    && victim.addr - last.addr <= APART
                    && (is_next || skipped <= STAYING && !keeps())
            });
            match ranges.last_mut() {
                Some(range) if joins => range.end = end,
                _ => ranges.push(victim.addr..end),
            }
            (last, skipped) = (Some(victim), 0);
        }
        if !ranges.is_empty() {
            mmu.protect(ranges);
        }
    }

    /// Writes them to runs of slots, as long as there are some.
    pub(super) fn write(&mut self, mmu: &dyn Mmu, swap: Option<&Swap>) {
        let mut next = 0;
        if let Some(swap) = swap {
            swap.free_if_no_child_lives();
        }
        loop {
            let left = self.victims[next..].iter();
            let count = left
                .filter(|victim| victim.fate == EvictOutcome::Writes)
                .count();
            let count = count.min(self.copies.as_ref().map_or(BATCH, Copies::pages));
            if count == 0 {
                return;
            }
            let run = swap.and_then(|swap| swap.slots.alloc(count as u32));
            let (Some(swap), Some(run)) = (swap, run) else {
                if let Some(swap) = swap {
                    swap.stats.full.add(1);
                }
                return self.stay(next);
            };
            next = self.write_run(mmu, swap, next, run);
        }
    }

    /// Writes those that come next to a run of slots; returns where to go on.
    fn write_run(&mut self, mmu: &dyn Mmu, swap: &Swap, from: usize, run: Range<u32>) -> usize {
        let Self {
            victims,
            windows,
            sources,
            copies,
            ..
        } = self;
        sources.clear();
        let sees_pins = mmu.sees_pins();
        let mut slots = run.clone();
        let mut next = from;
        while next < victims.len() && !slots.is_empty() {
            let victim = &mut victims[next];
            next += 1;
            if victim.fate != EvictOutcome::Writes {
                continue;
            }
            let window = windows[victim.window].get().window.reservation();
            let source = match copies {
                None => mmu.bytes(window, victim.addr),
                Some(copies) => {
                    let to = copies.page(sources.len());
                    // SAFETY: a page of the batch's, which nobody else has.
                    match unsafe { mmu.copy_out(window, victim.addr, to) } {
                        Ok(true) => to.cast_const(),
                        Ok(false) => {
                            victim.fate = EvictOutcome::Vanished;
                            continue;
                        }
                        Err(_) => {
                            victim.fate = EvictOutcome::Stays;
                            continue;
                        }
                    }
                }
            };
            if sees_pins {
                // SAFETY: a copy; or a page that is protected, and locked.
                victim.sum = unsafe { mmu.sum(source) };
            }
            sources.push(Source(source));
            victim.fate = EvictOutcome::Written(slots.start);
            slots.start += 1;
        }
        // Of those that were not there to be copied.
        slots.for_each(|slot| swap.put(slot));
        if sources.is_empty() {
            return next;
        }
        debug_assert!(sources.len() <= BATCH);
        let offset = u64::from(run.start) * PAGE_SIZE as u64;
        let writing = Stage::WriteOut.span();
        // SAFETY: copies; or pages that are protected, and stay: they are locked.
        let written = unsafe { swap.device().write(offset, Source::pointers(sources)) };
        drop(writing);
        match written {
            Ok(()) => swap.stats.pages_out.add(sources.len() as u64),
            Err(_) => {
                swap.stats.write_errors.add(1);
                for victim in &mut victims[from..next] {
                    if let EvictOutcome::Written(slot) = victim.fate {
                        swap.put(slot);
                        // Else it would fail again, for ever, and all with it.
                        victim.fate = match mmu.is_missing(victim.addr) {
                            true => EvictOutcome::Vanished,
                            false => EvictOutcome::Stays,
                        };
                    }
                }
            }
        }
        next
    }

    fn stay(&mut self, from: usize) {
        let left = self.victims[from..].iter_mut();
        let cannot = left.filter(|victim| victim.fate == EvictOutcome::Writes);
        cannot.for_each(|victim| victim.fate = EvictOutcome::Stays);
    }
}

impl Source {
    fn pointers(sources: &[Source]) -> &[*const u8] {
        // SAFETY: a transparent wrapper.
        unsafe { core::slice::from_raw_parts(sources.as_ptr().cast(), sources.len()) }
    }
}
