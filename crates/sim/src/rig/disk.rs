//! The disk: latency, bandwidth and depth in virtual time, bytes that a reader
//! can check, and pages that cannot be read.
//!
//! ```text
//!   submitted ── a place of `depth` is free ── latency ──────────────┐
//!                └── its turn on the wire, request + bytes/bandwidth ┴─► done
//! ```
//!
//! A hole takes no time of it: the reader of one fills the pages.
//!
//! Faults that it injects: pages that are bad for the whole run, drawn from the
//! seed. A read with a bad page in it fails as a whole, after its time.

use super::ring::Medium;
use crate::job::{Job, PAGE};
use crate::random::mix;
use crate::world;
use softfault_engine::store::StoreError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sync::topology;

/// Input/output error, as the errno that a store answers.
pub const EIO: i32 = 5;
/// Picoseconds of a nanosecond.
const PS: u64 = 1000;

/// A disk.
pub struct Disk {
    /// Immutable.
    costs: topology::Disk,
    /// Immutable.
    seed: u64,
    /// Immutable.
    bad_per_million: u64,
    /// Immutable. Into the kernel and back, in picoseconds.
    call: u64,
    /// For a page of a hole, in picoseconds. Immutable; `None` where files are
    /// data.
    fill: Option<u64>,
    /// Its state. A device's state is on no line of the processors: the
    /// lock is a real one, and never held over an operation of the façade.
    state: Mutex<State>,
}

struct State {
    /// When each place becomes free.
    places: Vec<u64>,
    /// When the wire becomes free.
    wire: u64,
}

impl Disk {
    /// The disk of the job's machine.
    pub fn new(job: &Job) -> Self {
        let costs = job.topology.disk.clone();
        Self {
            seed: job.seed,
            bad_per_million: job.io_errors_per_million.into(),
            call: job.topology.scheduler.call,
            fill: job.holes.then_some(job.topology.page.clear),
            state: Mutex::new(State {
                places: vec![0; costs.depth.max(1) as usize],
                wire: 0,
            }),
            costs,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread pays for a call that starts so many reads, of so many
    /// bytes together.
    pub fn pay(&self, reads: usize, bytes: usize) {
        let each = match self.fill {
            Some(page) => page * (bytes as u64).div_ceil(PAGE),
            None => self.costs.submit * reads as u64,
        };
        sync::work((self.call + each) / PS);
    }

    /// A read of so many bytes begins now: when it is over, in virtual
    /// nanoseconds.
    pub fn begin(&self, bytes: usize) -> u64 {
        let now = world::now_ns();
        if self.fill.is_some() {
            return now;
        }
        let mut state = self.state();
        let wire = state.wire;
        let place = state.places.iter_mut().min().expect("at least one place");
        let start = now.max(*place);
        let busy = self.costs.request / PS;
        let moved =
            start.max(wire) + busy + bytes as u64 * 1_000_000_000 / self.costs.bandwidth.max(1);
        let done = moved.max(start + self.costs.latency / PS);
        *place = done;
        state.wire = moved;
        done
    }

    /// Whether a page cannot be read.
    pub fn is_bad(&self, file: u64, page: u64) -> bool {
        let drawn = mix(self.seed ^ mix(!word(file, page))) % 1_000_000;
        drawn < self.bad_per_million
    }
}

impl Medium for Disk {
    unsafe fn fill(
        &self,
        file: u64,
        length: u64,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        let arrived = length.saturating_sub(offset).min(bytes as u64);
        let pages = offset / PAGE..(offset + arrived).div_ceil(PAGE);
        if pages.clone().any(|page| self.is_bad(file, page)) {
            return Err(StoreError::Io(EIO));
        }
        for page in pages {
            let at = (page * PAGE - offset) as usize;
            // SAFETY: the first word of a page within the buffer, which is
            // aligned as pages are.
            unsafe { buffer.add(at).cast::<u64>().write(word(file, page)) };
        }
        Ok(arrived as usize)
    }
}

/// The first word of a page: another for every page of every file, never zero.
pub fn word(file: u64, page: u64) -> u64 {
    mix(mix(file + 1) ^ page) | 1
}
