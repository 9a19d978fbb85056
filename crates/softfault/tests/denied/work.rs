//! A program's use of the library, step by step: each step's result is printed.

use super::files::scratch;
use super::filter::deny;
use libc::c_long;
use softfault::{Advice, Engine, HugeBacking, HugeMemory, Mmap, MmapOptions, RemapOptions, Swap};
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

const PAGE: usize = 4096;
/// A budget as small as can be, and files and memory beyond it.
const MEMORY: usize = 8 << 20;
const FILE_PAGES: usize = 2 * MEMORY / PAGE;
const ANON_PAGES: usize = 3 * MEMORY / 2 / PAGE;

/// When the calls are denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Before the library is used.
    TheStart,
    /// When all is mapped, and some of it touched.
    TheMaps,
}

fn word(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Prints how a step ended, in a line.
fn step<T, E: Display>(name: &str, done: Result<T, E>) -> Option<T> {
    let out = match &done {
        Ok(_) => format!("{name}: ok"),
        Err(error) => format!("{name}: error: {error}"),
    };
    println!("{}", out.replace('\n', " "));
    std::io::stdout().flush().unwrap();
    done.ok()
}

fn wrong(what: &str) -> ! {
    println!("WRONG BYTES: {what}");
    std::process::exit(9);
}

/// A file for the rows of a test, each of which gets it as its standard input.
pub fn file() -> File {
    let mut bytes = vec![0; FILE_PAGES * PAGE];
    for (page, bytes) in bytes.chunks_mut(PAGE).enumerate() {
        bytes[..8].copy_from_slice(&word(page).to_ne_bytes());
        bytes[PAGE - 8..].copy_from_slice(&word(page).to_ne_bytes());
    }
    let file = scratch(&bytes);
    file.sync_data().unwrap();
    file
}

fn look(name: &str, bytes: &[u8], page: usize, expected: u64) {
    let word_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    for at in [page * PAGE, page * PAGE + PAGE - 8] {
        if word_at(at) != expected {
            wrong(&format!("{name}: page {page} has {:x}", word_at(at)));
        }
    }
}

/// All that a program may want, where `calls` answer `errno` since then.
pub fn run(calls: &[c_long], errno: i32, since: Since) {
    let file = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let other = File::open("/proc/self/exe").unwrap();
    let huge = HugeMemory::builder().backing(HugeBacking::BasePages);
    if since == Since::TheStart {
        deny(calls, errno);
    }
    let swap = Swap::in_dir(std::env::temp_dir()).bytes(64 << 20);
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MEMORY)
        .max_memory(4 * MEMORY)
        .swap(swap);
    let Some(engine) = step("build", builder.build()) else {
        soft(&file);
        return;
    };
    // SAFETY: nobody writes to it.
    let map = step("map", unsafe { engine.map(&file) });
    let anon = step("map_anon", engine.map_anon(ANON_PAGES * PAGE));
    // SAFETY: as above.
    let copy = step("map_copy", unsafe { engine.map_copy(&file) });
    let memory = step("huge", huge.create(4 << 20));
    let huge = memory
        .as_ref()
        .and_then(|memory| step("map_huge", memory.map()));
    if since == Since::TheMaps {
        if let Some(map) = &map {
            (0..8).for_each(|page| look("map", map, page, word(page)));
        }
        deny(calls, errno);
    }
    if let Some(map) = &map {
        calls_of_map(&engine, map);
        touches_of_map(map);
    }
    if let Some(mut anon) = anon {
        for page in 0..ANON_PAGES {
            anon[page * PAGE..page * PAGE + 8].copy_from_slice(&word(page).to_ne_bytes());
            anon[page * PAGE + PAGE - 8..(page + 1) * PAGE]
                .copy_from_slice(&word(page).to_ne_bytes());
        }
        for page in 0..ANON_PAGES {
            look("anon", &anon, page, word(page));
        }
        println!("anon: ok");
        forked(&mut anon);
        step("advise_anon", anon.advise(Advice::PageOut));
        step("populate_anon", anon.populate(..64 * PAGE));
        // SAFETY: nobody has a slice of it.
        let grown =
            unsafe { anon.remap(2 * ANON_PAGES * PAGE, RemapOptions::new().may_move(true)) };
        let pages = if grown.is_ok() {
            2 * ANON_PAGES
        } else {
            ANON_PAGES
        };
        step("remap", grown);
        for page in (0..pages).step_by(7) {
            let expected = if page < ANON_PAGES { word(page) } else { 0 };
            look("remapped", &anon, page, expected);
        }
        if let Some(map) = step("protect", anon.make_read_only()) {
            look("protected", &map, 5, word(5));
        }
    }
    if let Some(mut copy) = copy {
        for page in 0..FILE_PAGES {
            look("copy", &copy, page, word(page));
            if page % 5 == 0 {
                copy[page * PAGE..page * PAGE + 8].copy_from_slice(&7u64.to_ne_bytes());
            }
        }
        for page in (0..FILE_PAGES).step_by(5) {
            if copy[page * PAGE] != 7 {
                wrong("copy: written bytes are gone");
            }
        }
        println!("copy: ok");
    }
    if let Some(huge) = &huge {
        step("populate_huge", huge.populate(..));
        // SAFETY: within the map, which nobody else has.
        unsafe { huge.as_mut_ptr().write_volatile(3) };
        let mut byte = [0];
        step("read_huge", huge.read_at(&mut byte, 0));
        if byte != [3] {
            wrong("huge");
        }
    }
    step("set_memory", engine.set_memory(2 * MEMORY));
    // SAFETY: as above.
    step("map_other", unsafe {
        MmapOptions::new().map_in(&engine, &other)
    });
    drop((map, huge, memory));
    drop(engine);
    println!("end: ok");
}

