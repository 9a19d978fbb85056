//! Random operations over the engine with the soft page tables: every byte is
//! the model's, the budget is kept, and nothing is left at the end. Every map is
//! in two spaces, at two addresses.

use crate::files::pin;
use proptest::prelude::*;
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::fault::{self, Completion, FaultError};
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Backing, Protection};
use softfault_engine::policy::Policies;
use softfault_engine::{PAGE_SHIFT, PAGE_SIZE, Store};
use softfault_oracle::{MapAdvice, Model, Op, Rig, Setting, TestStore, Touched, World};
use softfault_oracle::{any_op, any_policies, cases, play};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

struct Map {
    cache: Arc<PageCache>,
    /// Address of the map's first byte.
    start: usize,
    len: usize,
    pinned: Option<(Range<usize>, u64)>,
}

struct SoftWorld {
    rig: Rig,
    /// Has every map too, at another address: whatever is asked, both answer
    /// alike.
    twin: ManuallyDrop<AddressSpace>,
    store: Arc<TestStore>,
    maps: BTreeMap<usize, Map>,
}

impl Map {
    fn addresses(&self, bytes: &Range<u64>) -> Range<usize> {
        self.start + bytes.start as usize..self.start + bytes.end as usize
    }

    fn pages(&self, bytes: &Range<u64>) -> Range<usize> {
        let addresses = self.addresses(bytes);
        addresses.start & !(PAGE_SIZE - 1)..addresses.end.next_multiple_of(PAGE_SIZE)
    }
}

/// How far above the windows the twin has the maps.
const TWIN: usize = 1 << 46;

fn in_twin(range: &Range<usize>) -> Range<usize> {
    range.start + TWIN..range.end + TWIN
}

impl SoftWorld {
    fn unmap_pages(&self, pages: Range<usize>) {
        let unmapped = self.twin.munmap(in_twin(&pages), |_, _| {});
        unmapped.expect("a mapping that is there");
        self.rig.unmap(pages);
    }
}

impl World for SoftWorld {
    fn map(&mut self, map: usize, offset: u64, len: u64) {
        let cache = self.rig.map(&self.store);
        let all = cache.addresses();
        let start = all.start + offset as usize;
        let map = self.maps.entry(map).or_insert(Map {
            cache: cache.clone(),
            start,
            len: len as usize,
            pinned: None,
        });
        // The rig has mapped everything: only this part.
        self.rig.unmap(all.clone());
        let pages = map.pages(&(0..len));
        let attributes = Attributes {
            backing: Backing::from(cache),
            pgoff: ((pages.start - all.start) >> PAGE_SHIFT) as u64,
            protection: Protection::Read,
            ..Attributes::default()
        };
        let twin = self.twin.mmap(in_twin(&pages), attributes.clone());
        twin.unwrap();
        self.rig.space.mmap(pages, attributes).unwrap();
    }

