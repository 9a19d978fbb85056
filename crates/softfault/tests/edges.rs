//! Every public function that takes a range, an offset, a length or a size, at its edges: 0, 1, page borders,
//! reversed, past the end, the largest. A range within works as in a plain slice, all else is an error; nothing
//! panics, and no process dies of it.
//!
//! ```text
//!   SOFTFAULT_EDGES_SEED=n   draws others
//! ```

mod child;
mod files;

use child::{scenario, succeeds};
use core::cell::RefCell;
use core::ops::Bound;
use files::scratch;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use softfault::soft::{SoftMap, SoftMapMut};
use softfault::{
    Advice, Engine, FaultError, HugeBacking, HugeMap, HugeMapOptions, HugeMemory, Mmap, MmapMut,
    MmapOptions, RemapOptions, Swap, UncheckedAdvice,
};

const PAGE: usize = 4096;
/// Ends in the middle of a page.
const LEN: usize = 37 * PAGE + 123;

type Bounds = (Bound<usize>, Bound<usize>);

fn byte(at: usize) -> u8 {
    (at / 7 + at / PAGE) as u8
}

fn bytes() -> Vec<u8> {
    (0..LEN).map(byte).collect()
}

/// Where things go wrong.
const EDGES: [usize; 18] = [
    0,
    1,
    PAGE - 1,
    PAGE,
    PAGE + 1,
    LEN - 1,
    LEN,
    LEN + 1,
    37 * PAGE,
    38 * PAGE,
    38 * PAGE + 1,
    1 << 40,
    isize::MAX as usize - PAGE + 1,
    isize::MAX as usize,
    isize::MAX as usize + 1,
    usize::MAX - PAGE + 1,
    usize::MAX - 1,
    usize::MAX,
];

fn place() -> impl Strategy<Value = usize> {
    prop_oneof![2 => prop::sample::select(EDGES.to_vec()), 1 => 0..2 * LEN, 1 => any::<usize>()]
}

