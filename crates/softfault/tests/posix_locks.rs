//! The program's POSIX locks (fcntl(2)) on files that it maps: any close of a descriptor
//! of the file in the process's table would drop them.

mod child;
mod files;
mod filter;

use softfault::{Engine, Mmap};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

fn flock(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 100,
        l_len: 10,
        l_pid: 0,
    }
}

fn set(fd: RawFd, kind: i32) {
    // SAFETY: a structure as the call takes it.
    let answer = unsafe { libc::fcntl(fd, libc::F_SETLK, &flock(kind)) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// True if the process has a lock on the file, as an open file of its own sees it.
fn is_held(probe: RawFd) -> bool {
    let mut lock = flock(libc::F_WRLCK);
    // SAFETY: fills the structure.
    let answer = unsafe { libc::fcntl(probe, libc::F_OFD_GETLK, &mut lock) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    lock.l_type != libc::F_UNLCK as i16
}

/// A file, and it opened anew. Neither is ever closed.
fn file(bytes: usize) -> (File, RawFd) {
    let file = files::made_file("locked", bytes);
    let probe = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let fd = probe.as_raw_fd();
    core::mem::forget(probe);
    (file, fd)
}

fn engine() -> Engine {
    files::engine(16 << 20)
}

fn touched(engine: &Engine, file: &File) -> Mmap {
    // SAFETY: nobody writes to it.
    let map = unsafe { engine.map(file) }.unwrap();
    (0..map.len())
        .step_by(4096)
        .for_each(|at| files::check(&map, at));
    map
}

/// Numbers of the process that mean the file.
fn numbers(file: &File) -> usize {
    let of_file = file.metadata().unwrap();
    let found = std::fs::read_dir("/proc/self/fd").unwrap();
    let found = found.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
    found
        .filter(|found| (found.dev(), found.ino()) == (of_file.dev(), of_file.ino()))
        .count()
}

/// Failed before: lost when the window went, and at exec.
#[test]
fn a_lock_from_before_the_map_is_kept() {
    let test = "a_lock_from_before_the_map_is_kept";
    match child::scenario().as_deref() {
        None => return child::succeeds(test, "alone"),
        Some("alone") => {}
        Some(probe) => return assert!(is_held(probe.parse().unwrap()), "lost at exec"),
    }
    let (file, probe) = file(1 << 20);
    assert!(!is_held(probe));
    set(file.as_raw_fd(), libc::F_WRLCK);
    let engine = engine();
    let map = touched(&engine, &file);
    assert!(is_held(probe), "map");
    // SAFETY: nobody writes to it.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    files::check(&copy, 5000);
    drop(copy);
    assert!(is_held(probe), "a private map goes");
    // Without a number of the program's table the child has it all the same.
    let read = || {
        (0..map.len()).for_each(|at| files::check(&map, at));
        0
    };
    assert_eq!(child::forked(read), 0);
    assert!(is_held(probe), "fork");
    drop(map);
    engine.close_idle();
    assert!(is_held(probe), "unmap");
    let soft = files::soft_engine(16 << 20);
    let map = soft.map(&file).unwrap();
    map.read_at(&mut [0; 4096], 0).unwrap();
    drop(map);
    drop(soft);
    assert!(is_held(probe), "an engine goes");
    let map = touched(&engine, &file);
    // SAFETY: plain flags.
    unsafe {
        libc::fcntl(probe, libc::F_SETFD, 0);
        libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0);
    }
    use std::os::unix::process::CommandExt;
    let error = child::command(test, &probe.to_string()).exec();
    panic!("{error} {}", map.len());
}

/// A daemon has closed its standard input and output. Failed before: the number that a fork took for its child was one of them, and was
/// closed.
#[test]
fn a_lock_is_kept_at_a_fork_where_the_first_numbers_are_free() {
    let test = "a_lock_is_kept_at_a_fork_where_the_first_numbers_are_free";
    let Some(how) = child::scenario() else {
        child::succeeds(test, "taken");
        return child::succeeds(test, "sent");
    };
    if how == "sent" {
        filter::deny(&[libc::SYS_pidfd_getfd], libc::EINVAL);
    }
    let (file, probe) = file(1 << 20);
    set(file.as_raw_fd(), libc::F_WRLCK);
    let engine = engine();
    // SAFETY: nobody writes to it.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    // SAFETY: numbers that are put back before anything is said.
    let saved = [0, 1].map(|fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) });
    // SAFETY: as above.
    let closed = [0, 1].map(|fd| unsafe { libc::close(fd) });
    assert_eq!(closed, [0; 2]);
    let read = || {
        (0..copy.len()).for_each(|at| files::check(&copy, at));
        0
    };
    let status = child::forked(read);
    // SAFETY: as above.
    let free = [0, 1].map(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1);
    (0..2).for_each(|fd| {
        // SAFETY: as above.
        unsafe { libc::dup2(saved[fd as usize], fd) };
    });
    assert_eq!((status, free), (0, [true; 2]));
    assert!(is_held(probe));
}

/// Failed before: lost when the window went.
#[test]
fn a_lock_from_after_the_map_is_kept() {
    let test = "a_lock_from_after_the_map_is_kept";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let (file, probe) = file(1 << 20);
    let known = numbers(&file);
    let engine = engine();
    let map = touched(&engine, &file);
    set(file.as_raw_fd(), libc::F_RDLCK);
    drop(map);
    engine.close_idle();
    assert!(is_held(probe), "unmap");
    let map = touched(&engine, &file);
    drop(map);
    drop(engine);
    assert!(is_held(probe), "an engine goes");
    set(file.as_raw_fd(), libc::F_UNLCK);
    // A kept descriptor is closed when somebody looks.
    let engine = self::engine();
    drop(touched(&engine, &files::made_file("other", 4096)));
    let began = std::time::Instant::now();
    while numbers(&file) > known {
        assert!(began.elapsed().as_secs() < 60, "kept for ever");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The descriptor that the program maps by may be closed, as ever: that is its own close.
#[test]
fn a_file_without_locks_is_read_by_a_number() {
    let test = "a_file_without_locks_is_read_by_a_number";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let (file, _) = file(1 << 20);
    let known = numbers(&file);
    let engine = engine();
    let map = touched(&engine, &file);
    println!("{} numbers more", numbers(&file) - known);
    drop(map);
    engine.close_idle();
    assert_eq!(numbers(&file), known);
}
