//! Document 003's matrix over the engine, scaled down: a file of 256 MiB under a
//! budget of 64 MiB with windows of 512 KiB has the proportions of 4 GiB, 1 GiB
//! and 8 MiB. Strides are scaled with the window; the number of touches is not,
//! for neither are the 100 misses that end read-ahead.

use softfault_engine::PAGE_SIZE;
use softfault_engine::policy::{MissAccounting, Policies};
use softfault_engine::store::{Complete, Read, Reap, Store, StoreError};
use softfault_oracle::{Random, Rig};
use std::sync::{Arc, Mutex};

const FILE: u64 = 1 << 16;
const MEMORY: u64 = FILE / 4;
const WINDOW: u32 = 128;
const TOUCHES: u64 = 6000;
/// Reads that the store takes at a time: fewer than a window has.
const QUEUE: usize = 5;

/// A file of nothing in particular, whose bytes cost nothing to read.
struct Blank {
    /// Bytes; immutable.
    len: u64,
    in_flight: Mutex<Vec<(u64, usize)>>,
}

impl Store for Blank {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.len)
    }

    unsafe fn read(
        &self,
        _offset: u64,
        _buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        Ok(bytes)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let mut in_flight = self.in_flight.lock().unwrap();
        let room = QUEUE - in_flight.len();
        let taken = reads.iter().take(room);
        in_flight.extend(taken.map(|read| (read.cookie, read.bytes)));
        reads.len().min(room)
    }

    fn reap(&self, _cookie: u64, complete: &dyn Complete, _timeout_ns: u64) -> Reap {
        let over = std::mem::take(&mut *self.in_flight.lock().unwrap());
        for (cookie, bytes) in over {
            complete.complete(cookie, Ok(bytes));
        }
        Reap::NotInFlight
    }
}

#[derive(Debug, Clone, Copy)]
enum Pattern {
    Random,
    Stride(u64),
}

/// Bytes read for the touches of a pattern.
fn read(pattern: Pattern, accounting: MissAccounting) -> u64 {
    let policies = Policies {
        miss_accounting: accounting,
        ..Policies::default()
    };
    let rig = Rig::with_policies(MEMORY, policies);
    let store = Arc::new(Blank {
        len: FILE * PAGE_SIZE as u64,
        in_flight: Mutex::default(),
    });
    let cache = rig.map(&store);
    cache.set_ra_pages(WINDOW);
    let mut random = Random::new(7);
    for touch in 0..TOUCHES {
        let page = match pattern {
            Pattern::Random => random.below(FILE as usize) as u64,
            Pattern::Stride(stride) => touch * stride % FILE,
        };
        rig.touch(cache.addresses().start + page as usize * PAGE_SIZE)
            .unwrap();
    }
    let read = rig.node.stats.bytes_read.get();
    assert_eq!(rig.node.stats.retry_io_miss.get(), 0);
    drop(cache);
    rig.finish();
    read
}

/// Bytes read under the baseline, the first patch, the second, and both.
fn row(pattern: Pattern) -> [u64; 4] {
    use MissAccounting::{Baseline, Both, FaultingAddress, IgnoreTried};
    [Baseline, FaultingAddress, IgnoreTried, Both].map(|accounting| read(pattern, accounting))
}

/// Bytes of so many windows.
fn windows(count: u64) -> u64 {
    count * u64::from(WINDOW) * PAGE_SIZE as u64
}

#[test]
fn random_needs_both_patches() {
    let [baseline, first, second, both] = row(Pattern::Random);
    // Three of four touches miss, and each reads a window.
    assert!(baseline > windows(TOUCHES * 6 / 10), "{baseline}");
    assert!(first.abs_diff(baseline) < baseline / 10, "{first}");
    assert!(second.abs_diff(baseline) < baseline / 10, "{second}");
    assert!(both <= baseline / 20, "{both} of {baseline}");
}

#[test]
fn a_stride_of_more_than_a_window_needs_the_second() {
    let [baseline, first, second, both] = row(Pattern::Stride(131));
    assert!(baseline > windows(TOUCHES * 9 / 10), "{baseline}");
    assert_eq!(first, baseline);
    // The rest is that hits on the windows of the last round bring
    // read-ahead back, for 100 misses of each round of 500.
    assert!(second <= baseline / 5, "{second} of {baseline}");
    assert!(both <= baseline / 20, "{both} of {baseline}");
}

#[test]
fn a_stride_of_half_a_window_is_served_by_every_second() {
    let [baseline, first, second, both] = row(Pattern::Stride(63));
    let expected = windows(TOUCHES / 2);
    assert!(baseline.abs_diff(expected) < expected / 10, "{baseline}");
    assert_eq!([first, second, both], [baseline; 3]);
}

#[test]
fn sequential_reads_a_window_ahead() {
    let [baseline, first, second, both] = row(Pattern::Stride(1));
    let touched = TOUCHES * PAGE_SIZE as u64;
    assert!(baseline >= touched && baseline <= touched + windows(2));
    assert_eq!([first, second, both], [baseline; 3]);
}
