//! mprotect of parts.

use crate::grow::grow;
use crate::twin::{
    Answer, Arguments, PAGE, READ, Twin, WRITE, anonymous, answer, errno, file, of_file,
    own_engine, pipe, text,
};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::softfault_copy_in;
use std::fs::File;

const PAGES: usize = 8;

/// Kinds of maps whose protection can change, and whether they may be written to at first.
fn kinds(made: &File) -> [(Arguments, bool); 5] {
    let read = |arguments: Arguments| Arguments {
        prot: READ,
        ..arguments
    };
    let copy = of_file(made, PAGES, WRITE, libc::MAP_PRIVATE);
    [
        (anonymous(PAGES), true),
        (read(anonymous(PAGES)), false),
        (copy, true),
        (read(copy), false),
        (of_file(made, PAGES, WRITE, libc::MAP_SHARED), true),
    ]
}

fn protect(twin: &Twin, part: &Range<usize>, prot: c_int) -> (Answer, Answer) {
    let (ours, kernels) = twin.at(part.start);
    let len = part.len() * PAGE;
    // SAFETY: nothing is written that may not be.
    unsafe {
        (
            answer(softfault_mprotect(ours, len, prot)),
            answer(libc::mprotect(kernels, len, prot)),
        )
    }
}

/// Whether a system call can write to a page: to ours while it is pinned. Both get the same byte.
fn takes_bytes(twin: &Twin, page: usize, ends: [c_int; 2], byte: u8) -> (bool, bool) {
    let into = |addr: *mut c_void| {
        // SAFETY: a byte of this function's, and one of the map's, or none.
        unsafe {
            assert_eq!(libc::write(ends[1], (&raw const byte).cast(), 1), 1);
            let read = libc::read(ends[0], addr.byte_add(1000), 1);
            if read != 1 {
                assert_eq!(errno(), libc::EFAULT);
                let mut rest = 0_u8;
                // The byte is still there.
                assert_eq!(libc::read(ends[0], (&raw mut rest).cast(), 1), 1);
            }
            read == 1
        }
    };
    let (ours, kernels) = twin.at(page);
    assert_eq!(answer(softfault_pin(ours, PAGE)), Ok(()), "{}", text());
    let took = (into(ours), into(kernels));
    assert_eq!(answer(softfault_unpin(ours, PAGE)), Ok(()), "{}", text());
    took
}

#[test]
fn parts_are_protected_and_the_rest_is_not() {
    let _turn = crate::twin::turn();
    let ends = pipe();
    for locked in [false, true] {
        let made = file(PAGES * PAGE);
        for (number, (arguments, at_first)) in kinds(&made).into_iter().enumerate() {
            let twin = Twin::of(arguments, own_engine());
            if locked {
                let said = answer(softfault_mlock(twin.ours.cast(), PAGES * PAGE));
                assert_eq!(said, Ok(()), "{}", text());
            }
            let mut writable = [at_first; PAGES];
            let calls = [
                (2..5, READ),
                (4..6, WRITE),
                (0..1, READ),
                (3..4, WRITE),
                (0..8, READ),
                (1..7, WRITE),
                (0..8, WRITE),
                (7..8, READ),
            ];
            for (round, (part, prot)) in calls.into_iter().enumerate() {
                let said = protect(&twin, &part, prot);
                assert_eq!(said, (Ok(()), Ok(())), "{number} {part:?}: {}", text());
                writable[part].fill(prot == WRITE);
                for (page, &is_writable) in writable.iter().enumerate() {
                    let byte = (number * 50 + round * 5 + page) as u8;
                    let took = takes_bytes(&twin, page, ends, byte);
                    let expected = (is_writable, is_writable);
                    assert_eq!(took, expected, "{number} {round} {page}");
                    if is_writable {
                        twin.write(page * PAGE + round, byte);
                    }
                    let bytes = [byte; 3];
                    // SAFETY: within the map.
                    let wrote =
                        unsafe { softfault_copy_in(twin.at(page).0, bytes.as_ptr().cast(), 3) };
                    match is_writable {
                        true => assert_eq!(wrote, 3),
                        false => assert_eq!((wrote, errno()), (-1, libc::EACCES)),
                    }
                    if is_writable {
                        // SAFETY: as above.
                        unsafe { twin.at(page).1.cast::<[u8; 3]>().write(bytes) };
                    }
                }
                twin.same(0, PAGES);
            }
            if locked {
                let said = answer(softfault_munlock(twin.ours.cast(), PAGES * PAGE));
                assert_eq!(said, Ok(()), "{}", text());
            }
            assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())), "{}", text());
        }
    }
    for fd in ends {
        // SAFETY: ours.
        unsafe { libc::close(fd) };
    }
}

