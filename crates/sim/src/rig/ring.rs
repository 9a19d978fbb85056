//! A ring: asynchronous reads of some files, delivered by the threads that need
//! them.
//!
//! As in the product the reads in flight are under a lock of the façade, so
//! that it is costed, and a waiter delivers all completed reads. A waiter
//! sleeps until its own read is done, not for a wake-up by another: the device
//! would interrupt then too.

use super::disk::Disk;
use crate::world;
use softfault_engine::lock::Mutex;
use softfault_engine::store::{Complete, Read, Reap, StoreError};
use sync::atomic::Ordering::Relaxed;
use sync::wait::WaitWord;

/// Reads in flight at most, as in the product.
const ENTRIES: usize = 256;

/// The contents of files.
pub trait Medium {
    /// Puts the bytes of a file of `length` bytes at `offset` into a buffer; returns
    /// their number.
    ///
    /// # Safety
    /// `buffer` is writable for `bytes` and nobody else touches it meanwhile.
    unsafe fn fill(
        &self,
        file: u64,
        length: u64,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError>;
}

/// A ring.
pub struct Ring {
    flights: Mutex<Vec<Flight>>,
    /// Changed after every delivery; threads that wait for another's delivery sleep
    /// on it.
    delivered: WaitWord,
}

/// A read in flight.
#[derive(Clone, Copy)]
struct Flight {
    read: Read,
    file: u64,
    file_bytes: u64,
    /// Virtual nanoseconds.
    done_ns: u64,
    /// Somebody is delivering it.
    taken: bool,
}

// SAFETY: the buffer belongs to the read, wherever that is delivered.
unsafe impl Send for Flight {}

impl Ring {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            flights: Mutex::new(Vec::with_capacity(ENTRIES)),
            delivered: WaitWord::new(0),
        }
    }

    /// Starts as many of a file's reads as there is room for.
    pub fn submit(&self, disk: &Disk, file: u64, file_bytes: u64, reads: &[Read]) -> usize {
        let room = ENTRIES - self.flights.lock().len();
        let reads = &reads[..reads.len().min(room)];
        if reads.is_empty() {
            return 0;
        }
        // First the processor's time, then the device's.
        disk.pay(reads.len(), reads.iter().map(|read| read.bytes).sum());
        let mut flights = self.flights.lock();
        let started = reads.len().min(ENTRIES - flights.len());
        for read in &reads[..started] {
            flights.push(Flight {
                read: *read,
                file,
                file_bytes,
                done_ns: disk.begin(read.bytes),
                taken: false,
            });
        }
        started
    }

    /// See [`Store::reap`](softfault_engine::Store::reap).
    pub fn reap(
        &self,
        medium: &dyn Medium,
        cookie: u64,
        complete: &dyn Complete,
        timeout_ns: u64,
    ) -> Reap {
        let until = world::now_ns().saturating_add(timeout_ns);
        loop {
            self.deliver(medium, complete);
            // Relaxed: read before the look below, and changed after the ring
            // was; the ring's lock orders both.
            let delivered = self.delivered.load(Relaxed);
            let mine = {
                let flights = self.flights.lock();
                let mut flights = flights.iter();
                flights.find(|flight| flight.read.cookie == cookie).copied()
            };
            let Some(mine) = mine else {
                return Reap::NotInFlight;
            };
            let now = world::now_ns();
            if now >= until {
                return Reap::TimedOut;
            }
            if mine.taken {
                self.delivered.wait(delivered, Some(until - now));
            } else {
                world::sleep_until_ns(mine.done_ns.min(until));
            }
        }
    }

    /// Delivers all that is over and that nobody delivers yet.
    fn deliver(&self, medium: &dyn Medium, complete: &dyn Complete) {
        loop {
            let now = world::now_ns();
            let over = {
                let mut flights = self.flights.lock();
                let over = flights
                    .iter_mut()
                    .find(|flight| !flight.taken && flight.done_ns <= now);
                over.map(|flight| {
                    flight.taken = true;
                    *flight
                })
            };
            let Some(Flight {
                read,
                file,
                file_bytes,
                ..
            }) = over
            else {
                return;
            };
            // SAFETY: lent until the completion, which is next.
            let result =
                unsafe { medium.fill(file, file_bytes, read.offset, read.buffer, read.bytes) };
            complete.complete(read.cookie, result);
            let mut flights = self.flights.lock();
            // A completion may be followed by another read with its cookie at
            // once: that one is not taken, or one like this.
            let place = flights
                .iter()
                .position(|flight| flight.taken && flight.read.cookie == read.cookie);
            flights.swap_remove(place.expect("the thread that takes it removes it"));
            drop(flights);
            self.delivered.fetch_add(1, Relaxed);
            self.delivered.wake(u32::MAX);
        }
    }
}
