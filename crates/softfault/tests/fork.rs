//! Children of a process that has maps.

mod child;
mod files;

use child::{assert_exit, forked, run, scenario};
use files::{check, made_file, map};
use softfault::{Engine, Mmap};
use softfault_oracle::Finally;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const LEN: usize = 8 << 20;

fn scene(name: &str) -> (Engine, Mmap) {
    let file = made_file(name, LEN);
    let engine = files::engine(16 << 20);
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

/// The kernel maps the file where the parent's window was.
#[test]
fn a_child_goes_on_reading() {
    let (_engine, map) = scene("touch");
    let pinned = map.pin(0..100_000).unwrap();
    let status = forked(|| {
        // Whatever the child closes.
        // SAFETY: nothing of the child's own is open.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        (0..LEN).step_by(4096).for_each(|at| check(&map, at));
        assert_eq!(pinned[50_000], files::byte_at(50_000));
        let mut bytes = [0; 100];
        assert_eq!(map.read_at(&mut bytes, 4000).unwrap(), 100);
        assert_eq!(bytes, map[4000..4100]);
        assert_eq!(map.pin(LEN - 10..).unwrap()[..], map[LEN - 10..]);
        map.advise(softfault::Advice::PopulateRead).unwrap();
        map.invalidate(..).unwrap();
        map.prefetch(..).unwrap();
        map.write_to(.., &mut io::sink()).unwrap();
        map.advise(softfault::Advice::Random).unwrap();
        map.lock().unwrap();
        map.unlock().unwrap();
        assert!(
            map.fault_in_many(&[0..9, 70_000..90_000])
                .wait()
                .iter()
                .all(Result::is_ok)
        );
        assert!(map.pin(LEN..LEN + 1).is_err());
        assert!(!map.is_managed());
        drop(pinned);
        // A map that is not writable stays so.
        // SAFETY: ends a grandchild.
        assert_segv(forked(|| unsafe {
            map.as_ptr().cast_mut().write_volatile(1);
            0
        }));
        0
    });
    assert_exit(status, 0);
    for offset in PLACES {
        check(&map, offset);
    }
}

/// Many files, large and small, several maps each, and parts; served by the kernel, by handlers, by threads.
#[test]
fn a_child_has_all_maps_that_its_parent_has() {
    for faults in [softfault::Faults::Signals, softfault::Faults::Threads] {
        let test = "a_child_has_all_maps_that_its_parent_has";
        let name = format!("{faults:?}");
        match child::scenario() {
            None => {
                child::succeeds(test, &name);
                continue;
            }
            Some(how) if how != name => continue,
            Some(_) => {}
        }
        let builder = Engine::builder().memory(16 << 20).small_maps(0);
        let engine = builder.faults(faults).build().unwrap();
        let files: Vec<_> = (0..40)
            .map(|number| made_file("many", 5000 << (number % 10)))
            .collect();
        let mut maps: Vec<_> = files.iter().map(|file| self::map(&engine, file)).collect();
        for file in &files {
            let mut options = softfault::MmapOptions::new();
            options.offset(4096).len(800);
            // SAFETY: nobody writes to the file.
            let part = unsafe { options.map_in(&engine, file) }.unwrap();
            assert_eq!(part[0], files::byte_at(4096));
            maps.push(part);
        }
        let gone = maps.swap_remove(7);
        drop(gone);
        let (all, parts): (Vec<_>, Vec<_>) = maps.iter().partition(|map| map.len() > 800);
        let read = || {
            all.iter().for_each(|map| check(map, map.len() - 1));
            (all.iter()).for_each(|map| (0..map.len()).step_by(4096).for_each(|at| check(map, at)));
            (parts.iter()).for_each(|map| assert_eq!(map[799], files::byte_at(4096 + 799)));
        };
        let status = forked(|| {
            read();
            let status = forked(|| {
                read();
                0
            });
            assert_exit(status, 0);
            // And those of its own.
            let own = Engine::builder().memory(16 << 20).small_maps(0);
            let own = own.faults(faults).build().unwrap();
            let again = self::map(&own, &files[9]);
            check(&again, again.len() - 1);
            assert_exit(
                forked(|| {
                    check(&again, 77);
                    read();
                    0
                }),
                0,
            );
            0
        });
        assert_exit(status, 0);
        read();
    }
}

/// The program has closed all that it does not know, and the numbers mean other files.
#[test]
fn a_child_has_maps_of_files_whose_numbers_were_taken() {
    let test = "a_child_has_maps_of_files_whose_numbers_were_taken";
    if child::scenario().is_none() {
        return child::succeeds(test, "taken");
    }
    let (_engine, map) = scene("taken");
    (0..LEN).step_by(4096).for_each(|at| check(&map, at));
    // SAFETY: nothing of the program's own is needed.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    let others: Vec<_> = (0..20).map(|_| made_file("other", 1 << 20)).collect();
    for _ in 0..3 {
        let status = forked(|| {
            (0..LEN).step_by(4096).for_each(|at| check(&map, at));
            0
        });
        assert_exit(status, 0);
        (0..LEN).step_by(4096).for_each(|at| check(&map, at));
    }
    drop(others);
}

/// madvise(MADV_DONTFORK), and the way back.
#[test]
fn a_child_lacks_memory_that_is_not_lent() {
    let (_engine, map) = scene("kept");
    map.advise(softfault::Advice::DontFork).unwrap();
    assert_segv(forked(|| i32::from(touch(&map, 5))));
    map.advise(softfault::Advice::DoFork).unwrap();
    assert_exit(
        forked(|| {
            check(&map, 5);
            0
        }),
        0,
    );
}

/// A file that was cut is SIGBUS behind its end, in the child too.
#[test]
fn a_child_does_not_read_behind_the_end() {
    let file = made_file("cut", LEN);
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    let map = map(&engine, &file);
    let status = forked(|| {
        file.set_len(4096).unwrap();
        check(&map, 5);
        assert!(map.pin(..).is_err() && map.read_at(&mut [0; 9], 8192).is_err());
        i32::from(touch(&map, 8192))
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
}

/// The engine that the process has without being told is a child's own, too.
#[test]
fn a_child_maps_by_default() {
    let file = made_file("default", LEN);
    // SAFETY: nobody writes to the file.
    let map = unsafe { Mmap::map(&file) }.unwrap();
    check(&map, 9);
    let status = forked(|| {
        check(&map, LEN - 1);
        // SAFETY: as above.
        let own = unsafe { Mmap::map(&file) }.unwrap();
        check(&own, 12_345);
        0
    });
    assert_exit(status, 0);
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
            check(&map, offset);
            0
        });
        assert_exit(status, 0);
    }
}

