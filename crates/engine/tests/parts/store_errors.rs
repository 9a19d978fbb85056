//! Whatever a store answers, a touch ends: with a value or with the error, after a few reads. No errno
//! means anything to the engine, and a store that answers the same for ever is asked no more often for it.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::anon::PrivateFile;
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::fault::{self, Completion, FaultError, NeverInterrupted, Pin, Populated};
use softfault_engine::mm::{Advice, Attributes, Backing, Protection};
use softfault_engine::store::{Complete, Extent, NO_COOKIE, Read, Reap, Store, StoreError};
use softfault_engine::swap::SwapDevice;
use softfault_oracle::{Rig, TestSwap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const PAGES: u64 = 2048;
const FILE: usize = 256;
/// How often three touches may ask: Linux's windows are asked for page by page.
const MOST_READS: u64 = 128;
const POLICIES: [&str; 7] = [
    "",
    "miss=baseline",
    "miss=p1",
    "miss=p2",
    "miss=both",
    "retry=mmap-lock+pin=no",
    "retry=held",
];

/// All that Linux has, those that it keeps to itself (ERESTARTSYS and on), and numbers that are no errno.
fn answers() -> Vec<StoreError> {
    let errnos = (0..134)
        .chain(512..532)
        .chain([4095, i32::MAX, -1, -116, i32::MIN]);
    let all = errnos.map(StoreError::Io);
    all.chain([StoreError::Short]).collect()
}

/// The engine's error: an errno is handed on, and another number is an error still.
fn told(error: StoreError) -> FaultError {
    match error {
        StoreError::Io(errno) => FaultError::Io(errno.max(0)),
        StoreError::Short => FaultError::Short,
    }
}

/// Which of its verbs answer the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Nothing,
    Reads,
    Extents,
    Lengths,
}

/// A file, or a swap device, whose verbs answer one error for as long as the test says. It panics when
/// it is asked too often, so that a fault without an end is a failure.
struct Answers {
    what: Mutex<(Fails, StoreError)>,
    asked: AtomicU64,
    queue: usize,
    in_flight: Mutex<Vec<u64>>,
    swap: Arc<TestSwap>,
}

impl Answers {
    fn new(queue: usize) -> Arc<Self> {
        Arc::new(Self {
            what: Mutex::new((Fails::Nothing, StoreError::Short)),
            asked: AtomicU64::new(0),
            queue,
            in_flight: Mutex::default(),
            swap: TestSwap::new(4096),
        })
    }

    fn set(&self, fails: Fails, error: StoreError) {
        *self.what.lock().unwrap() = (fails, error);
        self.asked.store(0, Relaxed);
    }

    fn answer(&self, verb: Fails) -> Result<(), StoreError> {
        let (fails, error) = *self.what.lock().unwrap();
        if fails == Fails::Nothing {
            return Ok(());
        }
        let asked = self.asked.fetch_add(1, Relaxed);
        assert!(asked < MOST_READS * 4, "{error:?}: asked again and again");
        match verb == fails {
            true => Err(error),
            false => Ok(()),
        }
    }
}

impl Store for Answers {
    fn len(&self) -> Result<u64, StoreError> {
        self.answer(Fails::Lengths)?;
        Ok((FILE * PAGE_SIZE) as u64)
    }

    fn extent(&self, _offset: u64) -> Result<Extent, StoreError> {
        self.answer(Fails::Extents)?;
        Ok(Extent::Data(0..(FILE * PAGE_SIZE) as u64))
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.answer(Fails::Reads)?;
        if self.swap.written() > 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.swap.read(offset, buffer, bytes) };
        }
        // SAFETY: the caller lends the buffer.
        unsafe { buffer.write_bytes(7, bytes) };
        Ok(bytes)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let mut in_flight = self.in_flight.lock().unwrap();
        let taken = reads.len().min(self.queue - in_flight.len());
        in_flight.extend(reads[..taken].iter().map(|read| read.cookie));
        taken
    }

    /// All submitted reads fail.
    fn reap(&self, _cookie: u64, complete: &dyn Complete, _timeout_ns: u64) -> Reap {
        let in_flight = core::mem::take(&mut *self.in_flight.lock().unwrap());
        let (_, error) = *self.what.lock().unwrap();
        for cookie in in_flight {
            complete.complete(cookie, Err(error));
        }
        Reap::NotInFlight
    }
}

impl SwapDevice for Answers {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        // SAFETY: the caller's promise.
        unsafe { self.swap.write(offset, pages) }
    }

    fn discard(&self, range: Range<u64>) {
        self.swap.discard(range);
    }
}

fn rig(policies: &str) -> Rig {
    Rig::with_policies(PAGES, policies.parse().unwrap())
}