/// How a child ends that writes to a byte.
fn child_that_writes(addr: *mut u8) -> c_int {
    let status = crate::child::forked(|| {
        // SAFETY: the child's own memory.
        unsafe { addr.write_volatile(9) };
        0
    });
    match libc::WIFSIGNALED(status) {
        true => libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    }
}

#[test]
fn a_write_to_a_protected_part_is_a_segv() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    // Pages that are there, and pages that are not.
    for page in 0..PAGES / 2 {
        twin.write(page * PAGE, page as u8);
    }
    assert_eq!(protect(&twin, &(2..6), READ), (Ok(()), Ok(())));
    for page in 0..PAGES {
        let (ours, kernels) = twin.at(page);
        let ended = child_that_writes(ours.cast());
        assert_eq!(ended, child_that_writes(kernels.cast()), "page {page}");
        assert_eq!(
            ended == libc::SIGSEGV,
            (2..6).contains(&page),
            "page {page}"
        );
    }
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

#[test]
fn a_map_whose_parts_differ_does_not_grow() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    for page in 0..PAGES {
        twin.write(page * PAGE + page, page as u8 + 1);
    }
    assert_eq!(protect(&twin, &(3..5), READ), (Ok(()), Ok(())));
    let (ours, kernels) = twin.at(0);
    let (old, new) = (PAGES * PAGE, 1000 * PAGE);
    // SAFETY: it fails.
    unsafe {
        let said = softfault_mremap(ours, old, new, libc::MREMAP_MAYMOVE);
        assert_eq!((said, errno()), (libc::MAP_FAILED, libc::EFAULT));
        let said = libc::mremap(kernels, old, new, libc::MREMAP_MAYMOVE);
        assert_eq!((said, errno()), (libc::MAP_FAILED, libc::EFAULT));
    }
    twin.same(0, PAGES);
    // All of it alike again, it does, and new pages are as the rest.
    assert_eq!(protect(&twin, &(0..3), READ), (Ok(()), Ok(())));
    assert_eq!(protect(&twin, &(5..8), READ), (Ok(()), Ok(())));
    // SAFETY: the test goes on with the new address.
    let grown = unsafe { softfault_mremap(ours, old, new, libc::MREMAP_MAYMOVE) };
    assert_ne!(grown, libc::MAP_FAILED, "{}", text());
    for page in 0..PAGES {
        // SAFETY: within the map.
        let byte = unsafe { grown.cast::<u8>().add(page * PAGE + page).read() };
        assert_eq!(byte, page as u8 + 1);
    }
    // SAFETY: within the map, which may only be read.
    let last = unsafe { grown.cast::<u8>().add(999 * PAGE) };
    assert_eq!(child_that_writes(last), libc::SIGSEGV);
    // SAFETY: within the map, which nobody uses any more.
    unsafe {
        assert_eq!(
            softfault_mprotect(last.cast(), PAGE, WRITE),
            0,
            "{}",
            text()
        );
        last.write_volatile(1);
        assert_eq!(softfault_munmap(grown, new), 0);
        libc::munmap(kernels, old);
    }
}

