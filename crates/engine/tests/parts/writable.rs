//! Files that are written to through a map: what is written is seen by all who look, is in the store when somebody
//! asks for that, and is never lost to eviction, truncate, or a store that fails.

use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::FaultError;
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, byte_at, cases, long_run};
use std::sync::Arc;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

/// Writes back all that is dirty of a page range.
fn write_back(cache: &PageCache, pages: std::ops::Range<u64>) {
    let start = cache.addresses().start;
    let range = start + bytes(pages.start) as usize..start + bytes(pages.end) as usize;
    let mut cursor = cache.write_back_of(range);
    while cache.write_back(&mut cursor) {}
}

/// A map of the whole store, and where it starts.
fn scene(store: Arc<TestStore>) -> (Rig, Arc<TestStore>, Arc<PageCache>, usize) {
    let rig = Rig::new(2048);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    (rig, store, cache, start)
}

fn finish(rig: Rig, cache: Arc<PageCache>) {
    rig.unmap(cache.addresses());
    drop(cache);
    rig.finish();
}

#[test]
fn what_is_written_is_in_the_store_after_eviction() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64) + 100));
    rig.write(start + 5 * PAGE_SIZE + 7, b"five").unwrap();
    rig.write(start + 64 * PAGE_SIZE + 96, b"last").unwrap();
    assert_eq!(cache.dirty_pages(), 2);
    assert_eq!(store.byte(bytes(5) + 7), byte_at(0, bytes(5) + 7));
    rig.evict_all();
    assert_eq!((cache.dirty_pages(), cache.folio_count()), (0, 0));
    assert_eq!(store.writes(), [5, 64], "these pages, and no other");
    assert_eq!(store.byte(bytes(5) + 7), b'f');
    assert_eq!(store.byte(bytes(64) + 99), b't');
    assert_eq!(rig.touch(start + 5 * PAGE_SIZE + 10), Ok(b'e'));
    assert_eq!(
        rig.touch(start + 5 * PAGE_SIZE),
        Ok(byte_at(0, bytes(5))),
        "the rest of the page is the file's"
    );
    finish(rig, cache);
}

#[test]
fn a_page_is_protected_again_once_it_was_written_back() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for round in 0..3 {
        rig.write(start, &[round]).unwrap();
        assert_eq!(cache.dirty_pages(), 1, "round {round}");
        write_back(&cache, 0..64);
        assert_eq!(cache.dirty_pages(), 0);
        assert_eq!(store.byte(0), round);
        assert_eq!(rig.touch(start), Ok(round), "it stays");
    }
    write_back(&cache, 0..64);
    assert_eq!(store.writes().len(), 3, "what is clean is not written");
    finish(rig, cache);
}

#[test]
fn neighbours_of_what_was_written_are_clean() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for page in 0..64 {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    rig.write(start + 20 * PAGE_SIZE, &[1]).unwrap();
    rig.write(start + 22 * PAGE_SIZE, &[1]).unwrap();
    // Somebody else writes to the file.
    store.rewrite(7);
    write_back(&cache, 0..64);
    assert_eq!(store.writes(), [20, 22]);
    assert_eq!(store.byte(bytes(21)), byte_at(7, bytes(21)));
    finish(rig, cache);
}

#[test]
fn what_cannot_be_written_stays_and_is_reported_once() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let mut seen = 0;
    for page in 0..64 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 + 1])
            .unwrap();
    }
    store.fail_writes(9, Some(EIO));
    rig.evict_all();
    assert_eq!(cache.dirty_pages(), 1);
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::Io(EIO))
    );
    assert_eq!(cache.write_error_since(&mut seen), None);
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Ok(10));
    // Invalidating takes nothing that the store has not got.
    cache.invalidate(cache.addresses());
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Ok(10));
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::Io(EIO))
    );
    store.fail_writes(9, None);
    write_back(&cache, 0..64);
    assert_eq!((cache.dirty_pages(), store.byte(bytes(9))), (0, 10));
    assert_eq!(cache.write_error_since(&mut seen), None);
    finish(rig, cache);
}

