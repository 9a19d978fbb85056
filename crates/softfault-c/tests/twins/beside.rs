//! Maps that only read a file, beside one that the engine lets write to it: the same addresses.

use crate::twin::{
    Answer, Arguments, PAGE, READ, WRITE, aged_file, answer, of_file, pipe, text, unmap,
    writing_engine,
};
use core::ffi::c_void;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::msync::softfault_msync;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::{softfault_copy_in, softfault_read_from};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGES: usize = 8;

/// The address of maps of so many pages of a file, made one after the other.
fn beside(made: &File, maps: &[(usize, i32)]) -> *mut c_void {
    let engine = writing_engine();
    let of = |&(pages, prot): &(usize, i32)| {
        let arguments: Arguments = of_file(made, pages, prot, libc::MAP_SHARED);
        let map = arguments.ours(engine);
        map.unwrap_or_else(|errno| panic!("{errno}: {}", text()))
    };
    let maps: Vec<_> = maps.iter().map(of).collect();
    assert!(maps.iter().all(|&map| map == maps[0]), "one window");
    maps[0]
}

fn byte_of(made: &File, at: usize) -> u8 {
    let mut byte = [0];
    made.read_exact_at(&mut byte, at as u64).unwrap();
    byte[0]
}

/// The answers for the kernel's map that can be written to; it has another one, too.
fn kernels(made: &File, call: impl FnOnce(*mut c_void) -> i32) -> Answer {
    let map = of_file(made, PAGES, WRITE, libc::MAP_SHARED);
    let map = map.kernels().unwrap();
    let read = of_file(made, PAGES, READ, libc::MAP_SHARED);
    let read = read.kernels().unwrap();
    let said = answer(call(map));
    // SAFETY: nobody uses them any more.
    unsafe {
        libc::munmap(map, PAGES * PAGE);
        libc::munmap(read, PAGES * PAGE);
    }
    said
}

/// A pipe with some bytes of this value in it.
fn filled(byte: u8, count: usize) -> [i32; 2] {
    let ends = pipe();
    let bytes = vec![byte; count];
    // SAFETY: so many bytes.
    let wrote = unsafe { libc::write(ends[1], bytes.as_ptr().cast(), count) };
    assert_eq!(wrote, count as isize);
    ends
}

fn close(ends: [i32; 2]) {
    for fd in ends {
        // SAFETY: ours.
        unsafe { libc::close(fd) };
    }
}

#[test]
fn calls_are_for_the_map_that_can_be_written_to() {
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let map = beside(&made, &[(PAGES, WRITE), (PAGES, READ)]);
    let at = |page: usize| map.wrapping_byte_add(page * PAGE);
    // SAFETY: within the maps.
    let store = |page: usize, byte: u8| unsafe {
        at(page).cast::<u8>().write_volatile(byte);
    };
    let flushed = |flags: i32| {
        let said = answer(softfault_msync(map, PAGES * PAGE, flags));
        assert_eq!(said, Ok(()), "{}", text());
    };
    store(1, 201);
    flushed(libc::MS_SYNC);
    assert_eq!(byte_of(&made, PAGE), 201);
    store(1, 202);
    flushed(libc::MS_ASYNC);
    flushed(libc::MS_SYNC);
    assert_eq!(byte_of(&made, PAGE), 202);

    // SAFETY: the bytes are the test's.
    let wrote = unsafe { softfault_copy_in(at(2), [203_u8; 5].as_ptr().cast(), 5) };
    assert_eq!(wrote, 5, "{}", text());
    let ends = filled(204, 7);
    // SAFETY: within the maps.
    let read = unsafe { softfault_read_from(ends[0], at(3), 7) };
    assert_eq!(read, 7, "{}", text());
    close(ends);

    assert_eq!(answer(softfault_pin(at(4), PAGE)), Ok(()), "{}", text());
    let ends = filled(205, 9);
    // SAFETY: the kernel writes to a pinned page.
    assert_eq!(unsafe { libc::read(ends[0], at(4), 9) }, 9);
    close(ends);
    assert_eq!(answer(softfault_unpin(at(4), PAGE)), Ok(()), "{}", text());
    flushed(libc::MS_SYNC);
    assert_eq!(
        [2, 3, 4].map(|page| byte_of(&made, page * PAGE)),
        [203, 204, 205]
    );

    // SAFETY: changes nothing.
    let said = answer(unsafe { softfault_mprotect(map, PAGES * PAGE, WRITE) });
    // SAFETY: as above.
    let kernel = kernels(&made, |map| unsafe {
        libc::mprotect(map, PAGES * PAGE, WRITE)
    });
    assert_eq!((said, kernel), (Ok(()), Ok(())), "{}", text());
    for advice in [libc::MADV_POPULATE_WRITE, libc::MADV_REMOVE] {
        // SAFETY: nobody relies on the bytes.
        let said = answer(unsafe { softfault_madvise(at(5), PAGE, advice) });
        // SAFETY: as above.
        let kernel = kernels(&made, |map| unsafe {
            libc::madvise(map.byte_add(5 * PAGE), PAGE, advice)
        });
        assert_eq!((said, kernel), (Ok(()), Ok(())), "{advice} {}", text());
    }
    assert_eq!(byte_of(&made, 5 * PAGE), 0);

    // The last one goes first.
    unmap(map, PAGES * PAGE);
    store(6, 206);
    flushed(libc::MS_SYNC);
    assert_eq!(byte_of(&made, 6 * PAGE), 206);
    unmap(map, PAGES * PAGE);
}

