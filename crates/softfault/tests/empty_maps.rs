//! Maps without bytes: each is of a file, or of anonymous memory, and grows into that. memmap2 keeps a page of the file, so it has
//! the same bytes.

mod write_scene;

use softfault::{Coherence, Engine, MmapMut, MmapOptions, MmapRaw, RemapOptions};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use write_scene::{PAGE, Scratch, in_file};

fn engine(coherence: Coherence) -> Engine {
    let builder = Engine::builder().memory(16 << 20);
    builder.coherence(coherence).build().unwrap()
}

const COHERENCES: [Coherence; 2] = [Coherence::Kernel, Coherence::Engine];

fn moves() -> RemapOptions {
    RemapOptions::new().may_move(true)
}

fn grow(map: &mut MmapMut, len: usize) {
    // SAFETY: nobody has a reference to its bytes.
    unsafe { map.remap(len, moves()) }.unwrap();
    assert_eq!(map.len(), len);
}

/// A map and memmap2's of the same file, of which both have nothing.
fn both(engine: &Engine, file: &File) -> (MmapMut, memmap2::MmapMut) {
    // SAFETY: written bytes are looked for.
    let maps = unsafe {
        (
            engine.map_mut(file).unwrap(),
            memmap2::MmapMut::map_mut(file).unwrap(),
        )
    };
    assert!(maps.0.is_empty() && maps.1.is_empty());
    maps
}

/// Each of these showed the file, whose writers nobody had vouched for.
#[test]
fn an_empty_map_comes_to_be_of_no_other_file() {
    for coherence in COHERENCES {
        let engine = engine(coherence);
        let own = Scratch::new(&format!("own-{coherence:?}"), 0);
        let other = Scratch::new(&format!("other-{coherence:?}"), 0);
        let (own, other) = (own.open(), other.open());
        let mut of_nothing = engine.map_anon(0).unwrap();
        // SAFETY: nobody writes to the files.
        let mut shared = unsafe { engine.map_mut(&own) }.unwrap();
        // SAFETY: as above.
        let mut private = unsafe { engine.map_copy(&own) }.unwrap();
        for map in [&mut of_nothing, &mut shared, &mut private] {
            map.set_len(&other, PAGE).unwrap_err();
            assert!(map.is_empty());
            assert_eq!(other.metadata().unwrap().len(), 0);
        }
        private.set_len(&own, PAGE).unwrap_err();
        shared.set_len(&own, PAGE).unwrap();
        shared[3] = 7;
        shared.flush().unwrap();
        assert_eq!(
            (in_file(&own, 3), own.metadata().unwrap().len()),
            (7, PAGE as u64)
        );
    }
}

/// The written bytes were in no file.
#[test]
fn a_shared_map_of_an_empty_file_grows_into_the_file() {
    for coherence in COHERENCES {
        let scratch = Scratch::new(&format!("grows-{coherence:?}"), 0);
        let file = scratch.open();
        let (mut ours, mut theirs) = both(&engine(coherence), &file);
        file.set_len(2 * PAGE as u64).unwrap();
        grow(&mut ours, 2 * PAGE);
        // SAFETY: nobody has a reference to its bytes.
        unsafe { theirs.remap(2 * PAGE, memmap2::RemapOptions::new().may_move(true)) }.unwrap();
        ours[0] = 7;
        ours[2 * PAGE - 1] = 8;
        ours.flush().unwrap();
        assert_eq!((theirs[0], theirs[2 * PAGE - 1]), (7, 8));
        assert_eq!((in_file(&file, 0), in_file(&file, 2 * PAGE - 1)), (7, 8));
    }
}

/// At the end of a file, and not at its front: it begins there also when it has bytes.
#[test]
fn an_empty_map_behind_a_file_begins_where_the_file_ended() {
    for coherence in COHERENCES {
        for offset in [PAGE, PAGE + 100] {
            let scratch = Scratch::new(&format!("behind-{coherence:?}-{offset}"), offset);
            let file = scratch.open();
            let mut options = MmapOptions::new();
            options.offset(offset as u64);
            // SAFETY: written bytes are looked for.
            let mut map = unsafe { options.map_mut_in(&engine(coherence), &file) }.unwrap();
            assert!(map.is_empty());
            map.flush().unwrap();
            map.set_len(&file, PAGE).unwrap();
            map[1] = 9;
            map.flush().unwrap();
            assert_eq!(in_file(&file, offset + 1), 9);
            assert_eq!(file.metadata().unwrap().len(), (offset + PAGE) as u64);
            map.set_len(&file, 0).unwrap();
            assert_eq!(file.metadata().unwrap().len(), offset as u64);
        }
    }
}

/// It had zeros.
#[test]
fn a_private_map_of_an_empty_file_grows_into_the_bytes_of_the_file() {
    for coherence in COHERENCES {
        let scratch = Scratch::new(&format!("copy-{coherence:?}"), 0);
        let file = scratch.open();
        // SAFETY: nobody writes to the bytes that are mapped.
        let mut ours = unsafe { engine(coherence).map_copy(&file) }.unwrap();
        // SAFETY: as above.
        let mut theirs = unsafe { memmap2::MmapOptions::new().map_copy(&file) }.unwrap();
        file.write_all_at(&vec![5; 3 * PAGE], 0).unwrap();
        grow(&mut ours, 3 * PAGE);
        // SAFETY: nobody has a reference to its bytes.
        unsafe { theirs.remap(3 * PAGE, memmap2::RemapOptions::new().may_move(true)) }.unwrap();
        assert!(ours[..] == theirs[..], "{}", ours[0]);
        ours.fill(6);
        assert_eq!(in_file(&file, 0), 5);
    }
}

