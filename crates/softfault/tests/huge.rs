//! Huge memory, of each kind: the bytes that its maps show, and the calls that they refuse.

mod child;
mod huge_scene;

use child::{dies_of, forked};
use huge_scene::{PAGE, each, memory, touch, unreserved, write};
use softfault::{Engine, FaultError, HugeBacking, HugeMap, HugeMapOptions, HugeMemory, HugeSize};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

#[test]
fn two_maps_show_the_same_bytes() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let (one, other) = (memory.map().unwrap(), memory.map().unwrap());
        assert_ne!(one.as_ptr(), other.as_ptr());
        assert_eq!((one.len(), one.page_size().bytes()), (4 * PAGE, PAGE));
        for page in 0..4 {
            assert_eq!(touch(&one, page * PAGE + 77), 0);
            write(&one, page * PAGE + 77, page as u8 + 1);
            assert_eq!(touch(&other, page * PAGE + 77), page as u8 + 1);
            write(&other, page * PAGE + PAGE - 1, 9);
            assert_eq!(touch(&one, page * PAGE + PAGE - 1), 9);
        }
        // Each page was missing once, and the first to touch it asked for it.
        assert_eq!((one.stats().faults, one.stats().pages), (4, 4), "{backing}");
        assert_eq!((other.stats().faults, other.stats().pages), (0, 0));
        assert_eq!(memory.resident_bytes().unwrap(), 4 * PAGE as u64);
    });
}

#[test]
fn a_part_of_it_is_mapped_where_it_says() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let all = memory.map().unwrap();
        let part = HugeMapOptions::new()
            .offset(PAGE as u64)
            .len(2 * PAGE)
            .map(&memory)
            .unwrap();
        write(&part, PAGE + 3, 5);
        assert_eq!(touch(&all, 2 * PAGE + 3), 5);
        write(&all, PAGE, 6);
        assert_eq!(touch(&part, 0), 6);
        assert_eq!(part.offset(), PAGE as u64);
    });
}

#[test]
fn the_copy_has_the_present_bytes() {
    each(3, |backing| {
        let memory = memory(backing, 3);
        let map = memory.map().unwrap();
        let bytes: Vec<u8> = (0..3 * PAGE).map(|at| ((at * 31) >> 3) as u8).collect();
        for (from, to) in [
            (0, 1),
            (5, 14),
            (PAGE - 3, PAGE + 4),
            (9, 3 * PAGE - 5),
            (8, 8),
        ] {
            map.write_at(&bytes[from..to], from).unwrap();
            let mut seen = vec![0; to - from];
            map.read_at(&mut seen, from).unwrap();
            assert!(seen == bytes[from..to], "{from}..{to}");
        }
        let mut one = [0; 1];
        for wrong in [3 * PAGE, usize::MAX] {
            assert_eq!(map.read_at(&mut one, wrong), Err(FaultError::OutOfRange));
            assert_eq!(map.write_at(&one, wrong), Err(FaultError::OutOfRange));
        }
        let reader = HugeMapOptions::new().read_only(true).map(&memory).unwrap();
        reader.read_at(&mut one, PAGE).unwrap();
        assert_eq!(one[0], bytes[PAGE]);
        assert_eq!(reader.write_at(&one, 0), Err(FaultError::ReadOnly));
        // SAFETY: nobody writes meanwhile.
        assert!(unsafe { reader.as_slice() }[9..3 * PAGE - 5] == bytes[9..3 * PAGE - 5]);
    });
}

#[test]
fn pages_brought_in_are_not_missing() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let map = memory.map().unwrap();
        map.populate(PAGE + 5..2 * PAGE + 1).unwrap();
        assert_eq!(memory.resident_bytes().unwrap(), 2 * PAGE as u64);
        assert_eq!((map.stats().faults, map.stats().pages), (0, 2));
        touch(&map, PAGE);
        touch(&map, 2 * PAGE);
        assert_eq!(map.stats().faults, 0);
        map.populate(..).unwrap();
        map.populate(7..7).unwrap();
        assert_eq!(memory.resident_bytes().unwrap(), 4 * PAGE as u64);
        assert_eq!(map.populate(0..4 * PAGE + 1), Err(FaultError::OutOfRange));
    });
}

