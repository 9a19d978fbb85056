//! A swap device that fails, as the user sees it. The rows of docs/swap.md.
//!
//! Each engine has 16 MiB, and maps of more than that.

mod child;
mod store_scene;
mod swap_scene;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use softfault::soft::{SoftEngine, SoftMapMut};
use softfault::{Engine, FaultError, MmapMut};
use softfault_oracle::Finally;
use store_scene::PAGE;
use swap_scene::failing::Failing;
use swap_scene::until;

const MEMORY: usize = 16 << 20;
/// Twice the pages in memory.
const PAGES: usize = 2 * MEMORY / PAGE;

/// A map that most of is in swap, over either kind of page tables.
enum Map {
    Uffd(MmapMut),
    Soft(SoftMapMut),
}

struct Scene {
    device: Arc<Failing>,
    map: Map,
    engine: Either,
}

enum Either {
    Uffd(Engine),
    Soft(SoftEngine),
}

impl Either {
    fn map(&self, pages: usize) -> Map {
        match self {
            Self::Uffd(engine) => Map::Uffd(engine.map_anon(pages * PAGE).unwrap()),
            Self::Soft(engine) => Map::Soft(engine.map_anon(pages * PAGE).unwrap()),
        }
    }
}

/// The word at a place of a page.
fn word(page: usize) -> [u8; 8] {
    ((page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes()
}

impl Scene {
    fn over(soft: bool, slots: usize, pages: usize) -> Self {
        let device = Failing::new(slots);
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MEMORY)
            .max_memory(MEMORY);
        // SAFETY: it returns the written bytes, or an error.
        let builder = unsafe { builder.swap_device(device.clone()) };
        let engine = match soft {
            true => Either::Soft(builder.build_soft().unwrap()),
            false => Either::Uffd(builder.build().unwrap()),
        };
        let map = engine.map(pages);
        Self {
            device,
            map,
            engine,
        }
    }

    /// All pages written once, which needs swap.
    fn new(soft: bool) -> Self {
        let mut scene = Self::over(soft, 4 * PAGES, PAGES);
        (0..PAGES).for_each(|page| scene.write(page).expect("there is swap"));
        assert!(scene.swap().pages_out > 0);
        scene
    }

    fn swap(&self) -> softfault::SwapStats {
        let stats = match &self.engine {
            Either::Uffd(engine) => engine.stats(),
            Either::Soft(engine) => engine.stats(),
        };
        stats.swap.expect("an engine with swap")
    }

    /// Writes a page's words, at both ends.
    fn write(&mut self, page: usize) -> Result<(), FaultError> {
        let at = page * PAGE;
        match &mut self.map {
            Map::Uffd(map) => {
                map.populate(at..at + PAGE)?;
                map[at..at + 8].copy_from_slice(&word(page));
                map[at + PAGE - 8..at + PAGE].copy_from_slice(&word(page));
            }
            Map::Soft(map) => {
                map.write_at(&word(page), at)?;
                map.write_at(&word(page), at + PAGE - 8)?;
            }
        }
        Ok(())
    }

    /// Reads them back: an error, or the written bytes.
    fn check(&self, page: usize) -> Result<(), FaultError> {
        let at = page * PAGE;
        let mut found = [[0; 8]; 2];
        match &self.map {
            Map::Uffd(map) => {
                map.populate(at..at + PAGE)?;
                found[0].copy_from_slice(&map[at..at + 8]);
                found[1].copy_from_slice(&map[at + PAGE - 8..at + PAGE]);
            }
            Map::Soft(map) => {
                map.read_at(&mut found[0], at)?;
                map.read_at(&mut found[1], at + PAGE - 8)?;
            }
        }
        assert_eq!(found, [word(page); 2], "page {page}");
        Ok(())
    }

    fn check_all(&self) {
        (0..PAGES).for_each(|page| self.check(page).expect("it can be read"));
    }

    /// A page that is in swap: the first whose check reads.
    fn swapped(&self) -> usize {
        self.device.reads.fail(libc::EIO);
        let page = (0..PAGES).find(|&page| self.check(page).is_err());
        self.device.reads.fail(0);
        page.expect("half of all pages are in swap")
    }
}

/// Runs a test over both kinds of page tables; where userfaultfd is closed, over
/// the soft ones.
fn over_both(test: impl Fn(bool)) {
    test(true);
    match Engine::builder()
        .allow_kernel_maps(false)
        .memory(MEMORY)
        .build()
    {
        Ok(_) => test(false),
        Err(closed) if closed.kind() == ErrorKind::PermissionDenied => {
            softfault_skip::skipped("kernel", closed);
        }
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn a_read_that_fails_is_an_error_of_that_touch_and_of_no_other() {
    over_both(|soft| {
        let scene = Scene::new(soft);
        let page = scene.swapped();
        scene.device.reads.fail(libc::EIO);
        for _ in 0..3 {
            assert_eq!(scene.check(page), Err(FaultError::Io(libc::EIO)));
        }
        // Pages in memory are there.
        let there = (0..PAGES).filter(|&page| scene.check(page).is_ok()).count();
        assert!(there > PAGES / 4, "{there} pages are in memory");
        // The next touch tries again; nothing was lost.
        scene.device.reads.fail(0);
        scene.check(page).unwrap();
        scene.check_all();
    });
}

#[test]
fn a_touch_whose_read_fails_is_a_sigbus() {
    let name = "a_touch_whose_read_fails_is_a_sigbus";
    if child::scenario().is_none() {
        if let Err(closed) = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MEMORY)
            .build()
        {
            assert_eq!(closed.kind(), ErrorKind::PermissionDenied, "{closed}");
            return softfault_skip::skipped("kernel", closed);
        }
        return child::dies_of(libc::SIGBUS, name, "touch");
    }
    let scene = Scene::new(false);
    let page = scene.swapped();
    scene.device.reads.fail(libc::EIO);
    let Map::Uffd(map) = &scene.map else {
        unreachable!("made so")
    };
    println!("{}", std::hint::black_box(map[page * PAGE]));
}

#[test]
fn a_short_read_never_shows_half_a_page() {
    over_both(|soft| {
        let scene = Scene::new(soft);
        for short in [1, 512, PAGE as u64 / 2, PAGE as u64] {
            let page = scene.swapped();
            scene.device.short.store(short, SeqCst);
            assert_eq!(scene.check(page), Err(FaultError::Io(libc::EIO)), "{short}");
            scene.device.short.store(0, SeqCst);
            scene.check(page).unwrap();
        }
        scene.check_all();
    });
}

#[test]
fn pages_that_cannot_be_written_stay_and_faults_that_need_memory_fail() {
    for errno in [libc::ENOSPC, libc::EIO] {
        over_both(|soft| {
            let mut scene = Scene::over(soft, 4 * PAGES, PAGES);
            scene.device.writes.fail(errno);
            let fit = (0..PAGES)
                .take_while(|&page| scene.write(page).is_ok())
                .count();
            assert!(fit > PAGES / 4 && fit < PAGES, "{fit} pages fit");
            assert_eq!(scene.write(fit), Err(FaultError::NoMemory));
            assert!(scene.swap().write_errors > 0);
            // All that was there still is, and can be written.
            (0..fit).for_each(|page| scene.check(page).unwrap());
            (0..fit).for_each(|page| scene.write(page).unwrap());
            assert_eq!(
                scene.swap().slots_used,
                0,
                "slots of failed writes are free"
            );
            // The disk has room again.
            scene.device.writes.fail(0);
            (fit..PAGES).for_each(|page| scene.write(page).unwrap());
            scene.check_all();
        });
    }
}

#[test]
fn full_swap_is_no_memory_until_something_goes() {
    over_both(|soft| {
        const FEW: usize = PAGES / 4;
        let mut scene = Scene::over(soft, 512, FEW);
        (0..FEW).for_each(|page| scene.write(page).unwrap());
        let more = scene.engine.map(PAGES);
        let first = core::mem::replace(&mut scene.map, more);
        let refused = (0..PAGES).find_map(|page| scene.write(page).err());
        assert_eq!(refused, Some(FaultError::NoMemory));
        let swap = scene.swap();
        assert!(swap.full > 0 && swap.slots_used > 400, "{swap:?}");
        // Pages in memory are there; for pages in swap there is no room.
        let more = core::mem::replace(&mut scene.map, first);
        // (A page whose touch reports it has waited long: one of them will do.)
        let found = (0..FEW).find_map(|page| scene.check(page).err());
        assert!(
            matches!(found, None | Some(FaultError::NoMemory)),
            "{found:?}"
        );
        drop(more);
        (0..FEW).for_each(|page| scene.check(page).unwrap());
        (0..FEW).for_each(|page| scene.write(page).unwrap());
    });
}

#[test]
fn a_read_that_hangs_holds_up_only_threads_that_want_that_page() {
    over_both(|soft| {
        let scene = Scene::new(soft);
        let page = scene.swapped();
        let near = |other: usize| other.abs_diff(page) < 64;
        // In memory now; nothing is evicted below, for nothing is brought in.
        let there = (0..PAGES).rev().filter(|&page| !near(page)).take(PAGES / 8);
        let there: Vec<_> = there.inspect(|&page| scene.check(page).unwrap()).collect();
        scene.device.reads.hang();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                scene.check(page).unwrap();
                done.store(true, SeqCst);
            });
            scene.device.reads.wait_for_one();
            there.iter().for_each(|&page| scene.check(page).unwrap());
            assert!(!done.load(SeqCst), "it waits still");
            scene.device.reads.release();
            waiter.join().unwrap();
        });
        scene.check_all();
    });
}