/// A map that only reads is changed as what it is, also where another one can be written to.
#[test]
fn a_map_that_reads_is_whole_beside_a_part_that_can_be_written_to() {
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let small = PAGES - 4;
    let map = beside(&made, &[(small, WRITE), (PAGES - 2, READ)]);
    // Over the end of the other.
    let pin = |pages: usize| answer(softfault_pin(map, pages * PAGE));
    assert_eq!(pin(PAGES - 2), Ok(()), "{}", text());
    let unpinned = answer(softfault_unpin(map, (PAGES - 2) * PAGE));
    assert_eq!(unpinned, Ok(()), "{}", text());
    // SAFETY: the pages that go are nobody's.
    let remap = |from: usize, to: usize| unsafe {
        softfault_mremap(map, from * PAGE, to * PAGE, libc::MREMAP_MAYMOVE)
    };
    assert_eq!(remap(PAGES - 2, PAGES), map, "{}", text());
    assert_eq!(remap(PAGES, PAGES - 1), map, "{}", text());
    assert_eq!(pin(PAGES), Err(libc::ENOMEM));
    // SAFETY: the byte is the test's.
    let write = |page: usize| unsafe {
        softfault_copy_in(map.byte_add(page * PAGE), [207_u8].as_ptr().cast(), 1)
    };
    assert_eq!([0, small - 1, small].map(write), [1, 1, -1]);
    unmap(map, (PAGES - 1) * PAGE);
    assert_eq!([0, small - 1, small].map(write), [1, 1, -1]);
    unmap(map, small * PAGE);
}

/// All that a program can do by a map that can be written to, in a page.
fn writes(made: &File, map: *mut c_void, page: usize, byte: u8) {
    let at = map.wrapping_byte_add(page * PAGE);
    // SAFETY: the bytes are the test's.
    let wrote = unsafe { softfault_copy_in(at, [byte].as_ptr().cast(), 1) };
    assert_eq!(wrote, 1, "{}", text());
    // SAFETY: as above.
    unsafe { at.cast::<u8>().add(1).write_volatile(byte) };
    let said = answer(softfault_msync(at, PAGE, libc::MS_SYNC));
    assert_eq!(said, Ok(()), "{}", text());
    assert_eq!(
        [0, 1].map(|from| byte_of(made, page * PAGE + from)),
        [byte; 2]
    );
}

/// An unmap takes from no map that can be written to what one that reads has, too: nobody knows for which of them it is.
#[test]
fn an_unmap_leaves_the_map_that_can_be_written_to() {
    let _turn = crate::twin::turn();
    // Of some pages neither map is made for them, or the one that can be written to is.
    let all = PAGES;
    let cases: [(&[(usize, i32)], usize); 3] = [
        (&[(1, WRITE), (all, READ), (all, WRITE)], all),
        (&[(1, WRITE), (all, READ), (all, WRITE)], 4),
        (&[(4, WRITE), (all, READ)], 4),
    ];
    for (maps, pages) in cases {
        let made = aged_file(all * PAGE);
        let map = beside(&made, maps);
        unmap(map, pages * PAGE);
        writes(&made, map, pages - 1, 211);
        unmap(map, all * PAGE);
    }
}

#[test]
fn a_map_that_can_be_written_to_grows_and_one_that_reads_gets_shorter() {
    let _turn = crate::twin::turn();
    let fewer = PAGES - 2;
    for order in [[WRITE, READ], [READ, WRITE]] {
        for (from, to) in [(fewer, PAGES), (PAGES, fewer)] {
            let made = aged_file(PAGES * PAGE);
            let [first, second] = order.map(|prot| (from, prot));
            let map = beside(&made, &[(1, WRITE), first, second]);
            // SAFETY: the pages that go are nobody's.
            let moved = unsafe { softfault_mremap(map, from * PAGE, to * PAGE, 0) };
            assert_eq!(moved, map, "{}", text());
            writes(&made, map, PAGES - 1, 212);
            // The one that reads.
            unmap(map, fewer * PAGE);
            writes(&made, map, PAGES - 1, 213);
            unmap(map, PAGES * PAGE);
            unmap(map, PAGE);
        }
    }
}