/// The purpose of a map stays known when it becomes longer or shorter while it may only be read.
#[test]
fn a_map_that_was_remapped_is_written_to_again() {
    let _turn = crate::twin::turn();
    let made = file(2 * PAGES * PAGE);
    for (arguments, _) in kinds(&made) {
        for pages in [PAGES - 2, PAGES + 3] {
            let twin = Twin::of(arguments, own_engine());
            assert_eq!(protect(&twin, &(0..PAGES), READ), (Ok(()), Ok(())));
            let twin = grow(&twin, &(0..twin.length / PAGE), pages);
            let (ours, _) = twin.at(0);
            // SAFETY: refused, or the twin's bytes are the same.
            let wrote = unsafe { softfault_copy_in(ours, b"a".as_ptr().cast(), 1) };
            assert_eq!((wrote, errno()), (-1, libc::EACCES));
            let said = protect(&twin, &(0..pages), WRITE);
            assert_eq!(said, (Ok(()), Ok(())), "{arguments:?}: {}", text());
            twin.write(PAGE + 7, 77);
            twin.write((pages - 1) * PAGE, 78);
            // New pages are as the rest.
            let pages = pages + 2;
            let twin = grow(&twin, &(0..twin.length / PAGE), pages);
            twin.write((pages - 1) * PAGE, 79);
            assert_eq!(protect(&twin, &(0..pages), READ), (Ok(()), Ok(())));
            twin.same(0, pages);
            assert_eq!(twin.unmap(0, pages), (Ok(()), Ok(())), "{}", text());
        }
    }
}

#[test]
fn several_maps_and_holes() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    assert_eq!(protect(&twin, &(4..5), READ), (Ok(()), Ok(())));
    assert_eq!(twin.unmap(2, 1), (Ok(()), Ok(())));
    // Nothing is changed where there is a hole; the kernel changes the part before it.
    let said = protect(&twin, &(1..6), WRITE);
    assert_eq!(said, (Err(libc::ENOMEM), Err(libc::ENOMEM)));
    let ends = pipe();
    assert!(!takes_bytes(&twin, 4, ends, 1).0);
    assert!(takes_bytes(&twin, 5, ends, 1).0);
    for page in [0, 1, 3, 4, 5, 6, 7] {
        assert_eq!(twin.unmap(page, 1).0, Ok(()));
    }
    for fd in ends {
        // SAFETY: ours.
        unsafe { libc::close(fd) };
    }
}

/// Each thread changes pages of its own, of one map, while others bring in, write and pin: no call has to give way to another.
#[test]
fn threads_protect_parts_of_one_map() {
    let _turn = crate::twin::turn();
    const THREADS: usize = 4;
    let pages = THREADS * 16;
    let map = anonymous(pages).ours(own_engine()).unwrap() as usize;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let at = |page: usize| (map + (thread * 16 + page) * PAGE) as *mut c_void;
                for round in 0..200 {
                    let (first, count) = (round % 13, 1 + round % 3);
                    let part = (at(first), count * PAGE);
                    // SAFETY: the thread's own pages.
                    unsafe {
                        let said = answer(softfault_mprotect(part.0, part.1, READ));
                        assert_eq!(said, Ok(()), "{}", text());
                        assert_eq!(answer(softfault_fault_in(part.0, part.1)), Ok(()));
                        let said = answer(softfault_mprotect(part.0, part.1, WRITE));
                        assert_eq!(said, Ok(()), "{}", text());
                        part.0.cast::<usize>().write_volatile(round);
                        assert_eq!(answer(softfault_pin(part.0, part.1)), Ok(()));
                        assert_eq!(answer(softfault_unpin(part.0, part.1)), Ok(()));
                        assert_eq!(part.0.cast::<usize>().read_volatile(), round);
                    }
                }
            });
        }
    });
    crate::twin::unmap(map as *mut c_void, pages * PAGE);
}
