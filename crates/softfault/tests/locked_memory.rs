//! mlock(2) and mlockall(2) of the program's, on maps and around them.

mod child;
mod files;
mod nobody;
mod proc;

use files::{byte_at, made_file, map};
use nobody::{become_nobody, is_root};
use proc::status;
use softfault::{Engine, MIN_MEMORY, Swap};
use std::fs::File;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Lock pages as they are touched, and not before (`mlockall(2)`).
const MCL_ONFAULT: i32 = 4;

fn engine() -> Engine {
    let swap = Swap::in_dir(std::env::temp_dir()).bytes(128 << 20);
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY)
        .swap(swap);
    builder.build().unwrap()
}

/// True if the answer of a call is that memory is locked. Only root may lock as much as it likes.
#[track_caller]
fn is_done(answer: i32) -> bool {
    let error = std::io::Error::last_os_error();
    if answer != 0 {
        assert!(!is_root(), "{error}");
        softfault_skip::skipped("mlock", error);
    }
    answer == 0
}

#[track_caller]
fn mlockall(flags: i32) -> bool {
    // SAFETY: no byte changes.
    is_done(unsafe { libc::mlockall(flags) })
}

/// The type of a limit's name, which is signed with musl.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn limit(resource: Resource, bytes: usize) {
    // SAFETY: fills the structure, and reads it.
    unsafe {
        let mut limit: libc::rlimit = core::mem::zeroed();
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(bytes as u64);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
    }
}

/// Reads a byte of every page.
#[track_caller]
fn check_all(map: &[u8]) {
    for page in 0..map.len() / PAGE {
        let at = page * PAGE + page % PAGE;
        assert_eq!(map[at], byte_at(at), "page {page}");
    }
}

/// Reads all maps of a fresh engine: no byte of them is a zero that nobody wrote.
fn everything_is_read(file: &File) {
    let engine = engine();
    // Small windows are kept for the next map.
    for bytes in [file.metadata().unwrap().len() as usize, 64 * PAGE] {
        for _ in 0..2 {
            let part = softfault::MmapOptions::new();
            // SAFETY: nobody writes to the file.
            let map = unsafe { part.clone().len(bytes).map_in(&engine, file) }.unwrap();
            check_all(&map);
            // SAFETY: as above.
            let mut copy = unsafe { part.clone().len(bytes).map_copy_in(&engine, file) }.unwrap();
            check_all(&copy);
            copy[7] = 7;
            let mut anon = engine.map_anon(2 * MIN_MEMORY).unwrap();
            for page in 0..anon.len() / PAGE {
                assert_eq!(anon[page * PAGE], 0);
                anon[page * PAGE] = page as u8 | 1;
            }
            for page in 0..anon.len() / PAGE {
                assert_eq!(anon[page * PAGE], page as u8 | 1);
            }
        }
    }
}

#[test]
fn cold_pages_are_read_where_new_mappings_are_locked() {
    let test = "cold_pages_are_read_where_new_mappings_are_locked";
    let Some(scenario) = child::scenario() else {
        for scenario in ["future", "onfault", "ordinary", "spare"] {
            child::succeeds(test, scenario);
        }
        return;
    };
    let file = made_file("cold", 24 << 20);
    let is_locked = match scenario.as_str() {
        "future" => mlockall(libc::MCL_FUTURE),
        "onfault" => mlockall(libc::MCL_FUTURE | MCL_ONFAULT),
        // A window is larger than all that may be locked.
        "ordinary" => {
            limit(libc::RLIMIT_MEMLOCK, 7 << 20);
            become_nobody();
            assert!(mlockall(libc::MCL_FUTURE));
            true
        }
        // Windows that there were before, and are used again.
        _ => {
            everything_is_read(&file);
            mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE)
        }
    };
    if is_locked {
        everything_is_read(&file);
    }
}

#[test]
fn a_process_that_may_lock_nothing_more_is_told_so() {
    let test = "a_process_that_may_lock_nothing_more_is_told_so";
    let Some(_) = child::scenario() else {
        return child::succeeds(test, "ordinary");
    };
    let engine = engine();
    let file = made_file("none", 16 << 20);
    become_nobody();
    // Enough for a heap to go on, and then nothing.
    let mut kept = Vec::with_capacity(1 << 10);
    limit(libc::RLIMIT_MEMLOCK, 16 * PAGE);
    assert!(mlockall(libc::MCL_FUTURE));
    // SAFETY: a mapping that is left alone, or none.
    while let addr = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(core::ptr::null_mut(), PAGE, libc::PROT_READ, flags, -1, 0)
    } && addr != libc::MAP_FAILED
    {
        kept.push(addr);
    }
    // SAFETY: nobody writes to the file.
    let refused = unsafe { engine.map(&file) }.unwrap_err();
    // SAFETY: no byte changes.
    unsafe { libc::munlockall() };
    let said = refused.to_string();
    assert!(said.contains("RLIMIT_MEMLOCK"), "{said}");
    check_all(&map(&engine, &file));
}

