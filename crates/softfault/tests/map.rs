//! Maps of real files, on real faults.

mod files;

use files::{check, made_file};
use softfault::{Advice, Engine};
use softfault_oracle::Random;

fn engine(megabytes: usize) -> Engine {
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(megabytes << 20)
        .build()
        .expect("userfaultfd is open on the machines that run the tests")
}

#[test]
fn a_file_larger_than_the_budget_reads_right_in_order() {
    let file = made_file("in-order", (24 << 20) + 777);
    let engine = engine(8);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file).unwrap() };
    assert_eq!(map.len(), (24 << 20) + 777);
    for offset in (0..map.len()).step_by(64) {
        check(&map, offset);
    }
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
    assert!(stats.evicted > 0 && stats.readahead_used > 0, "{stats:?}");
}

#[test]
fn random_touches_read_little_more_than_they_touch() {
    let file = made_file("random", 64 << 20);
    let engine = engine(8);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file).unwrap() };
    let mut random = Random::new(1);
    for _ in 0..2000 {
        check(&map, random.below(map.len()));
    }
    let stats = engine.stats();
    assert!(stats.bytes_read <= 2100 * 4096, "{stats:?}");
}

#[test]
fn advice_random_reads_single_pages() {
    let file = made_file("advice", 8 << 20);
    let engine = engine(16);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file).unwrap() };
    map.advise(Advice::Random).unwrap();
    for page in 0..64 {
        check(&map, page * 4096);
    }
    assert_eq!(engine.stats().bytes_read, 64 * 4096);
}

#[test]
fn many_threads_share_a_map() {
    let file = made_file("threads", 48 << 20);
    let engine = engine(12);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file).unwrap() };
    std::thread::scope(|scope| {
        for thread in 0..32u64 {
            let map = &map;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..400 {
                    check(map, random.below(map.len()));
                }
            });
        }
    });
    assert!(engine.stats().peak_bytes <= 12 << 20);
}

/// A program that reads a map into a buffer, in order: in pieces of any size the next one is being read meanwhile.
#[test]
fn calls_in_order_are_read_ahead_of() {
    const BYTES: usize = 16 << 20;
    for piece in [64 << 10, 100_000, 256 << 10, 3 << 20] {
        let file = made_file("by-calls", BYTES);
        let engine = engine(32);
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file).unwrap() };
        let mut buffer = vec![0; piece];
        for at in (0..BYTES).step_by(piece) {
            let count = map.read_at(&mut buffer, at).unwrap();
            assert_eq!(count, piece.min(BYTES - at));
            assert_eq!(buffer[count / 2], files::byte_at(at + count / 2));
        }
        let stats = engine.stats();
        let ahead = stats.readahead_pages as usize * 4096;
        assert!(ahead > BYTES / 8, "pieces of {piece}: {stats:?}");
        assert!(
            stats.bytes_read <= BYTES as u64 * 9 / 8,
            "pieces of {piece}: {stats:?}"
        );
    }
}

/// In no order, they read their pieces alone.
#[test]
fn calls_in_no_order_read_no_more() {
    const BYTES: usize = 16 << 20;
    const PIECE: usize = 256 << 10;
    let file = made_file("by-calls-anywhere", BYTES);
    let engine = engine(32);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file).unwrap() };
    let mut buffer = vec![0; PIECE];
    for call in 0..20 {
        map.read_at(&mut buffer, call * 7 % 20 * 3 * PIECE).unwrap();
    }
    let stats = engine.stats();
    assert_eq!(stats.bytes_read, 20 * PIECE as u64, "{stats:?}");
}