#[test]
fn many_threads_touch_the_same_pages() {
    each(16, |backing| {
        let memory = memory(backing, 16);
        let map = memory.map().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    for page in 0..16 {
                        write(map, page * PAGE + thread, thread as u8 + 1);
                    }
                });
            }
        });
        for at in 0..64 {
            let (page, thread) = (at / 4, at % 4);
            assert_eq!(touch(&map, page * PAGE + thread), thread as u8 + 1);
        }
        assert_eq!(memory.resident_bytes().unwrap(), 16 * PAGE as u64);
        let stats = map.stats();
        assert!(stats.pages >= 16 && stats.faults >= 16, "{stats:?}");
        assert_eq!((stats.failed, stats.pool_empty), (0, 0));
    });
}

#[test]
fn pages_cut_off_are_gone_and_come_back_as_zeros() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let map = memory.map().unwrap();
        for page in 0..4 {
            write(&map, page * PAGE, 7);
        }
        memory.truncate(2 * PAGE as u64).unwrap();
        assert_eq!(memory.bytes().unwrap(), 2 * PAGE as u64);
        assert_eq!(memory.resident_bytes().unwrap(), 2 * PAGE as u64);
        assert_eq!(touch(&map, PAGE), 7);
        assert_eq!(map.populate(..), Err(FaultError::BeyondEnd));
        assert_eq!(map.populate(2 * PAGE..), Err(FaultError::BeyondEnd));
        assert_eq!(map.write_at(&[1], 3 * PAGE), Err(FaultError::BeyondEnd));
        assert_eq!(memory.resident_bytes().unwrap(), 2 * PAGE as u64);
        memory.truncate(4 * PAGE as u64).unwrap();
        assert_eq!((touch(&map, PAGE), touch(&map, 3 * PAGE)), (7, 0));
        // A memory that has become longer can be mapped in full.
        memory.truncate(6 * PAGE as u64).unwrap();
        let longer = unreserved(&memory);
        assert_eq!(longer.len(), 6 * PAGE);
        write(&map, 3 * PAGE, 3);
        assert_eq!(touch(&longer, 3 * PAGE), 3);
    });
}

#[test]
fn a_file_that_has_taken_the_descriptors_number_gets_no_blocks() {
    let memory = memory(HugeBacking::BasePages, 2);
    let map = HugeMapOptions::new().read_only(true).map(&memory).unwrap();
    map.populate(..).unwrap();
    let path = std::env::temp_dir().join(format!("softfault-huge-{}", std::process::id()));
    let other = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // SAFETY: the number is the memory's; a program can do so by mistake.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), memory.as_fd().as_raw_fd()) } >= 0);
    let _ = map.populate(..);
    assert_eq!(other.metadata().unwrap().blocks(), 0);
}

/// Of a length for which the tables of a map are kept. It needs no page of the pool.
#[test]
fn memory_that_was_cut_stays_cut_when_its_map_goes() {
    let builder = HugeMemory::builder().backing(HugeBacking::Hugetlb);
    let memory = match builder.page_size(HugeSize::TwoMiB).create(2 << 30) {
        Ok(memory) => memory,
        Err(error) => return softfault_skip::skipped("hugetlb", error),
    };
    let maps = [unreserved(&memory), unreserved(&memory)];
    memory.truncate(PAGE as u64).unwrap();
    for map in maps {
        drop(map);
        assert_eq!(memory.bytes().unwrap(), PAGE as u64);
    }
}

#[test]
fn a_lengthened_mapping_is_served() {
    each(4, |backing| {
        let memory = memory(backing, 2);
        memory.truncate(4 * PAGE as u64).unwrap();
        let map = memory.map().unwrap();
        write(&map, 3 * PAGE, 4);
        assert_eq!(touch(&memory.map().unwrap(), 3 * PAGE), 4);
        assert_eq!(map.stats().faults, 1);
    });
}

#[test]
fn memory_given_back_is_zeros() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let map = memory.map().unwrap();
        for page in 0..4 {
            write(&map, page * PAGE, 7);
        }
        memory.punch_hole(PAGE as u64..3 * PAGE as u64).unwrap();
        assert_eq!(memory.resident_bytes().unwrap(), 2 * PAGE as u64);
        let first = [0, 1, 2, 3].map(|page| touch(&map, page * PAGE));
        assert_eq!(first, [7, 0, 0, 7]);
        assert_eq!(map.stats().pages, 6);
        memory.punch_hole(PAGE as u64..PAGE as u64).unwrap();
    });
}

