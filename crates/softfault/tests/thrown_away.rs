//! madvise(2) of the program's own, on the addresses of maps, however faults arrive.

mod child;
mod each_way;
mod files;
mod proc;

use each_way::alone;
use files::{byte_at, made_file, map};
use softfault::{Advice, Compression, Engine, MIN_MEMORY, Swap, UncheckedAdvice};
use softfault_engine::policy::{MissAccounting, Policies};

const PAGE: usize = 4096;
/// Of a new enough system, in the order of their numbers (`asm-generic/mman-common.h`).
const LATER: [i32; 6] = [
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    24, // MADV_DONTNEED_LOCKED
    25, // MADV_COLLAPSE
];

fn engine() -> Engine {
    engine_with(Compression::None)
}

fn engine_with(compression: Compression) -> Engine {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY);
    builder.swap(swap.compression(compression)).build().unwrap()
}

/// Gives advice as a program that knows nothing of us; whether the kernel took it.
fn madvise(bytes: &[u8], advice: i32) -> bool {
    // SAFETY: changes the bytes that the map shows, if anything.
    unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), advice) == 0 }
}

/// Touches a byte where it is.
fn touch(bytes: &[u8], at: usize) -> u8 {
    assert!(at < bytes.len());
    // SAFETY: within the slice.
    unsafe { bytes.as_ptr().add(at).read_volatile() }
}

#[track_caller]
fn check_all(map: &[u8], what: i32) {
    for page in 0..map.len() / PAGE {
        let at = page * PAGE + page % PAGE;
        assert_eq!(touch(map, at), byte_at(at), "page {page}, advice {what}");
    }
}

#[test]
fn a_file_is_read_again() {
    if !alone("a_file_is_read_again") {
        return;
    }
    let file = made_file("again", 6 << 20);
    for policies in [
        Policies::default(),
        Policies {
            miss_accounting: MissAccounting::Both,
            ..Default::default()
        },
    ] {
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .policies(policies);
        let engine = builder.build().unwrap();
        let map = map(&engine, &file);
        let advices = (0..22).chain(LATER);
        for advice in advices {
            check_all(&map, -1);
            let resident = engine.stats().resident_bytes;
            // Poison and offline (100, 101) are not for a test; DONTFORK and DOFORK
            // are about children.
            let taken = madvise(&map[..1 << 20], advice);
            check_all(&map, advice);
            check_all(&map, advice);
            if taken && advice == libc::MADV_DONTNEED {
                // It was resident before and is again.
                let now = engine.stats().resident_bytes;
                assert!(now <= resident.max(MIN_MEMORY as u64), "{now}, {resident}");
            }
        }
        // A page is evicted and counted as ever.
        madvise(&map, libc::MADV_DONTNEED);
        engine.set_memory(MIN_MEMORY).unwrap();
        check_all(&map, -2);
        drop(map);
    }
}

#[test]
fn pinned_pages_are_read_again() {
    if !alone("pinned_pages_are_read_again") {
        return;
    }
    let file = made_file("pinned", 1 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    let pinned = map.pin(0..200 * PAGE).unwrap();
    for _ in 0..3 {
        assert!(madvise(&map, libc::MADV_DONTNEED));
        check_all(&pinned, libc::MADV_DONTNEED);
    }
    drop(pinned);
    check_all(&map, 0);
}

#[test]
fn holes_are_zeros_again() {
    if !alone("holes_are_zeros_again") {
        return;
    }
    let file = made_file("hole", PAGE);
    file.set_len(4 << 20).unwrap();
    let engine = engine();
    let map = map(&engine, &file);
    for _ in 0..3 {
        assert!((1..map.len() / PAGE).all(|page| touch(&map, page * PAGE + 9) == 0));
        assert_eq!(touch(&map, 9), byte_at(9));
        assert!(madvise(&map, libc::MADV_DONTNEED));
    }
}

#[test]
fn private_memory_is_zeros_or_the_file_again() {
    if !alone("private_memory_is_zeros_or_the_file_again") {
        return;
    }
    let engine = engine();
    let before = engine.stats().resident_bytes;
    let bytes = 2 << 20;
    let mut anon = engine.map_anon(bytes).unwrap();
    let pages = bytes / PAGE;
    for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, 24] {
        for write in [true, false] {
            for page in 0..pages {
                anon[page * PAGE] = 7;
            }
            // Before Linux 5.18 there is no DONTNEED_LOCKED.
            if !madvise(&anon, advice) {
                assert_eq!(advice, 24);
                continue;
            }
            for page in 0..pages {
                let at = page * PAGE;
                if write {
                    // SAFETY: within the map.
                    unsafe { anon.as_mut_ptr().add(at + 1).write_volatile(3) };
                    assert_eq!(touch(&anon, at + 1), 3);
                }
                let found = touch(&anon, at);
                // Later, or never, is as good for MADV_FREE.
                let may_stay = advice == libc::MADV_FREE && found == 7;
                assert!(found == 0 || may_stay, "advice {advice}: {found}");
            }
        }
    }
    // Memory that was never written is zeros and takes no frame.
    let zeros = engine.map_anon(bytes).unwrap();
    for _ in 0..3 {
        assert!((0..pages).all(|page| touch(&zeros, page * PAGE) == 0));
        assert!(madvise(&zeros, libc::MADV_DONTNEED));
    }
    drop((anon, zeros));
    let file = made_file("private", bytes);
    // SAFETY: nobody writes to the file.
    let mut copy = unsafe { engine.map_copy(&file) }.unwrap();
    for _ in 0..3 {
        check_all(&copy, 0);
        for page in (0..pages).step_by(3) {
            copy[page * PAGE + page] ^= 1;
            assert_ne!(
                touch(&copy, page * PAGE + page),
                byte_at(page * PAGE + page)
            );
        }
        assert!(madvise(&copy, libc::MADV_DONTNEED));
        check_all(&copy, libc::MADV_DONTNEED);
    }
    drop(copy);
    assert_eq!(engine.stats().resident_bytes, before);
}

