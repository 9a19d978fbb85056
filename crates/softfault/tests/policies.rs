//! The policies on real faults: the reads of each for its touches, and that every
//! one of them gets its readers through.

mod files;

use files::{check, made_file};
use softfault::{AsyncReads, Engine};
use softfault_oracle::Random;
use std::fs::File;
use std::thread;

const PAGE: usize = 4096;
const FILE: usize = 64 << 20;
const MEMORY: usize = 16 << 20;
/// Pages of a window under this budget: a quarter of the bytes that frames may take.
const WINDOW: u64 = (MEMORY / PAGE / 4 * 3 / 4) as u64;

fn engine(policies: &str, reads: AsyncReads) -> Engine {
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(MEMORY)
        .async_reads(reads)
        .policies(policies.parse().unwrap())
        .build()
        .unwrap()
}

/// Pages that are read for touches of these pages, one after another.
fn pages_read(file: &File, policies: &str, reads: AsyncReads, pages: &[usize]) -> u64 {
    let engine = engine(policies, reads);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(file) }.unwrap();
    for &page in pages {
        check(&map, page * PAGE + page % PAGE);
    }
    let stats = engine.stats();
    assert!(stats.peak_bytes <= MEMORY as u64);
    stats.bytes_read / PAGE as u64
}

#[test]
fn a_miss_reads_a_window_and_lots_of_them_end_that() {
    let file = made_file("windows", FILE);
    for reads in [AsyncReads::Auto, AsyncReads::Never] {
        let read = |policies, pages: &[usize]| pages_read(&file, policies, reads, pages);
        for policies in ["miss=baseline", "miss=p1", "miss=p2", "miss=both"] {
            let half = WINDOW as usize / 2;
            assert_eq!(read(policies, &[9000]), WINDOW, "{policies}");
            let all_within = [9000, 9000 - half, 9000 + half - 1, 9020];
            assert_eq!(read(policies, &all_within), WINDOW, "{policies}");
            assert_eq!(
                read(policies, &[9000, 9000 + half]),
                2 * WINDOW - WINDOW / 2
            );
            assert_eq!(read(policies, &[10]), WINDOW, "{policies}");
        }
    }
    // No window has the page of the next touch.
    let stride: Vec<_> = (0..200).map(|touch| touch * 1009 % (FILE / PAGE)).collect();
    let row = |miss: &str| {
        let policies = format!("miss={miss}");
        pages_read(&file, &policies, AsyncReads::Auto, &stride)
    };
    let baseline = row("baseline");
    assert!(baseline > 150 * WINDOW, "{baseline} pages");
    assert_eq!(row("p1"), baseline);
    let both = row("both");
    assert!(both > 80 * WINDOW && both < 120 * WINDOW, "{both} pages");
    let adaptive = row("adaptive");
    assert!(adaptive <= 250, "{adaptive} pages");
}

#[test]
fn every_policy_gets_its_readers_through() {
    const THREADS: usize = 16;
    let file = made_file("threads", FILE);
    for policies in [
        "retry=mmap-lock+pin=no+miss=baseline",
        "retry=mmap-lock+miss=p2",
        "retry=held+pin=no",
        "retry=held+miss=p1",
        "pin=no+miss=both",
        "mmap=steal+retry=mmap-lock",
    ] {
        let engine = engine(policies, AsyncReads::Auto);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (engine, file) = (&engine, &file);
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    for _ in 0..4 {
                        // SAFETY: nobody writes to the file.
                        let map = unsafe { engine.map(file) }.unwrap();
                        for _ in 0..50 {
                            check(&map, random.below(FILE));
                        }
                    }
                });
            }
        });
        let stats = engine.stats();
        assert!(stats.peak_bytes <= MEMORY as u64, "{policies}: {stats:?}");
        if policies.contains("held") {
            assert_eq!(stats.retry_mmap_drop, 0, "{policies}");
        }
    }
}
