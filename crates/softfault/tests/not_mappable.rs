//! A file without pages is refused as mmap(2) refuses it, and is no empty map.

mod child;
mod files;

use softfault::{Coherence, Engine, Mmap, MmapMut, MmapOptions};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// The answer of each face for a file.
fn answers(file: &File) -> Vec<(&'static str, io::Result<usize>)> {
    let engine = files::engine(16 << 20);
    let soft = files::soft_engine(16 << 20);
    // SAFETY: nobody writes to the mapped files.
    unsafe {
        vec![
            ("map", engine.map(file).map(|map| map.len())),
            ("map_copy", engine.map_copy(file).map(|map| map.len())),
            ("soft map", soft.map(file).map(|map| map.len())),
            ("soft map_copy", soft.map_copy(file).map(|map| map.len())),
        ]
    }
}

#[track_caller]
fn refused(file: &File, as_expected: impl Fn(&io::Error) -> bool) {
    for (face, answer) in answers(file) {
        match answer {
            Ok(len) => panic!("{face} made a map of {len} bytes"),
            Err(error) => assert!(as_expected(&error), "{face}: {error:?}"),
        }
    }
}

/// Failed before: each was an empty map.
#[test]
fn files_that_mmap_refuses_with_enodev() {
    let (pipe, _writer) = io::pipe().unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let open = |path| File::open(path).unwrap();
    for file in [
        File::from(OwnedFd::from(pipe)),
        File::from(OwnedFd::from(socket)),
        open("/dev/null"),
        open("/dev/zero"),
        open("/tmp"),
    ] {
        refused(&file, |error| error.raw_os_error() == Some(libc::ENODEV));
    }
}

/// Failed before: an empty map, and one of a page of which a few bytes were the file's.
#[test]
fn files_whose_bytes_are_made_when_they_are_read() {
    for path in [
        "/proc/version",
        "/proc/self/maps",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(file) = File::open(path) else {
            softfault_skip::skipped("kernel", format_args!("no {path}"));
            continue;
        };
        refused(&file, |error| {
            error.kind() == io::ErrorKind::Unsupported && error.to_string().contains("/proc")
        });
    }
}

#[test]
fn an_empty_file_is_an_empty_map() {
    let file = files::made_file("empty", 0);
    for (face, answer) in answers(&file) {
        assert_eq!(answer.unwrap(), 0, "{face}");
    }
    let writer = {
        let fd = file.as_fd().try_clone_to_owned().unwrap();
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        File::options().write(true).open(place).unwrap()
    };
    refused(&writer, |error| error.raw_os_error() == Some(libc::EACCES));
}

/// A memfd, with these seals.
fn sealed(seals: i32) -> File {
    // SAFETY: a name that ends in zero; the descriptor is new.
    let file = unsafe {
        let fd = libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING);
        File::from(OwnedFd::from_raw_fd(fd))
    };
    io::Write::write_all(&mut &file, &[7; 10_000]).unwrap();
    seal(&file, seals).unwrap();
    file
}

fn seal(file: &File, seals: i32) -> io::Result<()> {
    // SAFETY: no memory involved.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A type whose descriptor is not always the same, which safe code can write.
struct First<'a>(Cell<bool>, &'a File, &'a File);

impl AsRawFd for First<'_> {
    fn as_raw_fd(&self) -> RawFd {
        match self.0.replace(false) {
            true => self.1.as_raw_fd(),
            false => self.2.as_raw_fd(),
        }
    }
}

/// The file that was looked at is the file that is mapped. It was the one that the second question answered.
#[test]
fn a_file_is_asked_for_its_descriptor_once() {
    let safe = sealed(libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE);
    let other = files::made_file("asked-once", 10_000);
    std::os::unix::fs::FileExt::write_all_at(&other, &[1; 10_000], 0).unwrap();
    let both = First(Cell::new(true), &safe, &other);
    let map = Mmap::map_if_safe(&both).unwrap();
    assert!(map[..] == [7; 10_000], "{}", map[0]);
}

/// Without `unsafe`, only a file is mapped that nobody can change or cut off.
#[test]
fn a_memfd_that_may_change_is_not_safe() {
    let (shrink, write) = (libc::F_SEAL_SHRINK, libc::F_SEAL_WRITE);
    for seals in [
        0,
        shrink,
        write,
        libc::F_SEAL_GROW | write,
        libc::F_SEAL_GROW | shrink,
    ] {
        let error = Mmap::map_if_safe(&sealed(seals)).unwrap_err();
        assert!(error.not_safe(), "{seals}: {error}");
    }
    let file = files::made_file("not-sealed", 10_000);
    assert!(Mmap::map_if_safe(&file).unwrap_err().not_safe());
    let file = sealed(shrink | write);
    let map = Mmap::map_if_safe(&file).unwrap();
    assert_eq!((map.len(), map[9_999]), (10_000, 7));
    // Nor a file that does not exist.
    for (offset, len) in [(0, 10_001), (9_999, 2), (u64::MAX, 1)] {
        let mut options = MmapOptions::new();
        let error = options
            .offset(offset)
            .len(len)
            .map_if_safe(&file)
            .unwrap_err();
        assert!(error.not_safe(), "{offset} {len}: {error}");
    }
}

