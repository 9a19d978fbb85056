//! Code written for memmap2 compiles against us, and sees the same.

mod files;

use files::made_file;
use std::fs::File;

/// The same code over two crates: its findings, in words.
macro_rules! face {
    ($name:ident, $crate_name:path) => {
        mod $name {
            use $crate_name as memmap2;

            use memmap2::{Advice, Mmap, MmapAsRawDesc, MmapMut, MmapOptions};
            use memmap2::{RemapOptions, UncheckedAdvice};
            use std::fs::File;
            use std::io;
            use std::os::fd::AsRawFd;

            /// As users hold maps: in structures, shared, behind AsRef.
            struct Index {
                map: Mmap,
            }

            fn first(bytes: impl AsRef<[u8]>) -> Option<u8> {
                bytes.as_ref().first().copied()
            }

            fn is_shared<T: Send + Sync + Unpin + std::panic::UnwindSafe>(_: &T) {}

            fn said(what: &str, map: io::Result<Mmap>) -> String {
                match map {
                    Ok(map) => {
                        let sum = map.iter().fold(7u64, |sum, &byte| {
                            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                        });
                        format!("{what}: {} bytes, {sum}, {:?}", map.len(), first(&map))
                    }
                    Err(error) => format!("{what}: {:?}", error.kind()),
                }
            }

            fn any<T: MmapAsRawDesc>(file: T) -> io::Result<Mmap> {
                // SAFETY: nobody writes to the file.
                unsafe { Mmap::map(file) }
            }

            /// Looks at maps of `file`.
            pub fn look(file: &File) -> Vec<String> {
                let len = file.metadata().unwrap().len();
                let mut saw = vec![said("whole", any(file))];
                saw.push(said("descriptor", any(file.as_raw_fd())));
                let middle = len / 2;
                for offset in [
                    0,
                    1,
                    4095,
                    4096,
                    4097,
                    middle,
                    len - 1,
                    len,
                    len + 1,
                    len + 4096,
                ] {
                    // SAFETY: nobody writes to the file.
                    let map = unsafe { MmapOptions::new().offset(offset).map(file) };
                    saw.push(said(&format!("from {offset}"), map));
                    let count = (len.saturating_sub(offset) / 3) as usize;
                    let mut options = MmapOptions::new();
                    let options = options.offset(offset).len(count).populate().clone();
                    if offset <= len && count > 0 {
                        // SAFETY: nobody writes to the file.
                        let map = unsafe { options.map(file) };
                        saw.push(said(&format!("{count} from {offset}"), map));
                    }
                }
                let index = Index {
                    // SAFETY: nobody writes to the file.
                    map: unsafe { MmapOptions::default().map(file) }.unwrap(),
                };
                is_shared(&index.map);
                let tail: &[u8] = &index.map[middle as usize..];
                saw.push(format!("{:?} {:?}", &tail[..20], tail.last()));
                for advice in [
                    Advice::Normal,
                    Advice::Random,
                    Advice::Sequential,
                    Advice::WillNeed,
                ] {
                    saw.push(format!("{advice:?} {:?}", index.map.advise(advice).is_ok()));
                    for (offset, len) in [(0, 10), (5000, 10_000), (4096, 4096), (0, 0)] {
                        let advised = index.map.advise_range(advice, offset, len);
                        saw.push(format!("{offset} {len} {:?}", advised.is_ok()));
                    }
                }
                let debug = format!("{:?}", index.map);
                let parts: Vec<_> = debug.split("0x").collect();
                saw.push(parts[0].into());
                saw.push(parts[1].split_once(',').unwrap().1.into());
                let shared = std::sync::Arc::new(index.map);
                let other = std::thread::spawn({
                    let shared = shared.clone();
                    move || shared[shared.len() - 1]
                });
                saw.push(format!("{}", other.join().unwrap()));
                saw.push(format!(
                    "{:?}",
                    shared.windows(3).position(|three| three == b"\0\0\0")
                ));
                saw
            }

            fn sum(bytes: &[u8]) -> u64 {
                bytes.iter().fold(7u64, |sum, &byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                })
            }

            /// Looks at private maps, of `file` from `offset` on, and of zeros.
            pub fn look_private(file: &File, offset: u64) -> Vec<String> {
                let mut options = MmapOptions::new();
                options.offset(offset).populate();
                // SAFETY: nobody writes to the file.
                let copy = unsafe { options.map_copy(file) }.unwrap();
                let zeros = options.clone().len(copy.len()).map_anon().unwrap();
                let named = MmapMut::map_anon(5).unwrap();
                let mut saw = vec![format!("{} {:?}", named.len(), &named[..])];
                for mut map in [copy, zeros] {
                    is_shared(&map);
                    saw.push(format!("{} {}", map.len(), sum(&map)));
                    map.as_mut()[3] = 7;
                    map[10..15].copy_from_slice(b"hello");
                    let len = map.len();
                    let flushed = [
                        map.flush().is_ok(),
                        map.flush_async().is_ok(),
                        map.flush_range(3, 5000).is_ok(),
                        map.flush_async_range(0, len).is_ok(),
                    ];
                    saw.push(format!("{flushed:?}"));
                    for advice in [
                        Advice::PopulateRead,
                        Advice::PopulateWrite,
                        Advice::WillNeed,
                    ] {
                        saw.push(format!("{:?}", map.advise(advice).is_ok()));
                        saw.push(format!("{:?}", map.advise_range(advice, 5, 5000).is_ok()));
                    }
                    saw.push(format!(
                        "{:?} {:?}",
                        map.lock().is_ok(),
                        map.unlock().is_ok()
                    ));
                    for advice in [UncheckedAdvice::DontNeed, UncheckedAdvice::Free] {
                        // SAFETY: nobody relies on the bytes; those that are looked at
                        // are others.
                        let given = unsafe { map.unchecked_advise_range(advice, len - 1, 1) };
                        saw.push(format!("{advice:?} {:?}", given.is_ok()));
                    }
                    saw.push(format!("{}", sum(&map[..len / 2])));
                    let may_move = RemapOptions::new().may_move(true);
                    // SAFETY: nobody has a reference to the bytes.
                    unsafe { map.remap(len / 2, RemapOptions::default()) }.unwrap();
                    saw.push(format!("{} {}", map.len(), sum(&map)));
                    // SAFETY: as above.
                    unsafe { map.remap(len / 2 + 10_000, may_move) }.unwrap();
                    saw.push(format!("{} {}", map.len(), sum(&map)));
                    let map: Mmap = map.make_read_only().unwrap();
                    saw.push(format!("{:?} {}", first(&map), sum(map.as_ref())));
                    let locked = (map.lock().is_ok(), map.unlock().is_ok());
                    saw.push(format!("{locked:?}"));
                    // SAFETY: as above.
                    let freed = unsafe { map.unchecked_advise(UncheckedAdvice::Free) };
                    saw.push(format!("{:?}", freed.is_ok()));
                    let mut map = map.make_mut().unwrap();
                    map.fill(1);
                    saw.push(format!("{}", sum(&map)));
                }
                // SAFETY: nobody writes to the file.
                let read = unsafe { MmapOptions::new().map_copy_read_only(file) }.unwrap();
                saw.push(format!("{}", sum(&read)));
                // SAFETY: as above.
                let shared = unsafe { Mmap::map(file) }.unwrap();
                saw.push(format!(
                    "{:?}",
                    shared.lock().is_ok() && shared.unlock().is_ok()
                ));
                // SAFETY: no code relies on the bytes.
                let again = unsafe { shared.unchecked_advise(UncheckedAdvice::DontNeed) };
                saw.push(format!("{:?} {}", again.is_ok(), sum(&shared)));
                saw
            }

            /// An empty file.
            pub fn look_empty(file: &File) -> Vec<String> {
                let map = any(file).unwrap();
                let saw = vec![
                    format!("{} {:?} {:?}", map.len(), first(&map), map.is_empty()),
                    format!("{:?}", &map[..]),
                ];
                // SAFETY: nobody writes to the file.
                let past = unsafe { MmapOptions::new().offset(1).map(file) };
                [saw, vec![said("past", past)]].concat()
            }

            /// Files and ranges that cannot be mapped.
            pub fn look_refused() -> Vec<String> {
                let folder = File::open("/").unwrap();
                let null = File::open("/dev/null").unwrap();
                let place = crate::files::path("write-only");
                std::fs::write(&place, "a file that cannot be read").unwrap();
                let writable = File::options().write(true).open(&place).unwrap();
                std::fs::remove_file(&place).unwrap();
                [any(&folder), any(&writable)]
                    .map(|map| format!("{}", map.is_err()))
                    .into_iter()
                    .chain([format!("{}", any(&null).is_ok_and(|map| map.len() > 0))])
                    .collect()
            }
        }
    };
}

