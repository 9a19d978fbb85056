//! Maps that write to their file: other readers of the file, the calls that write to the map, and `exec`; the cells of
//! `docs/contract.md` about these.

mod child;
mod write_scene;

use softfault::{Advice, Coherence, Engine, Faults, MmapOptions, MmapRaw};
use softfault_skip::skipped;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use write_scene::{PAGE, Scratch, byte, engine, in_file, read, write};

const PAGES: usize = 64;
/// The byte that each test writes.
const AT: usize = 5 * PAGE + 7;

fn of(coherence: Coherence) -> Engine {
    let builder = Engine::builder().memory(16 << 20).small_maps(0);
    builder.coherence(coherence).build().unwrap()
}

/// The page of [`AT`], past the page cache; `None` where the file system has no such reads.
fn direct(scratch: &Scratch) -> Option<u8> {
    let direct = libc::O_DIRECT;
    let file = File::options()
        .read(true)
        .custom_flags(direct)
        .open(&scratch.0)
        .ok()?;
    let layout = Layout::from_size_align(PAGE, PAGE).unwrap();
    // SAFETY: a page that is freed below, and as many bytes.
    unsafe {
        let page = alloc_zeroed(layout);
        let bytes = core::slice::from_raw_parts_mut(page, PAGE);
        let got = file.read_exact_at(bytes, (AT / PAGE * PAGE) as u64);
        let byte = bytes[AT % PAGE];
        dealloc(page, layout);
        got.ok().map(|()| byte)
    }
}

/// As with msync(2): what others have stored to the file is on the device then.
#[test]
fn a_flush_of_a_map_that_reads_is_one_of_the_file() {
    let scratch = Scratch::new("flushed-by-a-reader", PAGES * PAGE);
    let (engine, file) = (engine(16 << 20), scratch.open());
    let mut map = write(&engine, &file);
    let reader = MmapRaw::from(read(&engine, &file));
    map[AT] = 77;
    reader.flush_range(AT, 1).unwrap();
    assert_eq!(in_file(&file, AT), 77);
    map[AT] = 78;
    reader.flush_async().unwrap();
    while map.dirty_bytes() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(in_file(&file, AT), 78);
    assert!(reader.flush_range(PAGES * PAGE, 1).is_err());
    // Of the kernel's.
    let kernels = MmapOptions::new().map_raw_read_only(&scratch.open());
    kernels.unwrap().flush().unwrap();
}

/// Kernel's maps at once, the engine's once it is written back.
#[test]
fn readers_past_the_engine_see_a_store() {
    for coherence in [Coherence::Kernel, Coherence::Engine] {
        let scratch = Scratch::new("past", PAGES * PAGE);
        let file = scratch.open();
        // SAFETY: written bytes are looked for.
        let executable = match unsafe { MmapOptions::new().map_exec(&file) } {
            Ok(map) => Some(map),
            Err(why) => {
                skipped("root", format_args!("nothing there may be executed: {why}"));
                None
            }
        };
        let raw = MmapOptions::new().map_raw_read_only(&file).unwrap();
        // SAFETY: within the map.
        let in_raw = || unsafe { raw.as_ptr().add(AT).read_volatile() };
        let before = in_raw();
        let engine = of(coherence);
        // SAFETY: as above.
        let mut map = unsafe { engine.map_mut(&file) }.unwrap();
        assert_eq!(map.is_managed(), coherence == Coherence::Engine);
        let written = !before;
        map[AT] = written;
        if coherence == Coherence::Engine {
            map.flush().unwrap();
        }
        assert_eq!(in_raw(), written, "{coherence:?}");
        if let Some(executable) = &executable {
            assert_eq!(byte(executable, AT), written, "{coherence:?}");
        }
        match direct(&scratch) {
            Some(read) => assert_eq!(read, written, "{coherence:?}"),
            None => skipped("direct", "no reads past the page cache there"),
        }
    }
}

/// Of another engine, which has read the page before: when it reads the page again.
#[test]
fn maps_of_another_engine_see_a_store_when_they_read_again() {
    for coherence in [Coherence::Kernel, Coherence::Engine] {
        let scratch = Scratch::new("other", PAGES * PAGE);
        let file = scratch.open();
        let other = Engine::builder().memory(16 << 20).small_maps(0);
        let other = other.allow_kernel_maps(false).build().unwrap();
        let seen = read(&other, &file);
        // SAFETY: written bytes are looked for.
        let private = unsafe { MmapOptions::new().map_copy_in(&other, &file) }.unwrap();
        let before = [byte(&seen, AT), byte(&private, AT)];
        let engine = of(coherence);
        // SAFETY: as above.
        let mut map = unsafe { engine.map_mut(&file) }.unwrap();
        let written = !before[0];
        map[AT] = written;
        if coherence == Coherence::Engine {
            map.flush().unwrap();
        }
        seen.advise(Advice::PageOut).unwrap();
        private.advise(Advice::PageOut).unwrap();
        assert_eq!(
            [byte(&seen, AT), byte(&private, AT)],
            [written; 2],
            "{coherence:?}"
        );
    }
}

