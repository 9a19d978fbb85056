//! Drawn operations on a file that is written to, beside a model; and threads that write to it beside threads that take it away.

use crate::writable::{bytes, finish, write_back};
use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault;
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, byte_at, cases, long_run};
use std::sync::Arc;

const EIO: i32 = 5;

/// One step of a drawn run.
#[derive(Debug, Clone)]
enum Step {
    Write {
        page: u64,
        at: usize,
        byte: u8,
        bytes: usize,
    },
    /// Pages, by a call; the rest of them, by stores.
    WriteWhole {
        page: u64,
        pages: u64,
        byte: u8,
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
        4 => (part(), any::<u8>())
            .prop_map(|((page, pages), byte)| Step::WriteWhole { page, pages, byte }),
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
    /// The expected bytes of the map.
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
            Step::WriteWhole { page, pages, byte } => {
                let mut part = self.clip(bytes(page), bytes(pages));
                self.model[part.clone()].fill(byte);
                let content = vec![byte; part.len()];
                while !part.is_empty() {
                    let content = &raw const content[..part.len()];
                    // SAFETY: bytes; the map stays.
                    let done =
                        unsafe { fault::write_whole(&self.cache, start + part.start, content) };
                    part.start += done;
                    let page = part.start..part.end.min(part.start + PAGE_SIZE);
                    let stored = vec![byte; page.len()];
                    self.rig.write(start + page.start, &stored).unwrap();
                    part.start = page.end;
                }
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
            // A page that cannot be written keeps its bytes past the end.
            Step::Cut { bytes: len } if self.fails.contains(&(len / bytes(1))) => {}
            Step::Cut { bytes: len } => {
                // As `set_len` has to: the bytes behind the end in its page are zeros when the file grows.
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
        let (stored, at) = (self.store.page(page), bytes(page) as usize);
        let wrong = (stored.iter().zip(&self.model[at..])).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "byte of page {page}");
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

const KEPT: &str = "tests/proptest-regressions/writable_oracle.txt";

/// Each value of `lock`, `retry`, `pin` and `miss` is in one of them.
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
