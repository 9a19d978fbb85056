//! Cache lines: their owners, and the time until they are free.
//!
//! A request that misses is answered in the order of asking. The answer moves
//! the line in the books at once (later askers queue behind it), and takes
//! effect when the line arrives. A CPU that was granted a line keeps it for a while,
//! also when others have asked for it: [`Held`].

use super::distance::{CpuSet, Distances};
use super::region;

const NOBODY: u16 = u16::MAX;

/// A line. Its state counts only in the run whose number it has.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Line {
    run: u32,
    /// By first sight, in the run.
    pub id: u32,
    /// When the line can leave its owner.
    ready: u64,
    /// The CPU that has it alone.
    owner: u16,
    /// The CPUs that read it, if none has it alone.
    sharers: CpuSet,
}

const _: () = assert!(size_of::<Line>() == region::LINE);

/// The wait of an access to a line.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// For nothing.
    Hit,
    /// The line arrives at a moment. Of that, so long for others' turns, and so
    /// long for the way.
    Miss {
        /// When it is here.
        arrives: u64,
        /// Picoseconds until it left.
        queued: u64,
        /// Picoseconds on the way.
        transfer: u64,
    },
}

/// A CPU that asks for a line, and the cost of that.
#[derive(Debug)]
pub struct Asker<'a> {
    pub cpu: u16,
    /// When, in picoseconds.
    pub now: u64,
    /// How long a line that is had alone is kept from others.
    pub hold: u64,
    /// The cost of a line that no CPU has.
    pub memory: u64,
    pub distances: &'a Distances,
    /// The CPU's.
    pub held: &'a mut Held,
}

/// The last lines that a CPU was granted, and until when it keeps them.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    lines: [(*const Line, u64); 4],
    next: usize,
}

impl Held {
    pub const NONE: Self = Self {
        lines: [(core::ptr::null(), 0); 4],
        next: 0,
    };

    #[inline]
    fn has(&self, line: *const Line, now: u64) -> bool {
        self.lines
            .iter()
            .any(|&(held, until)| held == line && now < until)
    }

    #[inline]
    fn grant(&mut self, line: *const Line, until: u64) {
        self.lines[self.next] = (line, until);
        self.next = (self.next + 1) % self.lines.len();
    }
}

impl Line {
    pub const fn new(run: u32, id: u32) -> Self {
        Self {
            run,
            id,
            ready: 0,
            owner: NOBODY,
            sharers: CpuSet::NONE,
        }
    }

    /// True if the state is of this run.
    #[inline]
    pub fn is_of(&self, run: u32) -> bool {
        self.run == run
    }

    /// A request, to have the line alone or to read it.
    #[inline]
    pub fn request(&mut self, exclusive: bool, asker: Asker<'_>) -> Wait {
        let Asker {
            cpu,
            now,
            hold,
            memory,
            distances,
            held,
        } = asker;
        if self.owner == cpu {
            return Wait::Hit;
        }
        if !exclusive && self.sharers.has(cpu) {
            return Wait::Hit;
        }
        if held.has(self, now) {
            return Wait::Hit;
        }
        let mut begins = now.max(self.ready);
        let transfer;
        if exclusive {
            transfer = if self.owner != NOBODY {
                distances.cost(self.owner, cpu)
            } else if self.sharers.is_empty() {
                memory
            } else if let Some(farthest) = distances.farthest(cpu, &self.sharers) {
                farthest
            } else {
                // Its only reader may write at once.
                self.take(cpu);
                return Wait::Hit;
            };
            self.take(cpu);
            self.ready = begins + transfer + hold;
            held.grant(self, self.ready);
        } else if self.owner != NOBODY {
            transfer = distances.cost(self.owner, cpu);
            self.sharers.add(self.owner);
            self.sharers.add(cpu);
            self.owner = NOBODY;
            self.ready = begins;
        } else if let Some(nearest) = distances.nearest(cpu, &self.sharers) {
            transfer = nearest;
            self.sharers.add(cpu);
        } else {
            begins = now;
            transfer = memory;
            self.take(cpu);
            self.ready = now + memory;
        }
        Wait::Miss {
            arrives: begins + transfer,
            queued: begins - now,
            transfer,
        }
    }

    fn take(&mut self, cpu: u16) {
        self.owner = cpu;
        self.sharers = CpuSet::NONE;
    }
}