/// Whoever writes is told so; whoever reads goes on.
#[test]
fn a_store_that_takes_nothing_does_not_keep_readers_from_memory() {
    let rig = Rig::new(2048);
    let store = TestStore::new(bytes(4096));
    for page in 0..4096 {
        store.fail_writes(page, Some(ENOSPC));
    }
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    let mut written = 0;
    let refused = loop {
        match rig.write(start + written * PAGE_SIZE, &[1]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 2048);
    };
    assert_eq!(refused, FaultError::NoMemory);
    assert!(written > 1000, "{written}");
    for page in (0..4096).rev() {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    for page in 0..written {
        assert_eq!(rig.touch(start + page * PAGE_SIZE), Ok(1));
    }
    finish(rig, cache);
}

#[test]
fn what_is_cut_off_is_written_nowhere() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for page in 0..64 {
        rig.write(start + page * PAGE_SIZE + 1000, &[0xAB]).unwrap();
    }
    store.set_len(bytes(10) + 500);
    cache.truncate(bytes(10) + 500);
    assert_eq!(
        rig.touch(start + 11 * PAGE_SIZE),
        Err(FaultError::BeyondEnd)
    );
    assert_eq!(
        rig.write(start + 11 * PAGE_SIZE, &[1]),
        Err(FaultError::BeyondEnd)
    );
    store.set_len(bytes(64));
    cache.truncate(bytes(64));
    assert_eq!(rig.touch(start + 10 * PAGE_SIZE + 1000), Ok(0));
    assert_eq!(rig.touch(start + 20 * PAGE_SIZE + 1000), Ok(0));
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE + 1000), Ok(0xAB));
    finish(rig, cache);
}

/// Of a folio that was read ahead, only the page that is written to may be written to unseen.
#[test]
fn each_page_of_a_folio_is_written_for_itself() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
    for page in 0..20 {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    // In the middle of what was read ahead, and then on both sides.
    for page in [40, 39, 41, 33, 47] {
        rig.write(start + page * PAGE_SIZE, &[page as u8]).unwrap();
    }
    assert_eq!(cache.dirty_pages(), 5);
    write_back(&cache, 0..256);
    for page in [33, 39, 40, 41, 47] {
        assert_eq!(store.byte(bytes(page)), page as u8);
    }
    assert_eq!(store.writes().len(), 5);
    finish(rig, cache);
}

/// A writer in order makes the rest of a folio writable before it comes there; what it never came to is not written.
#[test]
fn what_was_only_expected_to_be_written_is_not() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
    let in_use = rig.node.frames_in_use();
    for page in 0..100 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
            .unwrap();
    }
    assert!(cache.dirty_pages() > 100, "{}", cache.dirty_pages());
    // Others write to the pages that follow.
    store.rewrite(9);
    write_back(&cache, 0..256);
    assert_eq!(cache.dirty_pages(), 0);
    assert!(store.writes().into_iter().eq(0..100));
    assert_eq!(store.byte(bytes(100)), byte_at(9, bytes(100)));
    // The pages are protected, and a write there is seen.
    rig.write(start + 100 * PAGE_SIZE, &[1]).unwrap();
    assert_eq!(cache.dirty_pages(), 1);
    write_back(&cache, 0..256);
    assert_eq!(store.byte(bytes(100)), 1);
    // Read-ahead has some.
    rig.evict_all();
    assert!(rig.node.frames_in_use() <= in_use);
    finish(rig, cache);
}

/// Bytes that are written over with themselves keep neither frames nor the store busy.
#[test]
fn what_is_written_over_with_itself_is_not_written() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(512), 4));
    for page in 0..512 {
        let byte = byte_at(0, bytes(page as u64));
        rig.write(start + page * PAGE_SIZE, &[byte]).unwrap();
    }
    assert!(
        rig.node.frames_in_use() < 128,
        "{}",
        rig.node.frames_in_use()
    );
    write_back(&cache, 0..512);
    // A page that a fault has made dirty is written; of two folios one is expected.
    assert!(store.writes().len() < 300, "{}", store.writes().len());
    finish(rig, cache);
}

