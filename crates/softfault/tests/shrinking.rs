//! Files that become shorter while calls copy from their maps, or into them: wherever the kernel serves the map, and the engine
//! cannot keep its pages, the end is an error, and never a signal.

mod child;

use child::{forked, scenario, succeeds};
use softfault::{Engine, FaultError, Mmap, MmapMut};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 64;
const BYTES: usize = PAGES * PAGE;

/// A file without a name, of sevens.
fn file(pages: usize) -> File {
    // SAFETY: a new descriptor, or -1.
    let fd = unsafe { libc::memfd_create(c"shrinking".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: it is nobody else's.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(&vec![7; pages * PAGE]).unwrap();
    file
}

fn engine() -> Engine {
    Engine::builder().memory(64 << 20).build().unwrap()
}

fn read_only(engine: &Engine, file: &File) -> Mmap {
    // SAFETY: the bytes are reached by copies alone.
    unsafe { engine.map(&to_read(file)) }.unwrap()
}

/// By a descriptor that is open for reading only: other maps may be the kernel's from the start.
fn to_read(file: &File) -> File {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn written(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: the same.
    let map = unsafe { engine.map_mut(file) }.unwrap();
    assert!(!map.is_managed(), "by default the kernel serves it");
    map
}

/// A window that the kernel serves.
fn shown(engine: &Engine, file: &File) -> Mmap {
    let map = read_only(engine, file);
    assert!(map.is_managed(), "it is not small");
    map.change_server(true).unwrap();
    map
}

/// Calls `copy` for a while, as another thread cuts the file off and makes it whole again; both answers must have come.
fn while_it_shrinks(file: &File, mut copy: impl FnMut() -> Result<usize, FaultError>) {
    let over = AtomicBool::new(false);
    let bytes = file.metadata().unwrap().len();
    let (mut copied, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                file.set_len(0).unwrap();
                file.set_len(bytes).unwrap();
            }
        });
        let _over = softfault_oracle::Finally(|| over.store(true, Relaxed));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1)
            || (copied == 0 || failed == 0) && start.elapsed() < Duration::from_secs(60)
        {
            match copy() {
                Ok(_) => copied += 1,
                Err(FaultError::BeyondEnd | FaultError::Io(libc::EIO)) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(copied > 0 && failed > 0, "{copied} {failed}");
}

fn copies_of(what: &str) {
    let (engine, mut buffer) = (engine(), vec![0; BYTES]);
    match what {
        "small" => {
            let file = file(PAGES);
            let map = read_only(&engine, &file);
            assert!(!map.is_managed());
            while_it_shrinks(&file, || map.read_at(&mut buffer, 0));
        }
        "shown" => {
            let file = file(1024);
            let map = shown(&engine, &file);
            while_it_shrinks(&file, || map.read_at(&mut buffer, 0));
        }
        "written" => {
            let file = file(PAGES);
            let map = written(&engine, &file);
            while_it_shrinks(&file, || map.read_at(&mut buffer, 0));
        }
        "writing" => {
            let file = file(PAGES);
            let mut map = written(&engine, &file);
            while_it_shrinks(&file, || map.write_at(&buffer, 0));
        }
        "engine" => {
            // An engine's other map is the buffer: the kernel could not bring its pages in.
            let file = file(PAGES);
            let map = read_only(&engine, &file);
            let mut cold = engine.map_anon(BYTES).unwrap();
            assert_eq!(map.read_at(&mut cold, 0), Ok(BYTES));
            assert!(cold.iter().all(|&byte| byte == 7));
            let mut into = written(&engine, &file);
            let other = crate::file(2048);
            // SAFETY: nobody writes to it.
            let cold = unsafe { engine.map(&other) }.unwrap();
            assert!(cold.change_server(false).is_ok());
            assert_eq!(into.write_at(&cold[..BYTES], 0), Ok(BYTES));
        }
        what => unreachable!("{what}"),
    }
}

#[test]
fn copies_while_a_file_shrinks_are_values() {
    if let Some(what) = scenario() {
        return copies_of(&what);
    }
    for what in ["small", "shown", "written", "writing", "engine"] {
        succeeds("copies_while_a_file_shrinks_are_values", what);
    }
}

/// Cuts the file off, and then touches the bytes.
struct Cuts<'a>(&'a File, usize);

impl Write for Cuts<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set_len(0)?;
        assert!(bytes.iter().all(|&byte| byte == 7));
        self.1 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Cuts<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.set_len(0)?;
        bytes.fill(9);
        self.1 += bytes.len();
        Ok(bytes.len())
    }
}

fn other_ends_of(what: &str) {
    let engine = engine();
    match what {
        "small" => {
            let file = file(PAGES);
            let map = read_only(&engine, &file);
            let mut writer = Cuts(&file, 0);
            assert_eq!(map.write_to(.., &mut writer).unwrap(), BYTES as u64);
            assert_eq!(writer.1, BYTES);
            assert!(map.write_to(.., &mut writer).is_err());
        }
        "shown" => {
            let file = file(1024);
            let map = shown(&engine, &file);
            let mut writer = Cuts(&file, 0);
            assert!(map.write_to(.., &mut writer).is_err());
            assert_eq!(writer.1, 1 << 20, "up to the end of the step");
        }
        "written" => {
            let file = file(PAGES);
            let map = written(&engine, &file);
            let mut writer = Cuts(&file, 0);
            map.write_to(0..PAGE, &mut writer).unwrap();
            assert_eq!(writer.1, PAGE);
        }
        "writing" => {
            let file = file(PAGES);
            let mut map = written(&engine, &file);
            let error = map.read_from(.., &mut Cuts(&file, 0)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
        }
        what => unreachable!("{what}"),
    }
}

#[test]
fn readers_and_writers_that_cut_the_file_touch_none_of_it() {
    if let Some(what) = scenario() {
        return other_ends_of(&what);
    }
    for what in ["small", "shown", "written", "writing"] {
        succeeds(
            "readers_and_writers_that_cut_the_file_touch_none_of_it",
            what,
        );
    }
}

/// The end is told alike, whoever serves the window.
#[test]
fn the_end_has_one_name() {
    let (engine, file) = (engine(), file(1024));
    let map = read_only(&engine, &file);
    file.set_len(512 * PAGE as u64).unwrap();
    for kernel in [true, false, true] {
        assert!(map.change_server(kernel).is_ok());
        map.invalidate(..).unwrap();
        let mut byte = [0];
        let behind = 600 * PAGE;
        let pinned = map.pin(behind..behind + 1).map(drop);
        assert_eq!(pinned, Err(FaultError::BeyondEnd), "{kernel}");
        let read = map.read_at(&mut byte, behind);
        assert_eq!(read, Err(FaultError::BeyondEnd), "{kernel}");
        let answers = map.fault_in_many(&[0..1, behind..behind + 1]).wait();
        assert_eq!(answers, [Ok(()), Err(FaultError::BeyondEnd)], "{kernel}");
        assert_eq!(map.read_at(&mut byte, 511 * PAGE), Ok(1));
    }
}

/// The end of a file that the kernel maps in a child of fork.
#[test]
fn a_child_copies_from_inherited_maps() {
    let (engine, file) = (engine(), file(1024));
    let map = read_only(&engine, &file);
    assert!(map.change_server(false).is_ok());
    assert_eq!(map[0], 7);
    let status = forked(|| {
        let mut writer = Cuts(&file, 0);
        assert!(map.write_to(.., &mut writer).is_err());
        assert_eq!(writer.1, 1 << 20);
        assert!(map.read_at(&mut [0; PAGE], 0).is_err());
        0
    });
    assert_eq!(status, 0);
}
