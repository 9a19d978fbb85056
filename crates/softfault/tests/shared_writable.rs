//! Maps that write to their file, as other maps of it, calls, children and later processes see them.

mod child;
mod small_disk;
mod write_scene;

use child::{command, forked, scenario};
use softfault::{
    Advice, Coherence, Engine, Faults, Mmap, MmapMut, MmapOptions, MmapRaw, OnTruncate, Reads,
};
use softfault_oracle::Random;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;
use write_scene::{PAGE, Scratch, alone, byte, read};

const PAGES: usize = 512;

/// A file of bytes that are 1.
fn ones(name: &str) -> Scratch {
    Scratch::of(name, &vec![1; PAGES * PAGE])
}

fn engine() -> Engine {
    let builder = Engine::builder().memory(16 << 20).small_maps(0);
    builder.build().unwrap()
}

fn write(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: written bytes are looked for.
    unsafe { engine.map_mut(file) }.unwrap()
}

#[test]
fn writes_are_seen_by_all_at_once() {
    let _alone = alone();
    let scratch = ones("seen");
    let file = scratch.open();
    let engine = engine();
    let before = read(&engine, &file);
    assert!(before.is_managed());
    (0..PAGES).for_each(|page| assert_eq!(byte(&before, page * PAGE), 1));
    let counted = engine.stats().kernel;
    let mut map = write(&engine, &file);
    let after = read(&engine, &file);
    for page in (0..PAGES).step_by(7) {
        map[page * PAGE] = 2;
        assert_eq!(byte(&before, page * PAGE), 2, "page {page}, mapped before");
        assert_eq!(byte(&after, page * PAGE), 2, "page {page}, mapped after");
        let mut read = [0];
        file.read_exact_at(&mut read, (page * PAGE) as u64).unwrap();
        assert_eq!(read, [2], "page {page}, by pread");
        file.write_all_at(&[3], (page * PAGE) as u64 + 1).unwrap();
        assert_eq!(map[page * PAGE + 1], 3, "page {page}, by pwrite");
        assert_eq!(byte(&before, page * PAGE + 1), 3);
    }
    map.flush().unwrap();
    map.flush_async_range(PAGE, PAGE).unwrap();
    assert!(map.flush_range(1, PAGES * PAGE).is_err());
    let counts = engine.stats().kernel;
    assert!(counts.shared_maps > counted.shared_maps);
    assert!(counts.shared_bytes >= counted.shared_bytes + (PAGES * PAGE) as u64);
    // The engine may have it back, and has the written bytes.
    drop((map, after));
    before.change_server(false).unwrap();
    for page in 0..PAGES {
        let expected = if page % 7 == 0 { 2 } else { 1 };
        assert_eq!(byte(&before, page * PAGE), expected, "page {page}");
    }
}

/// While a map writes, the kernel serves: nothing takes the file back.
#[test]
fn the_kernel_keeps_written_maps() {
    let _alone = alone();
    let scratch = ones("keeps");
    let file = scratch.open();
    let engine = engine();
    let map = read(&engine, &file);
    let first = write(&engine, &file);
    let second = write(&engine, &file);
    assert!(!map.change_server(false).unwrap());
    drop(first);
    assert!(!map.change_server(false).unwrap());
    drop(second);
    assert!(map.change_server(false).unwrap());
    assert_eq!(byte(&map, 5 * PAGE), 1);
}

/// A window that somebody holds when the writable map is made is the kernel's as soon as nobody does.
#[test]
fn a_held_window_is_the_kernels_when_it_is_let_go() {
    let _alone = alone();
    let scratch = ones("held");
    let (engine, file) = (engine(), scratch.open());
    let map = read(&engine, &file);
    // It may be the kernel's from the beginning.
    map.change_server(false).unwrap();
    assert_eq!(byte(&map, 5 * PAGE), 1);
    let (first, second) = (map.pin(..PAGE).unwrap(), map.pin(PAGE..2 * PAGE).unwrap());
    let mut written = write(&engine, &file);
    written[5 * PAGE] = 9;
    drop(first);
    assert_eq!(byte(&map, 5 * PAGE), 1, "a page of the engine's");
    drop(second);
    assert_eq!(byte(&map, 5 * PAGE), 9);
    assert!(!map.change_server(false).unwrap());
    drop(written);
    assert!(map.change_server(false).unwrap());
}