/// Many scattered pages are protected with their whole window; each write to one afterwards is seen.
#[test]
fn what_is_written_after_the_window_was_protected_is_written_back() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(1024)));
    for round in 1..6_u8 {
        for page in (0..1024).step_by(3) {
            rig.write(start + page * PAGE_SIZE, &[round]).unwrap();
        }
        // A part: the others are protected, and dirty still.
        write_back(&cache, 0..512);
        for page in (0..1024).step_by(6) {
            rig.write(start + page * PAGE_SIZE + 1, &[round]).unwrap();
        }
        write_back(&cache, 0..1024);
        for page in (0..1024_u64).step_by(3) {
            assert_eq!(store.byte(bytes(page)), round, "page {page}");
        }
        for page in (0..1024_u64).step_by(6) {
            assert_eq!(store.byte(bytes(page) + 1), round, "page {page}");
        }
    }
    finish(rig, cache);
}

/// There may come to be as many folios as blocks in the middle of a write-back, which goes on as it began.
#[test]
fn a_write_back_does_not_lose_its_way() {
    const BLOCKS: u64 = 1024;
    let (rig, store, cache, start) = scene(TestStore::new(bytes(BLOCKS * 16)));
    // One folio a block but the first; those that were made first are in the last blocks.
    let pages = || (1..BLOCKS).rev().map(|block| block * 16);
    for page in pages() {
        let addr = start + bytes(page) as usize;
        rig.write(addr, &[7]).unwrap();
    }
    let mut cursor = cache.write_back_of(cache.addresses());
    assert!(cache.write_back(&mut cursor));
    assert_ne!(cache.dirty_pages(), 0);
    for page in [0, 4, 8, 12] {
        rig.write(start + page * PAGE_SIZE, &[7]).unwrap();
    }
    while cache.write_back(&mut cursor) {}
    for page in pages() {
        assert_eq!(store.byte(bytes(page)), 7, "page {page}");
    }
    finish(rig, cache);
}

/// What the device refuses to make durable is an error of every map's next flush.
#[test]
fn a_sync_that_fails_is_told_once() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let mut seen = [0, 0];
    rig.write(start, &[1]).unwrap();
    write_back(&cache, 0..64);
    store.fail_sync(Some(EIO));
    cache.sync();
    store.fail_sync(None);
    for seen in &mut seen {
        assert_eq!(cache.write_error_since(seen), Some(FaultError::Io(EIO)));
        assert_eq!(cache.write_error_since(seen), None);
    }
    cache.sync();
    assert_eq!(cache.write_error_since(&mut seen[0]), None);
    finish(rig, cache);
}

/// One step of a drawn run.
#[derive(Debug, Clone)]
enum Step {
    Write {
        page: u64,
        at: usize,
        byte: u8,
        bytes: usize,
    },
    /// In order, a byte a page.
    Fill {
        page: u64,
        pages: u64,
    },
    Read {
        page: u64,
        pages: u64,
    },
    WriteBack {
        page: u64,
        pages: u64,
    },
    Evict,
    Invalidate {
        page: u64,
        pages: u64,
    },
    Cut {
        bytes: u64,
    },
    Fail {
        page: u64,
        fails: bool,
    },
    Memory {
        pages: u64,
    },
}

/// Pages of the file, of which the budget has a part.
const FILE: u64 = 3000;

