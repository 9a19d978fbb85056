//! Files whose bytes are known from their offsets, files without a name, and engines that serve all of them.

#![allow(dead_code)]

use softfault::soft::SoftEngine;
use softfault::{Engine, Mmap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The byte that a made file holds at `offset`: differs from page to page and
/// within a page.
pub fn byte_at(offset: usize) -> u8 {
    let word = (offset as u64 / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (word >> (8 * (offset % 8))) as u8
}

/// A place for a test's file, on the disk that the build is on. Each process has its own: the
/// same test may run in several at once.
pub fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let test = test.file_name().unwrap().to_string_lossy().into_owned();
    let process = std::process::id();
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{process}-{name}"))
}

/// A file of `bytes` bytes; removed from its folder at once, so that nothing
/// is left behind.
pub fn made_file(name: &str, bytes: usize) -> File {
    // Tests of one program run side by side.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = path(&format!("{name}-{number}"));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    for word in 0..bytes / 8 {
        let value = (word as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        out.write_all(&value.to_le_bytes()).unwrap();
    }
    for offset in bytes / 8 * 8..bytes {
        out.write_all(&[byte_at(offset)]).unwrap();
    }
    out.flush().unwrap();
    drop(out);
    file.sync_all().unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

/// A map of a file of the test's own, by a descriptor that is open for reading only, where the system has one: a map by others may be the
/// kernel's from the start.
pub fn map(engine: &Engine, file: &File) -> Mmap {
    let to_read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // SAFETY: nobody writes to the file, or the test looks for what is written.
    unsafe { engine.map(to_read.as_ref().unwrap_or(file)) }.unwrap()
}

/// A file without a name with these bytes, in the folder for temporary files, whose disk or memory it is on.
pub fn scratch(bytes: &[u8]) -> File {
    let (path, file) = (1..)
        .find_map(|number| {
            let name = format!("softfault-scratch-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true).open(&path);
            Some((path, file.ok()?))
        })
        .unwrap();
    file.write_all_at(bytes, 0).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// Touches a byte of a map of a made file.
#[track_caller]
pub fn check(map: &[u8], offset: usize) {
    // SAFETY: within the slice; volatile, so that the touch happens here.
    let found = unsafe { map.as_ptr().add(offset).read_volatile() };
    assert!(offset < map.len());
    assert_eq!(found, byte_at(offset), "at offset {offset}");
}

/// An engine with this budget. It serves every file itself, however small it is and wherever its bytes are.
pub fn engine(memory: usize) -> Engine {
    let builder = Engine::builder().allow_kernel_maps(false);
    builder.memory(memory).build().unwrap()
}

/// The same, over soft page tables.
pub fn soft_engine(memory: usize) -> SoftEngine {
    let builder = Engine::builder().allow_kernel_maps(false);
    builder.memory(memory).build_soft().unwrap()
}

/// Lets the process have no new descriptor whose number is `most` or more.
pub fn allow_numbers(most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: of numbers that are opened from now on.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Takes all the numbers that the process may have.
pub fn use_up_numbers() {
    allow_numbers(64);
    // SAFETY: makes numbers that nobody uses.
    while unsafe { libc::dup(0) } >= 0 {}
}
