//! Calls that bring ranges in, one after the other: those that go through a file in order are read ahead of, and no others.

use crate::files::{pages, pin};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, NeverInterrupted, Populated};
use softfault_engine::page::Advice;
use softfault_oracle::{Rig, TestStore};
use std::ops::Range;
use std::sync::Arc;

const FILE: usize = 4096;
/// Pages of a call: several blocks.
const CALL: usize = 64;

struct Scene {
    rig: Rig,
    store: Arc<TestStore>,
    cache: Arc<PageCache>,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new(4 * FILE as u64);
        let store = TestStore::with_queue(pages(FILE), 256);
        let cache = rig.map(&store);
        Self { rig, store, cache }
    }

    /// As a read into a buffer: pages are pinned, copied, and let go.
    fn call(&self, pages: Range<usize>) {
        let start = self.cache.addresses().start;
        let range = start + pages.start * PAGE_SIZE..start + pages.end * PAGE_SIZE;
        pin(&self.rig, &self.cache, range.clone());
        fault::unpin(&self.cache, range.clone());
        fault::note_call(&self.rig.space, &range);
    }

    /// As a future of one page, which is no touch.
    fn fault_in(&self, page: usize) {
        let at = self.cache.addresses().start + page * PAGE_SIZE;
        let range = at..at + PAGE_SIZE;
        let populated = fault::populate(&self.rig.space, range.clone(), false, &NeverInterrupted);
        assert_eq!(populated, Populated::Done);
        fault::note_call(&self.rig.space, &range);
    }

    fn advise(&self, advice: Advice) {
        let advised = self.rig.space.madvise(self.cache.addresses(), advice);
        advised.unwrap();
    }

    fn read_ahead(&self) -> u64 {
        self.rig.node.stats.readahead_pages.get()
    }

    /// More than so many pages were read ahead.
    #[track_caller]
    fn finish_ahead(self, least: usize) {
        let ahead = self.read_ahead() as usize;
        assert!(ahead > least, "{ahead} of {FILE} pages");
        self.finish();
    }

    fn finish(self) {
        self.rig.unmap(self.cache.addresses());
        drop(self.cache);
        self.rig.finish();
    }
}

#[test]
fn calls_in_order_find_their_pages_read() {
    let scene = Scene::new();
    scene.call(0..CALL);
    assert_eq!(scene.read_ahead(), 0, "one call proves nothing");
    for call in 1..FILE / CALL {
        scene.call(call * CALL..(call + 1) * CALL);
    }
    let ahead = scene.read_ahead() as usize;
    assert!(ahead > FILE * 3 / 4, "{ahead} of {FILE} pages");
    // Each page once, and no page past the end.
    let read: u64 = (scene.store.reads().iter())
        .map(|pages| pages.end - pages.start)
        .sum();
    assert_eq!(read, FILE as u64);
    assert_eq!(scene.rig.node.stats.readahead_used.get() as usize, ahead);
    scene.finish();
}

#[test]
fn what_is_read_ahead_is_a_part_of_what_was_read() {
    let scene = Scene::new();
    for call in 0..8 {
        scene.call(call * CALL..(call + 1) * CALL);
        let (called, ahead) = ((call + 1) * CALL, scene.read_ahead() as usize);
        // In vain, wherever the calls end: a quarter of what they read, and a block.
        let read = scene.store.pages_read().len();
        assert!(
            read <= called + called / 4 + 16,
            "{read} of {called}, {ahead} ahead"
        );
    }
    scene.finish();
}

/// Their borders need not be those of pages.
#[test]
fn calls_that_share_a_page_are_in_order_too() {
    let scene = Scene::new();
    const BYTES: usize = 300_000;
    let start = scene.cache.addresses().start;
    for at in (0..(FILE * PAGE_SIZE - BYTES)).step_by(BYTES) {
        let pages = start + at / PAGE_SIZE * PAGE_SIZE..start + at + BYTES;
        pin(&scene.rig, &scene.cache, pages.clone());
        fault::unpin(&scene.cache, pages);
        fault::note_call(&scene.rig.space, &(start + at..start + at + BYTES));
    }
    scene.finish_ahead(FILE * 3 / 4);
}

