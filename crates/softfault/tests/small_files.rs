//! Many small files, and large ones with holes, under a small budget: no touch hangs,
//! and a map that the budget cannot hold is refused when it is made.

mod files;

use files::path;
use softfault::{Engine, Mmap};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::Duration;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn engine(megabytes: usize) -> Engine {
    files::engine(megabytes * MIB)
}

fn map(engine: &Engine, file: &File) -> std::io::Result<Mmap> {
    // SAFETY: nobody writes to the file.
    unsafe { engine.map(file) }
}

/// Ends the process if `test` takes longer than anything but a hang does: a thread that
/// waits in a fault cannot be ended otherwise.
fn watched<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let (done, waits) = mpsc::channel::<()>();
    let name = name.to_owned();
    let dog = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(300)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name}: hangs");
            std::process::abort();
        }
    });
    let result = test();
    drop(done);
    dog.join().unwrap();
    result
}

/// Raises the limit on open files to the most allowed; returns it.
fn open_files() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads the limit, and raises it.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
    }
    limit.rlim_cur as usize
}

/// The byte at `offset` of the file of that number.
fn byte_of(number: usize, offset: usize) -> u8 {
    (number.wrapping_mul(31) ^ (number >> 8) ^ (offset / PAGE * 7) ^ offset) as u8 | 1
}

/// A file of `bytes` bytes, without a name.
fn numbered_file(name: &str, number: usize, bytes: usize) -> File {
    let place = path(&format!("{name}-{}-{number}", std::process::id()));
    let all: Vec<u8> = (0..bytes).map(|at| byte_of(number, at)).collect();
    std::fs::write(&place, all).unwrap();
    let file = File::open(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    file
}

/// A hole of `bytes` bytes, without a name.
fn sparse_file(name: &str, bytes: u64) -> File {
    let place = path(&format!("{name}-{}", std::process::id()));
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    file.set_len(bytes).unwrap();
    file
}

#[track_caller]
fn check(map: &[u8], number: usize, offset: usize) {
    // SAFETY: within the slice; volatile, so that the touch happens here.
    let found = unsafe { map[offset..].as_ptr().read_volatile() };
    assert_eq!(found, byte_of(number, offset), "file {number} at {offset}");
}

fn many(name: &str, count: usize, megabytes: usize) {
    // Each file costs two descriptors at most: ours, and the engine's.
    if open_files() < 2 * count + 200 {
        softfault_skip::skipped(
            "descriptors",
            format_args!("{count} files cannot be open at a time here"),
        );
        return;
    }
    let files: Vec<_> = (0..count)
        .map(|number| numbered_file(name, number, 2 * PAGE - number % PAGE))
        .collect();
    watched(name, || {
        let engine = engine(megabytes);
        let maps: Vec<_> = (files.iter().map(|file| map(&engine, file).unwrap())).collect();
        for pass in 0..2 {
            for (number, map) in maps.iter().enumerate() {
                check(map, number, pass * 4093 % map.len());
            }
            for (number, map) in maps.iter().enumerate().rev() {
                check(map, number, map.len() - 1);
            }
        }
        let stats = engine.stats();
        assert!(stats.peak_bytes <= (megabytes * MIB) as u64, "{stats:?}");
        drop(maps);
    });
}

#[test]
fn five_hundred_files_of_two_pages_in_eight_megabytes() {
    many("five-hundred", 500, 8);
}

#[test]
fn six_thousand_files_of_two_pages_in_sixty_four_megabytes() {
    many("six-thousand", 6000, 64);
}

#[test]
fn eight_threads_touch_a_thousand_small_files() {
    const FILES: usize = 1000;
    if open_files() < 2 * FILES + 200 {
        return softfault_skip::skipped(
            "descriptors",
            "so many files cannot be open at a time here",
        );
    }
    let pages = |number: usize| 1 + number * 7 % 40;
    let files: Vec<_> = (0..FILES)
        .map(|number| numbered_file("eight", number, pages(number) * PAGE))
        .collect();
    watched("eight threads", || {
        let engine = engine(8);
        let maps: Vec<_> = (files.iter().map(|file| map(&engine, file).unwrap())).collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let maps = &maps;
                scope.spawn(move || {
                    for touch in 0..4000_usize {
                        let number = (touch * 7919 + thread * 131) % FILES;
                        let page = (touch / 7 + thread) % pages(number);
                        check(&maps[number], number, page * PAGE + touch % PAGE);
                    }
                });
            }
        });
        let stats = engine.stats();
        assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
        assert!(stats.evicted > 0, "{stats:?}");
    });
}