fn any_step() -> impl Strategy<Value = Step> {
    let near = prop_oneof![0..FILE, 0..64_u64];
    let part = || (prop_oneof![0..FILE, 0..64_u64], 1..200_u64);
    prop_oneof![
        20 => (near, 0..PAGE_SIZE, any::<u8>(), 1..3 * PAGE_SIZE)
            .prop_map(|(page, at, byte, bytes)| Step::Write { page, at, byte, bytes }),
        10 => part().prop_map(|(page, pages)| Step::Read { page, pages }),
        4 => part().prop_map(|(page, pages)| Step::WriteBack { page, pages }),
        1 => Just(Step::Evict),
        1 => part().prop_map(|(page, pages)| Step::Invalidate { page, pages }),
        1 => (0..bytes(FILE)).prop_map(|bytes| Step::Cut { bytes }),
        3 => (0..FILE, 3..60_u64).prop_map(|(page, pages)| Step::Fill { page, pages }),
        1 => (0..FILE, any::<bool>()).prop_map(|(page, fails)| Step::Fail { page, fails }),
        1 => (2048..5000_u64).prop_map(|pages| Step::Memory { pages }),
    ]
}

struct World {
    rig: Rig,
    store: Arc<TestStore>,
    cache: Arc<PageCache>,
    /// What the map has to show.
    model: Vec<u8>,
    fails: std::collections::BTreeSet<u64>,
}

impl World {
    fn new(policies: Policies) -> Self {
        let rig = Rig::with_policies(2048, policies);
        let store = TestStore::with_queue(bytes(FILE), 4);
        let cache = rig.map_writable(&store);
        let model = (0..bytes(FILE)).map(|at| byte_at(0, at)).collect();
        Self {
            rig,
            store,
            cache,
            model,
            fails: std::collections::BTreeSet::new(),
        }
    }

    /// The part of the file that there is of `count` bytes from one on.
    fn clip(&self, from: u64, count: u64) -> std::ops::Range<usize> {
        let len = self.model.len() as u64;
        from.min(len) as usize..(from + count).min(len) as usize
    }

    fn play(&mut self, step: &Step) {
        let start = self.cache.addresses().start;
        match *step {
            Step::Write {
                page,
                at,
                byte,
                bytes: count,
            } => {
                let part = self.clip(bytes(page) + at as u64, count as u64);
                self.model[part.clone()].fill(byte);
                self.rig
                    .write(start + part.start, &vec![byte; part.len()])
                    .unwrap();
            }
            Step::Fill { page, pages } => {
                for page in page..(page + pages).min(FILE) {
                    let at = bytes(page) as usize + page as usize % 100;
                    self.model[at] = page as u8;
                    self.rig.write(start + at, &[page as u8]).unwrap();
                }
            }
            Step::Read { page, pages } => self.check(self.clip(bytes(page), bytes(pages))),
            Step::WriteBack { page, pages } => {
                write_back(&self.cache, page..page + pages);
                for page in page..(page + pages).min(FILE) {
                    if !self.fails.contains(&page) {
                        self.check_store(page);
                    }
                }
            }
            Step::Evict => self.rig.evict_all(),
            Step::Invalidate { page, pages } => {
                let from = start + bytes(page) as usize;
                self.cache.invalidate(from..from + bytes(pages) as usize);
            }
            // A page that cannot be written keeps what was past the end.
            Step::Cut { bytes: len } if self.fails.contains(&(len / bytes(1))) => {}
            Step::Cut { bytes: len } => {
                // As `set_len` has to: what is behind the end in its page is zeros when the file grows.
                self.store.set_len(len);
                self.cache.truncate(len);
                self.model.truncate(len as usize);
                self.store.set_len(bytes(FILE));
                self.cache.truncate(bytes(FILE));
                self.model.resize(bytes(FILE) as usize, 0);
            }
            Step::Fail { page, fails } => {
                self.store.fail_writes(page, fails.then_some(EIO));
                match fails {
                    true => self.fails.insert(page),
                    false => self.fails.remove(&page),
                };
            }
            Step::Memory { pages } => self.rig.change_memory(pages),
        }
    }

    fn check(&self, part: std::ops::Range<usize>) {
        let mut seen = vec![0; part.len()];
        let start = self.cache.addresses().start;
        self.rig.read(start + part.start, &mut seen).unwrap();
        let wrong = (seen.iter().zip(&self.model[part.clone()])).position(|(a, b)| a != b);
        assert_eq!(wrong.map(|at| (part.start + at) / PAGE_SIZE), None);
    }

