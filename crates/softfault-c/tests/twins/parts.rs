//! munmap of parts, mremap, and maps that have the same addresses.

use crate::twin::{
    PAGE, READ, Twin, WRITE, aged_file, anonymous, answer, content, errno, file, of_file,
    own_engine, text, unmap,
};
use core::ffi::c_void;
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::softfault_mlock;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::stats::{softfault_stats, softfault_stats as Stats};
use std::fs::File;
use std::os::fd::AsRawFd;

const PAGES: usize = 8;

fn kinds(made: &File) -> Vec<Twin> {
    vec![
        Twin::anonymous(PAGES),
        Twin::of_file(made, PAGES, WRITE, libc::MAP_PRIVATE),
        Twin::of_file(made, PAGES, READ, libc::MAP_SHARED),
        Twin::of_file(made, PAGES, WRITE, libc::MAP_SHARED),
    ]
}

fn is_mapped(twin: &Twin, page: usize) -> bool {
    let (ours, _) = twin.at(page);
    match answer(softfault_fault_in(ours, PAGE)) {
        Ok(()) => true,
        Err(why) => {
            assert_eq!(why, libc::ENOMEM, "{}", text());
            false
        }
    }
}

#[test]
fn parts_of_every_kind_of_map_go() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    for (first, count) in [(0, 1), (0, 3), (3, 2), (7, 1), (5, 3), (0, 8)] {
        for twin in kinds(&made) {
            assert_eq!(twin.unmap(first, count), (Ok(()), Ok(())), "{}", text());
            for page in 0..PAGES {
                let is_left = !(first..first + count).contains(&page);
                assert_eq!(is_mapped(&twin, page), is_left, "{first} {count} {page}");
                if is_left {
                    twin.same(page, 1);
                }
            }
            // Not twice, and nothing beside it.
            assert_eq!(twin.unmap(first, count).0, Err(libc::EINVAL));
            assert_eq!(twin.unmap(0, PAGES).0, Err(libc::EINVAL));
            for page in (0..PAGES).filter(|page| !(first..first + count).contains(page)) {
                assert_eq!(twin.unmap(page, 1).0, Ok(()), "{}", text());
            }
            assert!((0..PAGES).all(|page| !is_mapped(&twin, page)));
        }
    }
}

#[test]
fn wrong_ranges() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    let (ours, kernels) = twin.at(0);
    for (skip, len) in [(1, PAGE), (0, 0), (PAGE, 0)] {
        // SAFETY: nothing goes.
        let both = unsafe {
            let ours = answer(softfault_munmap(ours.byte_add(skip), len));
            (ours, answer(libc::munmap(kernels.byte_add(skip), len)))
        };
        assert_eq!(both, (Err(libc::EINVAL), Err(libc::EINVAL)));
    }
    // SAFETY: advice that changes nothing.
    let both = unsafe {
        let (ours, kernels) = (ours.byte_add(1), kernels.byte_add(1));
        let advised = answer(softfault_madvise(ours, PAGE, libc::MADV_WILLNEED));
        let theirs = answer(libc::madvise(kernels, PAGE, libc::MADV_WILLNEED));
        (advised, theirs)
    };
    assert_eq!(both, (Err(libc::EINVAL), Err(libc::EINVAL)));
    let foreign = anonymous(1).kernels().unwrap();
    // SAFETY: nothing goes.
    let said = answer(unsafe { softfault_munmap(foreign, PAGE) });
    assert_eq!(said, Err(libc::EINVAL), "memory of others' is left alone");
    // SAFETY: it is there.
    unsafe { foreign.cast::<u8>().write_volatile(1) };
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

/// Bytes that an engine has in memory.
fn resident_of(engine: crate::twin::Engine) -> usize {
    // SAFETY: zeros are a value of each field.
    let mut stats: Stats = unsafe { core::mem::zeroed() };
    stats.size = size_of::<Stats>();
    // SAFETY: an engine that is never freed, and a structure of its size.
    let filled = unsafe { softfault_stats(engine.0, &mut stats) };
    assert_eq!(filled, 0);
    stats.resident_bytes as usize
}

#[test]
fn memory_is_given_back_with_the_part() {
    let _turn = crate::twin::turn();
    let pages = 256;
    let resident = || resident_of(ENGINE.with(|engine| *engine));
    let arguments = anonymous(pages);
    let map = arguments
        .ours(ENGINE.with(|engine| *engine))
        .unwrap()
        .cast::<u8>();
    for page in 0..pages {
        // SAFETY: within the map.
        unsafe { map.add(page * PAGE).write_volatile(1) };
    }
    let full = resident();
    // SAFETY: nobody uses it any more.
    unsafe {
        assert_eq!(
            softfault_munmap(map.add(PAGE).cast(), (pages - 2) * PAGE),
            0
        );
    }
    let rest = resident();
    assert!(
        rest + (pages - 2) * PAGE <= full,
        "{full} bytes became {rest}"
    );
    // SAFETY: within the rest.
    unsafe {
        assert_eq!(
            map.read_volatile() + map.add((pages - 1) * PAGE).read_volatile(),
            2
        );
        assert_eq!(softfault_munmap(map.cast(), PAGE), 0);
        assert_eq!(
            softfault_munmap(map.add((pages - 1) * PAGE).cast(), PAGE),
            0
        );
    }
}

