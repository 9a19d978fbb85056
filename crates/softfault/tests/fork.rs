//! Children of a process that has maps.

mod child;
mod files;

use child::{forked, wait};
use files::{check, made_file};
use softfault::{Engine, FaultError, Mmap};
use softfault_oracle::Finally;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const LEN: usize = 8 << 20;

fn map(engine: &Engine, file: &File) -> Mmap {
    // SAFETY: nobody writes to the file.
    unsafe { engine.map(file) }.unwrap()
}

fn scene(name: &str) -> (Engine, Mmap) {
    let file = made_file(name, LEN);
    let engine = Engine::builder()
        .by_kernel(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    let map = map(&engine, &file);
    check(&map, 0);
    (engine, map)
}

/// Resident, and not resident.
const PLACES: [usize; 2] = [5, LEN - 5];

fn touch(map: &Mmap, offset: usize) -> u8 {
    // SAFETY: within the map.
    unsafe { map.as_ptr().add(offset).read_volatile() }
}

#[track_caller]
fn assert_segv(status: i32) {
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
        "status {status:#x}"
    );
}

#[track_caller]
fn assert_exit(status: i32, code: i32) {
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == code,
        "status {status:#x}"
    );
}

#[test]
fn a_childs_touch_dies_of_sigsegv() {
    let (_engine, map) = scene("touch");
    for offset in PLACES {
        let status = forked(|| i32::from(touch(&map, offset)));
        assert_segv(status);
        check(&map, offset);
    }
    let pinned = map.pin(0..100_000).unwrap();
    assert_segv(forked(|| i32::from(pinned[50_000])));
    assert_eq!(pinned[50_000], files::byte_at(50_000));
}

#[test]
fn a_childs_own_memory_never_lies_in_a_window() {
    let (_engine, map) = scene("own-memory");
    let window = map.as_ptr() as usize..map.as_ptr() as usize + LEN;
    for offset in PLACES {
        let status = forked(|| {
            let overlaps =
                |start: usize, bytes: usize| start < window.end && window.start < start + bytes;
            let mut kept = Vec::new();
            for round in 0..2000 {
                let bytes = [24, 5000, 70_000, 300_000, 2 << 20][round % 5];
                let mut own = Vec::<u8>::with_capacity(bytes);
                own.resize(bytes.min(4096), 0xCD);
                if overlaps(own.as_ptr() as usize, bytes) {
                    return 1;
                }
                kept.push(own);
            }
            for round in 0..300 {
                let bytes = (round % 40 + 1) << 18;
                // SAFETY: new memory, kept until the child ends.
                let own = unsafe {
                    libc::mmap(
                        core::ptr::null_mut(),
                        bytes,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                        -1,
                        0,
                    )
                };
                if own == libc::MAP_FAILED || overlaps(own as usize, bytes) {
                    return 2;
                }
            }
            i32::from(touch(&map, offset))
        });
        assert_segv(status);
    }
}

#[test]
fn grandchildren_too() {
    let (_engine, map) = scene("grandchild");
    for offset in PLACES {
        let status = forked(|| {
            let grandchild = forked(|| i32::from(touch(&map, offset)));
            i32::from(
                !(libc::WIFSIGNALED(grandchild) && libc::WTERMSIG(grandchild) == libc::SIGSEGV),
            )
        });
        assert_exit(status, 0);
    }
}