fn mlock(map: &[u8], page: usize, pages: usize) -> bool {
    // SAFETY: no byte changes.
    unsafe { libc::mlock(map.as_ptr().add(page * PAGE).cast(), pages * PAGE) == 0 }
}

#[test]
fn memory_that_the_program_locks_is_evicted_too() {
    let test = "memory_that_the_program_locks_is_evicted_too";
    let Some(scenario) = child::scenario() else {
        for scenario in ["mlock", "onfault", "current"] {
            child::succeeds(test, scenario);
        }
        return;
    };
    let file = made_file("evicted", 24 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    let mut anon = engine.map_anon(2 * MIN_MEMORY).unwrap();
    anon[..PAGE].fill(1);
    assert_eq!(map[0], byte_at(0));
    let is_locked = match scenario.as_str() {
        "mlock" => {
            assert!(mlock(&map, 0, 1) && mlock(&anon, 0, 1));
            // It fails, for nobody serves the kernel; the mapping is locked all the
            // same.
            assert!(!mlock(&map, 3, 100) && !mlock(&anon, 900, 100));
            true
        }
        "onfault" => {
            // MLOCK_ONFAULT of mlock2(2).
            const ONFAULT: u32 = 1;
            [&map[..], &anon[..]].iter().all(|bytes| {
                // SAFETY: no byte changes.
                is_done(unsafe { libc::mlock2(bytes.as_ptr().cast(), 2 * MIB, ONFAULT) })
            })
        }
        _ => mlockall(libc::MCL_CURRENT),
    };
    if !is_locked {
        return;
    }
    for round in 1..3 {
        check_all(&map);
        for page in 0..anon.len() / PAGE {
            anon[page * PAGE] = page as u8 ^ round;
        }
        for page in 0..anon.len() / PAGE {
            assert_eq!(anon[page * PAGE], page as u8 ^ round);
        }
        let stats = engine.stats();
        assert!(stats.resident_bytes <= MIN_MEMORY as u64, "{stats:#?}");
    }
    assert!(engine.stats().evicted > 0);
    // A window of locked pages moves, and goes.
    let longer = softfault::RemapOptions::new().may_move(true);
    // SAFETY: nobody has a reference to its bytes.
    unsafe { anon.remap(4 * MIN_MEMORY, longer) }.unwrap();
    assert_eq!(anon[5 * PAGE], 5 ^ 2);
    drop((map, anon));
    let again = engine.map_anon(2 * MIN_MEMORY).unwrap();
    assert!((0..again.len() / PAGE).all(|page| again[page * PAGE] == 0));
}

#[test]
fn an_engine_reserves_nothing_that_could_be_filled() {
    let test = "an_engine_reserves_nothing_that_could_be_filled";
    let Some(scenario) = child::scenario() else {
        for scenario in ["windows", "soft"] {
            child::succeeds(test, scenario);
        }
        return;
    };
    const MOST: usize = 64 << 20;
    let builder = Engine::builder().allow_kernel_maps(false).memory(16 << 20);
    let space = status("VmSize");
    let file = made_file("little", 48 << 20);
    // Whoever is to be locked from now on is locked when it is made.
    let (engine, soft) = match scenario.as_str() {
        "windows" => (Some(builder.build().unwrap()), None),
        _ => (None, Some(builder.build_soft().unwrap())),
    };
    if engine.is_some() {
        let now = status("VmSize");
        assert!(now < space + MOST, "{space} bytes of address space, {now}");
    }
    let resident = status("VmRSS");
    if !mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) {
        return;
    }
    let check = |what: &str| {
        let now = status("VmRSS");
        assert!(
            now < resident + MOST,
            "{what}: {resident} bytes resident, {now}"
        );
    };
    check("after mlockall");
    if let Some(engine) = engine {
        let map = map(&engine, &file);
        check_all(&map);
        check("after reading");
        // Frames were taken and given back.
        engine.set_memory(MIN_MEMORY).unwrap();
        mlockall(libc::MCL_CURRENT);
        check_all(&map);
    }
    if let Some(engine) = soft {
        let map = engine.map(&file).unwrap();
        let mut byte = [0];
        for page in 0..map.len() / PAGE {
            map.read_at(&mut byte, page * PAGE).unwrap();
            assert_eq!(byte[0], byte_at(page * PAGE));
        }
    }
    check("at the end");
    mlockall(libc::MCL_CURRENT);
    check("locked again");
}