#[test]
fn private_memory_in_swap_comes_back_and_locked_pages_stay_counted() {
    if !alone("private_memory_in_swap_comes_back_and_locked_pages_stay_counted") {
        return;
    }
    swap_comes_back(&engine());
    swap_comes_back(&engine_with(Compression::Lz4));
}

fn swap_comes_back(engine: &Engine) {
    let before = engine.stats().resident_bytes;
    let mut anon = engine.map_anon(3 * MIN_MEMORY).unwrap();
    let pages = anon.len() / PAGE;
    for round in 1..4_u8 {
        for page in 0..pages {
            anon[page * PAGE] = round;
        }
        // Resident pages are thrown away; pages in swap are not touched by it.
        assert!(madvise(&anon, libc::MADV_DONTNEED));
        let left = (0..pages).filter(|page| match touch(&anon, page * PAGE) {
            0 => false,
            found => {
                assert_eq!(found, round);
                true
            }
        });
        let left = left.count();
        assert!(left > pages / 2 && left < pages, "{left} of {pages}");
    }
    drop(anon);
    let mut kept = engine.map_anon(64 * PAGE).unwrap();
    kept.fill(5);
    kept.lock().unwrap();
    assert!(madvise(&kept, libc::MADV_DONTNEED));
    assert!((0..64).all(|page| touch(&kept, page * PAGE) == 0));
    kept.fill(6);
    kept.unlock().unwrap();
    drop(kept);
    // The words of the slots that were used stay.
    let now = engine.stats().resident_bytes;
    assert!(now <= before + 16 * PAGE as u64, "{now}, {before} before");
}

/// Failed before: the zeros in the place of a page that counts as unchanged could be written to without a fault. It counted as
/// unchanged still, so that the byte came back that swap had, or zeros after `MADV_FREE`.
#[test]
fn a_locked_page_that_is_thrown_away_keeps_what_is_written_to_it_later() {
    if !alone("a_locked_page_that_is_thrown_away_keeps_what_is_written_to_it_later") {
        return;
    }
    for freed in [false, true] {
        let engine = engine();
        let mut map = engine.map_anon(PAGE).unwrap();
        map[0] = 1;
        if freed {
            // SAFETY: no reference to its bytes is used any more.
            unsafe { map.unchecked_advise(UncheckedAdvice::Free) }.unwrap();
        } else {
            map.advise(Advice::PageOut).unwrap();
            // A page that comes back so late is not expected to be written to.
            engine.map_anon(2 * MIN_MEMORY).unwrap().fill(1);
        }
        let map = map.make_read_only().unwrap();
        map.lock().unwrap();
        assert!(madvise(&map, libc::MADV_DONTNEED));
        assert_eq!(touch(&map, 0), 0);
        map.unlock().unwrap();
        let mut map = map.make_mut().unwrap();
        map[0] = 9;
        map.advise(Advice::PageOut).unwrap();
        assert_eq!(touch(&map, 0), 9, "freed: {freed}");
    }
}