face!(ours, ::softfault);
face!(theirs, ::memmap2);

fn same(ours: &[String], theirs: &[String]) {
    assert!(!ours.is_empty());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn files_look_the_same() {
    for bytes in [1 << 20, (3 << 20) + 1234, 30_000, 12_289] {
        let file = made_file("same", bytes);
        same(&ours::look(&file), &theirs::look(&file));
    }
}

#[test]
fn sparse_files_look_the_same() {
    let file = made_file("sparse", 100_000);
    file.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"island", 2 << 20).unwrap();
    same(&ours::look(&file), &theirs::look(&file));
}

#[test]
fn private_maps_look_the_same() {
    for (bytes, offset) in [(1 << 20, 0), ((3 << 20) + 1234, 0), (100_000, 4097)] {
        let file = made_file("private", bytes);
        same(
            &ours::look_private(&file, offset),
            &theirs::look_private(&file, offset),
        );
    }
}

#[test]
fn empty_files_look_the_same() {
    let file = made_file("empty", 0);
    same(&ours::look_empty(&file), &theirs::look_empty(&file));
}

#[test]
fn unmappable_files_are_the_same() {
    same(&ours::look_refused(), &theirs::look_refused());
}

#[test]
fn an_invalid_descriptor_is_an_error() {
    // SAFETY: refused.
    let error = unsafe { softfault::Mmap::map(-1) }.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_length_past_the_end_is_an_error() {
    // There memmap2 makes a map, and a touch of it then ends the process.
    let file: File = made_file("past", 10_000);
    for (offset, len) in [
        (0, 10_001),
        (9_999, 2),
        (10_000, 1),
        (20_000, 0),
        (1, usize::MAX),
    ] {
        // SAFETY: nobody writes to the file.
        let map = unsafe {
            softfault::MmapOptions::new()
                .offset(offset)
                .len(len)
                .map(&file)
        };
        let refused = map.is_err();
        assert_eq!(refused, len > 0, "{offset} {len}");
    }
}