fn bound() -> impl Strategy<Value = Bound<usize>> {
    prop_oneof![
        place().prop_map(Bound::Included),
        place().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn runner(cases: u32) -> TestRunner {
    let seed = std::env::var("SOFTFAULT_EDGES_SEED").ok();
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(13);
    println!("seed {seed}, {cases} cases");
    let mut words = [0; 32];
    words[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &words);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, rng)
}

/// The offsets that a range means, if they are within.
fn within((start, end): Bounds, len: usize) -> Option<core::ops::Range<usize>> {
    let start = match start {
        Bound::Included(at) => at,
        Bound::Excluded(at) => at.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match end {
        Bound::Included(at) => at.checked_add(1)?,
        Bound::Excluded(at) => at,
        Bound::Unbounded => len,
    };
    (start <= end && end <= len).then_some(start..end)
}

#[track_caller]
fn same<T, E: core::fmt::Debug>(of: &str, range: Bounds, done: Result<T, E>) -> Option<T> {
    let expected = within(range, LEN).is_some();
    assert_eq!(done.is_ok(), expected, "{of} {range:?}: {:?}", done.err());
    done.ok()
}

fn of_map(map: &Mmap, range: Bounds) {
    let inside = within(range, LEN);
    same("prefetch", range, map.prefetch(range));
    same("residency", range, map.residency(range));
    same("invalidate", range, map.invalidate(range));
    if let Some(pinned) = same("pin", range, map.pin(range)) {
        assert_eq!(&pinned[..], &bytes()[inside.clone().unwrap()]);
    }
    let mut out = Vec::new();
    if same("write_to", range, map.write_to(range, &mut out)).is_some() {
        assert_eq!(out, &bytes()[inside.unwrap()]);
    }
    drop(map.fault_in(range));
}

fn of_map_mut(map: &mut MmapMut, range: Bounds) {
    same("populate", range, map.populate(range));
    same("residency", range, map.residency(range));
    let mut out = Vec::new();
    if same("write_to", range, map.write_to(range, &mut out)).is_some() {
        assert_eq!(out, &map[within(range, LEN).unwrap()]);
    }
    same(
        "read_from",
        range,
        map.read_from(range, &mut std::io::repeat(9)),
    );
}

fn of_soft(map: &SoftMap, anon: &SoftMapMut, range: Bounds) {
    same("soft prefetch", range, map.prefetch(range));
    same("soft residency", range, map.residency(range));
    same("soft pin", range, map.pin(range));
    // Advice is given by whole pages: the last may be named.
    let end = match range.1 {
        Bound::Unbounded => Bound::Excluded(LEN),
        end => end,
    };
    let whole = within((range.0, end), LEN.next_multiple_of(PAGE)).is_some();
    for advice in [Advice::Normal, Advice::PageOut, Advice::WillNeed] {
        let done = anon.advise(advice, range);
        assert_eq!(done.is_ok(), whole, "{advice:?} {range:?}");
    }
    let done = anon.unchecked_advise(UncheckedAdvice::Free, range);
    assert_eq!(done.is_ok(), whole, "{range:?}");
}

fn of_offsets(map: &Mmap, copy: &MmapMut, soft: &SoftMapMut, offset: usize, len: usize) {
    let whole = LEN.next_multiple_of(PAGE);
    let is_in = |most: usize| offset.checked_add(len).is_some_and(|end| end <= most);
    assert_eq!(copy.flush_range(offset, len).is_ok(), is_in(LEN));
    assert_eq!(copy.flush_async_range(offset, len).is_ok(), is_in(LEN));
    for advice in [Advice::Normal, Advice::WillNeed, Advice::Cold] {
        let of_map = map.advise_range(advice, offset, len).is_ok();
        assert_eq!(of_map, is_in(whole), "{advice:?} {offset} {len}");
        let of_copy = copy.advise_range(advice, offset, len).is_ok();
        assert_eq!(of_copy, is_in(whole), "{advice:?} {offset} {len}");
    }
    let mut buffer = vec![0xAA; len.min(LEN + 9)];
    let count = buffer.len().min(LEN.saturating_sub(offset));
    assert_eq!(map.read_at(&mut buffer, offset), Ok(count));
    assert!((0..count).all(|at| buffer[at] == byte(offset + at)));
    assert!(buffer[count..].iter().all(|&byte| byte == 0xAA));
    assert_eq!(copy.read_at(&mut buffer, offset), Ok(count));
    assert_eq!(soft.write_at(&buffer, offset), Ok(count));
    assert_eq!(soft.read_at(&mut buffer, offset), Ok(count));
}

fn engine() -> Engine {
    let swap = Swap::in_dir(std::env::temp_dir()).bytes(64 << 20);
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .swap(swap)
        .build()
        .unwrap()
}

#[test]
fn ranges_are_within_or_refused() {
    const TEST: &str = "ranges_are_within_or_refused";
    if scenario().is_none() {
        return succeeds(TEST, "all");
    }
    let file = scratch(&bytes());
    let engine = engine();
    let soft = files::soft_engine(16 << 20);
    // SAFETY: nobody writes to it.
    let map = unsafe { engine.map(&file) }.unwrap();
    // SAFETY: as above.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    let anon = RefCell::new(engine.map_anon(LEN).unwrap());
    let (of_file, of_zeros) = (soft.map(&file).unwrap(), soft.map_anon(LEN).unwrap());
    let draw = (bound(), bound(), place(), place());
    let run = runner(1500).run(&draw, |(start, end, offset, len)| {
        let range = (start, end);
        of_map(&map, range);
        of_map_mut(&mut anon.borrow_mut(), range);
        of_soft(&of_file, &of_zeros, range);
        of_offsets(&map, &copy, &of_zeros, offset, len);
        Ok(())
    });
    run.unwrap();
}

/// The answer of the kernel's map by memmap2 for the same offset and length: where both map, they show the same.
#[test]
fn options_are_as_memmap2s() {
    const TEST: &str = "options_are_as_memmap2s";
    if scenario().is_none() {
        return succeeds(TEST, "all");
    }
    let file = scratch(&bytes());
    let engine = engine();
    let draw = (prop_oneof![place(), 0..LEN], prop::option::of(place()));
    let run = runner(300).run(&draw, |(offset, len)| {
        let (mut ours, mut theirs) = (MmapOptions::new(), memmap2::MmapOptions::new());
        ours.offset(offset as u64);
        theirs.offset(offset as u64);
        if let Some(len) = len {
            ours.len(len);
            theirs.len(len);
        }
        let inside = offset
            .checked_add(len.unwrap_or(0))
            .is_some_and(|end| end <= LEN);
        // SAFETY: nobody writes to it.
        let maps = unsafe { (ours.map_in(&engine, &file), theirs.map(&file)) };
        let (ours_is, theirs_is) = (maps.0.is_ok(), maps.1.is_ok());
        // Ours does not reach past the end; theirs raises SIGBUS there.
        prop_assert!(!ours_is || inside || len == Some(0), "{offset} {len:?}");
        prop_assert!(
            ours_is || !inside || !theirs_is,
            "{offset} {len:?}: {:?}",
            maps.0.err()
        );
        if let (Ok(ours), Ok(theirs)) = maps {
            prop_assert_eq!(&ours[..], &theirs[..]);
        }
        // SAFETY: as above.
        let copies = unsafe { (ours.map_copy_in(&engine, &file), theirs.map_copy(&file)) };
        // Where the kernel has no offset, we have none.
        let is_offset = (offset as u64).checked_add(len.unwrap_or(0) as u64);
        let is_offset = is_offset.is_some_and(|end| i64::try_from(end).is_ok());
        prop_assert!(copies.0.is_err() || is_offset, "{offset} {len:?}");
        if let (Ok(mut ours), true) = (copies.0, inside) {
            prop_assert_eq!(&ours[..], &bytes()[offset..offset + ours.len()]);
            ours.fill(1);
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn sizes_are_had_or_refused() {
    const TEST: &str = "sizes_are_had_or_refused";
    if scenario().is_none() {
        return succeeds(TEST, "all");
    }
    let file = scratch(&bytes());
    let engine = engine();
    let soft = files::soft_engine(16 << 20);
    for len in EDGES {
        if let Ok(mut map) = engine.map_anon(len) {
            assert_eq!(map.len(), len);
            if let Some(last) = map.last_mut() {
                *last = 1;
            }
        } else {
            assert!(len > 1 << 40, "{len}");
        }
        let of_soft = soft.map_anon(len);
        assert!(of_soft.is_ok() || len > 1 << 40, "{len}");
        if let Ok(map) = of_soft {
            assert_eq!(map.write_at(&[1], len), Ok(0));
            let last = len.saturating_sub(1);
            assert_eq!(map.write_at(&[1], last), Ok(usize::from(len > 0)));
        }
        let set = engine.set_memory(len);
        assert!(
            set.is_err() || (softfault::MIN_MEMORY..=1 << 40).contains(&len),
            "{len}"
        );
        assert!(soft.set_memory(len).is_err() || len >= softfault::MIN_MEMORY);
        assert!(
            engine.truncate(&file, len as u64).is_ok() || len > 1 << 40,
            "{len}"
        );
    }
    // A length that no file can have.
    assert!(engine.truncate(&file, u64::MAX).is_err());
    for (swap, word) in [
        (Swap::in_dir(""), "name of the directory is empty"),
        (Swap::in_dir("/nowhere"), "No such file"),
        (Swap::in_dir("/tmp\0"), "swap in"),
        (Swap::in_dir("/tmp").bytes(0), "less than a page"),
        (Swap::in_dir("/tmp").bytes(4095), "less than a page"),
        (Swap::in_dir("/tmp").bytes(u64::MAX), "above 4 TiB"),
    ] {
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(16 << 20)
            .swap(swap);
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
    for memory in [0, 1, 4095, softfault::MIN_MEMORY - 1] {
        assert!(
            Engine::builder()
                .allow_kernel_maps(false)
                .memory(memory)
                .build()
                .is_err()
        );
        assert!(
            Engine::builder()
                .allow_kernel_maps(false)
                .memory(memory)
                .build_soft()
                .is_err()
        );
    }
    // There may be no address space for so much, and then none is had.
    let most = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .max_memory(usize::MAX);
    if let Ok(engine) = most.build() {
        engine.map_anon(PAGE).unwrap();
    }
}

#[test]
fn a_map_that_grows_again_shows_no_old_bytes() {
    let engine = engine();
    let soft = files::soft_engine(16 << 20);
    let mut map = engine.map_anon(3 * PAGE).unwrap();
    map.fill(7);
    let options = RemapOptions::new().may_move(true);
    // SAFETY: nobody has a slice of it.
    unsafe { map.remap(0, options) }.unwrap();
    assert_eq!(map.len(), 0);
    // SAFETY: as above.
    unsafe { map.remap(3 * PAGE, options) }.unwrap();
    assert!(map.iter().all(|&byte| byte == 0), "old bytes are shown");
    let mut map = soft.map_anon(3 * PAGE).unwrap();
    map.write_at(&[7; 3 * PAGE], 0).unwrap();
    map.remap(0, options).unwrap();
    map.remap(3 * PAGE, options).unwrap();
    let mut seen = [1; 3 * PAGE];
    assert_eq!(map.read_at(&mut seen, 0), Ok(3 * PAGE));
    assert_eq!(seen, [0; 3 * PAGE]);
    for len in EDGES.into_iter().filter(|&len| len > 1 << 41) {
        assert!(map.remap(len, options).is_err(), "{len}");
        assert_eq!(map.len(), 3 * PAGE);
    }
}

#[test]
fn huge_ranges_are_within_or_refused() {
    const TEST: &str = "huge_ranges_are_within_or_refused";
    const HUGE: usize = 2 << 20;
    if scenario().is_none() {
        return succeeds(TEST, "all");
    }
    let memory = HugeMemory::builder().backing(HugeBacking::BasePages);
    let memory = memory.create(2 * HUGE as u64).unwrap();
    let map: HugeMap = memory.map().unwrap();
    let places = [
        0,
        1,
        HUGE - 1,
        HUGE,
        HUGE + 1,
        2 * HUGE - 1,
        2 * HUGE,
        2 * HUGE + 1,
        4 * HUGE,
    ];
    let most = [
        isize::MAX as usize,
        usize::MAX - HUGE + 1,
        usize::MAX - 1,
        usize::MAX,
    ];
    let all: Vec<usize> = places.into_iter().chain(most).collect();
    for &start in &all {
        for &end in &all {
            let populated = map.populate(start..end);
            let inside = start <= end && end <= 2 * HUGE;
            assert_eq!(populated.is_ok(), inside, "{start} {end}");
            let len = end.min(64);
            let fits = start.checked_add(len).is_some_and(|end| end <= 2 * HUGE);
            assert_eq!(
                map.write_at(&vec![5; len], start).is_ok(),
                fits,
                "{start} {len}"
            );
            let mut seen = vec![0; len];
            let read = map.read_at(&mut seen, start);
            assert_eq!(read.is_ok(), fits, "{start} {len}");
            assert!(!fits || seen.iter().all(|&byte| byte == 5));
            let mapped = HugeMapOptions::new()
                .offset(start as u64)
                .len(end)
                .map(&memory);
            let whole = start % HUGE == 0 && end % HUGE == 0 && end > 0;
            let fits = start.checked_add(end).is_some_and(|end| end <= 2 * HUGE);
            assert_eq!(mapped.is_ok(), whole && fits, "{start} {end}");
            let punched = memory.punch_hole(start as u64..end as u64);
            let wholes = start % HUGE == 0 && end % HUGE == 0;
            assert!(
                punched.is_ok() == wholes || (wholes && end > isize::MAX as usize),
                "{start} {end}"
            );
        }
        assert!(
            memory.truncate(start as u64).is_ok() == (start % HUGE == 0 && start < 1 << 62),
            "{start}"
        );
        memory.truncate(2 * HUGE as u64).unwrap();
        let made = HugeMemory::builder()
            .backing(HugeBacking::BasePages)
            .create(start as u64);
        assert!(made.is_err() || (start % HUGE == 0 && start > 0), "{start}");
    }
    assert_eq!(map.populate(0..2 * HUGE + 1), Err(FaultError::OutOfRange));
}