/// A map to read stays one, also where the kernel serves it since another writes.
/// A window that nobody maps any more is not taken for the one that may be written to, though it shows the same version.
#[test]
fn a_file_that_was_read_before_is_written_to() {
    let _alone = alone();
    let scratch = ones("read-before");
    let builder = Engine::builder().memory(16 << 20).small_maps(0);
    let builder = builder
        .allow_kernel_maps(false)
        .coherence(Coherence::Engine);
    let engine = builder.build().unwrap();
    let file = scratch.open();
    // Before, its time stamps do not tell versions apart, and no map finds the window of another.
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..2 {
        assert_eq!(byte(&read(&engine, &file), 0), 1);
        let stats = engine.stats();
        assert_eq!((stats.windows, stats.idle_windows), (0, 1));
    }
    let mut map = write(&engine, &file);
    assert_eq!(engine.stats().idle_windows, 0);
    map[0] = 2;
    let mut second = write(&engine, &file);
    assert_eq!(byte(&second, 0), 2);
    second[1] = 3;
    assert_eq!(byte(&read(&engine, &file), 1), 3);
    engine.close_idle();
    let mut third = write(&engine, &file);
    third[2] = 4;
    map.flush().unwrap();
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [2, 3, 4]);
}

#[test]
fn a_map_to_read_does_not_become_writable() {
    let _alone = alone();
    let scratch = ones("to-read");
    let (engine, file) = (engine(), scratch.open());
    let written = write(&engine, &file);
    let refused = read(&engine, &file).make_mut().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // One that was writable becomes so again.
    let written = written.make_read_only().unwrap();
    let mut written = written.make_mut().unwrap();
    written[0] = 3;
}

/// Where windows cannot be the kernel's, maps that are made while others write are its own.
#[test]
fn engines_whose_windows_stay_theirs_see_it_in_new_maps() {
    let _alone = alone();
    let scratch = ones("stay");
    let file = scratch.open();
    let builders = [
        Engine::builder().allow_kernel_maps(false),
        Engine::builder().reads(Reads::Direct),
        Engine::builder().on_truncate(OnTruncate::Zeros),
    ];
    for (round, builder) in builders.into_iter().enumerate() {
        let engine = builder.memory(16 << 20).small_maps(0).build().unwrap();
        let mut map = write(&engine, &file);
        let seen = read(&engine, &file);
        map[9 * PAGE] = 10 + round as u8;
        assert_eq!(byte(&seen, 9 * PAGE), 10 + round as u8);
    }
}

#[test]
fn a_child_of_fork_writes_to_the_same_file() {
    let _alone = alone();
    let scratch = ones("child");
    let file = scratch.open();
    let engine = engine();
    let seen = read(&engine, &file);
    let mut map = write(&engine, &file);
    map[0] = 7;
    let status = forked(|| {
        let was = map[0];
        map[PAGE] = 8;
        i32::from(was != 7)
    });
    assert_eq!(status, 0);
    assert_eq!((map[PAGE], byte(&seen, PAGE)), (8, 8));
}

/// However a process ends, its writes are in the file.
#[test]
fn nothing_is_lost_at_the_end_of_a_process() {
    const TEST: &str = "nothing_is_lost_at_the_end_of_a_process";
    if let Some(scenario) = scenario() {
        let (how, path) = scenario.split_once(' ').unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut map = write(&engine(), &file);
        map[3 * PAGE] = 77;
        match how {
            // SAFETY: ends the process.
            "_exit" => unsafe { libc::_exit(0) },
            "abort" => std::process::abort(),
            // SAFETY: the same.
            "kill" => unsafe { libc::raise(libc::SIGKILL) },
            // SAFETY: the same.
            "term" => unsafe { libc::raise(libc::SIGTERM) },
            "leak" => return core::mem::forget(map),
            _ => return,
        };
        unreachable!("{how}");
    }
    let _alone = alone();
    for how in ["exit", "leak", "_exit", "abort", "kill", "term"] {
        let scratch = ones(how);
        let mut command = command(TEST, &format!("{how} {}", scratch.0.display()));
        command.output().unwrap();
        let mut read = [0];
        let file = scratch.open();
        file.read_exact_at(&mut read, 3 * PAGE as u64).unwrap();
        assert_eq!(read, [77], "{how}");
    }
}