/// Small maps come and go beside each other: a part of a window that has been another
/// file's before shows nothing of it.
#[test]
fn maps_come_and_go_while_their_neighbours_are_read() {
    const FILES: usize = 200;
    let files: Vec<_> = (0..FILES)
        .map(|number| numbered_file("come-and-go", number, (1 + number % 20) * PAGE))
        .collect();
    watched("come and go", || {
        let engine = engine(8);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (engine, files) = (&engine, &files);
                scope.spawn(move || {
                    for round in 0..2000_usize {
                        let number = (round * 13 + thread * 57) % FILES;
                        let map = map(engine, &files[number]).unwrap();
                        for page in 0..map.len() / PAGE {
                            check(&map, number, page * PAGE + round % PAGE);
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn maps_until_one_is_refused() {
    const FILES: usize = 3000;
    if open_files() < 2 * FILES + 200 {
        return softfault_skip::skipped(
            "descriptors",
            "so many files cannot be open at a time here",
        );
    }
    // Too large to share page tables, and each with a page of data at the end.
    const BYTES: usize = 3 * MIB;
    let files: Vec<_> = (0..FILES)
        .map(|number| {
            let file = sparse_file(&format!("until-{number}"), BYTES as u64);
            file.write_all_at(&[byte_of(number, 0); PAGE], (BYTES - PAGE) as u64)
                .unwrap();
            file
        })
        .collect();
    let look = |maps: &[(usize, Mmap)]| {
        for (number, map) in maps {
            assert_eq!(map[BYTES - 1], byte_of(*number, 0));
            assert_eq!(map[number % 100 * PAGE], 0);
        }
    };
    watched("until refused", || {
        let engine = engine(8);
        let mut maps = Vec::new();
        let mut refused = None;
        for (number, file) in files.iter().enumerate() {
            match map(&engine, file) {
                Ok(map) => {
                    // A touch now and then, so that there is something to evict.
                    assert_eq!(map[BYTES - 1], byte_of(number, 0));
                    maps.push((number, map));
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let refused = refused.expect("a budget of 8 MiB holds no 3,000 maps of 3 MiB");
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        println!("{} maps, then: {refused}", maps.len());
        assert!(maps.len() > 200, "{}", maps.len());
        look(&maps);
        std::thread::scope(|scope| {
            for part in maps.chunks(maps.len().div_ceil(8)) {
                scope.spawn(move || (0..3).for_each(|_| look(part)));
            }
        });
        let half = maps.len() / 2;
        maps.truncate(half);
        // Idle windows make room for new maps.
        for (number, file) in files[FILES - half / 2..].iter().enumerate() {
            maps.push((FILES - half / 2 + number, map(&engine, file).unwrap()));
        }
        look(&maps);
        let stats = engine.stats();
        assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
    });
}

#[test]
fn a_terabyte_touched_everywhere_in_eight_megabytes() {
    const BYTES: u64 = 1 << 40;
    let file = sparse_file("terabyte", BYTES);
    let data: Vec<u64> = (0..64).map(|at| at * 17_179_869_184 + (at << 21)).collect();
    for &offset in &data {
        file.write_all_at(&[byte_of(offset as usize >> 12, 0); PAGE], offset)
            .unwrap();
    }
    watched("terabyte", || {
        let engine = engine(8);
        let map = map(&engine, &file).unwrap();
        let mut random = 1_u64;
        for touch in 0..20_000_usize {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = random >> 24;
            let page = offset / PAGE as u64 * PAGE as u64;
            let expected = match data.contains(&page) {
                true => byte_of(page as usize >> 12, 0),
                false => 0,
            };
            assert_eq!(map[offset as usize], expected, "{offset}");
            let page = data[touch % data.len()];
            assert_eq!(map[page as usize], byte_of(page as usize >> 12, 0));
        }
        let stats = engine.stats();
        assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
    });
}

#[test]
fn a_map_that_can_never_fit_is_refused() {
    let file = sparse_file("never", 1 << 43);
    let engine = engine(8);
    let refused = map(&engine, &file).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    let refused = refused.to_string();
    assert!(refused.contains("memory"), "{refused}");
    println!("{refused}");
    let small = numbered_file("fits", 3, PAGE);
    check(&map(&engine, &small).unwrap(), 3, 5);
}