    fn unmap(&mut self, map: usize) {
        let map = self.maps.remove(&map).unwrap();
        self.unmap_pages(map.pages(&(0..map.len as u64)));
    }

    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> Touched {
        let addr = self.maps[&map].start + at as usize;
        let mut again = vec![0; bytes.len()];
        let twin = self.rig.read_in(&self.twin, addr + TWIN, &mut again);
        let read = self.rig.read(addr, bytes);
        assert_eq!(read, twin);
        if read.is_ok() {
            assert_eq!(bytes, again);
        }
        match read {
            Ok(()) => Touched::Done,
            Err(FaultError::BeyondEnd) => Touched::Beyond,
            Err(FaultError::NotMapped) => Touched::Unmapped,
            Err(FaultError::Protection) => Touched::Forbidden,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn truncate(&mut self, len: u64) {
        self.store.set_len(len);
        for map in self.maps.values() {
            map.cache.truncate(len);
        }
    }

    fn answers_errors(&self) -> bool {
        true
    }

    fn unmap_part(&mut self, map: usize, bytes: Range<u64>) -> bool {
        self.unmap_pages(self.maps[&map].pages(&bytes));
        true
    }

    fn protect(&mut self, map: usize, bytes: Range<u64>, readable: bool) -> bool {
        let protection = match readable {
            true => Protection::Read,
            false => Protection::None,
        };
        // An error means that a part was unmapped before.
        let pages = self.maps[&map].pages(&bytes);
        let _in_part = self.twin.mprotect(in_twin(&pages), protection);
        self.rig.protect(pages, protection);
        true
    }

    fn advise(&mut self, map: usize, bytes: Range<u64>, advice: MapAdvice) {
        let advice = match advice {
            MapAdvice::Normal => Advice::Normal,
            MapAdvice::Random => Advice::Random,
            MapAdvice::Sequential => Advice::Sequential,
            MapAdvice::WillNeed => return self.prefetch(map, bytes),
        };
        let _ = self
            .rig
            .space
            .madvise(self.maps[&map].pages(&bytes), advice);
    }

    fn pin(&mut self, map: usize, bytes: Range<u64>) -> Option<Vec<u8>> {
        let Self { rig, maps, .. } = self;
        let map = maps.get_mut(&map).unwrap();
        let range = map.addresses(&bytes);
        let admitted = map.cache.admit_pin(&range)?;
        pin(rig, &map.cache, range.clone());
        map.pinned = Some((range.clone(), admitted));
        let mut found = vec![0; range.len()];
        let mut at = range.start;
        while at < range.end {
            let end = ((at & !(PAGE_SIZE - 1)) + PAGE_SIZE).min(range.end);
            let before = rig.node.stats.major_faults.get();
            rig.read(at, &mut found[at - range.start..end - range.start])
                .unwrap();
            assert_eq!(
                rig.node.stats.major_faults.get(),
                before,
                "pinned pages are there"
            );
            at = end;
        }
        Some(found)
    }

    fn unpin(&mut self, map: usize) {
        let map = self.maps.get_mut(&map).unwrap();
        if let Some((range, admitted)) = map.pinned.take() {
            fault::unpin(&map.cache, range);
            map.cache.dismiss_pin(admitted);
        }
    }

    fn prefetch(&mut self, map: usize, bytes: Range<u64>) {
        let map = &self.maps[&map];
        fault::prefetch(&map.cache, map.addresses(&bytes));
    }

    fn invalidate(&mut self, map: usize, bytes: Range<u64>) {
        let map = &self.maps[&map];
        map.cache.invalidate(map.addresses(&bytes));
    }

    fn set_memory(&mut self, bytes: u64) {
        self.rig.set_memory(bytes / PAGE_SIZE as u64);
    }

    fn evict(&mut self) {
        // Reads that nobody waited for end when somebody looks.
        self.store.reap(u64::MAX, &Completion(&self.rig.node), 0);
        self.rig.evict_all();
        for map in self.maps.values().filter(|map| map.pinned.is_none()) {
            assert_eq!(map.cache.folio_count(), 0, "all that can go goes");
        }
    }

    fn check(&self) {
        for space in [&self.rig.space, &self.twin] {
            space.validate(&space.mmap_lock().read());
        }
    }
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let holes = proptest::collection::vec((0..4000u64, 1..900u64), 0..4);
    (1..14_000_000u64, holes).prop_map(|(file_bytes, holes)| Setting {
        file_bytes,
        holes: holes.into_iter().map(|(at, len)| at..at + len).collect(),
        seed: 7,
        memory: 8 << 20,
    })
}

fn run(setting: Setting, queue: usize, policies: Policies, ops: &[Op]) {
    let rig = Rig::with_policies(setting.memory / PAGE_SIZE as u64, policies);
    let store = TestStore::with_queue(setting.file_bytes, queue);
    store.rewrite(setting.seed);
    for hole in &setting.holes {
        store.punch(hole.clone());
    }
    let mut world = SoftWorld {
        twin: ManuallyDrop::new(rig.another_space()),
        rig,
        store,
        maps: BTreeMap::new(),
    };
    let played = catch_unwind(AssertUnwindSafe(|| {
        play(&mut Model::new(setting), &mut [&mut world], ops);
    }));
    if let Err(panic) = played {
        // Half-done work cannot be dropped.
        std::mem::forget(world);
        resume_unwind(panic);
    }
    ManuallyDrop::into_inner(world.twin).exit(|_, _| {});
    world.rig.finish();
}

const KEPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/proptest-regressions/oracle.txt"
);

proptest! {
    #![proptest_config(cases(KEPT, 160))]

    #[test]
    fn every_byte_is_the_models(
        setting in any_setting(),
        queue in prop_oneof![Just(0), Just(3), Just(64)],
        ops in proptest::collection::vec(any_op(), 1..90),
    ) {
        let whole = Op::Map { offset: 0, len: 0 };
        let ops: Vec<_> = std::iter::once(whole).chain(ops).collect();
        run(setting, queue, Policies::default(), &ops);
    }
}

proptest! {
    #![proptest_config(cases(KEPT, 80))]

    #[test]
    fn every_byte_is_the_models_under_every_policy(
        setting in any_setting(),
        queue in prop_oneof![Just(0), Just(3), Just(64)],
        policies in any_policies(),
        ops in proptest::collection::vec(any_op(), 1..90),
    ) {
        let whole = Op::Map { offset: 0, len: 0 };
        let ops: Vec<_> = std::iter::once(whole).chain(ops).collect();
        run(setting, queue, policies, &ops);
    }
}

/// A cut-off page comes back as zeros, also where it had been pinned when it
/// was cut off: it stays as it is until then.
#[test]
fn a_pinned_page_is_forgotten_with_its_last_pin() {
    let rig = Rig::new(2048);
    let store = TestStore::new(64 << 12);
    let cache = rig.map_with(&store, OnTruncate::Error);
    let start = cache.addresses().start;
    let before = rig.touch(start + 5 * PAGE_SIZE).unwrap();
    let range = start + 5 * PAGE_SIZE..start + 6 * PAGE_SIZE;
    for _ in 0..2 {
        pin(&rig, &cache, range.clone());
    }
    cache.invalidate(cache.addresses());
    store.set_len(PAGE_SIZE as u64);
    cache.truncate(PAGE_SIZE as u64);
    assert_eq!(rig.touch(range.start), Ok(before));
    fault::unpin(&cache, range.clone());
    rig.evict_all();
    assert_eq!(rig.touch(range.start), Ok(before), "one pin is left");
    fault::unpin(&cache, range.clone());
    assert_eq!(rig.touch(range.start), Err(FaultError::BeyondEnd));
    store.set_len(64 << 12);
    cache.truncate(64 << 12);
    assert_eq!(rig.touch(range.start), Ok(0));
    drop(cache);
    rig.finish();
}
