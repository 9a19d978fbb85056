//! Files as stores: their bytes, how they are opened, and their versions.

mod child;
mod nobody;
mod store_scene;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use softfault::store::{FileIdentity, FileStore, Mode, WhyBuffered};
use softfault_engine::store::{Extent, Store};
use store_scene::{Frames, PAGE, Scratch, byte_at, position_and_flags};

fn open(scratch: &Scratch) -> FileStore {
    FileStore::open(scratch.file.as_fd(), None).expect("open")
}

/// Reads `pages` at page `page` and checks the bytes.
#[track_caller]
fn read_and_check(store: &FileStore, page: usize, pages: usize, arrives: usize) {
    let frames = Frames::new(pages);
    let offset = (page * PAGE) as u64;
    // SAFETY: the frames are ours.
    let arrived = unsafe { store.read(offset, frames.page(0), pages * PAGE) };
    assert_eq!(arrived, Ok(arrives));
    frames.check(0, offset, arrives);
}

#[test]
fn a_dense_file_reads_as_written() {
    for scratch in [Scratch::on_disk(), Scratch::in_memory()] {
        let scratch = scratch.filled(100 * PAGE + 123);
        for store in [
            open(&scratch),
            FileStore::open_buffered(scratch.file.as_fd(), None).expect("open"),
        ] {
            assert_eq!(store.len(), Ok((100 * PAGE + 123) as u64));
            read_and_check(&store, 0, 1, PAGE);
            read_and_check(&store, 17, 64, 64 * PAGE);
            // The tail is no whole page.
            read_and_check(&store, 100, 1, 123);
            read_and_check(&store, 98, 8, 2 * PAGE + 123);
            read_and_check(&store, 101, 1, 0);
        }
    }
}

#[test]
fn the_tail_may_be_a_whole_page() {
    let scratch = Scratch::on_disk().filled(4 * PAGE);
    read_and_check(&open(&scratch), 2, 8, 2 * PAGE);
}

#[test]
fn files_on_disk_are_read_directly() {
    let scratch = Scratch::on_disk().filled(PAGE);
    assert_eq!(open(&scratch).mode(), Mode::Direct);
    let buffered = FileStore::open_buffered(scratch.file.as_fd(), None).expect("open");
    assert_eq!(buffered.mode(), Mode::Buffered(WhyBuffered::Asked));
}

#[test]
fn an_empty_file_is_empty() {
    let store = open(&Scratch::on_disk());
    assert_eq!(store.is_empty(), Ok(true));
    read_and_check(&store, 0, 1, 0);
}

/// The file's extents from its start to its end, neighbours of a kind joined.
fn extents(store: &FileStore) -> Vec<Extent> {
    let len = store.len().expect("len");
    let mut all: Vec<Extent> = Vec::new();
    let mut offset = 0;
    while offset < len {
        let found = store.extent(offset).expect("extent");
        let (Extent::Data(range) | Extent::Hole(range)) = &found;
        assert!(range.contains(&offset), "{found:?} does not hold {offset}");
        let end = range.end;
        match (all.last_mut(), &found) {
            (Some(Extent::Data(last)), Extent::Data(_)) => last.end = end,
            (Some(Extent::Hole(last)), Extent::Hole(_)) => last.end = end,
            _ => all.push(found),
        }
        offset = end;
    }
    all
}

fn pages(range: std::ops::Range<usize>) -> std::ops::Range<u64> {
    (range.start * PAGE) as u64..(range.end * PAGE) as u64
}

#[test]
fn holes_and_data_alternate_as_written() {
    for scratch in [Scratch::on_disk(), Scratch::in_memory()] {
        scratch.write((3 * PAGE) as u64, 2 * PAGE);
        scratch.write((10 * PAGE + 100) as u64, 50);
        scratch.file.set_len((20 * PAGE + 5) as u64).expect("grow");
        let store = open(&scratch);
        let expected = [
            Extent::Hole(pages(0..3)),
            Extent::Data(pages(3..5)),
            Extent::Hole(pages(5..10)),
            Extent::Data(pages(10..11)),
            Extent::Hole(pages(11..21)),
        ];
        assert_eq!(extents(&store), expected);
        // From the middle, and from extents that were looked up before.
        let middle = (4 * PAGE + 77) as u64;
        assert!(matches!(store.extent(middle), Ok(Extent::Data(range)) if range.contains(&middle)));
        assert_eq!(extents(&store), expected);
        read_and_check(&store, 3, 2, 2 * PAGE);
    }
}

