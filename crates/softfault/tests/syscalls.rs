//! System calls on mapped memory: their answers, and the methods to use instead.

mod files;

use files::{byte_at, check, made_file};
use softfault::{Advice, Engine, FaultError, Mmap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const LEN: usize = (4 << 20) + 1234;

fn scene(name: &str) -> (Engine, Mmap) {
    let file = made_file(name, LEN);
    let engine = files::engine(8 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    map.advise(Advice::Random).unwrap();
    (engine, map)
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: fills both descriptors, which are then owned here.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let [reader, writer] = ends.map(|fd| File::from(OwnedFd::from_raw_fd(fd)));
        (reader, writer)
    }
}

/// write(2) itself, without looking at the memory.
fn write(to: &File, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the kernel reads the slice, or refuses to.
    match unsafe { libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) } {
        done if done >= 0 => Ok(done as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn write_of_memory_that_is_not_there_answers_efault() {
    let (engine, map) = scene("efault");
    let (_reader, writer) = pipe();
    let error = write(&writer, &map[8192..12288]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(engine.stats().faults, 0, "the kernel does not call us");
    // Touched, it is there.
    check(&map, 8192);
    assert_eq!(write(&writer, &map[8192..12288]).unwrap(), 4096);
}

#[test]
fn a_write_that_reaches_missing_memory_comes_back_short() {
    let (_engine, map) = scene("short");
    let (mut reader, writer) = pipe();
    check(&map, 0);
    let done = write(&writer, &map[..12288]).unwrap();
    assert_eq!(done, 4096, "the first page alone is there");
    let mut found = vec![0; done];
    reader.read_exact(&mut found).unwrap();
    assert!((0..4096).all(|offset| found[offset] == byte_at(offset)));
}

#[test]
fn pinned_memory_may_be_handed_to_system_calls() {
    let (_engine, map) = scene("pinned");
    let (mut reader, writer) = pipe();
    let pinned = map.pin(5000..45_000).unwrap();
    assert_eq!(write(&writer, &pinned).unwrap(), 40_000);
    let mut found = vec![0; 40_000];
    reader.read_exact(&mut found).unwrap();
    assert!((5000..45_000).all(|offset| found[offset - 5000] == byte_at(offset)));
}

#[test]
fn pinned_memory_stays_while_all_else_goes() {
    let file = made_file("stays", 32 << 20);
    let engine = files::engine(8 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    let pinned = map.pin(1 << 20..(1 << 20) + 100_000).unwrap();
    for offset in (0..map.len()).step_by(4096) {
        check(&map, offset);
    }
    assert!(engine.stats().evicted > 4000);
    let (mut reader, writer) = pipe();
    assert_eq!(write(&writer, &pinned[..60_000]).unwrap(), 60_000);
    let mut found = vec![0; 60_000];
    reader.read_exact(&mut found).unwrap();
    let wrong = (0..60_000).find(|&at| found[at] != byte_at((1 << 20) + at));
    assert_eq!(wrong, None);
}

#[test]
fn write_to_reaches_files_and_pipes() {
    let (_engine, map) = scene("write-to");
    let mut copy = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(files::path("copy"))
        .unwrap();
    std::fs::remove_file(files::path("copy")).unwrap();
    assert_eq!(map.write_to(.., &mut copy).unwrap(), LEN as u64);
    // SAFETY: nobody writes to the file.
    let copied = unsafe { files::engine(8 << 20).map(&copy) };
    let copied = copied.unwrap();
    assert_eq!(copied.len(), LEN);
    assert!((0..LEN).step_by(61).all(|at| copied[at] == byte_at(at)));

    let (mut reader, mut writer) = pipe();
    let read = std::thread::spawn(move || {
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        found
    });
    let end = map.write_to(LEN - 100_000.., &mut writer).unwrap();
    assert_eq!(end, 100_000);
    drop(writer);
    let found = read.join().unwrap();
    assert_eq!(found.len(), 100_000);
    assert!((0..100_000).all(|at| found[at] == byte_at(LEN - 100_000 + at)));
}

#[test]
fn write_to_hands_the_writers_error_on() {
    let (_engine, map) = scene("full");
    let mut full = File::options().write(true).open("/dev/full").unwrap();
    let error = map.write_to(.., &mut full).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    struct Stops(usize);
    impl Write for Stops {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = map.write_to(.., &mut Stops(70_000)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    // Nothing stays pinned after an error.
    assert!(map.pin(0..3 << 20).is_ok());
}

#[test]
fn read_at_copies_the_available_bytes() {
    let (_engine, map) = scene("read-at");
    let mut buffer = vec![0; 10_000];
    assert_eq!(map.read_at(&mut buffer, 4000).unwrap(), 10_000);
    assert!((0..10_000).all(|at| buffer[at] == byte_at(4000 + at)));
    assert_eq!(map.read_at(&mut buffer, LEN - 10).unwrap(), 10);
    assert!((0..10).all(|at| buffer[at] == byte_at(LEN - 10 + at)));
    assert_eq!(map.read_at(&mut buffer, LEN).unwrap(), 0);
    assert_eq!(map.read_at(&mut buffer, usize::MAX).unwrap(), 0);
    assert_eq!(map.read_at(&mut [], 0).unwrap(), 0);
}

#[test]
fn ranges_outside_the_map_are_refused() {
    let (_engine, map) = scene("ranges");
    assert_eq!(map.pin(..LEN + 1).unwrap_err(), FaultError::OutOfRange);
    assert_eq!(map.pin(usize::MAX..).unwrap_err(), FaultError::OutOfRange);
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may get this wrong")]
    let reversed = 5..4;
    assert_eq!(map.pin(reversed).unwrap_err(), FaultError::OutOfRange);
    assert_eq!(&map.pin(LEN..).unwrap()[..], b"");
    let error = map.write_to(..=LEN, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn many_threads_copy_at_once_under_a_small_budget() {
    let file = made_file("copy-at-once", 16 << 20);
    let engine = files::engine(8 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let map = &map;
            scope.spawn(move || {
                let from = thread * 600_000;
                let mut buffer = vec![0; 2 << 20];
                let done = map.read_at(&mut buffer, from).unwrap();
                assert_eq!(done, buffer.len());
                assert!(
                    (0..done)
                        .step_by(97)
                        .all(|at| buffer[at] == byte_at(from + at))
                );
                let written = map.write_to(from..from + (2 << 20), &mut io::sink());
                assert_eq!(written.unwrap(), 2 << 20);
            });
        }
    });
    assert!(engine.stats().peak_bytes <= 8 << 20);
}
