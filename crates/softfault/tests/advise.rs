//! Advice about private memory: the bytes are as with the kernel, and so are the
//! refusals.

mod files;
mod twin;

use files::{byte_at, made_file};
use softfault::{Advice, Engine, MIN_MEMORY, Swap, UncheckedAdvice};
use softfault_oracle::Random;
use std::io::ErrorKind;
use twin::write_both;
use twin::{AnyEngine, MIB, PAGE, Side, engines, kernel_anon, kernel_copy, same};

const HARMLESS: [Advice; 8] = [
    Advice::Normal,
    Advice::Random,
    Advice::Sequential,
    Advice::WillNeed,
    Advice::Cold,
    Advice::PageOut,
    Advice::PopulateRead,
    Advice::PopulateWrite,
];

fn part(len: usize, drawn: &mut Random) -> std::ops::Range<usize> {
    let start = drawn.below(len);
    start..start + drawn.below((len - start).min(MIB))
}

/// Compares all that reads can tell: everything that is safe, at random, beside writes.
fn play(engine: &AnyEngine, mut ours: Box<dyn Side>, mut kernel: Box<dyn Side>, seed: u64) {
    let mut drawn = Random::new(seed);
    for round in 0..60 {
        write_both(&mut *ours, &mut *kernel, &mut drawn, 200);
        let range = part(ours.len(), &mut drawn);
        let advice = HARMLESS[drawn.below(HARMLESS.len())];
        assert!(ours.advise(advice, range.clone()), "{advice:?} {range:?}");
        assert!(kernel.advise(advice, range.clone()), "{advice:?} {range:?}");
        if round % 3 == 0 {
            let range = part(ours.len(), &mut drawn);
            assert!(ours.unchecked(UncheckedAdvice::DontNeed, range.clone()));
            assert!(kernel.unchecked(UncheckedAdvice::DontNeed, range));
        }
        if round % 10 == 0 {
            same(&*ours, &*kernel);
        }
    }
    same(&*ours, &*kernel);
    assert!(engine.stats().swap.unwrap().pages_out > 0);
}

#[test]
fn bytes_are_as_with_the_kernel() {
    let bytes = 2 * MIN_MEMORY + 777;
    let file = made_file("advised", bytes);
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        play(&engine, engine.map_anon(bytes), kernel_anon(bytes), 3);
        play(&engine, engine.map_copy(&file), kernel_copy(&file), 4);
        engine.check_empty(before);
    }
}

#[test]
fn a_freed_page_is_old_or_zeros_until_it_is_written_to() {
    let bytes = 2 * MIN_MEMORY;
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        let mut map = engine.map_anon(bytes);
        let all = vec![0xA5; bytes];
        map.write(0, &all);
        assert!(map.unchecked(UncheckedAdvice::Free, 0..bytes));
        // Pages in swap are gone, and pages in memory have no slot.
        assert_eq!(engine.slots(), 0);
        let mut page = [0; PAGE];
        for number in 0..bytes / PAGE {
            if number % 3 == 0 {
                map.write(number * PAGE + 7, &[1]);
            }
        }
        // So many pages of another map that the free ones go.
        let mut other = engine.map_anon(bytes);
        other.write(0, &all);
        let mut zeros = 0;
        for number in 0..bytes / PAGE {
            map.read(number * PAGE, &mut page);
            let was = page[0];
            assert!(was == 0 || was == 0xA5, "{was}");
            zeros += usize::from(was == 0);
            if number % 3 == 0 {
                assert_eq!(page[7], 1, "page {number} was written to");
                page[7] = was;
            }
            assert_eq!(page, [was; PAGE], "page {number}");
        }
        assert!(zeros > bytes / PAGE / 4, "{zeros}");
        drop((map, other));
        engine.check_empty(before);
    }
}

#[test]
fn it_lists_the_mappings() {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(32 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(4 * MIN_MEMORY)
        .swap(swap);
    let engine = engine.build().unwrap();
    let mut map = engine.map_anon(MIB).unwrap();
    map.advise(Advice::PopulateRead).unwrap();
    assert_eq!(map.resident_bytes(), MIB);
    let zeros = engine.stats();
    map.advise(Advice::PopulateWrite).unwrap();
    // Before Linux 6.7 a page that is only read is memory, too.
    let filled = if zeros.zero_pages > 0 { 256 } else { 0 };
    let written = engine.stats();
    assert_eq!(written.anonymous_faults - zeros.anonymous_faults, filled);
    map.fill(3);
    map.advise_range(Advice::PageOut, 0, MIB / 2).unwrap();
    assert_eq!(map.resident_bytes(), MIB / 2);
    assert_eq!(engine.stats().swap.unwrap().slots_used, 128);
    map.advise_range(Advice::PopulateRead, 0, MIB / 4).unwrap();
    assert!(map.resident_bytes() >= MIB / 2 + MIB / 4);
    // Read, they may keep their slots; written, they do not.
    assert!(engine.stats().swap.unwrap().slots_used >= 64);
    map.advise_range(Advice::PopulateWrite, 0, MIB / 4).unwrap();
    assert_eq!(engine.stats().swap.unwrap().slots_used, 64);
    // SAFETY: no code relies on the old bytes.
    unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) }.unwrap();
    assert_eq!(map.resident_bytes(), 0);
    assert_eq!(engine.stats().swap.unwrap().slots_used, 0);
    assert!(map.iter().all(|&byte| byte == 0));
}