#[test]
fn threads_read_while_another_throws_away() {
    if !alone("threads_read_while_another_throws_away") {
        return;
    }
    let file = made_file("threads", 12 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [1, 7, 11].map(|stride| {
            let map = &map;
            scope.spawn(move || {
                let pages = map.len() / PAGE;
                for page in (0..3 * pages).map(|number| number * stride % pages) {
                    let at = page * PAGE + page % PAGE;
                    assert_eq!(touch(map, at), byte_at(at), "page {page}");
                }
            })
        });
        scope.spawn(|| {
            let mut at = 0;
            // So many at most: without an end it takes most of the processors from the thread that writes.
            for _ in 0..4000 {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                at = (at + 1237 * PAGE) % (map.len() - 64 * PAGE);
                madvise(&map[at..at + 64 * PAGE], libc::MADV_DONTNEED);
            }
        });
        for reader in readers {
            reader.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn memory_goes_to_swap_while_it_is_thrown_away() {
    if !alone("memory_goes_to_swap_while_it_is_thrown_away") {
        return;
    }
    thrown_away_at_once(&engine());
    thrown_away_at_once(&engine_with(Compression::Lz4));
}

/// A thread writes more than there is memory for, and another throws some of it away all the time.
fn thrown_away_at_once(engine: &Engine) {
    let mut anon = engine.map_anon(2 * MIN_MEMORY).unwrap();
    let (start, bytes) = (anon.as_mut_ptr() as usize, anon.len());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                at = (at + 1237 * PAGE) % (bytes - 64 * PAGE);
                // SAFETY: a part of the map; the test knows the bytes that it may show.
                unsafe { libc::madvise((start + at) as *mut _, 64 * PAGE, libc::MADV_DONTNEED) };
            }
        });
        for round in 1..3_u8 {
            for at in (0..bytes).step_by(PAGE) {
                // SAFETY: within the map, which is written to by this thread alone.
                unsafe { ((start + at) as *mut u8).write_volatile(round) };
            }
            for at in (0..bytes).step_by(PAGE) {
                // The former byte, or zero.
                let found = touch(&anon, at);
                assert!(found <= round, "{found} in round {round}");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn memory_that_the_program_unmapped_is_an_error() {
    let test = "memory_that_the_program_unmapped_is_an_error";
    let Some(_) = child::scenario() else {
        return child::dies_of(libc::SIGSEGV, test, "unmapped");
    };
    let file = made_file("unmapped", 2 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    assert_eq!(touch(&map, 0), byte_at(0));
    // SAFETY: only the test looks at these pages, and nothing else in this process.
    unsafe { libc::munmap(map.as_ptr().cast_mut().cast(), 4 * PAGE) };
    assert_eq!(touch(&map, 5 * PAGE), byte_at(5 * PAGE));
    touch(&map, 0);
}

#[test]
fn sealed_memory_is_right_and_stays() {
    if !alone("sealed_memory_is_right_and_stays") {
        return;
    }
    /// `mseal(2)`, of Linux 6.10.
    const MSEAL: libc::c_long = 462;
    let file = made_file("sealed", 20 << 20);
    let engine = engine();
    let sealed = map(&engine, &file);
    // SAFETY: sealed memory can be used as before.
    let done = unsafe { libc::syscall(MSEAL, sealed.as_ptr(), 4 << 20, 0) };
    if done != 0 {
        return softfault_skip::skipped(
            "kernel",
            format_args!("no mseal(2): {}", std::io::Error::last_os_error()),
        );
    }
    for _ in 0..3 {
        check_all(&sealed, -3);
    }
    assert!(engine.stats().evicted > 0);
    drop(sealed);
    drop(engine);
    // A window that could not be unmapped is never used again.
    let again = self::engine();
    check_all(&map(&again, &file), -4);
}

#[test]
fn windows_are_not_merged_with_the_rest_of_the_process() {
    if !alone("windows_are_not_merged_with_the_rest_of_the_process") {
        return;
    }
    /// `PR_SET_MEMORY_MERGE` of Linux 6.4.
    const MERGE: i32 = 67;
    // SAFETY: equal pages of the process may become one.
    if unsafe { libc::prctl(MERGE, 1, 0, 0, 0) } != 0 {
        return softfault_skip::skipped(
            "kernel",
            format_args!(
                "no PR_SET_MEMORY_MERGE: {}",
                std::io::Error::last_os_error()
            ),
        );
    }
    let engine = engine();
    let mut anon = engine.map_anon(4 << 20).unwrap();
    anon[0] = 1;
    let mapping = proc::mapping(anon.as_ptr() as usize).unwrap();
    assert!(mapping.has_flag("um") && !mapping.has_flag("mg"));
}