#[test]
fn grandchildren_too() {
    let (_engine, map) = scene("grandchild");
    for offset in PLACES {
        let status = forked(|| {
            check(&map, offset);
            forked(|| {
                check(&map, offset);
                0
            })
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
        // SAFETY: refused.
        forked(unsafe { engine.map(&file) }.unwrap_err());
        forked(engine.truncate(&file, 0).unwrap_err());
        // Of its own it may have engines; the inherited ones are for private memory.
        engine.set_memory(64 << 20).unwrap();
        assert_eq!(engine.stats().budget_bytes, 64 << 20);
        assert_eq!((engine.stats().windows, engine.stats().faults), (0, 0));
        let own = files::engine(8 << 20);
        check(&self::map(&own, &file), 12_345);
        assert_eq!(format!("{map:?}").matches("Mmap").count(), 1);
        0
    });
    assert_exit(status, 0);
    assert_eq!(file.metadata().unwrap().len(), LEN as u64);
    assert_eq!(engine.stats().budget_bytes, 16 << 20);
}

#[test]
fn a_child_has_none_of_our_descriptors_and_may_exec() {
    let test = "a_child_has_none_of_our_descriptors_and_may_exec";
    // Alone: another test's thread may have got a descriptor at the very moment, and not told of it yet.
    if child::scenario().is_none() {
        return child::succeeds(test, "exec");
    }
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
fn the_parent_goes_on_while_children_read() {
    let file = made_file("many", LEN);
    let engine = files::engine(8 << 20);
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
            let at = round * 100_003 % LEN;
            let found = || touch(&map, at) == files::byte_at(at);
            assert_exit(forked(|| i32::from(!found())), 0);
            while touched.load(SeqCst) == before {
                std::thread::yield_now();
            }
        }
    });
    assert!(engine.stats().peak_bytes <= 8 << 20);
}

#[test]
fn a_child_may_drop_inherited_maps_at_any_moment() {
    let files: Vec<_> = (0..3)
        .map(|i| made_file(&format!("drop{i}"), 1 << 20))
        .collect();
    let engine = files::engine(8 << 20);
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

/// Handlers of atexit(3) and destructors of pthread keys run when a thread's locals with destructors are gone.
#[test]
fn handlers_that_run_last_may_fork() {
    extern "C" fn forks() {
        assert_eq!(forked(|| 0), 0);
    }
    extern "C" fn forks_in_a_destructor(_: *mut libc::c_void) {
        forks();
    }
    let Some(scenario) = scenario() else {
        for scenario in ["exit", "thread"] {
            let output = run("handlers_that_run_last_may_fork", scenario);
            assert!(output.status.success(), "{scenario}: {}", output.status);
        }
        return;
    };
    let (_engine, map) = scene("last");
    forks();
    if scenario == "exit" {
        // SAFETY: the handler touches nothing that is gone by then.
        unsafe {
            libc::atexit(forks);
            libc::exit(0);
        }
    }
    let thread = std::thread::spawn(|| {
        forks();
        let mut key = 0;
        // SAFETY: a new key, whose value is not looked at.
        unsafe {
            let made = libc::pthread_key_create(&mut key, Some(forks_in_a_destructor));
            assert_eq!(made, 0);
            assert_eq!(libc::pthread_setspecific(key, core::ptr::dangling()), 0);
        }
    });
    thread.join().unwrap();
    check(&map, 0);
}