fn calls_of_map(engine: &Engine, map: &Mmap) {
    let mut bytes = vec![0; PAGE];
    if step("read_at", map.read_at(&mut bytes, 9 * PAGE)).is_some() {
        look("read_at", &bytes, 0, word(9));
    }
    if let Some(pinned) = step("pin", map.pin(10 * PAGE..12 * PAGE)) {
        look("pinned", &pinned, 1, word(11));
    }
    step("prefetch", map.prefetch(..));
    step("advise", map.advise(Advice::Random));
    step("residency", map.residency(..));
    step("invalidate", map.invalidate(..));
    step(
        "advise_range",
        map.advise_range(Advice::PopulateRead, 0, 64 * PAGE),
    );
    let _ = engine.stats();
}

fn touches_of_map(map: &Mmap) {
    for page in 0..FILE_PAGES {
        look("map", map, page, word(page));
    }
    let mut at = 1;
    for _ in 0..FILE_PAGES / 4 {
        at = (at * 5 + 1) % FILE_PAGES;
        look("map, at random", map, at, word(at));
    }
    println!("touch: ok");
}

/// A child that reads and writes the memory it has inherited.
fn forked(anon: &mut [u8]) {
    // SAFETY: the child touches the memory and ends.
    let child = unsafe { libc::fork() };
    if child < 0 {
        step::<(), _>("fork", Err(std::io::Error::last_os_error()));
        return;
    }
    if child == 0 {
        for page in (0..ANON_PAGES).step_by(3) {
            look("child", anon, page, word(page));
            anon[page * PAGE] = 1;
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: fills the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    println!(
        "fork: {}",
        match status {
            0 => "ok".to_owned(),
            _ if libc::WIFSIGNALED(status) => format!("signal {}", libc::WTERMSIG(status)),
            _ => format!("status {}", libc::WEXITSTATUS(status)),
        }
    );
}

/// Where there is no userfaultfd: the same by calls.
fn soft(file: &File) {
    let Some(engine) = step(
        "build_soft",
        Engine::builder()
            .allow_kernel_maps(false)
            .memory(MEMORY)
            .build_soft(),
    ) else {
        return;
    };
    let Some(map) = step("map_soft", engine.map(file)) else {
        return;
    };
    let mut bytes = vec![0; PAGE];
    for page in 0..FILE_PAGES {
        match map.read_at(&mut bytes, page * PAGE) {
            Ok(_) => look("soft", &bytes, 0, word(page)),
            Err(error) => {
                step::<(), _>("read_soft", Err(error));
                return;
            }
        }
    }
    println!("read_soft: ok");
}