/// A run that ended long ago gives no call a window.
#[test]
fn an_old_run_is_not_gone_on_with_by_chance() {
    let scene = Scene::new();
    let start = scene.cache.addresses().start;
    for page in 0..256 {
        let at = page * PAGE_SIZE;
        assert_eq!(scene.rig.touch(start + at), Ok(scene.store.byte(at as u64)));
    }
    // Elsewhere for a while.
    for call in 0..40 {
        let first = 1024 + call * 7 % 20 * 2 * CALL;
        scene.call(first..first + CALL);
    }
    scene.rig.evict_all();
    let before = scene.read_ahead();
    scene.call(240..512);
    assert_eq!(scene.read_ahead(), before);
    scene.finish();
}

/// Calls of a page each: two or three of them are a record, as likely as a run.
#[test]
fn small_calls_prove_a_run_as_touches_do() {
    let scene = Scene::new();
    for record in 0..20 {
        for page in 0..3 {
            scene.fault_in(record * 7 % 20 * 100 + page);
        }
    }
    assert_eq!(scene.read_ahead(), 0);
    (3000..3010).for_each(|page| scene.fault_in(page));
    assert!(scene.read_ahead() > 0, "ten in a row are a run");
    scene.finish();
}

/// Longer than any window is, to begin with.
#[test]
fn long_calls_are_read_ahead_of() {
    let scene = Scene::new();
    let call = FILE / 4;
    for first in (0..FILE).step_by(call) {
        scene.call(first..first + call);
    }
    scene.finish_ahead(call / 2);
}

#[test]
fn readers_that_take_turns_are_followed_apart() {
    let scene = Scene::new();
    const READERS: usize = 4;
    let share = FILE / READERS;
    for call in 0..share / CALL {
        for reader in 0..READERS {
            let first = reader * share + call * CALL;
            scene.call(first..first + CALL);
        }
    }
    scene.finish_ahead(FILE / 3);
}

#[test]
fn calls_in_no_order_read_their_pages_alone() {
    let scene = Scene::new();
    // None begins where another has ended.
    for call in 0..20 {
        let first = call * 7 % 20 * 3 * CALL;
        scene.call(first..first + CALL);
    }
    assert_eq!(scene.read_ahead(), 0);
    assert_eq!(scene.store.pages_read().len(), 20 * CALL);
    scene.finish();
}

#[test]
fn advice_holds_for_calls_too() {
    let scene = Scene::new();
    scene.advise(Advice::Random);
    for call in 0..8 {
        scene.call(call * CALL..(call + 1) * CALL);
    }
    assert_eq!(scene.read_ahead(), 0);
    scene.finish();
}

/// A run of touches goes on with calls, and the other way round.
#[test]
fn calls_go_on_with_a_run_of_touches() {
    let scene = Scene::new();
    let start = scene.cache.addresses().start;
    let touch = |pages: Range<usize>| {
        for page in pages {
            let at = page * PAGE_SIZE;
            assert_eq!(scene.rig.touch(start + at), Ok(scene.store.byte(at as u64)));
        }
    };
    touch(0..256);
    let before = scene.read_ahead();
    for call in 4..16 {
        scene.call(call * CALL..(call + 1) * CALL);
    }
    let between = scene.read_ahead();
    assert!(between > before + 8 * CALL as u64, "{before}, {between}");
    touch(1024..2048);
    assert!(scene.read_ahead() > between + 512, "{between}");
    let read: u64 = (scene.store.reads().iter())
        .map(|pages| pages.end - pages.start)
        .sum();
    assert_eq!(
        read,
        scene.store.pages_read().len() as u64,
        "each page once"
    );
    scene.finish();
}
