//! Pins and locks.

use crate::proc;
use crate::twin::{
    ANONYMOUS, Arguments, DEFAULT, Engine, PAGE, READ, Twin, WRITE, aged_file, anonymous, answer,
    engine_options, errno, file, of_file, own_engine, pipe, text, unmap,
};
use core::ffi::c_void;
use softfault_c::engine::{SOFTFAULT_ALLOW_KERNEL_MAPS_NO, softfault_engine_new};
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::msync::softfault_msync;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};

/// True if the kernel can read so much there, which it can where it is in memory.
fn can_be_read_by_the_kernel(addr: *mut c_void, len: usize) -> bool {
    let ends = pipe();
    // A pipe copies the bytes that it is given.
    // SAFETY: the kernel looks whether it can read them.
    let wrote = unsafe { libc::write(ends[1], addr, len) };
    for fd in ends {
        // SAFETY: ours.
        unsafe { libc::close(fd) };
    }
    wrote == len as isize
}

#[test]
fn pins_nest_and_end_by_their_range() {
    let _turn = crate::twin::turn();
    let made = file(64 * PAGE);
    for arguments in [
        of_file(&made, 64, READ, libc::MAP_SHARED),
        of_file(&made, 64, WRITE, libc::MAP_PRIVATE),
        anonymous(64),
    ] {
        let map = arguments.ours(own_engine()).unwrap();
        // SAFETY: within the map.
        let at = |offset: usize| unsafe { map.byte_add(offset) };
        assert!(!can_be_read_by_the_kernel(at(0), PAGE), "it is cold");
        for _ in 0..2 {
            assert_eq!(softfault_pin(at(5), 2 * PAGE), 0, "{}", text());
        }
        assert!(can_be_read_by_the_kernel(at(5), 2 * PAGE));
        let said = answer(softfault_unpin(at(5), PAGE));
        assert_eq!(said, Err(libc::EINVAL), "another range");
        for _ in 0..2 {
            assert_eq!(softfault_unpin(at(5), 2 * PAGE), 0, "{}", text());
        }
        assert_eq!(answer(softfault_unpin(at(5), 2 * PAGE)), Err(libc::EINVAL));
        assert_eq!(answer(softfault_pin(at(0), 0)), Err(libc::EINVAL));
        let beyond = answer(softfault_pin(at(0), 65 * PAGE));
        assert_eq!(beyond, Err(libc::ENOMEM));
        // A pin ends with its pages.
        assert_eq!(softfault_pin(at(0), 4 * PAGE), 0, "{}", text());
        unmap(at(3 * PAGE), PAGE);
        assert_eq!(answer(softfault_unpin(at(0), 4 * PAGE)), Err(libc::EINVAL));
        // SAFETY: nobody uses it any more.
        unsafe {
            assert_eq!(softfault_munmap(at(0), 3 * PAGE), 0, "{}", text());
            assert_eq!(softfault_munmap(at(4 * PAGE), 60 * PAGE), 0, "{}", text());
        }
    }
}

#[test]
fn a_system_call_writes_to_pinned_pages() {
    let _turn = crate::twin::turn();
    let map = anonymous(16).ours(own_engine()).unwrap();
    assert_eq!(softfault_pin(map, 16 * PAGE), 0);
    // SAFETY: the kernel fills it.
    let read = unsafe {
        let fd = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
        let read = libc::read(fd, map, 16 * PAGE);
        libc::close(fd);
        read
    };
    assert_eq!(read, 16 * PAGE as isize, "{}", errno());
    assert_eq!(softfault_unpin(map, 16 * PAGE), 0);
    unmap(map, 16 * PAGE);
}

#[test]
fn locks_are_by_pages() {
    let _turn = crate::twin::turn();
    let made = file(1024 * PAGE);
    for arguments in [
        of_file(&made, 1024, READ, libc::MAP_SHARED),
        anonymous(1024),
    ] {
        let map = arguments.ours(own_engine()).unwrap();
        // SAFETY: within the map.
        let at = |page: usize| unsafe { map.byte_add(page * PAGE) };
        // Twice, in part: they do not nest.
        assert_eq!(softfault_mlock(at(10), 700 * PAGE), 0, "{}", text());
        assert_eq!(softfault_mlock(at(600), 200 * PAGE), 0, "{}", text());
        // SAFETY: it fails.
        let said = answer(unsafe { softfault_madvise(at(700), PAGE, libc::MADV_DONTNEED) });
        assert_eq!(
            said,
            Err(libc::EINVAL),
            "as of pages that mlock(2) has locked"
        );
        let said = answer(softfault_msync(
            at(700),
            PAGE,
            libc::MS_ASYNC | libc::MS_INVALIDATE,
        ));
        assert_eq!(said, Err(libc::EBUSY));
        assert_eq!(softfault_munlock(at(50), 700 * PAGE), 0, "{}", text());
        for (page, is_locked) in [
            (9, false),
            (10, true),
            (49, true),
            (50, false),
            (749, false),
            (750, true),
        ] {
            // SAFETY: nobody relies on the bytes.
            let said = answer(unsafe { softfault_madvise(at(page), PAGE, libc::MADV_DONTNEED) });
            let expected = if is_locked { Err(libc::EINVAL) } else { Ok(()) };
            assert_eq!(said, expected, "{page}: {}", text());
        }
        // SAFETY: nobody uses it any more; a part of a locked map stays so.
        unsafe {
            assert_eq!(softfault_munmap(at(0), 20 * PAGE), 0, "{}", text());
            let said = answer(softfault_madvise(at(30), PAGE, libc::MADV_DONTNEED));
            assert_eq!(said, Err(libc::EINVAL));
            assert_eq!(softfault_munmap(at(20), 1004 * PAGE), 0, "{}", text());
        }
    }
}