#[test]
fn sizes_of_no_whole_page_are_refused() {
    each(2, |backing| {
        let refused = |result: std::io::Result<()>, words: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let text = error.to_string();
            assert!(text.contains(words) && !text.contains('\n'), "{text}");
        };
        let page = PAGE as u64;
        for bytes in [0, 1, page - 1, page + 4096] {
            let made = HugeMemory::builder().backing(backing).create(bytes);
            refused(made.map(drop), "multiple of 2 MiB");
        }
        let memory = memory(backing, 2);
        refused(memory.truncate(page + 1), "the length has to be a multiple");
        refused(memory.punch_hole(1..page), "the start has to be a multiple");
        refused(
            memory.punch_hole(0..page + 4096),
            "the end has to be a multiple",
        );
        let map = |offset, len| {
            let map = HugeMapOptions::new().offset(offset).len(len).map(&memory);
            map.map(drop)
        };
        refused(map(4096, PAGE), "the offset has to be a multiple");
        refused(map(0, 4096), "the length has to be a multiple");
        refused(map(page, 2 * PAGE), "past the end");
        refused(map(2 * page, 0), "nothing to map");
    });
}

#[test]
fn a_touch_past_the_end_dies_of_sigbus() {
    let test = "a_touch_past_the_end_dies_of_sigbus";
    match child::scenario().as_deref() {
        None => ["ordinary", "hugetlb"].map(|kind| {
            let _pool = huge_scene::Pool::with(2);
            if kind == "ordinary" || _pool.is_some() {
                dies_of(libc::SIGBUS, test, kind);
            }
        }),
        Some(kind) => {
            let backing = match kind {
                "hugetlb" => HugeBacking::Hugetlb,
                _ => HugeBacking::BasePages,
            };
            let memory = memory(backing, 2);
            let map = memory.map().unwrap();
            write(&map, PAGE, 1);
            memory.truncate(PAGE as u64).unwrap();
            touch(&map, PAGE);
            [(), ()]
        }
    };
}

#[test]
fn a_write_to_a_map_for_reading_dies_of_sigsegv() {
    let memory = memory(HugeBacking::BasePages, 1);
    let map = HugeMapOptions::new().read_only(true).map(&memory).unwrap();
    assert_eq!(touch(&map, 0), 0);
    let status = forked(|| {
        write(&map, 0, 1);
        0
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
}

extern "C" fn earlier(_signal: i32) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(7) }
}

#[test]
fn unserved_faults_go_to_the_handler_before() {
    let test = "unserved_faults_go_to_the_handler_before";
    if child::scenario().is_none() {
        assert_eq!(child::run(test, "before").status.code(), Some(7));
        return;
    }
    // SAFETY: installs a handler that ends the process.
    unsafe { libc::signal(libc::SIGBUS, earlier as *const () as usize) };
    let memory = memory(HugeBacking::BasePages, 1);
    let map = memory.map().unwrap();
    write(&map, 0, 1);
    memory.truncate(0).unwrap();
    touch(&map, 0);
}

