//! Files that maps write to, where there is no address space for twice their size, or little memory beside locked pages.

mod child;
mod write_scene;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use write_scene::{PAGE, Scratch, engine, in_file, write};

const BYTES: usize = 16 << 30;

/// Address space of the process.
fn space() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').next().unwrap();
    pages.parse::<usize>().unwrap() * PAGE
}

#[test]
fn a_file_without_room_to_grow_is_written_over() {
    let test = "a_file_without_room_to_grow_is_written_over";
    if child::scenario().is_none() {
        return child::succeeds(test, "limited");
    }
    let path = std::env::temp_dir().join(format!("softfault-room-{}", std::process::id()));
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let file = options.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(BYTES as u64).unwrap();
    let engine = engine(16 << 20);
    let most = (space() + BYTES / 2 * 3) as u64;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: limits this process, which is the test's alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let mut map = write(&engine, &file);
    map[BYTES - 1] = 7;
    map.flush().unwrap();
    assert_eq!(in_file(&file, BYTES - 1), 7);
}

/// As of maps that only read, up to half of the budget can be locked. Other files are written to beside that.
#[test]
fn locked_pages_leave_room_for_stores() {
    let engine = engine(8 << 20);
    let locked = Scratch::new("locked", 3 << 20);
    let locked = write(&engine, &locked.open());
    locked.lock().unwrap();
    let scratch = Scratch::new("beside-locked", 200 * PAGE);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    for page in 0..200 {
        assert_eq!(map.write_at(&[7], page * PAGE), Ok(1), "page {page}");
    }
    map.flush().unwrap();
    assert!((0..200).all(|page| in_file(&file, page * PAGE) == 7));
}

/// A file has as many blocks as it is long, and a hole: some of them are past its end. Failed before: all of it was taken for dense, so that a store to
/// the hole reserved no block. On a full disk it succeeded, and its bytes were lost.
#[test]
fn blocks_past_the_end_fill_no_hole() {
    const BYTES: usize = 4 << 20;
    const HOLE: usize = 2 << 20;
    let scratch = Scratch::new("past-end", BYTES);
    let file = scratch.open();
    file.sync_all().unwrap();
    let allocate = |mode, at: usize, bytes: usize| {
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a file of the test's.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, bytes as i64) == 0 }
    };
    let made = allocate(libc::FALLOC_FL_PUNCH_HOLE, HOLE, 64 << 10) && allocate(0, BYTES, 1 << 20);
    let bytes_in_blocks = || file.metadata().unwrap().blocks() * 512;
    if !made || bytes_in_blocks() < BYTES as u64 {
        return softfault_skip::skipped(
            "kernel",
            "the temporary directory has no blocks past the end of a file with holes",
        );
    }
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    let before = bytes_in_blocks();
    map[HOLE + PAGE] = 7;
    assert!(bytes_in_blocks() > before, "the page has its block at once");
    map.flush().unwrap();
    assert_eq!(in_file(&file, HOLE + PAGE), 7);
}