/// The kernel's own faults wait, as those of the program do: read(2) writes to pages that are missing, that are clean, and that
/// are written back or evicted meanwhile.
#[test]
fn where_faults_are_messages_system_calls_write_to_any_page() {
    // All engines of a process have the same faults.
    if child::scenario().is_none() {
        let test = "where_faults_are_messages_system_calls_write_to_any_page";
        return child::succeeds(test, "alone");
    }
    const MEMORY: usize = 8 << 20;
    const BYTES: usize = 4 * MEMORY + 100;
    let builder = Engine::builder()
        .memory(MEMORY)
        .coherence(Coherence::Engine);
    let engine = match builder.faults(Faults::Messages).build() {
        Ok(engine) => engine,
        Err(why) => {
            let why = format_args!("the kernel's faults cannot be served here: {why}");
            return skipped("messages", why);
        }
    };
    let scratch = Scratch::new("by-messages", BYTES);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    assert!(map.is_managed());
    let source = Scratch::new("by-messages-from", 0);
    for round in 1..=3_usize {
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7 * round) as u8).collect();
        std::fs::write(&source.0, &bytes).unwrap();
        // Clean pages, which are protected, among missing ones.
        (0..BYTES)
            .step_by(9 * PAGE)
            .for_each(|at| assert_eq!(byte(&map, at), map[at]));
        let mut from = File::open(&source.0).unwrap();
        let (half, rest) = map.split_at_mut(BYTES / 2);
        from.read_exact(half).unwrap();
        from.read_exact(rest).unwrap();
        assert!(map[..] == bytes, "round {round}");
        map.flush().unwrap();
        assert_eq!(map.dirty_bytes(), 0);
        assert!(scratch.content() == bytes, "round {round}");
    }
    assert!(engine.stats().peak_bytes <= MEMORY as u64);
}

/// A device writes to pages of a locked part at any time, also while they are written back.
#[test]
fn direct_reads_into_a_locked_part_are_whole() {
    const ROUNDS: usize = 1000;
    let [scratch, source] = ["locked", "direct"].map(|name| Scratch::new(name, PAGES * PAGE));
    let mut direct = File::options();
    direct.read(true).custom_flags(libc::O_DIRECT);
    let Ok(direct) = direct.open(&source.0) else {
        return skipped("direct", "no reads past the page cache there");
    };
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    let other = write(&engine, &file);
    if let Err(why) = map.lock() {
        return skipped("mlock", why);
    }
    let ends = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                other.flush().unwrap();
                // Locked pages stay.
                let _ = other.advise(Advice::PageOut);
            }
        });
        let wrong = (0..ROUNDS).find(|round| {
            let at = round % PAGES * PAGE;
            let bytes = [(round % 251 + 1) as u8; PAGE];
            source.open().write_all_at(&bytes, at as u64).unwrap();
            let page = &mut map[at..at + PAGE];
            let read = direct.read_exact_at(page, at as u64);
            read.is_err() || page[..] != bytes
        });
        ends.store(true, Relaxed);
        wrong
    });
    assert_eq!(wrong, None);
    map.flush().unwrap();
    assert!(scratch.content() == map[..]);
}

/// `exec` ends a process as a signal does: what a flush covered is in the file. A fork before it writes everything back.
#[test]
fn exec_without_a_fork_keeps_what_was_flushed() {
    const TEST: &str = "exec_without_a_fork_keeps_what_was_flushed";
    if let Some(scenario) = child::scenario() {
        let (how, path) = scenario.split_once(' ').unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        map[AT] = 1;
        let exec = || {
            let arguments = [c"true".as_ptr(), core::ptr::null()];
            // SAFETY: strings that end in zero, in a list that ends in null.
            unsafe { libc::execvp(arguments[0], arguments.as_ptr()) }
        };
        match how {
            "flushed" => {
                map.flush().unwrap();
                map[AT + PAGE] = 1;
                exec();
            }
            _ => {
                assert_eq!(child::forked(exec), 0);
                // SAFETY: ends the process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
        }
        unreachable!("it is another program by now");
    }
    for how in ["flushed", "forked"] {
        let scratch = Scratch::new(how, PAGES * PAGE);
        let before = scratch.content();
        let ended = child::run(TEST, &format!("{how} {}", scratch.0.display()));
        let signal = match how {
            "flushed" => None,
            _ => Some(libc::SIGKILL),
        };
        assert_eq!(ended.status.signal(), signal, "{how}");
        // It has become the other program, and printed no result.
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(!said.contains("test result"), "{how}: {said}");
        let after = scratch.content();
        assert_eq!(after[AT], 1, "{how}");
        // The other one may have been written back.
        let next = AT + PAGE;
        assert!(after[next] == before[next] || after[next] == 1, "{how}");
    }
}