#[test]
fn a_descriptor_is_enough() {
    each(2, |backing| {
        let memory = memory(backing, 2);
        let map = memory.map().unwrap();
        write(&map, PAGE, 8);
        let other = memory.as_fd().try_clone_to_owned().unwrap();
        let other = HugeMemory::from_fd(other).unwrap();
        assert_eq!(other.page_size(), HugeSize::TwoMiB);
        assert_eq!(other.bytes().unwrap(), 2 * PAGE as u64);
        match backing {
            HugeBacking::Hugetlb => assert_eq!(other.backing(), backing),
            _ => assert_ne!(other.backing(), HugeBacking::Hugetlb),
        }
        drop(memory);
        assert_eq!(touch(&other.map().unwrap(), PAGE), 8);
    });
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let error = HugeMemory::from_fd(file.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn long_maps_begin_at_a_multiple_of_a_table() {
    const SPAN: usize = 1 << 30;
    let memory = memory(HugeBacking::BasePages, 1024);
    let place = |map: &HugeMap| map.as_ptr() as usize % SPAN;
    assert_eq!(place(&memory.map().unwrap()), 0);
    let map = memory.map().unwrap();
    let beside = memory.map().unwrap();
    assert_eq!((place(&map), place(&beside)), (0, 0));
    let part = HugeMapOptions::new()
        .offset(6 * PAGE as u64)
        .len(SPAN)
        .map(&memory)
        .unwrap();
    assert_eq!(place(&part), 6 * PAGE);
    write(&map, 7 * PAGE, 2);
    assert_eq!(touch(&part, PAGE), 2);
}

#[test]
fn the_engines_numbers_give_its_options() {
    let test = "the_engines_numbers_give_its_options";
    if child::scenario().is_none() {
        // In a process of its own: the numbers are the process's.
        return child::succeeds(test, "alone");
    }
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    each(3, |backing| {
        let before = engine.stats().huge;
        let memory = memory(backing, 3);
        let maps = [memory.map().unwrap(), unreserved(&memory)];
        write(&maps[0], 0, 1);
        write(&maps[1], PAGE, 1);
        touch(&maps[1], 0);
        let now = engine.stats().huge;
        let of = |stats: &softfault::HugeStats| match backing {
            HugeBacking::Hugetlb => stats.hugetlb_maps,
            HugeBacking::TransparentHuge => stats.transparent_maps,
            HugeBacking::BasePages => stats.base_page_maps,
        };
        assert_eq!(of(&now), of(&before) + 2, "{backing}");
        assert_eq!(now.mapped_pages, before.mapped_pages + 6);
        let reserved = if backing == HugeBacking::Hugetlb {
            3
        } else {
            0
        };
        assert_eq!(now.reserved_pages, before.reserved_pages + reserved);
        assert_eq!(
            (now.faults, now.pages),
            (before.faults + 2, before.pages + 2)
        );
        memory.truncate(0).unwrap();
        assert!(maps[0].populate(..).is_err());
        drop(maps);
        let after = engine.stats().huge;
        assert_eq!(of(&after), of(&before));
        assert_eq!(after.mapped_pages, before.mapped_pages);
        assert_eq!(after.reserved_pages, before.reserved_pages);
    });
    assert_eq!(engine.stats().huge, softfault::HugeStats::now());
    assert_eq!(engine.stats().faults, 0, "huge memory is no engine's");
}

#[test]
fn more_maps_than_a_block_of_the_table_has() {
    let memory = memory(HugeBacking::BasePages, 1);
    let maps: Vec<_> = (0..200).map(|_| memory.map().unwrap()).collect();
    for (number, map) in maps.iter().enumerate() {
        memory.punch_hole(0..PAGE as u64).unwrap();
        assert_eq!(touch(map, number), 0);
        assert_eq!(map.stats().faults, 1, "{number}");
    }
    drop(maps);
    let map = memory.map().unwrap();
    assert_eq!(map.stats(), softfault::HugeMapStats::default());
    touch(&map, 0);
}

/// Threads that write single bytes of the same words, and one that reads across them: no byte of another is lost.
#[test]
fn writers_of_one_word_keep_each_others_bytes() {
    const WRITERS: usize = 3;
    const BYTES: usize = 8 * 1024;
    each(1, |backing| {
        let memory = memory(backing, 1);
        let map = memory.map().unwrap();
        std::thread::scope(|scope| {
            let map = &map;
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    for at in (writer..BYTES).step_by(WRITERS) {
                        map.write_at(&[writer as u8 + 1], at).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                let mut seen = vec![0; BYTES - 3];
                for _ in 0..20 {
                    map.read_at(&mut seen, 3).unwrap();
                    for (at, byte) in (3..).zip(&seen) {
                        let writer = (at % WRITERS) as u8 + 1;
                        assert!([0, writer].contains(byte), "byte {at}");
                    }
                }
            });
        });
        let mut all = vec![0; BYTES];
        map.read_at(&mut all, 0).unwrap();
        for (at, byte) in all.iter().enumerate() {
            assert_eq!(usize::from(*byte), at % WRITERS + 1, "byte {at}");
        }
    });
}

/// Pages that came by a read are not the kernel's to drop: they stay, and stay counted, until they are given back.
#[test]
fn pages_brought_in_are_not_dropped() {
    each(3, |backing| {
        let memory = memory(backing, 3);
        let map = memory.map().unwrap();
        let only_read = HugeMapOptions::new().read_only(true).map(&memory).unwrap();
        assert_eq!(touch(&only_read, 5), 0);
        assert_eq!(touch(&map, PAGE), 0);
        only_read.populate(2 * PAGE..3 * PAGE).unwrap();
        drop((map, only_read));
        // As `drop_caches` does, of this file alone: clean pages that are not mapped go.
        let fd = memory.as_fd().as_raw_fd();
        // SAFETY: no memory involved.
        unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(
            memory.resident_bytes().unwrap(),
            3 * PAGE as u64,
            "{backing}"
        );
    });
}