#[test]
fn a_read_only_map_of_an_empty_file_grows_where_the_kernel_serves_it() {
    let scratch = Scratch::new("read-only", 0);
    let file = scratch.open();
    // SAFETY: nobody writes to the bytes that are mapped.
    let (mut map, code) = unsafe {
        let engine = engine(Coherence::Kernel);
        let map = engine.map(&file).unwrap();
        (map, MmapOptions::new().map_exec(&file).unwrap())
    };
    let mut raw = MmapOptions::new().map_raw_read_only(&file).unwrap();
    let mut code = MmapRaw::from(code);
    file.write_all_at(&vec![5; 3 * PAGE], 0).unwrap();
    // SAFETY: nobody has a reference to the bytes.
    unsafe {
        map.remap(3 * PAGE, moves()).unwrap();
        raw.remap(3 * PAGE, moves()).unwrap();
        code.remap(3 * PAGE, moves()).unwrap();
        assert_eq!(
            (map[3 * PAGE - 1], *raw.as_ptr(), *code.as_ptr()),
            (5, 5, 5)
        );
    }
    // A window ends with its file.
    let engine = Engine::builder().memory(16 << 20).allow_kernel_maps(false);
    let empty = Scratch::new("no-window", 0);
    // SAFETY: as above.
    unsafe {
        let mut map = engine.build().unwrap().map(&empty.open()).unwrap();
        map.remap(PAGE, moves()).unwrap_err();
        map.remap(0, moves()).unwrap();
    }
}

/// An empty map can be used as any other.
#[test]
fn calls_on_an_empty_map_of_a_file() {
    for coherence in COHERENCES {
        let scratch = Scratch::new(&format!("calls-{coherence:?}"), 0);
        let file = scratch.open();
        let engine = engine(coherence);
        // SAFETY: nobody writes to it.
        let (shared, private) = unsafe { (engine.map_mut(&file).unwrap(), engine.map_copy(&file)) };
        for mut map in [shared, private.unwrap()] {
            map.flush().unwrap();
            map.lock().unwrap();
            map.unlock().unwrap();
            map.advise(softfault::Advice::WillNeed).unwrap();
            map.populate(..).unwrap();
            assert_eq!(map.fault_in_many(&[0..0, 0..1]).wait().len(), 2);
            map[..].fill(1);
            let map = map.make_read_only().unwrap();
            assert!(map.is_empty());
        }
    }
}

/// As by mmap(2), which memmap2 calls also for nothing.
#[test]
fn an_empty_file_that_may_not_be_written_to_is_no_writable_map() {
    let scratch = Scratch::new("not-writable", 0);
    let file = File::open(&scratch.0).unwrap();
    // SAFETY: refused.
    let theirs = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap_err();
    assert_eq!(theirs.raw_os_error(), Some(libc::EACCES));
    for coherence in COHERENCES {
        // SAFETY: refused.
        let ours = unsafe { engine(coherence).map_mut(&file) }.unwrap_err();
        assert_eq!(ours.raw_os_error(), theirs.raw_os_error());
    }
}

/// The file had been made longer, and the map was gone.
#[test]
fn a_map_that_cannot_be_made_anew_is_as_it_was_and_so_is_its_file() {
    const FAR: usize = 300 << 20;
    for coherence in COHERENCES {
        let scratch = Scratch::new(&format!("anew-{coherence:?}"), 3 * PAGE);
        let file = scratch.open();
        let writer = File::options().write(true).open(&scratch.0).unwrap();
        // SAFETY: written bytes are looked for.
        let mut map = unsafe { engine(coherence).map_mut(&file) }.unwrap();
        map[0] = 7;
        let done = map.set_len(&writer, FAR);
        // The kernel's own mapping grows without the file.
        assert_eq!(done.is_ok(), coherence == Coherence::Kernel);
        let len = if done.is_ok() { FAR } else { 3 * PAGE };
        assert_eq!(
            (map.len(), file.metadata().unwrap().len()),
            (len, len as u64)
        );
        map[1] = 8;
        map.flush().unwrap();
        assert_eq!((in_file(&file, 0), in_file(&file, 1)), (7, 8));
        // Nor can any file be so long.
        map.set_len(&file, (isize::MAX - PAGE as isize) as usize)
            .unwrap_err();
        assert_eq!(
            (map.len(), file.metadata().unwrap().len()),
            (len, len as u64)
        );
        map[2] = 9;
        map.flush().unwrap();
        assert_eq!((in_file(&file, 0), in_file(&file, 2)), (7, 9));
    }
}

/// The file refuses to grow, after the map has.
#[test]
fn a_map_does_not_grow_without_its_file() {
    for coherence in COHERENCES {
        // SAFETY: a name that ends in zero; the descriptor is new.
        let file = unsafe {
            let fd = libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING);
            File::from(OwnedFd::from_raw_fd(fd))
        };
        file.set_len(3 * PAGE as u64).unwrap();
        // SAFETY: no memory involved.
        let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
        // SAFETY: written bytes are looked for.
        let mut map = unsafe { engine(coherence).map_mut(&file) }.unwrap();
        for (round, len) in [(1, 4 * PAGE), (2, 300 << 20)] {
            let refused = map.set_len(&file, len).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{coherence:?}");
            assert_eq!(map.len(), 3 * PAGE);
            map[3 * PAGE - 1] = round;
            map.flush().unwrap();
            assert_eq!(in_file(&file, 3 * PAGE - 1), round);
        }
        map.set_len(&file, PAGE).unwrap();
        assert_eq!(
            (map.len(), file.metadata().unwrap().len()),
            (PAGE, PAGE as u64)
        );
    }
}