/// A sealed memfd is mapped to be written to by nobody, whoever would serve the map: not for the first time, nor beside a map from
/// before the seal. The same for a descriptor that may not write.
#[test]
fn a_file_that_may_not_be_written_to_is_no_writable_map() {
    for coherence in [Coherence::Kernel, Coherence::Engine] {
        let builder = Engine::builder().memory(16 << 20).coherence(coherence);
        let engine = builder.build().unwrap();
        let mapped = |file: &File| -> Option<i32> {
            // SAFETY: nobody writes to it.
            unsafe { engine.map_mut(file) }.err()?.raw_os_error()
        };
        for seals in [libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE] {
            let file = sealed(0);
            // SAFETY: nobody writes to it.
            let before = unsafe { engine.map_mut(&file) }.unwrap();
            match seal(&file, seals) {
                // The kernel's own mapping is in its way.
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EBUSY)),
                Ok(()) => assert_eq!(mapped(&file), Some(libc::EPERM), "{coherence:?} {seals}"),
            }
            drop(before);
            let file = sealed(seals);
            // SAFETY: refused.
            let theirs = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap_err();
            assert_eq!(theirs.raw_os_error(), Some(libc::EPERM));
            assert_eq!(mapped(&file), Some(libc::EPERM), "{coherence:?} {seals}");
        }
        let path = files::path(&format!("read-only-{coherence:?}"));
        std::fs::write(&path, [7; 10_000]).unwrap();
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // SAFETY: nobody writes to it.
        let _beside = unsafe { engine.map_mut(&writer) }.unwrap();
        assert_eq!(mapped(&reader), Some(libc::EACCES), "{coherence:?}");
    }
}

/// The kernel's maps from before such a seal write on. The engine writes by calls, which it refuses.
#[test]
fn a_seal_against_later_writes_holds_for_the_engines_maps_from_before() {
    for coherence in [Coherence::Kernel, Coherence::Engine] {
        let builder = Engine::builder().memory(16 << 20).coherence(coherence);
        let engine = builder.build().unwrap();
        let file = sealed(0);
        // SAFETY: stores are looked for.
        let mut map = unsafe { engine.map_mut(&file) }.unwrap();
        map[0] = 1;
        map.flush().unwrap();
        seal(&file, libc::F_SEAL_FUTURE_WRITE).unwrap();
        map[0] = 2;
        let flushed = map.flush().map_err(|error| error.raw_os_error());
        let mut in_file = [0];
        file.read_exact_at(&mut in_file, 0).unwrap();
        let expected = match coherence {
            Coherence::Kernel => (Ok(()), 2),
            _ => (Err(Some(libc::EPERM)), 1),
        };
        assert_eq!((flushed, in_file[0]), expected, "{coherence:?}");
        assert_eq!(map[0], 2);
    }
}

/// Runs a test in a child with this variable. False in that child: it is to do the test.
fn has_run_with(test: &str, (variable, value): (&str, &str)) -> bool {
    if child::scenario().is_some() {
        return false;
    }
    let mut command = child::command(test, "engine");
    child::succeeds_with(command.env(variable, value), value);
    true
}

/// The seal has no effect on a map that the engine serves: its owner can still store to bytes that a safe map would show.
#[test]
fn a_memfd_with_a_writable_map_is_not_safe() {
    const TEST: &str = "a_memfd_with_a_writable_map_is_not_safe";
    if has_run_with(TEST, ("SOFTFAULT_COHERENCE", "engine")) {
        return;
    }
    let file = sealed(0);
    // SAFETY: stores are looked for.
    let mut written = unsafe { MmapMut::map_mut(&file) }.unwrap();
    assert!(written.is_managed());
    written[0] = 1;
    written.flush().unwrap();
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE).unwrap();
    match Mmap::map_if_safe(&file) {
        Err(error) => assert!(error.not_safe(), "{error}"),
        Ok(map) => {
            let before = map[0];
            written[0] = 2;
            panic!("it is a map whose bytes change: {before} {}", map[0]);
        }
    }
    // Once that map is gone nobody can write.
    drop(written);
    let map = loop {
        match Mmap::map_if_safe(&file) {
            Ok(map) => break map,
            // The thread that writes back still looks at the window.
            Err(error) => assert!(error.not_safe(), "{error}"),
        }
    };
    assert_eq!((map.len(), map[0], map[1]), (10_000, 1, 7));
}

/// A store to a page of a memfd that is mapped writable already does not change the file's times. So a map from before it has a page that the sealed file has not,
/// and a safe map that shared that page would change once the page is read again.
#[test]
fn a_safe_map_shares_no_page_from_before_the_seal() {
    const TEST: &str = "a_safe_map_shares_no_page_from_before_the_seal";
    if has_run_with(TEST, ("SOFTFAULT_ALLOW_KERNEL_MAPS", "0")) {
        return;
    }
    let file = sealed(0);
    file.set_len(2 << 20).unwrap();
    // SAFETY: nobody looks meanwhile.
    let mut stores = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    stores[0] = 7;
    // Past the tick of the clock in which the file changed.
    std::thread::sleep(std::time::Duration::from_millis(60));
    // SAFETY: its bytes are looked at while nobody writes.
    let before = unsafe { Mmap::map(&file) }.unwrap();
    assert_eq!(before[0], 7);
    stores[0] = 8;
    drop(stores);
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE).unwrap();
    let map = Mmap::map_if_safe(&file).unwrap();
    let first = map[0];
    map.invalidate(..).unwrap();
    assert_eq!((first, map[0]), (8, 8));
    // Safe maps share their pages with each other.
    let again = Mmap::map_if_safe(&file).unwrap();
    assert_eq!(again.as_ptr(), map.as_ptr());
    assert_eq!(before.len(), map.len());
}