#[test]
fn in_a_child_the_engine_says_so() {
    let file = made_file("says", LEN);
    let (engine, map) = scene("says-so");
    let status = forked(|| {
        let forked = |error: io::Error| {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("parent"), "{error}");
        };
        assert_eq!(map.pin(..10).unwrap_err(), FaultError::Forked);
        assert_eq!(map.read_at(&mut [0; 4], 0).unwrap_err(), FaultError::Forked);
        assert_eq!(map.residency(..).unwrap_err(), FaultError::Forked);
        assert_eq!(map.invalidate(..).unwrap_err(), FaultError::Forked);
        assert_eq!(map.prefetch(..).unwrap_err(), FaultError::Forked);
        forked(map.write_to(.., &mut io::sink()).unwrap_err());
        forked(map.advise(softfault::Advice::Random).unwrap_err());
        // SAFETY: refused.
        forked(unsafe { engine.map(&file) }.unwrap_err());
        forked(engine.truncate(&file, 0).unwrap_err());
        // Of its own it may have engines; the inherited ones are for private memory.
        engine.set_memory(64 << 20).unwrap();
        assert_eq!(engine.stats().memory_bytes, 64 << 20);
        assert_eq!((engine.stats().windows, engine.stats().faults), (0, 0));
        let own = Engine::builder()
            .by_kernel(false)
            .memory(8 << 20)
            .build()
            .unwrap();
        check(&self::map(&own, &file), 12_345);
        assert_eq!(format!("{map:?}").matches("Mmap").count(), 1);
        0
    });
    assert_exit(status, 0);
    assert_eq!(file.metadata().unwrap().len(), LEN as u64);
    assert_eq!(engine.stats().memory_bytes, 16 << 20);
}

#[test]
fn a_child_has_none_of_our_descriptors_and_may_exec() {
    let (_engine, map) = scene("exec");
    let status = forked(|| {
        let ours = ["userfaultfd", "pidfd"];
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let Ok(target) = std::fs::read_link(entry.unwrap().path()) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            assert!(!ours.iter().any(|name| target.contains(name)), "{target}");
        }
        // SAFETY: replaces the child.
        unsafe {
            let shell = c"/bin/sh".as_ptr();
            let script = c"ls -l /proc/self/fd | grep -c -e userfaultfd -e pidfd -e io_uring";
            libc::execl(
                shell,
                shell,
                c"-c".as_ptr(),
                script.as_ptr(),
                core::ptr::null::<u8>(),
            );
        }
        99
    });
    // grep found none.
    assert_exit(status, 1);
    let output = std::process::Command::new("true").status().unwrap();
    assert!(output.success());
    check(&map, LEN / 2);
}

#[test]
fn the_parent_goes_on_while_children_die() {
    let file = made_file("many", LEN);
    let engine = Engine::builder()
        .by_kernel(false)
        .memory(8 << 20)
        .build()
        .unwrap();
    let map = map(&engine, &file);
    let (stop, touched) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, stop, touched) = (&map, &stop, &touched);
            scope.spawn(move || {
                let mut at = thread * 1_000_003;
                while !stop.load(SeqCst) {
                    at = (at + 1021 * 4096 + 77) % LEN;
                    check(map, at);
                    touched.fetch_add(1, SeqCst);
                }
            });
        }
        let _end = Finally(|| stop.store(true, SeqCst));
        for round in 0..60 {
            let before = touched.load(SeqCst);
            // SAFETY: the child touches, and dies.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                let found = touch(&map, round * 100_003 % LEN);
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(found)) };
            }
            assert_segv(wait(child));
            while touched.load(SeqCst) == before {
                std::thread::yield_now();
            }
        }
    });
    assert!(engine.stats().peak_bytes <= 8 << 20);
}

#[test]
fn a_child_may_drop_what_it_inherits_whatever_others_were_doing() {
    let files: Vec<_> = (0..3)
        .map(|i| made_file(&format!("drop{i}"), 1 << 20))
        .collect();
    let engine = Engine::builder()
        .by_kernel(false)
        .memory(8 << 20)
        .build()
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for file in &files {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let map = map(engine, file);
                    check(&map, 70_000);
                }
            });
        }
        let _end = Finally(|| stop.store(true, SeqCst));
        for _ in 0..100 {
            let status = forked(|| {
                // SAFETY: the child's own copy, used no more: it ends with _exit.
                drop(unsafe { core::ptr::read(&engine) });
                0
            });
            assert_exit(status, 0);
        }
    });
    let (engine, map) = scene("dropped");
    let status = forked(|| {
        // SAFETY: as above.
        drop(unsafe { core::ptr::read(&map) });
        // SAFETY: as above.
        drop(unsafe { core::ptr::read(&engine) });
        0
    });
    assert_exit(status, 0);
    check(&map, LEN - 1);
}
