//! The swap file as a device: written bytes come back, from the disk and from
//! memory, plain and compressed.

mod child;
mod store_scene;
mod swap_scene;

use std::sync::Arc;

use softfault::store::{Mode, QueueKind, Rings};
use softfault::{Compression, Engine, Swap};
use softfault_engine::store::{Extent, Store, StoreError};
use softfault_oracle::Random;
use store_scene::{Frames, Inbox, PAGE, reads};
use swap_scene::{BOTH, Pages, check, discard, disk, fill, places, swap_file, until};

#[test]
fn written_pages_come_back() {
    for (dir, compression) in places()
        .into_iter()
        .flat_map(|dir| BOTH.map(|kind| (dir, kind)))
    {
        let file = swap_file(dir, 5000, compression);
        assert_eq!(file.len(), Ok(5000 * PAGE as u64));
        assert_eq!(
            file.extent(PAGE as u64),
            Ok(Extent::Data(0..5000 * PAGE as u64))
        );
        let pages = Pages::new(3000);
        // More pages than one call takes, across clusters.
        pages.write(&file, 1100, &[1; 3000]).unwrap();
        pages.write(&file, 0, &[2]).unwrap();
        pages.write(&file, 4999, &[3]).unwrap();
        pages.check(&file, 0, &[2]);
        pages.check(&file, 4999, &[3]);
        pages.check(&file, 1100, &[1; 3000]);
        pages.check(&file, 2345, &[1; 16]);
    }
}

#[test]
fn a_disk_is_written_past_the_page_cache() {
    for compression in BOTH {
        assert_eq!(swap_file(disk(), 10, compression).mode(), Mode::Direct);
    }
}

#[test]
fn the_last_version_survives_all_traffic() {
    for (seed, compression) in (0..4).flat_map(|seed| BOTH.map(|kind| (seed, kind))) {
        const SLOTS: usize = 700;
        let file = swap_file(disk(), SLOTS, compression);
        let pages = Pages::new(64);
        let mut versions = [0u64; SLOTS];
        let mut random = Random::new(seed);
        let mut random = |below: usize| random.below(below);
        for version in 1..600 {
            let (first, count) = (random(SLOTS), 1 + random(64));
            let end = SLOTS.min(first + count);
            let slots = first..end;
            match random(3) {
                0 => {
                    discard(&file, slots.clone());
                    versions[slots].fill(0);
                }
                1 => {
                    pages
                        .write(&file, first, &vec![version; end - first])
                        .unwrap();
                    versions[slots].fill(version);
                }
                _ => {
                    // A stretch that has bytes.
                    let live = versions[slots]
                        .split(|&version| version == 0)
                        .next()
                        .unwrap();
                    if !live.is_empty() {
                        pages.check(&file, first, live);
                    }
                }
            }
        }
        for slot in (0..SLOTS).filter(|&slot| versions[slot] != 0) {
            pages.check(&file, slot, &versions[slot..=slot]);
        }
    }
}