#[test]
fn no_more_is_locked_than_half_of_the_budget() {
    let _turn = crate::twin::turn();
    let pages = (40 << 20) / PAGE;
    let map = anonymous(pages).ours(own_engine()).unwrap();
    assert_eq!(
        answer(softfault_mlock(map, pages * PAGE)),
        Err(libc::ENOMEM)
    );
    assert!(text().contains("budget"), "{}", text());
    // Nothing of it is locked.
    // SAFETY: nobody relies on the bytes.
    let said = answer(unsafe { softfault_madvise(map, pages * PAGE, libc::MADV_DONTNEED) });
    assert_eq!(said, Ok(()), "{}", text());
    unmap(map, pages * PAGE);
}

/// A lock is of whole pages, and of all that its bytes lie in.
#[test]
fn a_range_that_touches_two_pages_locks_both() {
    let _turn = crate::twin::turn();
    let map = anonymous(8).ours(own_engine()).unwrap();
    // SAFETY: within the map.
    let at = |offset: usize| unsafe { map.byte_add(offset) };
    assert_eq!(softfault_mlock(at(3 * PAGE - 1), 2), 0, "{}", text());
    for page in 0..8 {
        // SAFETY: nobody relies on the bytes.
        let said = answer(unsafe { softfault_madvise(at(page * PAGE), PAGE, libc::MADV_DONTNEED) });
        let expected = match (2..4).contains(&page) {
            true => Err(libc::EINVAL),
            false => Ok(()),
        };
        assert_eq!(said, expected, "{page}: {}", text());
    }
    unmap(map, 8 * PAGE);
}

/// Half of the budget can be pinned: so more than a quarter again, once it was let go.
#[test]
fn unpinned_pages_do_not_count() {
    let _turn = crate::twin::turn();
    let pages = (20 << 20) / PAGE;
    let map = anonymous(2 * pages).ours(own_engine()).unwrap();
    for first in [0, pages, 0] {
        // SAFETY: within the map.
        let part = unsafe { map.byte_add(first * PAGE) };
        let said = answer(softfault_pin(part, pages * PAGE));
        assert_eq!(said, Ok(()), "{first}: {}", text());
        assert_eq!(softfault_unpin(part, pages * PAGE), 0, "{}", text());
    }
    unmap(map, 2 * pages * PAGE);
}

/// Which pages the kernel has locked: by the mappings of this process, of which one without the page is none.
pub fn locked_by_the_kernel(addr: *const c_void, pages: usize) -> Vec<bool> {
    let mut all = proc::mappings();
    all.retain(|mapping| mapping.has_flag("lo"));
    let is_locked = |page| {
        let at = addr as usize + page * PAGE;
        all.iter().any(|mapping| mapping.range.contains(&at))
    };
    (0..pages).map(is_locked).collect()
}

/// Maps that the kernel serves: of a file that is written to, of a small one, of a stack.
pub fn kernels_kinds(made: &std::fs::File, pages: usize) -> [Arguments; 3] {
    [
        of_file(made, pages, WRITE, libc::MAP_SHARED),
        of_file(made, pages, READ, libc::MAP_SHARED),
        Arguments {
            flags: ANONYMOUS | libc::MAP_STACK,
            ..anonymous(pages)
        },
    ]
}