#[test]
fn maps_of_the_kernel_are_counted() {
    let _alone = alone();
    let engine = engine();
    let before = engine.stats().kernel;
    let mut stack = MmapOptions::new()
        .stack()
        .len(64 << 10)
        .map_anon_in(&engine)
        .unwrap();
    stack[5] = 1;
    assert!(!stack.is_managed());
    // x86: mov eax, 42; ret.
    let code = [0xb8, 42, 0, 0, 0, 0xc3];
    let mut engines = engine.map_anon(3 * PAGE).unwrap();
    assert!(engines.is_managed());
    engines[PAGE - 2..PAGE + 4].copy_from_slice(&code);
    let executable = engines.make_exec().unwrap();
    assert_eq!(executable[PAGE - 2..PAGE + 4], code);
    if cfg!(target_arch = "x86_64") {
        // SAFETY: a function of that type.
        let function: extern "C" fn() -> i32 =
            unsafe { core::mem::transmute(executable.as_ptr().add(PAGE - 2)) };
        assert_eq!(function(), 42);
    }
    let mut in_place = MmapOptions::new()
        .stack()
        .len(PAGE)
        .map_anon_in(&engine)
        .unwrap();
    in_place[0] = 9;
    let start = in_place.as_ptr();
    assert_eq!(in_place.make_exec().unwrap().as_ptr(), start);
    let after = engine.stats().kernel;
    assert_eq!(after.special_maps - before.special_maps, 3);
    assert!(engine.map_anon(0).unwrap().make_exec().unwrap().is_empty());
    // Where there is no such pool, an error.
    match MmapOptions::new()
        .huge(Some(21))
        .len(2 << 20)
        .map_anon_in(&engine)
    {
        Ok(mut map) => map[0] = 1,
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}"),
    }
}

#[test]
fn raw_maps_are_pointers_to_the_same() {
    let _alone = alone();
    let scratch = ones("raw");
    let file = scratch.open();
    let raw = MmapRaw::map_raw(&file).unwrap();
    let seen = MmapOptions::new()
        .offset(PAGE as u64)
        .map_raw_read_only(&file)
        .unwrap();
    assert_eq!((raw.len(), seen.len()), (PAGES * PAGE, (PAGES - 1) * PAGE));
    // SAFETY: within the maps; nobody else looks meanwhile.
    unsafe {
        raw.as_mut_ptr().add(PAGE + 3).write_volatile(5);
        assert_eq!(seen.as_ptr().add(3).read_volatile(), 5);
    }
    raw.flush().unwrap();
    raw.advise(Advice::Random).unwrap();
    raw.lock().unwrap();
    raw.unlock().unwrap();
    assert!(
        raw.flush_range(PAGES * PAGE, 1).is_err() && seen.flush_range(0, PAGES * PAGE).is_err()
    );
    let empty = MmapRaw::from(engine().map_anon(0).unwrap());
    assert!(empty.is_empty() && !empty.as_ptr().is_null());
    assert!(empty.as_ptr().addr().is_multiple_of(PAGE));
}

/// A touch behind the end of the file is SIGBUS; a method that can be asked beforehand answers with an error.
#[test]
fn behind_the_end_is_an_error() {
    let _alone = alone();
    let scratch = ones("behind");
    let file = scratch.open();
    let engine = engine();
    let mut options = MmapOptions::new();
    options.len((PAGES + 4) * PAGE);
    // SAFETY: nobody else has the file.
    let mut map = unsafe { options.map_mut_in(&engine, &file) }.unwrap();
    map[PAGES * PAGE - 1] = 4;
    map.populate(..PAGES * PAGE).unwrap();
    assert!(map.populate(..).is_err());
    let mut bytes = [9; 2 * PAGE];
    assert_eq!(map.write_at(&bytes, (PAGES - 2) * PAGE), Ok(2 * PAGE));
    assert!(map.write_at(&bytes, (PAGES - 1) * PAGE).is_err());
    assert!(map.read_at(&mut bytes, (PAGES - 1) * PAGE).is_err());
    assert_eq!(map.read_at(&mut bytes, (PAGES - 2) * PAGE), Ok(2 * PAGE));
    assert_eq!(bytes, [9; 2 * PAGE]);
    let status = forked(|| i32::from(map[PAGES * PAGE]));
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
        "{status}"
    );
    // A file that is only read is not written to.
    let only_read = File::open(&scratch.0).unwrap();
    // SAFETY: nothing is made.
    let refused = unsafe { engine.map_mut(&only_read) };
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::PermissionDenied
    );
}

