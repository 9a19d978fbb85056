//! Memory four times the budget, and its expected bytes.

use softfault::{Compression, Engine, MmapMut, Swap};

pub const PAGE: usize = 4096;
pub const BUDGET: usize = 16 << 20;
/// Four times the budget.
pub const PAGES: usize = 4 * BUDGET / PAGE;

pub fn swap() -> Swap {
    Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(256 << 20)
}

pub fn engine_with(compression: Compression) -> Engine {
    let swap = swap().compression(compression);
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap)
        .build()
        .unwrap()
}

pub fn engine() -> Engine {
    engine_with(Compression::None)
}

/// The word all over page `page` after it was written for the `round`th time.
pub fn word(page: usize, round: u64) -> u64 {
    let page = (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    page ^ round.wrapping_mul(0xD1B5_4A32_D192_ED03)
}

/// Where pages are written.
pub const WORDS: [usize; 4] = [0, 8, 2048, PAGE - 8];

/// Writes a page, some words of it.
pub fn write(map: &mut [u8], page: usize, round: u64) {
    for at in WORDS {
        let at = page * PAGE + at;
        map[at..at + 8].copy_from_slice(&word(page, round).to_ne_bytes());
    }
}

/// A word of a page.
pub fn read(map: &[u8], page: usize, at: usize) -> u64 {
    let start = page * PAGE + at;
    u64::from_ne_bytes(map[start..start + 8].try_into().unwrap())
}

/// Fails if a page does not have the words of that round.
#[track_caller]
pub fn check(map: &[u8], page: usize, round: u64, who: &str) {
    for at in WORDS {
        let found = read(map, page, at);
        let expected = word(page, round);
        assert_eq!(found, expected, "{who}: page {page} at {at}, round {round}");
    }
    check_rest(map, page, who);
}

/// Fails if a page has something where nobody writes.
#[track_caller]
pub fn check_rest(map: &[u8], page: usize, who: &str) {
    let between = &map[page * PAGE + 16..page * PAGE + 2048];
    assert!(between.iter().all(|&byte| byte == 0), "{who}: page {page}");
}

/// Memory of which every page but each fourth has been written, most of it evicted.
pub fn scene(engine: &Engine) -> MmapMut {
    let mut map = engine.map_anon(PAGES * PAGE).unwrap();
    for page in (0..PAGES).filter(|page| page % 4 != 3) {
        write(&mut map, page, 1);
    }
    assert!(engine.stats().swap.unwrap().slots_used as usize > PAGES / 4);
    map
}

/// Reads all of it and compares it with [`scene`]'s words.
#[track_caller]
pub fn check_scene(map: &[u8], who: &str) {
    for page in 0..PAGES {
        match page % 4 {
            3 => assert!(map[page * PAGE..][..PAGE].iter().all(|&byte| byte == 0)),
            _ => check(map, page, 1, who),
        }
    }
}

#[track_caller]
pub fn assert_segv(status: i32) {
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
        "status {status:#x}"
    );
}