/// The kernel's locks do not nest: a part that is unlocked, or unmapped, takes no lock from the others.
#[test]
fn the_kernel_keeps_the_rest_of_what_it_has_locked() {
    let _turn = crate::twin::turn();
    let made = file(8 * PAGE);
    for arguments in kernels_kinds(&made, 8) {
        let twin = Twin::of(arguments, DEFAULT);
        let same = |what: &str| {
            let (ours, kernels) = twin.at(0);
            let ours = locked_by_the_kernel(ours, 8);
            assert_eq!(
                ours,
                locked_by_the_kernel(kernels, 8),
                "{what}: {arguments:?}"
            );
            ours.into_iter().filter(|&locked| locked).count()
        };
        let (ours, kernels) = twin.at(0);
        assert_eq!(softfault_mlock(ours, 8 * PAGE), 0, "{}", text());
        // SAFETY: no byte changes.
        assert_eq!(unsafe { libc::mlock(kernels, 8 * PAGE) }, 0);
        assert_eq!(same("all is locked"), 8);
        for (page, left) in [(0, 7), (4, 6), (4, 6)] {
            let (ours, kernels) = twin.at(page);
            assert_eq!(softfault_munlock(ours, PAGE), 0, "{}", text());
            // SAFETY: no byte changes.
            assert_eq!(unsafe { libc::munlock(kernels, PAGE) }, 0);
            assert_eq!(same("a page is unlocked"), left);
        }
        assert_eq!(twin.unmap(6, 1), (Ok(()), Ok(())));
        assert_eq!(same("a page is unmapped"), 5);
        assert_eq!(softfault_munlock(ours, 6 * PAGE), 0, "{}", text());
        // SAFETY: no byte changes.
        assert_eq!(unsafe { libc::munlock(kernels, 6 * PAGE) }, 0);
        assert_eq!(same("nearly all is unlocked"), 1);
        assert_eq!(twin.unmap(0, 6), (Ok(()), Ok(())));
        assert_eq!(twin.unmap(7, 1), (Ok(()), Ok(())));
    }
}

/// mlock(2) says ENOMEM of pages past the end of the file, and has locked them all the same; ours has not.
#[test]
fn a_failed_lock_locks_nothing() {
    let _turn = crate::twin::turn();
    let made = file(4 * PAGE);
    let arguments = of_file(&made, 8, WRITE, libc::MAP_SHARED);
    let map = arguments.ours(DEFAULT).unwrap();
    assert_eq!(softfault_mlock(map, PAGE), 0, "{}", text());
    let said = answer(softfault_mlock(map, 8 * PAGE));
    assert_eq!(said, Err(libc::ENOMEM));
    let mut locked = [false; 8];
    locked[0] = true;
    assert_eq!(locked_by_the_kernel(map, 8), locked, "as before");
    unmap(map, 8 * PAGE);
}

/// Failed before, now and then: the failed lock unlocked the page that the other thread had locked meanwhile.
#[test]
fn a_failed_lock_takes_no_lock_from_another_thread() {
    let _turn = crate::twin::turn();
    let made = file(4 * PAGE);
    let arguments = of_file(&made, 8, WRITE, libc::MAP_SHARED);
    let map = arguments.ours(DEFAULT).unwrap() as usize;
    for round in 0..500 {
        let begin = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                let said = answer(softfault_mlock(map as *const _, 8 * PAGE));
                assert_eq!(said, Err(libc::ENOMEM));
            });
            begin.wait();
            assert_eq!(softfault_mlock(map as *const _, PAGE), 0, "{}", text());
        });
        let mut locked = [false; 8];
        locked[0] = true;
        let is_locked = locked_by_the_kernel(map as *mut _, 8);
        assert_eq!(is_locked, locked, "round {round}");
        assert_eq!(softfault_munlock(map as *const _, PAGE), 0, "{}", text());
    }
    unmap(map as *mut _, 8 * PAGE);
}

/// A part in the middle is unlocked where both parts beside it cannot be locked once more: all of it stays, and goes as a whole.
#[test]
fn a_part_that_cannot_be_unlocked_costs_nothing() {
    let _turn = crate::twin::turn();
    let mut options = engine_options();
    options.memory = 16 << 20;
    options.allow_kernel_maps = SOFTFAULT_ALLOW_KERNEL_MAPS_NO;
    options.small_maps = -1;
    // SAFETY: a structure of its size.
    let engine = Engine(unsafe { softfault_engine_new(&options) });
    assert!(!engine.0.is_null(), "{}", text());
    let made = file(8 << 20);
    let arguments = of_file(&made, (8 << 20) / PAGE, READ, libc::MAP_SHARED);
    let map = arguments.ours(engine).unwrap();
    let nearly_all = 7 << 20;
    assert_eq!(softfault_mlock(map, nearly_all), 0, "{}", text());
    assert_eq!(softfault_munlock(map, nearly_all), 0, "{}", text());
    assert_eq!(softfault_mlock(map, 6 << 20), 0, "{}", text());
    let middle = map.wrapping_byte_add(256 * PAGE);
    assert_eq!(answer(softfault_munlock(middle, PAGE)), Err(libc::ENOMEM));
    assert_eq!(softfault_munlock(map, 6 << 20), 0, "{}", text());
    assert_eq!(softfault_mlock(map, nearly_all), 0, "{}", text());
    unmap(map, 8 << 20);
}

