//! Models of the reclaim lists in shards: a folio is on one list at most, and on the one that its flags name.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use softfault_engine_loom::cache::folio::{Folio, NO_FOLIO, flag};
use softfault_engine_loom::page::Order;
use softfault_engine_loom::reclaim::{Heads, ListPages, Lists, Want};
use softfault_engine_loom::slab::Slab;
use sync::run_on;

const PAGES: usize = 4;

/// The lists, and one folio.
struct Scene {
    lists: Lists,
    folios: Slab<Folio>,
}

impl Scene {
    fn new() -> Arc<Self> {
        let scene = Self {
            lists: Lists::new(Order::StaleFirst),
            folios: Slab::new(2),
        };
        let id = scene.folios.alloc().expect("a slot");
        assert_eq!(id, 0);
        scene.folio().init(core::ptr::null(), 0x10000, PAGES);
        Arc::new(scene)
    }

    fn folio(&self) -> &Folio {
        self.folios.get(0)
    }

    /// As a fault that has mapped it, on this processor.
    fn map(&self, processor: usize) {
        run_on(processor);
        self.folio().change(flag::MAPPED, 0);
        self.lists.add(&self.folios, self.folio());
    }

    /// As reclaim that has isolated the folio and cannot evict it.
    fn put_back(&self, processor: usize) {
        run_on(processor);
        self.lists.put_back(&self.folios, self.folio());
    }

    /// How many folios reclaim gets.
    fn isolate(&self) -> usize {
        let (mut heads, mut out) = (Heads::UNREAD, [NO_FOLIO; 2]);
        let count = (self.lists).isolate(&self.folios, Want::Any, 1, PAGES, &mut heads, &mut out);
        assert!(out[..count].iter().all(|&id| id == 0));
        count
    }

    /// Asserts that the lists have the folio once, on the list of mapped folios, or not at all; and that their sizes say so.
    fn settle(&self) -> usize {
        let pages = self.lists.pages();
        let listed = self.lists.folios();
        let expected = ListPages {
            inactive: listed * PAGES,
            ..ListPages::default()
        };
        assert!(listed <= 1, "on {listed} lists");
        assert_eq!(pages, expected);
        assert_eq!(self.isolate(), listed);
        assert_eq!(self.lists.folios(), 0);
        listed
    }
}

#[test]
fn a_folio_that_two_processors_add() {
    explore(None, || {
        let scene = Scene::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.put_back(1))
        };
        scene.map(0);
        other.join().unwrap();
        assert_eq!(scene.settle(), 1);
    });
}

#[test]
fn a_folio_that_is_listed_and_two_processors_add() {
    explore(Some(4), || {
        let scene = Scene::new();
        scene.put_back(0);
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.put_back(1))
        };
        scene.map(0);
        other.join().unwrap();
        assert_eq!(scene.settle(), 1);
    });
}

/// The other thread has isolated it before it was mapped, and puts it back after it was isolated again.
#[test]
fn a_folio_that_is_mapped_and_isolated_against_who_puts_it_back() {
    explore(Some(4), || {
        let scene = Scene::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.put_back(1))
        };
        scene.map(0);
        let isolated = scene.isolate();
        other.join().unwrap();
        let listed = scene.settle();
        assert!(isolated + listed >= 1, "the folio is lost");
    });
}

#[test]
fn a_removal_against_an_isolation() {
    explore(None, || {
        let scene = Scene::new();
        scene.map(1);
        // Loom does not see what is read without a lock, and so not that the order matters.
        let order = Arc::new(AtomicU32::new(0));
        let other = {
            let (scene, order) = (Arc::clone(&scene), Arc::clone(&order));
            spawn(move || {
                order.fetch_add(1, Relaxed);
                scene.isolate()
            })
        };
        order.fetch_add(1, Relaxed);
        scene.lists.remove(&scene.folios, scene.folio());
        // It is on none for the thread that goes on with it.
        assert_eq!(scene.lists.folios(), 0);
        other.join().unwrap();
        assert_eq!(scene.settle(), 0);
    });
}
