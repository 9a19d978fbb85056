//! Files that nobody maps any more are let go of.

mod child;
mod files;

use files::byte_at;
use softfault::{Engine, Mmap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn engine() -> Engine {
    files::engine(16 << 20)
}

/// A file with a name.
fn named(place: &Path, bytes: usize) -> File {
    let bytes: Vec<u8> = (0..bytes).map(byte_at).collect();
    std::fs::write(place, bytes).unwrap();
    File::open(place).unwrap()
}

fn touched(engine: &Engine, file: &File) -> Mmap {
    // SAFETY: nobody writes to it.
    let map = unsafe { engine.map(file) }.unwrap();
    for offset in (0..map.len()).step_by(4096) {
        files::check(&map, offset);
    }
    map
}

/// Descriptors of this process, and of the threads that have a table of their own, that
/// are of this file.
fn opened(place: &Path) -> usize {
    let of = |folder: PathBuf| {
        let links = std::fs::read_dir(folder).into_iter().flatten();
        let names = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let ours = names.filter(|name| {
            let name = name.to_string_lossy();
            name.trim_end_matches(" (deleted)") == place.to_string_lossy()
        });
        ours.count()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.map(|task| of(task.unwrap().path().join("fd"))).sum()
}

/// Failed before: it stayed open until the engine went.
#[test]
fn a_removed_file_is_closed_with_its_last_map() {
    let test = "a_removed_file_is_closed_with_its_last_map";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let place = files::path("removed");
    let engine = engine();
    for soft in [false, true] {
        let file = named(&place, 1 << 20);
        if soft {
            let engine = files::soft_engine(16 << 20);
            let map = engine.map(&file).unwrap();
            drop(file);
            map.read_at(&mut [0; 4096], 0).unwrap();
            std::fs::remove_file(&place).unwrap();
            assert!(opened(&place) > 0);
            drop(map);
            assert_eq!((opened(&place), engine.stats().idle_windows), (0, 0));
        } else {
            let (one, other) = (touched(&engine, &file), touched(&engine, &file));
            drop(file);
            std::fs::remove_file(&place).unwrap();
            drop(one);
            assert!(opened(&place) > 0);
            drop(other);
            assert_eq!((opened(&place), engine.stats().idle_windows), (0, 0));
        }
    }
}

/// Failed before, too. The process does nothing more: the file goes all the same.
#[test]
fn a_file_that_is_removed_when_nobody_maps_it_is_closed() {
    let test = "a_file_that_is_removed_when_nobody_maps_it_is_closed";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let place = files::path("later");
    let (engine, file) = (engine(), named(&place, 1 << 20));
    drop(touched(&engine, &file));
    drop(file);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(opened(&place) > 0, "it has a name");
    std::fs::remove_file(&place).unwrap();
    let began = Instant::now();
    while opened(&place) > 0 {
        assert!(began.elapsed() < Duration::from_secs(300), "it stays open");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(engine.stats().idle_windows, 0);
}

/// Failed before: EBUSY until the engine went.
#[test]
fn a_file_system_can_be_unmounted_after_the_call() {
    let test = "a_file_system_can_be_unmounted_after_the_call";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let place = files::path("mount");
    std::fs::create_dir_all(&place).unwrap();
    let at = std::ffi::CString::new(place.to_str().unwrap()).unwrap();
    // SAFETY: a mount namespace of this thread's own, strings that end in zero.
    let mounted = unsafe {
        let (none, all) = (core::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, all, none.cast()) == 0
            && libc::mount(
                c"none".as_ptr(),
                at.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                none.cast(),
            ) == 0
    };
    if !mounted {
        std::fs::remove_dir(&place).unwrap();
        softfault_skip::skipped("root", "no mount for this user");
        return;
    }
    // SAFETY: a string that ends in zero.
    let unmount = || unsafe { libc::umount(at.as_ptr()) };
    let engine = engine();
    let file = named(&place.join("file"), 1 << 20);
    let map = touched(&engine, &file);
    drop(file);
    engine.close_idle();
    assert_eq!(unmount(), -1, "it is mapped");
    drop(map);
    assert_eq!(unmount(), -1, "its window is kept");
    assert_eq!(engine.stats().idle_windows, 1);
    engine.close_idle();
    assert_eq!(engine.stats().idle_windows, 0);
    assert_eq!(unmount(), 0, "{}", std::io::Error::last_os_error());
    std::fs::remove_dir(&place).unwrap();
}
