//! Parts of private memory that are handed over to the program: every byte is there, before and after, and the map goes on
//! around them. For programs that take over mapped memory by themselves.

mod child;
mod files;
mod private_parts;
mod store_scene;
mod swap_scene;

use files::{byte_at, made_file};
use private_parts::{MEMORY, PAGE, PAGES, addresses, place, word, write};
use softfault::{Advice, Engine, Faults, MmapMut, MmapOptions, Swap, UncheckedAdvice};
use softfault_oracle::Finally;
use std::ops::Range;
use std::sync::Arc;
use swap_scene::disk;
use swap_scene::failing::Failing;

/// An engine with swap that can fail. Faults are served by threads, as where the program is not to know of them.
fn engine() -> (Engine, Arc<Failing>) {
    let device = Failing::new(4 * PAGES);
    let builder = Engine::builder().memory(MEMORY).faults(Faults::Threads);
    // SAFETY: it returns the written bytes, or an error.
    let builder = unsafe { builder.swap_device(device.clone()) };
    (builder.build().unwrap(), device)
}

/// Each page has its word of `version`.
#[track_caller]
fn check(start: usize, pages: Range<usize>, version: usize) {
    private_parts::check(start, pages, |page| word(page, version));
}

fn anonymous(engine: &Engine) -> (MmapMut, usize) {
    let map = engine.map_anon(PAGES * PAGE).unwrap();
    let start = map.as_ptr() as usize;
    write(start, 0..PAGES, 0);
    (map, start)
}

/// Gives back the memory that the program was given.
fn unmap(range: Range<usize>) {
    // SAFETY: the test's own.
    let done = unsafe { libc::munmap(range.start as *mut libc::c_void, range.len()) };
    assert_eq!(done, 0);
}

#[test]
fn a_part_is_the_programs_own_and_stays_when_the_map_goes() {
    let (engine, _) = engine();
    let (map, start) = anonymous(&engine);
    let (given, gone) = (PAGES / 3..PAGES / 2 + 5, PAGES / 2 + 5..PAGES / 2 + 77);
    // SAFETY: the map is not asked for either again.
    unsafe {
        map.hand_over(&addresses(start, &given)).unwrap();
        map.unmap_addresses(&addresses(start, &gone)).unwrap();
    }
    check(start, 0..gone.start, 0);
    check(start, gone.end..PAGES, 0);
    // An eviction of pages of the map takes nothing of the program's along.
    write(start, given.clone(), 1);
    for version in 2..4 {
        write(start, 0..given.start, version);
        write(start, gone.end..PAGES, version);
        check(start, 0..given.start, version);
        check(start, given.clone(), 1);
    }
    drop(map);
    check(start, given.clone(), 1);
    unmap(addresses(start, &given));
}

#[test]
fn a_part_of_a_file_has_the_writes_and_otherwise_the_file() {
    let (engine, _) = engine();
    let file = made_file("handed-over", PAGES * PAGE);
    // SAFETY: nobody writes to the file.
    let map = unsafe { MmapOptions::new().map_copy_in(&engine, &file) }.unwrap();
    let start = map.as_ptr() as usize;
    for page in (0..PAGES).step_by(3) {
        write(start, page..page + 1, 1);
    }
    let given = 100..PAGES - 100;
    // SAFETY: the map is not asked for the part again.
    unsafe { map.hand_over(&addresses(start, &given)).unwrap() };
    for page in 0..PAGES {
        // SAFETY: mapped, by whomever.
        let first = unsafe { ((start + page * PAGE) as *const u8).read_volatile() };
        assert_eq!(first, byte_at(page * PAGE), "page {page}");
        if page % 3 == 0 {
            check(start, page..page + 1, 1);
        }
    }
    write(start, given.clone(), 2);
    drop(map);
    check(start, given.clone(), 2);
    unmap(addresses(start, &given));
    // SAFETY: nobody writes to the file.
    let again = unsafe { engine.map(&file) }.unwrap();
    for page in 0..PAGES {
        assert_eq!(
            again[page * PAGE + PAGE / 2],
            byte_at(page * PAGE + PAGE / 2)
        );
    }
}

#[test]
fn where_swap_cannot_be_read_nothing_is_lost_and_it_is_an_error() {
    let (engine, device) = engine();
    let (map, start) = anonymous(&engine);
    let all = addresses(start, &(0..PAGES));
    // The first page of the first chunk is there, and others of it are not.
    map.advise(Advice::Random).unwrap();
    (0..1024)
        .step_by(16)
        .for_each(|page| check(start, page..page + 1, 0));
    device.reads.fail(libc::EIO);
    // SAFETY: from here on the map is asked for the pages behind the part that was handed over.
    let (upto, error) = unsafe { map.hand_over(&all) }.unwrap_err();
    device.reads.fail(0);
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert!(all.contains(&upto));
    check(start, 0..PAGES, 0);
    // Nothing of it stays in memory for that.
    let first = upto - start;
    // SAFETY: the page is written again.
    let given_up = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, first, PAGE) };
    given_up.unwrap();
    write(start, 0..PAGES, 1);
    check(start, 0..PAGES, 1);
    // SAFETY: as above.
    unsafe { map.hand_over(&(upto..all.end)).unwrap() };
    drop(map);
    check(start, 0..PAGES, 1);
    unmap(all);
}

#[test]
fn writers_lose_nothing_meanwhile() {
    let (engine, _) = engine();
    let (map, start) = anonymous(&engine);
    let add = |page: usize| {
        // SAFETY: mapped, and an atomic for all readers.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(place(start, page)) };
        word.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    };
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let adds = || {
            let mut rounds = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                for page in (0..PAGES).step_by(5) {
                    add(page);
                }
                rounds += 1;
            }
            rounds
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(adds)).collect();
        let done = Finally(|| is_done.store(true, std::sync::atomic::Ordering::Relaxed));
        for part in (0..PAGES).step_by(PAGES / 6) {
            let part = addresses(start, &(part..(part + PAGES / 6).min(PAGES)));
            // SAFETY: the map is not asked for it again.
            unsafe { map.hand_over(&part).unwrap() };
        }
        drop(done);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<u64>()
    });
    drop(map);
    for page in 0..PAGES {
        let added = if page % 5 == 0 { rounds } else { 0 };
        // SAFETY: the program's own by now.
        let found = unsafe { place(start, page).read() };
        assert_eq!(found, word(page, 0).wrapping_add(added), "page {page}");
    }
    unmap(addresses(start, &(0..PAGES)));
}

#[test]
fn a_child_of_fork_has_the_parts_too() {
    let swap = Swap::in_dir(disk()).bytes(64 << 20);
    let builder = Engine::builder().memory(MEMORY).faults(Faults::Threads);
    let engine = builder.swap(swap).build().unwrap();
    let (map, start) = anonymous(&engine);
    let given = 10..PAGES / 2;
    // SAFETY: the map is not asked for it again.
    unsafe { map.hand_over(&addresses(start, &given)).unwrap() };
    for round in 0..2 {
        let status = child::forked(|| {
            check(start, 0..PAGES, 0);
            0
        });
        assert_eq!(status, 0, "round {round}");
    }
    check(start, 0..PAGES, 0);
    drop(map);
    unmap(addresses(start, &given));
}