#[test]
fn reading_begins_before_the_touch() {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(32 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(4 * MIN_MEMORY)
        .swap(swap);
    let engine = engine.build().unwrap();
    if engine.stats().async_reads.is_none() {
        return softfault_skip::skipped("kernel", "no reads are asynchronous here");
    }
    let mut map = engine.map_anon(MIB).unwrap();
    map.fill(9);
    map.advise(Advice::PageOut).unwrap();
    map.advise(Advice::WillNeed).unwrap();
    let before = engine.stats();
    assert!(map.iter().all(|&byte| byte == 9));
    // The touches found all pages under way, and began to read none.
    let after = engine.stats();
    assert_eq!(after.major_faults, before.major_faults, "{after:?}");
    assert!(after.minor_faults > before.minor_faults);
}

#[test]
fn calls_that_the_kernel_refuses_are_refused() {
    let file = made_file("refused", MIB);
    for engine in engines() {
        for (ours, kernel) in [
            (engine.map_anon(MIB), kernel_anon(MIB)),
            (engine.map_copy(&file), kernel_copy(&file)),
        ] {
            for locked in [false, true, false] {
                assert_eq!(ours.lock(locked), kernel.lock(locked));
                for advice in [UncheckedAdvice::DontNeed, UncheckedAdvice::Free] {
                    let both = (
                        ours.unchecked(advice, 0..MIB),
                        kernel.unchecked(advice, 0..MIB),
                    );
                    assert_eq!(both.0, both.1, "{advice:?}, locked: {locked}");
                }
            }
            assert!(!ours.advise(Advice::PopulateRead, PAGE..MIB + PAGE));
            assert!(ours.advise(Advice::PopulateRead, PAGE..PAGE));
        }
        let (mut ours, mut kernel) = (engine.map_copy(&file), kernel_copy(&file));
        ours.make_read_only();
        kernel.make_read_only();
        for advice in [Advice::PopulateRead, Advice::PopulateWrite] {
            let both = (ours.advise(advice, 0..MIB), kernel.advise(advice, 0..MIB));
            assert_eq!(both.0, both.1, "{advice:?}");
        }
    }
}

#[test]
fn advice_about_a_shared_file() {
    let file = made_file("shared", MIB);
    let engine = files::engine(4 * MIN_MEMORY);
    // SAFETY: whoever writes to the file says so.
    let map = unsafe { engine.map(&file) }.unwrap();
    map.advise(Advice::PopulateRead).unwrap();
    assert_eq!(map.residency(..).unwrap().mapped, 256);
    map.advise(Advice::Cold).unwrap();
    map.advise_range(Advice::PageOut, 0, MIB / 2).unwrap();
    assert_eq!(map.residency(..).unwrap().mapped, 128);
    std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 0).unwrap();
    // SAFETY: no code relies on the bytes.
    unsafe {
        map.unchecked_advise(UncheckedAdvice::DontNeed).unwrap();
        let error = map.unchecked_advise(UncheckedAdvice::Free).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(map.residency(..).unwrap().mapped, 0);
    assert_eq!(&map[..7], b"changed");
    assert!((7..MIB).all(|at| map[at] == byte_at(at)));
    let error = map.advise(Advice::PopulateWrite).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// The kernel says which advice it knows, as memmap2 asks it.
#[test]
fn advice_is_supported_that_the_kernel_supports() {
    macro_rules! same {
        ($of:ident: $($advice:ident)*) => {
            $(assert_eq!(
                softfault::$of::$advice.is_supported(),
                memmap2::$of::$advice.is_supported(),
                stringify!($advice)
            );)*
        };
    }
    same!(Advice: Normal Random Sequential WillNeed DontFork DoFork Mergeable Unmergeable HugePage NoHugePage DontDump DoDump);
    same!(Advice: HwPoison PopulateRead PopulateWrite);
    same!(UncheckedAdvice: DontNeed Free Remove);
}