thread_local! {
    /// An engine of a test's own, so that its counts are this test's. It serves small files, too.
    static ENGINE: crate::twin::Engine = {
        let mut options = crate::twin::engine_options();
        options.memory = 16 << 20;
        options.allow_kernel_maps = softfault_c::engine::SOFTFAULT_ALLOW_KERNEL_MAPS_NO;
        options.small_maps = -1;
        // SAFETY: a structure of its size.
        crate::twin::Engine(unsafe { softfault_c::engine::softfault_engine_new(&options) })
    };
}

#[test]
fn maps_of_one_file_are_unmapped_as_often_as_mapped() {
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let maps: Vec<Twin> = [(0, 8), (0, 8), (2, 3), (4, 4)]
        .into_iter()
        .map(|(first, count)| {
            let mut arguments = of_file(&made, count, READ, libc::MAP_SHARED);
            arguments.offset = (first * PAGE) as i64;
            Twin::of(arguments, own_engine())
        })
        .collect();
    // One window.
    assert_eq!(maps[0].ours, maps[1].ours);
    assert_eq!(maps[2].ours, maps[0].at(2).0.cast());
    let count =
        |page: usize| [8, 8].len() + usize::from((2..5).contains(&page)) + usize::from(page >= 4);
    for page in 0..PAGES {
        for _ in 0..count(page) {
            assert!(is_mapped(&maps[0], page));
            maps[0].same(page, 1);
            let (ours, _) = maps[0].at(page);
            unmap(ours, PAGE);
        }
        assert!(!is_mapped(&maps[0], page), "{page}");
    }
}

/// Of two maps of the same pages the one that has all of them goes, though the other was mapped later.
#[test]
fn a_map_that_has_lost_a_page_is_not_taken_for_whole() {
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let maps = [(); 2].map(|()| Twin::of_file(&made, PAGES, READ, libc::MAP_SHARED));
    assert_eq!(maps[0].ours, maps[1].ours, "one window");
    unmap(maps[0].at(5).0, PAGE);
    unmap(maps[0].at(0).0, PAGES * PAGE);
    for page in 0..PAGES {
        assert_eq!(is_mapped(&maps[0], page), page != 5, "{page}");
    }
    unmap(maps[0].at(0).0, 5 * PAGE);
    unmap(maps[0].at(6).0, 2 * PAGE);
    assert!((0..PAGES).all(|page| !is_mapped(&maps[0], page)));
}

#[test]
fn several_maps_go_by_one_call() {
    let _turn = crate::twin::turn();
    // Two maps side by side: halves of one file.
    let made = aged_file(PAGES * PAGE);
    let half = |first: usize| {
        let mut arguments = of_file(&made, PAGES / 2, READ, libc::MAP_SHARED);
        arguments.offset = (first * PAGE) as i64;
        arguments.ours(own_engine()).unwrap()
    };
    let (low, high) = (half(0), half(PAGES / 2));
    // SAFETY: within the window.
    assert_eq!(high, unsafe { low.byte_add(PAGES / 2 * PAGE) });
    let all = content(PAGES * PAGE);
    let mut copy = vec![0; all.len()];
    // SAFETY: the buffer has as many bytes.
    let copied = unsafe {
        softfault_c::transfer::softfault_copy_out(low, copy.as_mut_ptr().cast(), copy.len())
    };
    assert_eq!(copied as usize, all.len(), "{}", text());
    assert!(copy == all);
    unmap(low, PAGES * PAGE);
    assert_eq!(softfault_fault_in(low, 1), -1);
    assert_eq!(softfault_fault_in(high, 1), -1);
}

/// Failed before: only pages of the map that the range begins in were given back, and none if that map went as a whole.
#[test]
fn memory_of_a_part_is_given_back_whichever_maps_go_with_it() {
    let _turn = crate::twin::turn();
    let made = aged_file(3 * PAGES * PAGE);
    let map = |first: usize, pages: usize| {
        let mut arguments = of_file(&made, pages, READ, libc::MAP_SHARED);
        arguments.offset = (first * PAGE) as i64;
        arguments.ours(ENGINE.with(|engine| *engine)).unwrap()
    };
    let resident = || resident_of(ENGINE.with(|engine| *engine));
    // Where the range begins: at the first map, which goes, or after its first page.
    for begins in [0, 1] {
        let (low, high) = (map(0, PAGES), map(PAGES, 2 * PAGES));
        // SAFETY: within the window.
        assert_eq!(high, unsafe { low.byte_add(PAGES * PAGE) });
        assert_eq!(softfault_fault_in(low, 3 * PAGES * PAGE), 0);
        let full = resident();
        // SAFETY: nobody uses them any more.
        let start = unsafe { low.byte_add(begins * PAGE) };
        unmap(start, (2 * PAGES - begins) * PAGE);
        // Pages of a map that goes may be kept for the next map of the file.
        let least = PAGES + begins * (PAGES - 1);
        let rest = resident();
        assert!(
            rest + least * PAGE <= full,
            "{begins}: {full} bytes became {rest}"
        );
        // SAFETY: within the window.
        unmap(unsafe { high.byte_add(PAGES * PAGE) }, PAGES * PAGE);
        if begins > 0 {
            unmap(low, begins * PAGE);
        }
    }
}