    fn check_store(&self, page: u64) {
        for at in (bytes(page)..bytes(page + 1)).step_by(37) {
            let byte = self.model[at as usize];
            assert_eq!(self.store.byte(at), byte, "byte {at} of page {page}");
        }
    }

    fn finish(self) {
        for &page in &self.fails {
            self.store.fail_writes(page, None);
        }
        self.check(0..self.model.len());
        write_back(&self.cache, 0..FILE);
        assert_eq!(self.cache.dirty_pages(), 0);
        (0..FILE).for_each(|page| self.check_store(page));
        finish(self.rig, self.cache);
    }
}

const KEPT: &str = "tests/proptest-regressions/writable.txt";

/// Each value of each policy is in one of them.
fn any_policies() -> impl Strategy<Value = Policies> {
    let all = [
        "lock=refcount",
        "lock=rwsem+retry=mmap-lock+pin=no+miss=baseline",
        "lock=biased+retry=held+miss=p1",
        "pin=no+miss=p2",
        "retry=mmap-lock+miss=both",
    ];
    prop::sample::select(all.map(|text| text.parse().expect("policies")).to_vec())
}

fn play(policies: Policies, steps: &[Step]) {
    let mut world = World::new(policies);
    steps.iter().for_each(|step| world.play(step));
    world.finish();
}

proptest! {
    #![proptest_config(cases(KEPT, 12))]

    #[test]
    fn drawn_operations_beside_a_model(
        policies in any_policies(),
        steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        play(policies, &steps);
    }
}

/// `SOFTFAULT_ORACLE_OPERATIONS`: so many drawn operations.
#[test]
fn a_long_run() {
    let lists = |length| proptest::collection::vec(any_step(), length);
    long_run(cases(KEPT, 1), lists, |steps| {
        play(Policies::default(), &steps);
    });
}

/// Each thread has words of its own in every page; beside them one writes back and one evicts.
#[test]
fn no_write_is_lost_beside_write_back_and_eviction() {
    const THREADS: usize = 3;
    const PAGES: usize = 600;
    let rig = Arc::new(Rig::new(2048));
    let store = TestStore::with_queue(bytes(PAGES as u64), 4);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let rig = rig.clone();
            std::thread::spawn(move || {
                let mut latest = vec![0u64; PAGES];
                for count in 1..=4000_u64 {
                    let page = (count as usize * 7 + thread * 13) * 31 % PAGES;
                    let addr = start + page * PAGE_SIZE + thread * 8;
                    if latest[page] > 0 {
                        let mut seen = [0; 8];
                        rig.read(addr, &mut seen).unwrap();
                        assert_eq!(u64::from_ne_bytes(seen), latest[page], "page {page}");
                    }
                    rig.write(addr, &count.to_ne_bytes()).unwrap();
                    latest[page] = count;
                }
                latest
            })
        })
        .collect();
    let others: Vec<_> = [true, false]
        .map(|evicts| {
            let (rig, cache, over) = (rig.clone(), cache.clone(), over.clone());
            std::thread::spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    match evicts {
                        true => drop(rig.node.reclaim(64)),
                        false => write_back(&cache, 0..PAGES as u64),
                    }
                    std::thread::yield_now();
                }
            })
        })
        .into();
    let latest: Vec<_> = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .collect();
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
    write_back(&cache, 0..PAGES as u64);
    for (thread, latest) in latest.iter().enumerate() {
        for (page, &count) in latest.iter().enumerate().filter(|(_, count)| **count > 0) {
            let at = bytes(page as u64) + thread as u64 * 8;
            let seen = core::array::from_fn(|byte| store.byte(at + byte as u64));
            assert_eq!(u64::from_ne_bytes(seen), count, "page {page} of {thread}");
        }
    }
    let rig = Arc::into_inner(rig).unwrap();
    finish(rig, cache);
}