#[test]
fn many_threads_write_read_and_discard() {
    for compression in BOTH {
        const EACH: usize = 2000;
        let file = swap_file(disk(), 8 * EACH, compression);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    let pages = Pages::new(100);
                    for round in 1..60 {
                        let first = thread * EACH + round * 31;
                        pages.write(file, first, &[round as u64; 100]).unwrap();
                        pages.check(file, first + 50, &[round as u64; 50]);
                        // Pages of the last round stay beside it.
                        if round > 1 {
                            pages.check(file, first - 31, &[round as u64 - 1; 31]);
                        }
                        if round % 7 == 0 {
                            discard(file, thread * EACH..first - 31);
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn reads_ahead_go_through_the_rings() {
    for (kind, compression) in [QueueKind::Aio, QueueKind::Uring]
        .into_iter()
        .flat_map(|kind| BOTH.map(|c| (kind, c)))
    {
        let rings = match Rings::of(kind) {
            Ok(rings) => Arc::new(rings),
            Err(closed) => {
                assert_eq!(kind, QueueKind::Uring, "io_submit is everywhere");
                softfault_skip::skipped("kernel", closed);
                continue;
            }
        };
        let swap = Swap::in_dir(disk()).bytes(1 << 22).compression(compression);
        let file = swap.open(0, Some(rings)).unwrap();
        let pages = Pages::new(200);
        pages.write(&file, 0, &[5; 200]).unwrap();
        for size in [1, 3, 16] {
            let count = 192 / size;
            let (frames, inbox) = (Frames::new(192), Inbox::new(count));
            let reads = reads(&frames, count, size, 8 * PAGE as u64);
            let mut begun = 0;
            while begun < count {
                // SAFETY: the frames are ours, and read again only when it is over.
                let more = unsafe { file.submit(&reads[begun..]) };
                assert!(more > 0, "{begun} of {count} were begun");
                for cookie in begun..begun + more {
                    assert_eq!(inbox.wait(&file, cookie as u64), (size * PAGE) as i64);
                    check(&frames, cookie * size, 8 + cookie * size, &vec![5; size]);
                }
                begun += more;
            }
        }
    }
}

#[test]
fn a_packed_slot_that_was_never_written_is_an_error() {
    let file = swap_file(disk(), 100, Compression::Lz4);
    let pages = Pages::new(10);
    pages.write(&file, 10, &[1; 10]).unwrap();
    discard(&file, 15..16);
    let frames = Frames::new(10);
    // SAFETY: the frames are ours.
    let read = unsafe { file.read(10 * PAGE as u64, frames.page(0), 10 * PAGE) };
    assert_eq!(read, Err(StoreError::Io(libc::EIO)));
    pages.check(&file, 10, &[1; 5]);
    pages.check(&file, 16, &[1; 4]);
}

#[test]
fn compressible_pages_take_less() {
    let file = swap_file(disk(), 4096, Compression::Lz4);
    let pages = Pages::new(1024);
    for round in 0..4 {
        pages.write(&file, round * 1024, &[1; 1024]).unwrap();
    }
    // A quarter noise, a quarter zeros, text, and half noise.
    let all = 4096 * PAGE as u64;
    let written = file.bytes_written();
    assert!(written < all * 6 / 10, "{written} of {all} bytes");
    assert!(written > all / 4, "noise does not compress");
}

#[test]
fn space_that_nobody_has_goes_back_to_the_disk() {
    for compression in BOTH {
        let file = swap_file(disk(), 40_000, compression);
        assert_eq!(
            file.bytes_on_disk(),
            0,
            "nothing is taken before it is needed"
        );
        let pages = Pages::new(1000);
        for round in 0..12 {
            pages.write(&file, round * 1000, &[4; 1000]).unwrap();
        }
        let taken = file.bytes_on_disk();
        assert!(taken >= 12_000 * PAGE as u64 / 4, "{taken}");
        discard(&file, 0..6000);
        // Others' pages stay.
        pages.check(&file, 6000, &[4; 1000]);
        discard(&file, 6000..7500);
        (7500..12_000).for_each(|slot| discard(&file, slot..slot + 1));
        until(|| file.bytes_on_disk() == 0);
        pages.write(&file, 100, &[7; 1000]).unwrap();
        pages.check(&file, 100, &[7; 1000]);
    }
}

#[test]
fn engines_report_their_swap() {
    let swap = Swap::in_dir(disk());
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .swap(swap.clone());
    let engine = engine.build_soft().unwrap();
    let stats = engine.stats().swap.unwrap();
    assert_eq!(
        (stats.slots_total, stats.slots_used),
        (4 * (16 << 20) / PAGE as u64, 0)
    );
    assert!(stats.direct);
    let none = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build_soft()
        .unwrap();
    assert!(none.stats().swap.is_none());
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .swap(swap.bytes(1 << 20));
    match engine.build() {
        Ok(engine) => assert_eq!(engine.stats().swap.unwrap().slots_total, 256),
        Err(closed) => assert_eq!(closed.kind(), std::io::ErrorKind::Unsupported),
    }
}

#[test]
fn a_directory_that_is_none_is_an_error_of_the_builder() {
    let nowhere = disk().join("nowhere");
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .swap(Swap::in_dir(&nowhere));
    let Err(error) = engine.build_soft() else {
        panic!("swap in a directory that is not there");
    };
    let wanted = format!("swap in {}: No such file or directory", nowhere.display());
    assert!(error.to_string().starts_with(&wanted), "{error}");
}

#[test]
fn anonymous_memory_comes_back_from_either_kind() {
    for compression in BOTH {
        const PAGES: usize = (48 << 20) / PAGE;
        let swap = Swap::in_dir(disk()).compression(compression);
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(16 << 20)
            .swap(swap);
        let engine = engine.build_soft().unwrap();
        let map = engine.map_anon(PAGES * PAGE).unwrap();
        let mut page = vec![0; PAGE];
        for version in [2, 3] {
            for slot in 0..PAGES {
                fill(&mut page, slot, version);
                assert_eq!(map.write_at(&page, slot * PAGE), Ok(PAGE));
            }
            let mut found = vec![0; PAGE];
            for slot in 0..PAGES {
                fill(&mut page, slot, version);
                assert_eq!(map.read_at(&mut found, slot * PAGE), Ok(PAGE));
                assert!(found == page, "page {slot} version {version}");
            }
        }
        let swap = engine.stats().swap.unwrap();
        assert!(
            swap.pages_out > PAGES as u64 && swap.pages_in > 0,
            "{swap:?}"
        );
        assert_eq!((swap.write_errors, swap.full), (0, 0));
        let ratio = swap.compression().unwrap();
        println!("{compression:?}: {ratio:.2}, {swap:?}");
        match compression {
            Compression::Lz4 => assert!((0.25..0.6).contains(&ratio), "{ratio}"),
            _ => assert_eq!(ratio, 1.0),
        }
    }
}

#[test]
fn the_default_engine_swaps_where_the_environment_says() {
    let name = "the_default_engine_swaps_where_the_environment_says";
    if child::scenario().is_some() {
        match Engine::process_default() {
            Ok(engine) => assert_eq!(engine.stats().swap.unwrap().slots_total, 8192),
            Err(closed) => assert_eq!(closed.kind(), std::io::ErrorKind::Unsupported),
        }
        return;
    }
    let swap = format!("{}:32M", disk().display());
    let mut command = child::command(name, "default");
    let command = command.env("SOFTFAULT_MEMORY", "16M");
    child::succeeds_with(command.env("SOFTFAULT_SWAP", swap), name);
    let nowhere = command.env("SOFTFAULT_SWAP", "/nowhere:32M");
    assert!(!nowhere.output().unwrap().status.success());
}
