//! Maps that write to their file over the engine: the file's bytes when the process has ended, when the map has become shorter, when
//! the file takes nothing, and where the system has no threads; a child of fork and a small map beside them.

mod child;
mod filter;
mod write_scene;

use child::{command, forked, scenario};
use softfault::{Advice, Coherence, Engine, MmapRaw, UncheckedAdvice};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use write_scene::{PAGE, Scratch, byte, engine, in_file, read, write};

/// A byte that the handlers below store to, if there is one, and the next.
static STORED_AT_EXIT: AtomicUsize = AtomicUsize::new(0);

fn store_at_exit(offset: usize) {
    let at = STORED_AT_EXIT.load(Relaxed);
    if at != 0 {
        // SAFETY: the map was leaked.
        unsafe { ((at + offset) as *mut u8).write_volatile(77) };
    }
}

/// A handler of atexit(3), or a destructor of C++ of something global.
extern "C" fn at_exit() {
    store_at_exit(0);
}

extern "C" fn destructor() {
    store_at_exit(1);
}

/// After all of them.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// Stores are in the file after each kind of end at which the process still runs code of ours.
#[test]
fn a_process_that_ends_by_itself_loses_nothing() {
    const TEST: &str = "a_process_that_ends_by_itself_loses_nothing";
    if let Some(scenario) = scenario() {
        let (how, path) = scenario.split_once(' ').unwrap();
        // The last that is registered runs first: ours will be.
        // SAFETY: a function that stays.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
        let file = File::options().read(true).write(true).open(path).unwrap();
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        map[3 * PAGE] = 77;
        match how {
            "leak" => core::mem::forget((map, engine)),
            "exit" => {
                STORED_AT_EXIT.store(&raw mut map[40 * PAGE] as usize, Relaxed);
                core::mem::forget((map, engine));
                std::process::exit(0)
            }
            "flushed" => {
                map.flush().unwrap();
                // SAFETY: ends the process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            _ => {}
        }
        return;
    }
    for how in ["return", "leak", "exit", "flushed"] {
        let scratch = Scratch::new(how, 64 * PAGE);
        let mut command = command(TEST, &format!("{how} {}", scratch.0.display()));
        let output = command.output().unwrap();
        match how {
            "flushed" => assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{output:?}"),
            _ => assert!(output.status.success(), "{how}: {output:?}"),
        }
        let content = scratch.content();
        assert_eq!(content[3 * PAGE], 77, "{how}");
        if how == "exit" {
            assert_eq!(content[40 * PAGE..][..2], [77; 2], "{how}");
        }
    }
}

/// A map that has become shorter has all stores in the file when it is dropped, and when it is made anew for a file that has outgrown it.
#[test]
fn stores_in_a_part_that_is_cut_off_are_in_the_file() {
    const LONG: usize = 70 << 20;
    let engine = engine(16 << 20);
    for outgrown in [false, true] {
        let scratch = Scratch::new("shorter", 64 * PAGE);
        let file = scratch.open();
        let mut map = write(&engine, &file);
        // Far from the others, or it would be written with them.
        map[60 * PAGE] = 77;
        // SAFETY: nobody has a reference to its bytes.
        unsafe { map.remap(4 * PAGE + 50, Default::default()) }.unwrap();
        if outgrown {
            map.set_len(&file, LONG).unwrap();
            assert_eq!((map.len(), map[60 * PAGE]), (LONG, 77));
        }
        drop(map);
        assert_eq!(in_file(&file, 60 * PAGE), 77);
    }
}

/// Where no thread can be started, nobody would begin to write later.
#[test]
fn a_flush_that_does_not_wait_needs_no_thread() {
    if scenario().is_none() {
        return child::succeeds("a_flush_that_does_not_wait_needs_no_thread", "alone");
    }
    let scratch = Scratch::new("threadless", 64 * PAGE);
    let file = scratch.open();
    let engine = engine(16 << 20);
    filter::deny(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let mut map = write(&engine, &file);
    map[3 * PAGE] = 77;
    map.flush_async().unwrap();
    assert_eq!(in_file(&file, 3 * PAGE), 77);
    assert_eq!(map.dirty_bytes(), 0);
}

/// Writes beyond RLIMIT_FSIZE are refused: reported once, and nothing is lost.
#[test]
fn write_errors_are_reported_once_and_pages_stay() {
    const TEST: &str = "write_errors_are_reported_once_and_pages_stay";
    let Some(path) = scenario() else {
        let scratch = Scratch::new("refused", 64 * PAGE);
        child::succeeds(TEST, scratch.0.to_str().unwrap());
        let content = scratch.content();
        assert!((0..64).all(|page| content[page * PAGE] == 200 + page as u8 % 50));
        return;
    };
    let limit = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    let other = write(&engine, &file);
    (0..64).for_each(|page| map[page * PAGE] = 200 + page as u8 % 50);
    limit(32 * PAGE as u64);
    let error = map.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    assert_eq!(map.dirty_bytes(), 32 * PAGE as u64);
    assert!(engine.stats().write_errors > 0);
    // They are open to system calls, which write the bytes that are there already.
    let mut same = File::open(path).unwrap();
    let before = map[40 * PAGE..42 * PAGE].to_vec();
    map.read_from(40 * PAGE..42 * PAGE, &mut same).unwrap();
    map[40 * PAGE..42 * PAGE].copy_from_slice(&before);
    // A map that reads knows of no failure before.
    let reader = MmapRaw::from(read(&engine, &file));
    let error = reader.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    reader.flush_range(0, PAGE).unwrap();
    // Each handle is told.
    let error = other.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    limit(libc::RLIM_INFINITY);
    // Of the failure of the other's flush.
    assert!(map.flush().is_err());
    map.flush().unwrap();
    assert_eq!(map.dirty_bytes(), 0);
}

/// The parent's locks may be held for ever there.
#[test]
fn a_child_of_fork_drops_what_the_parent_pinned() {
    let scratch = Scratch::new("pinned-child", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let map = write(&engine, &file).make_read_only().unwrap();
    let mut pinned = Some(map.pin(PAGE..2 * PAGE).unwrap());
    let byte_before = byte(&map, PAGE);
    let status = forked(|| {
        drop(pinned.take());
        i32::from(byte(&map, PAGE) != byte_before)
    });
    assert_eq!(status, 0);
    assert_eq!(byte(pinned.as_ref().unwrap(), 0), byte_before);
}

/// The kernel has mapped the file there, and the child has no managed part of the engine.
#[test]
fn a_child_of_fork_makes_every_call() {
    let scratch = Scratch::new("child-calls", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = Some(write(&engine, &file));
    map.as_mut().unwrap()[PAGE] = 1;
    let status = forked(|| {
        let mut map = map.take().unwrap();
        let mut buffer = [0];
        map.read_at(&mut buffer, PAGE).unwrap();
        assert_eq!(buffer, [1]);
        map.write_at(&[2], PAGE).unwrap();
        map.populate(..).unwrap();
        map.lock().unwrap();
        map.unlock().unwrap();
        map.advise(Advice::WillNeed).unwrap();
        // SAFETY: the bytes are the file's.
        unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) }.unwrap();
        assert_eq!(
            map.write_to(.., &mut std::io::sink()).unwrap(),
            64 * PAGE as u64
        );
        map.read_from(..PAGE, &mut &[3; PAGE][..]).unwrap();
        map.write_from(2 * PAGE..3 * PAGE, &mut &[4; PAGE][..])
            .unwrap();
        map.flush_async().unwrap();
        map.flush().unwrap();
        assert_eq!((map.dirty_bytes(), map.resident_bytes()), (0, 0));
        drop(map);
        0
    });
    assert_eq!(status, 0);
    let content = scratch.content();
    assert_eq!([0, PAGE, 2 * PAGE].map(|at| content[at]), [3, 2, 4]);
}

/// Failed before: as with mlock(2), the parent's lock is not the child's.
#[test]
fn a_child_of_fork_cuts_a_map_that_its_parent_has_locked() {
    let scratch = Scratch::new("child-locked", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = Some(write(&engine, &file));
    map.as_ref().unwrap().lock().unwrap();
    let status = forked(|| {
        let mut map = map.take().unwrap();
        for pages in [32, 64] {
            // SAFETY: nobody has a reference to its bytes.
            unsafe { map.remap(pages * PAGE, Default::default()) }.unwrap();
        }
        0
    });
    assert_eq!(status, 0);
}

/// Failed before: it asked the parent's page cache, whose locks may be held for ever there.
#[test]
fn a_child_that_has_not_inherited_a_map_has_none_of_its_pages() {
    let scratch = Scratch::new("child-without", 64 * PAGE);
    let engine = engine(16 << 20);
    let map = write(&engine, &scratch.open());
    map.populate(..).unwrap();
    map.advise(Advice::DontFork).unwrap();
    assert_eq!(forked(|| i32::from(map.resident_bytes() != 0)), 0);
    assert_eq!(map.resident_bytes(), 64 * PAGE);
}

/// A small file that was mapped to be read is the kernel's, and the engine's writable map another place of its pages.
#[test]
fn a_small_map_made_before_shows_what_is_written_back() {
    let scratch = Scratch::new("small", 64 * PAGE);
    let engine = Engine::builder().coherence(Coherence::Engine);
    let engine = engine.memory(16 << 20).build().unwrap();
    let file = scratch.open();
    // SAFETY: written bytes are looked for.
    let seen = unsafe { engine.map(&file) }.unwrap();
    let mut map = write(&engine, &file);
    map[5 * PAGE] = 7;
    map.flush().unwrap();
    assert_eq!(byte(&seen, 5 * PAGE), 7);
}