fn remap(twin: &mut Twin, pages: usize, flags: i32) {
    let old = twin.length;
    let new = pages * PAGE;
    // SAFETY: the test goes on with the new addresses.
    let (ours, kernels) = unsafe {
        (
            softfault_mremap(twin.ours.cast(), old, new, flags),
            libc::mremap(twin.kernels.cast(), old, new, flags),
        )
    };
    assert_ne!(ours, libc::MAP_FAILED, "{old} to {new}: {}", text());
    assert_ne!(kernels, libc::MAP_FAILED);
    *twin = Twin {
        ours: ours.cast(),
        kernels: kernels.cast(),
        length: new,
    };
}

#[test]
fn maps_grow_and_shrink() {
    let _turn = crate::twin::turn();
    let made = file(32 * PAGE);
    for locked in [false, true] {
        for mut twin in [
            Twin::anonymous(PAGES),
            Twin::of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE),
            Twin::of_file(&made, PAGES, READ, libc::MAP_SHARED),
        ] {
            if locked {
                assert_eq!(
                    softfault_mlock(twin.ours.cast(), PAGES * PAGE),
                    0,
                    "{}",
                    text()
                );
            }
            for pages in [PAGES, 20, 32, 4, 9, 1, 30] {
                remap(&mut twin, pages, libc::MREMAP_MAYMOVE);
                twin.same(0, pages);
            }
            assert_eq!(twin.unmap(0, 30), (Ok(()), Ok(())), "{}", text());
        }
    }
    let mut twin = Twin::anonymous(PAGES);
    for page in 0..PAGES {
        twin.write(page * PAGE + page, page as u8 + 1);
    }
    remap(&mut twin, 1000, libc::MREMAP_MAYMOVE);
    twin.same(0, 1000);
    remap(&mut twin, 3, 0);
    twin.same(0, 3);
    assert_eq!(twin.unmap(0, 3), (Ok(()), Ok(())));
}

#[test]
fn maps_that_cannot_be_remapped() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let twin = Twin::anonymous(PAGES);
    let of = |addr: *mut c_void, old, new, flags| {
        // SAFETY: it fails, and nothing goes.
        let addr = unsafe { softfault_mremap(addr, old, new, flags) };
        if addr == libc::MAP_FAILED {
            Err(errno())
        } else {
            Ok(addr)
        }
    };
    let kernel = |addr: *mut c_void, old, new, flags| {
        // SAFETY: it fails, and nothing goes.
        let addr = unsafe { libc::mremap(addr, old, new, flags) };
        if addr == libc::MAP_FAILED {
            Err(errno())
        } else {
            Ok(addr)
        }
    };
    let (ours, kernels) = twin.at(0);
    let len = PAGES * PAGE;
    for (skip, old, new, flags) in [
        (1, len, 2 * len, 1),
        (0, len, 0, 1),
        (0, len, 2 * len, 1 << 10),
        (0, 0, 2 * len, 1),
        (0, len, usize::MAX - 5 * PAGE, 1),
    ] {
        // SAFETY: an address is only said.
        let both = unsafe {
            let said = of(ours.byte_add(skip), old, new, flags);
            (said, kernel(kernels.byte_add(skip), old, new, flags))
        };
        assert_eq!(both.0, both.1, "{skip} {old} {new} {flags}: {}", text());
    }
    assert_eq!(
        of(ours, len, 2 * len, 3),
        Err(libc::EOPNOTSUPP),
        "MREMAP_FIXED"
    );
    assert_eq!(
        of(ours, len, len, 5),
        Err(libc::EOPNOTSUPP),
        "MREMAP_DONTUNMAP"
    );
    let foreign = anonymous(1).kernels().unwrap();
    assert_eq!(of(foreign, PAGE, 2 * PAGE, 1), Err(libc::EFAULT));
    assert_eq!(softfault_pin(ours, 10), 0);
    assert_eq!(of(ours, len, 2 * len, 1), Err(libc::EBUSY));
    assert_eq!(softfault_unpin(ours, 10), 0);
    let shared = of_file(&made, PAGES, READ, libc::MAP_SHARED);
    let shared = shared.ours(own_engine()).unwrap();
    assert_eq!(
        of(shared, len, 2 * len, 1),
        Err(libc::EINVAL),
        "the file ends before"
    );
    assert_eq!(
        of(shared, PAGE, 2 * PAGE, 1),
        Err(libc::EOPNOTSUPP),
        "a part"
    );
    assert_eq!(
        answer(softfault_fault_in(shared, len)),
        Ok(()),
        "and the map is as it was"
    );
    // SAFETY: nobody uses them any more.
    unsafe {
        assert_eq!(softfault_munmap(shared, len), 0);
        libc::munmap(foreign, PAGE);
    }
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
    assert!(made.as_raw_fd() >= 0);
}