#[test]
fn a_hole_that_was_written_since_is_data() {
    let scratch = Scratch::on_disk();
    scratch.file.set_len((64 * PAGE) as u64).expect("grow");
    let store = open(&scratch);
    assert_eq!(store.extent(0), Ok(Extent::Hole(pages(0..64))));
    scratch.write((5 * PAGE) as u64, PAGE);
    assert_eq!(store.extent(0), Ok(Extent::Hole(pages(0..5))));
    assert!(matches!(
        store.extent((5 * PAGE) as u64),
        Ok(Extent::Data(_))
    ));
    read_and_check(&store, 5, 1, PAGE);
}

#[test]
fn a_dense_file_is_data_from_end_to_end() {
    let scratch = Scratch::on_disk().filled(10 * PAGE + 1);
    let store = open(&scratch);
    assert_eq!(
        store.extent(5 * PAGE as u64),
        Ok(Extent::Data(0..(11 * PAGE) as u64))
    );
    // Grown by a hole: a file that had none when it was opened is read, and gives zeros.
    scratch.file.set_len((20 * PAGE) as u64).expect("grow");
    assert_eq!(
        store.extent(15 * PAGE as u64),
        Ok(Extent::Data(pages(15..20)))
    );
    let frames = Frames::new(5);
    // SAFETY: the frames are ours.
    let arrived = unsafe { store.read((15 * PAGE) as u64, frames.page(0), 5 * PAGE) };
    assert_eq!(arrived, Ok(5 * PAGE));
    assert!(frames.bytes(0, 5 * PAGE).iter().all(|&byte| byte == 0));
}

#[test]
fn truncation_shows_at_once() {
    let scratch = Scratch::on_disk().filled(16 * PAGE);
    let store = open(&scratch);
    scratch
        .file
        .set_len((8 * PAGE + 10) as u64)
        .expect("truncate");
    assert_eq!(store.len(), Ok((8 * PAGE + 10) as u64));
    read_and_check(&store, 6, 4, 2 * PAGE + 10);
    read_and_check(&store, 12, 1, 0);

    let sparse = Scratch::on_disk();
    sparse.file.set_len((16 * PAGE) as u64).expect("grow");
    let store = open(&sparse);
    sparse.file.set_len(0).expect("truncate");
    // No longer within the file: the read tells.
    assert!(matches!(
        store.extent((12 * PAGE) as u64),
        Ok(Extent::Data(_))
    ));
}

/// How many of a file's first pages are in the page cache.
fn cached(file: &File, pages: usize) -> usize {
    // SAFETY: a new mapping, given up below; mincore fills a byte for each page.
    unsafe {
        let bytes = pages * PAGE;
        let map = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        let mut present = vec![0u8; pages];
        assert_eq!(libc::mincore(map, bytes, present.as_mut_ptr()), 0);
        libc::munmap(map, bytes);
        present.iter().filter(|&&byte| byte & 1 != 0).count()
    }
}