/// Failed before: each page was brought in as a write would, so that all holes got blocks and the whole file was written.
#[test]
fn a_populated_map_writes_to_no_page() {
    let _alone = alone();
    let scratch = Scratch::of("sparse", &[]);
    let file = scratch.open();
    file.set_len((PAGES * PAGE) as u64).unwrap();
    let state = || {
        let now = file.metadata().unwrap();
        (now.blocks(), (now.mtime(), now.mtime_nsec()))
    };
    let before = state();
    // The time of a write is no finer than the kernel's tick.
    std::thread::sleep(Duration::from_millis(50));
    for coherence in [Coherence::Kernel, Coherence::Engine] {
        let engine = Engine::builder().memory(16 << 20).coherence(coherence);
        let engine = engine.small_maps(0).build().unwrap();
        // SAFETY: nobody else has the file.
        let map = unsafe { MmapOptions::new().populate().map_mut_in(&engine, &file) }.unwrap();
        assert_eq!(map.is_managed(), coherence == Coherence::Engine);
        if !is_on_tmpfs(&file) {
            assert_eq!(state(), before, "{coherence:?}");
        }
        let mut there = [0_u8; PAGES];
        if coherence == Coherence::Kernel {
            let start = map.as_ptr() as *mut libc::c_void;
            // SAFETY: a byte for each page of the map.
            let asked = unsafe { libc::mincore(start, map.len(), there.as_mut_ptr()) };
            assert_eq!((asked, there), (0, [1; PAGES]), "all pages are in memory");
        }
    }
}

/// There a page that is read has memory of the file, its block, from then on.
fn is_on_tmpfs(file: &File) -> bool {
    // SAFETY: fills the structure.
    unsafe {
        let mut system: libc::statfs = core::mem::zeroed();
        assert_eq!(libc::fstatfs(file.as_raw_fd(), &mut system), 0);
        // Of another type in musl.
        system.f_type as i64 == libc::TMPFS_MAGIC
    }
}

/// A store into a hole for which the disk has no block is SIGBUS; by a call it is an error.
#[test]
fn a_full_disk_is_an_error() {
    let _alone = alone();
    small_disk::with_file("full", |file| {
        // SAFETY: nobody else has the file.
        let mut map = unsafe { engine().map_mut(&file) }.unwrap();
        assert_eq!(map.write_at(&[1; PAGE], 0), Ok(PAGE));
        assert!(map.write_at(&vec![2; small_disk::BYTES], 0).is_err());
        assert!(map.populate(..).is_err());
        assert_eq!(map[0], 2, "the pages that there was room for are written");
        let status = forked(|| {
            map[small_disk::BYTES - 1] = 3;
            0
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
    });
}

/// Drawn: maps of both kinds come and go, over one engine, beside calls; each byte is the last one written there.
#[test]
fn drawn_operations_beside_a_model() {
    let _alone = alone();
    let scratch = ones("drawn");
    let file = scratch.open();
    let engines = [
        engine(),
        Engine::builder()
            .memory(16 << 20)
            .small_maps(0)
            .faults(Faults::Signals)
            .build()
            .unwrap(),
    ];
    let mut model = vec![1u8; PAGES * PAGE];
    let mut readers: Vec<(usize, Mmap)> = Vec::new();
    let mut writers: Vec<(usize, MmapMut)> = Vec::new();
    let mut random = Random::new(1);
    let mut draw = |most: usize| random.below(most);
    for step in 0..20_000 {
        let at = draw(PAGES * PAGE);
        match draw(12) {
            0 if readers.len() < 6 => readers.push((0, read(&engines[0], &file))),
            1 if writers.len() < 4 => {
                let which = draw(2);
                writers.push((which, write(&engines[which], &file)));
            }
            2 if !readers.is_empty() => drop(readers.swap_remove(draw(readers.len()))),
            3 if !writers.is_empty() => drop(writers.swap_remove(draw(writers.len()))),
            4 => {
                // A call writes: maps over windows see it when they read the page anew.
                if writers.iter().any(|(which, _)| *which == 0) {
                    model[at] = step as u8;
                    file.write_all_at(&model[at..=at], at as u64).unwrap();
                }
            }
            5 if !readers.is_empty() => {
                let which = draw(readers.len());
                let _ = readers[which].1.change_server(draw(2) == 0).unwrap();
            }
            6 if !writers.is_empty() => {
                let which = draw(writers.len());
                writers[which]
                    .1
                    .flush_async_range(at & !(PAGE - 1), PAGE)
                    .unwrap();
            }
            7..=8 => {
                // Only while this engine knows that somebody writes.
                if let Some((_, map)) = writers.iter_mut().find(|(which, _)| *which == 0) {
                    map[at] = step as u8;
                    model[at] = step as u8;
                }
            }
            _ => {
                for (_, map) in &readers {
                    assert_eq!(byte(map, at), model[at], "step {step}, a reader at {at}");
                }
                for (_, map) in &writers {
                    assert_eq!(byte(map, at), model[at], "step {step}, a writer at {at}");
                }
            }
        }
    }
}