/// As of a whole map: pages that go are not pinned, also of a map whose parts differ.
#[test]
fn pages_that_are_pinned_do_not_go_by_mremap() {
    let _turn = crate::twin::turn();
    let map = anonymous(8).ours(own_engine()).unwrap();
    let at = |page: usize| map.wrapping_byte_add(page * PAGE);
    let shorter = |to: usize| {
        // SAFETY: nobody uses the pages that go.
        let there = unsafe { softfault_mremap(map, 8 * PAGE, to * PAGE, 0) };
        match there == libc::MAP_FAILED {
            true => Err(errno()),
            false => Ok(there),
        }
    };
    assert_eq!(softfault_pin(at(6), PAGE), 0, "{}", text());
    assert_eq!(shorter(4), Err(libc::EBUSY));
    // SAFETY: nobody writes to the page.
    let said = answer(unsafe { softfault_mprotect(map, PAGE, READ) });
    assert_eq!(said, Ok(()), "{}", text());
    assert_eq!(shorter(4), Err(libc::EBUSY), "a part of it is protected");
    assert_eq!(shorter(7), Ok(map), "the pinned page stays");
    assert_eq!(softfault_unpin(at(6), PAGE), 0, "{}", text());
    // SAFETY: nobody uses the pages that go.
    let there = unsafe { softfault_mremap(map, 7 * PAGE, 4 * PAGE, 0) };
    assert_eq!(there, map, "{}", text());
    unmap(map, 4 * PAGE);
}

/// Of a map that shows pages with another one: they stay, and so do their pins.
#[test]
fn pinned_pages_that_another_map_has_may_go_by_mremap() {
    let _turn = crate::twin::turn();
    let made = aged_file(8 * PAGE);
    let of = |pages: usize| of_file(&made, pages, READ, libc::MAP_SHARED).ours(own_engine());
    let map = of(6).unwrap();
    assert_eq!(of(8), Ok(map), "one window");
    let at = |page: usize| map.wrapping_byte_add(page * PAGE);
    // Of the longer one, which has only its others from here on.
    unmap(map, PAGE);
    // SAFETY: nobody uses the pages that go.
    let shorter = || unsafe { softfault_mremap(at(1), 7 * PAGE, 4 * PAGE, 0) };
    assert_eq!(softfault_pin(at(6), PAGE), 0, "{}", text());
    assert_eq!((shorter(), errno()), (libc::MAP_FAILED, libc::EBUSY));
    assert_eq!(softfault_unpin(at(6), PAGE), 0, "{}", text());
    assert_eq!(softfault_pin(at(5), PAGE), 0, "{}", text());
    assert_eq!(shorter(), at(1), "{}", text());
    assert_eq!(answer(softfault_pin(at(6), PAGE)), Err(libc::ENOMEM));
    assert_eq!(softfault_unpin(at(5), PAGE), 0, "{}", text());
    unmap(map, 6 * PAGE);
    unmap(at(1), 4 * PAGE);
}

/// Failed before: the pages stayed locked, and nothing could end that, as long as the file had a map.
#[test]
fn what_is_kept_by_a_map_that_is_gone_goes_with_the_pages() {
    let _turn = crate::twin::turn();
    // More than half of what can be locked at all.
    const PAGES: usize = 5120;
    let made = aged_file(PAGES * PAGE);
    let of = || of_file(&made, PAGES, READ, libc::MAP_SHARED).ours(own_engine());
    let map = of().unwrap();
    assert_eq!(of(), Ok(map), "one window");
    // SAFETY: nobody uses the pages that go.
    let shorter = || unsafe { softfault_mremap(map, PAGES * PAGE, PAGES / 2 * PAGE, 0) };
    assert_eq!(softfault_pin(map, PAGE), 0, "{}", text());
    assert_eq!(softfault_mlock(map, PAGES * PAGE), 0, "{}", text());
    unmap(map, PAGES * PAGE);
    assert_eq!((shorter(), errno()), (libc::MAP_FAILED, libc::EBUSY));
    assert_eq!(softfault_unpin(map, PAGE), 0, "{}", text());
    assert_eq!(shorter(), map, "{}", text());
    assert_eq!(softfault_munlock(map, PAGES / 2 * PAGE), 0, "{}", text());
    // Nothing of the file is locked any more: all of it can be.
    assert_eq!(of(), Ok(map), "the same window");
    assert_eq!(softfault_mlock(map, PAGES * PAGE), 0, "{}", text());
    unmap(map, PAGES * PAGE);
    unmap(map, PAGES / 2 * PAGE);
}