#[test]
fn neither_mode_leaves_pages_in_the_page_cache() {
    let scratch = Scratch::on_disk().filled(256 * PAGE);
    // SAFETY: no memory involved.
    unsafe { libc::posix_fadvise(scratch.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(cached(&scratch.file, 256), 0);
    for store in [
        open(&scratch),
        FileStore::open_buffered(scratch.file.as_fd(), None).unwrap(),
    ] {
        for page in [0, 7, 100, 255] {
            read_and_check(&store, page, 1, PAGE);
        }
        read_and_check(&store, 128, 64, 64 * PAGE);
        assert_eq!(cached(&scratch.file, 256), 0, "{:?}", store.mode());
    }
}

#[test]
fn the_callers_file_stays_as_it_is() {
    let mut scratch = Scratch::on_disk().filled(4 * PAGE);
    scratch.file.set_len((64 * PAGE) as u64).expect("grow");
    scratch.file.seek(SeekFrom::Start(77)).expect("seek");
    let before = position_and_flags(&scratch.file);
    assert_eq!(before.0, 77);
    let store = open(&scratch);
    extents(&store);
    read_and_check(&store, 0, 4, 4 * PAGE);
    assert_eq!(position_and_flags(&scratch.file), before);
    // It may also be closed.
    let file = File::open(&scratch.path).expect("open");
    let store = FileStore::open(file.as_fd(), None).expect("open");
    drop(file);
    read_and_check(&store, 0, 4, 4 * PAGE);
}

#[test]
fn a_deleted_file_is_opened_anew() {
    let scratch = Scratch::on_disk().filled(2 * PAGE);
    std::fs::remove_file(&scratch.path).expect("remove");
    let store = open(&scratch);
    assert_eq!(store.mode(), Mode::Direct);
    read_and_check(&store, 0, 2, 2 * PAGE);
}

/// In a child without rights to a file that it inherited open: 0, or the step
/// that went wrong.
fn without_rights(file: &File, mode: Mode, hole: bool) -> i32 {
    let before = position_and_flags(file);
    nobody::become_nobody();
    let Ok(store) = FileStore::open(file.as_fd(), None) else {
        return 2;
    };
    if store.mode() != mode {
        return 3;
    }
    let frames = Frames::new(4);
    // SAFETY: the frames are ours.
    if unsafe { store.read(0, frames.page(0), 2 * PAGE) } != Ok(2 * PAGE) {
        return 4;
    }
    if !frames
        .bytes(0, 2 * PAGE)
        .iter()
        .zip(0..)
        .all(|(&byte, at)| byte == byte_at(at))
    {
        return 5;
    }
    // Looking for holes would move the position that the parent sees too.
    if hole && !matches!(store.extent((8 * PAGE) as u64), Ok(Extent::Data(_))) {
        return 6;
    }
    if position_and_flags(file) != before {
        7
    } else {
        0
    }
}

#[test]
fn a_file_that_may_not_be_opened_anew_is_read_through_the_callers() {
    let mut scratch = Scratch::on_disk().filled(2 * PAGE);
    scratch.file.set_len((16 * PAGE) as u64).expect("grow");
    scratch.file.seek(SeekFrom::Start(4096)).expect("seek");
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&scratch.path)
        .expect("open");
    scratch
        .file
        .set_permissions(PermissionsExt::from_mode(0o000))
        .expect("chmod");
    let refused = Mode::Buffered(WhyBuffered::NotReopened(libc::EACCES));
    assert_eq!(
        child::forked(|| without_rights(&scratch.file, refused, true)),
        0
    );
    assert_eq!(
        child::forked(|| without_rights(&direct, Mode::Direct, true)),
        0
    );
}

#[test]
fn unmappable_files_are_refused() {
    let refused = |fd: &dyn AsFd| FileStore::open(fd.as_fd(), None).expect_err("refused");
    let directory = File::open(env!("CARGO_TARGET_TMPDIR")).expect("open");
    assert_eq!(refused(&directory).kind(), ErrorKind::IsADirectory);
    let null = File::open("/dev/null").expect("open");
    assert_eq!(
        refused(&null).to_string(),
        "a character device cannot be mapped"
    );
    let (pipe, _other) = std::io::pipe().expect("pipe");
    assert_eq!(refused(&pipe).to_string(), "a pipe cannot be mapped");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("socketpair");
    assert_eq!(refused(&socket).to_string(), "a socket cannot be mapped");

    let scratch = Scratch::on_disk().filled(PAGE);
    let written = OpenOptions::new()
        .write(true)
        .open(&scratch.path)
        .expect("open");
    assert_eq!(refused(&written).raw_os_error(), Some(libc::EACCES));
    let named = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(&scratch.path)
        .expect("open");
    assert_eq!(refused(&named).raw_os_error(), Some(libc::EBADF));
}

fn wall_ns() -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    i64::try_from(now.as_nanos()).expect("before 2262")
}

#[test]
fn an_identity_changes_with_the_file() {
    let scratch = Scratch::on_disk().filled(PAGE);
    let store = open(&scratch);
    let written = wall_ns();
    let first = store.identity().expect("identity");
    assert_eq!(
        first,
        FileIdentity::of(scratch.file.as_fd()).expect("identity")
    );
    assert_eq!(first.size, PAGE as u64);
    assert!(
        !first.certain(first.ctime_ns),
        "just written: a change might hide"
    );
    assert!(first.certain(written + 1_000_000_000));
    assert_eq!(
        store.identity().expect("identity"),
        first,
        "nothing changed"
    );

    // Beyond the tick every change shows, also one that keeps the size.
    while !first.certain(wall_ns()) {
        std::thread::yield_now();
    }
    scratch.write(0, 1);
    let second = store.identity().expect("identity");
    assert_ne!(second, first);
    assert_eq!(second.size, first.size);

    // A modification time that was set back does not hide it either.
    while !second.certain(wall_ns()) {
        std::thread::yield_now();
    }
    scratch
        .file
        .set_modified(std::time::UNIX_EPOCH)
        .expect("utimes");
    let third = store.identity().expect("identity");
    assert_eq!(third.mtime_ns, 0);
    assert_ne!((third.size, third.ctime_ns), (second.size, second.ctime_ns));
}