#[test]
fn reads_of_other_pages_go_on_while_one_hangs() {
    over_both(|soft| {
        let scene = Scene::new(soft);
        let page = scene.swapped();
        scene.device.reads.hang();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| scene.check(page).unwrap());
            scene.device.reads.wait_for_one();
            // That read alone hangs: those that come later do not.
            scene.device.reads.pass();
            let far = (0..PAGES).filter(|&other| other.abs_diff(page) > 64);
            far.for_each(|page| scene.check(page).unwrap());
            assert_eq!(scene.device.reads.waiting(), 1);
            scene.device.reads.release();
            waiter.join().unwrap();
        });
        scene.check_all();
    });
}

#[test]
fn a_write_that_hangs_holds_up_only_threads_that_need_memory() {
    over_both(|soft| {
        let mut scene = Scene::new(soft);
        (0..PAGES).for_each(|page| scene.write(page).unwrap());
        let there: Vec<_> = (PAGES - 64..PAGES).collect();
        there.iter().for_each(|&page| scene.check(page).unwrap());
        scene.device.writes.hang();
        let (there_still, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let needs = scope.spawn(|| {
                let pages = (0..PAGES / 2).take_while(|_| !stop.load(SeqCst));
                pages.for_each(|page| scene.check(page).unwrap());
            });
            let end = Finally(|| {
                stop.store(true, SeqCst);
                scene.device.writes.release();
            });
            scene.device.writes.wait_for_one();
            // Some may be on their way out, and wait for the write.
            for &page in &there {
                let (scene, there_still) = (&scene, &there_still);
                scope.spawn(move || {
                    scene.check(page).unwrap();
                    there_still.fetch_add(1, SeqCst);
                });
            }
            until(|| there_still.load(SeqCst) >= there.len() / 2);
            assert!(scene.device.writes.waiting() > 0 && !needs.is_finished());
            drop(end);
            needs.join().unwrap();
        });
        scene.check_all();
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
}

#[test]
fn signals_of_a_thread_that_waits_for_a_read_come_when_it_ends() {
    over_both(|soft| {
        let scene = Scene::new(soft);
        let page = scene.swapped();
        let before = SIGNALS.load(SeqCst);
        scene.device.reads.hang();
        let thread = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: no arguments.
                thread.store(unsafe { libc::pthread_self() } as usize, SeqCst);
                // SAFETY: a handler that counts, and a signal that nobody else uses.
                unsafe { libc::signal(libc::SIGUSR1, count as *const () as usize) };
                scene.check(page).unwrap();
            });
            scene.device.reads.wait_for_one();
            let thread = thread.load(SeqCst) as libc::pthread_t;
            // SAFETY: a thread that is not joined yet.
            let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            assert_eq!(sent, 0);
            scene.device.reads.release();
            waiter.join().unwrap();
        });
        assert_eq!(SIGNALS.load(SeqCst), before + 1);
    });
}
