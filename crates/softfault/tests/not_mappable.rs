//! What has no pages is refused as mmap(2) refuses it, and is no empty map.

mod files;

use softfault::Engine;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What each face says of a file.
fn answers(file: &File) -> Vec<(&'static str, io::Result<usize>)> {
    let engine = Engine::builder()
        .by_kernel(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    let soft = Engine::builder()
        .by_kernel(false)
        .memory(16 << 20)
        .build_soft()
        .unwrap();
    // SAFETY: nobody writes to what is mapped.
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
fn what_mmap_refuses_with_enodev() {
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
