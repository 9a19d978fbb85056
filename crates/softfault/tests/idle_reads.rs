//! Reads ahead that nobody waits for do not keep their frames for ever.

mod files;

use files::{check, made_file};
use softfault::{Advice, Engine, Reads};

#[test]
fn finished_reads_of_one_file_make_room_for_another() {
    let engine = files::engine(8 << 20);
    let files: Vec<_> = (0..8)
        .map(|i| made_file(&format!("idle{i}"), 4 << 20))
        .collect();
    // SAFETY: nobody writes to the files.
    let maps: Vec<_> = files
        .iter()
        .map(|file| unsafe { engine.map(file).unwrap() })
        .collect();
    // Each file has a queue, and nobody collects its completed reads.
    for map in &maps {
        map.advise(Advice::WillNeed).unwrap();
    }
    for map in &maps {
        for offset in (0..map.len()).step_by(4096) {
            check(map, offset);
        }
    }
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
    // A later map is read ahead all the same: the others' reads were reaped.
    let before = engine.stats().readahead_pages;
    for offset in (0..maps[7].len()).step_by(4096) {
        check(&maps[0], offset);
    }
    assert!(
        engine.stats().readahead_pages > before + 256,
        "{:?}",
        engine.stats()
    );
}

/// An engine whose memory is full of pages that were read ahead, which nobody has touched, and the file's map.
fn full_of_reads(name: &str) -> (Engine, softfault::Mmap) {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(64 << 20)
        .reads(Reads::Direct)
        .build()
        .unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&made_file(name, 64 << 20)).unwrap() };
    map.advise(Advice::WillNeed).unwrap();
    (engine, map)
}

#[test]
fn finished_reads_make_room_for_a_lower_budget() {
    let (engine, map) = full_of_reads("idle_lower");
    engine.set_memory(8 << 20).unwrap();
    check(&map, 77_777);
}

#[test]
fn finished_reads_make_room_for_private_memory() {
    let (engine, map) = full_of_reads("idle_private");
    let mut private = engine.map_anon(48 << 20).unwrap();
    private.write_at(&vec![7; 48 << 20], 0).unwrap();
    check(&map, 77_777);
}