/// Calls `touch` for each answer of the store's, under each verb that can fail.
fn for_answers(store: &Answers, verbs: &[Fails], mut touch: impl FnMut(FaultError)) {
    for error in answers() {
        for &verb in verbs {
            store.set(verb, error);
            let told = match verb {
                Fails::Reads => told(error),
                // An error of a read in the fault itself is handed on as it is.
                _ => error.into(),
            };
            touch(told);
            let asked = store.asked.load(Relaxed);
            assert!(asked <= MOST_READS, "{error:?}: asked {asked} times");
            store.set(Fails::Nothing, error);
        }
    }
}

#[test]
fn a_touch_of_a_file_ends_for_every_answer_of_its_store() {
    for policies in POLICIES {
        for queue in [0, 4] {
            let rig = rig(policies);
            let store = Answers::new(queue);
            let cache = rig.map(&store);
            let start = cache.addresses().start;
            rig.space
                .madvise(cache.addresses(), Advice::Sequential)
                .unwrap();
            for_answers(&store, &[Fails::Reads, Fails::Extents], |told| {
                fault::prefetch(&cache, start..start + 8 * PAGE_SIZE);
                for page in [3, 4, 90] {
                    let addr = start + page * PAGE_SIZE;
                    assert_eq!(rig.touch(addr), Err(told), "{policies}, page {page}");
                }
            });
            finish(rig, cache);
        }
    }
}

#[test]
fn pins_and_populating_end_too() {
    let rig = rig("");
    let store = Answers::new(4);
    let cache = rig.map(&store);
    let range = cache.addresses();
    for_answers(&store, &[Fails::Reads, Fails::Extents], |told| {
        let range = range.start..range.start + 3 * PAGE_SIZE;
        let (start, never) = (range.start, &NeverInterrupted);
        let pinned = fault::pin(&rig.space, &cache, range.clone(), start, never);
        assert_eq!(pinned, Pin::Failed(told));
        let populated = fault::populate(&rig.space, range.clone(), false, never);
        assert_eq!(populated, Populated::Failed(start, told));
        let locked = fault::lock(&rig.space, range, false, never);
        assert_eq!(locked, Populated::Failed(start, told));
    });
    finish(rig, cache);
}

#[test]
fn a_touch_of_a_private_map_ends_too() {
    for queue in [0, 4] {
        let rig = rig("");
        let store = Answers::new(queue);
        let private_file = PrivateFile {
            store: store.clone(),
            offset: 0,
        };
        let bytes = FILE * PAGE_SIZE;
        let anon =
            Anonymous::of_file(rig.node.clone(), bytes, private_file, OnTruncate::Error).unwrap();
        let range = anon.addresses();
        map(&rig, &anon, range.clone());
        let verbs = [Fails::Reads, Fails::Extents, Fails::Lengths];
        for_answers(&store, &verbs, |told| {
            for page in [3, 4, 90] {
                let addr = range.start + page * PAGE_SIZE;
                assert_eq!(rig.touch(addr), Err(told));
                assert_eq!(rig.write(addr, &[1]), Err(told));
            }
        });
        assert_eq!(rig.touch(range.start), Ok(7), "it can be read again");
        rig.unmap(range);
        drop(anon);
        rig.finish();
    }
}

#[test]
fn a_touch_of_a_page_in_swap_ends_too() {
    for queue in [0, 4] {
        let device = Answers::new(queue);
        let rig = Rig::with_swap(PAGES, "".parse().unwrap(), &device);
        let anon = Anonymous::new(rig.node.clone(), FILE * PAGE_SIZE).unwrap();
        let range = anon.addresses();
        map(&rig, &anon, range.clone());
        for addr in range.clone().step_by(PAGE_SIZE) {
            rig.write(addr, &[9]).unwrap();
        }
        rig.evict_all();
        rig.evict_all();
        assert_eq!(anon.resident_pages(), 0);
        for_answers(&device, &[Fails::Reads], |told| {
            for page in [3, 4, 90] {
                let addr = range.start + page * PAGE_SIZE;
                assert_eq!(rig.touch(addr), Err(told));
                assert_eq!(rig.write(addr, &[1]), Err(told));
            }
        });
        assert_eq!(rig.touch(range.start), Ok(9), "nothing is lost");
        rig.unmap(range);
        drop(anon);
        rig.finish();
    }
}

fn map(rig: &Rig, anon: &Arc<Anonymous>, range: Range<usize>) {
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(range, attributes).unwrap();
}

fn finish(rig: Rig, cache: Arc<PageCache>) {
    cache.store().reap(NO_COOKIE, &Completion(&rig.node), 0);
    rig.unmap(cache.addresses());
    drop(cache);
    rig.finish();
}
