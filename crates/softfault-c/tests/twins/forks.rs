//! A child of fork calls on its parent's maps, whatever threads were doing.

use crate::child::forked;
use crate::twin::{
    PAGE, READ, WRITE, anonymous, answer, content, file, is_in_read, of_file, own_engine, unmap,
};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mmap::softfault_mmap;
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::{softfault_copy_in, softfault_copy_out, softfault_read_from};

const PAGES: usize = 16;

/// A child's findings: the number of the first thing that is not right, or 0.
fn child(shared: *mut u8, private: *mut u8, all: &[u8]) -> i32 {
    let mut copy = vec![0; PAGES * PAGE];
    // SAFETY: the maps are the child's, too, and nobody else in it uses them.
    unsafe {
        let read = softfault_copy_out(shared.cast(), copy.as_mut_ptr().cast(), PAGES * PAGE);
        if read as usize != PAGES * PAGE || copy != all {
            return 1;
        }
        if private.add(PAGE).read_volatile() != 42 {
            return 2;
        }
        if softfault_copy_in(private.cast(), all.as_ptr().cast(), 100) != 100 {
            return 3;
        }
        // Nor is what the parent locked locked here: its pages can be thrown away.
        let locked = private.add(8 * PAGE).cast();
        if softfault_madvise(locked, PAGE, libc::MADV_DONTNEED) != 0 {
            return 12;
        }
        if softfault_mlock(locked, PAGE) != 0
            || softfault_madvise(locked, PAGE, libc::MADV_DONTNEED) == 0
            || softfault_munlock(locked, PAGE) != 0
        {
            return 13;
        }
        // The pin was the parent's; it ends here without harm.
        if softfault_unpin(private.cast(), PAGE) != 0 {
            return 4;
        }
        if softfault_pin(private.cast(), 2 * PAGE) != 0
            || softfault_unpin(private.cast(), 2 * PAGE) != 0
        {
            return 5;
        }
        if softfault_munmap(private.cast(), 4 * PAGE) != 0 {
            return 6;
        }
        if answer(softfault_fault_in(private.cast(), PAGE)) != Err(libc::ENOMEM) {
            return 7;
        }
        if softfault_munmap(private.add(4 * PAGE).cast(), (PAGES - 4) * PAGE) != 0 {
            return 8;
        }
        if softfault_munmap(shared.cast(), PAGES * PAGE) != 0 {
            return 9;
        }
    }
    match anonymous(4).ours(crate::twin::DEFAULT) {
        // SAFETY: the child's.
        Ok(map) => match unsafe { softfault_munmap(map, 4 * PAGE) } {
            0 => 0,
            _ => 11,
        },
        Err(_) => 10,
    }
}

#[test]
fn a_child_calls_while_threads_of_the_parent_change_the_table() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let all = content(PAGES * PAGE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let map = anonymous(2).ours(own_engine()).unwrap();
                    softfault_pin(map, PAGE);
                    unmap(map, 2 * PAGE);
                }
            });
        }
        // Also if a round fails.
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        for round in 0..20 {
            let shared = of_file(&made, PAGES, READ, libc::MAP_SHARED);
            let shared = shared.ours(own_engine()).unwrap().cast::<u8>();
            let private = anonymous(PAGES).ours(own_engine()).unwrap().cast::<u8>();
            // SAFETY: within the map.
            unsafe {
                private.add(PAGE).write_volatile(42);
                assert_eq!(softfault_pin(private.cast(), PAGE), 0);
                let locked = private.add(8 * PAGE).cast();
                assert_eq!(softfault_mlock(locked, 2 * PAGE), 0);
            }
            let status = forked(|| child(shared, private, &all));
            assert_eq!(status, 0, "round {round}: {status:#x}");
            // SAFETY: nobody uses them any more.
            unsafe {
                assert_eq!(private.read_volatile(), 0, "the child's own");
                assert_eq!(softfault_munmap(private.cast(), PAGES * PAGE), 0);
                assert_eq!(softfault_munmap(shared.cast(), PAGES * PAGE), 0);
            }
        }
    });
}

/// A thread of the parent's is in the middle of a change at most forks: in the child nobody ends it, and nobody waits for it.
#[test]
fn a_child_protects_a_range_that_the_parent_was_protecting() {
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap() as usize;
    let protect = |page: usize, prot: i32| {
        // SAFETY: within the map; nobody writes to read-only pages.
        unsafe { softfault_mprotect((map + page * PAGE) as *mut _, PAGE, prot) }
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                assert_eq!((protect(3, READ), protect(3, WRITE)), (0, 0));
            }
        });
        // Also if a round fails.
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        for round in 0..20 {
            let status = forked(|| {
                let changed = (protect(5, READ), protect(3, WRITE));
                i32::from(changed != (0, 0))
            });
            assert_eq!(status, 0, "round {round}: {status:#x}");
        }
    });
    unmap(map as *mut _, PAGES * PAGE);
}

/// A thread of the parent's has the table's lock nearly all the time: it looks among many pins for one that is not there.
#[test]
fn a_child_calls_while_a_thread_of_the_parent_has_the_table() {
    const PINS: usize = 1000;
    let _turn = crate::twin::turn();
    let map = anonymous(PINS).ours(own_engine()).unwrap() as usize;
    let at = |page: usize| (map + page * PAGE) as *mut core::ffi::c_void;
    for page in 0..PINS {
        assert_eq!(softfault_pin(at(page), PAGE), 0);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                assert_eq!(answer(softfault_unpin(at(0), 1)), Err(libc::EINVAL));
            }
        });
        // Also if a round fails.
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        for round in 0..10 {
            let status = forked(|| softfault_unpin(at(round), PAGE));
            assert_eq!(status, 0, "round {round}: {status:#x}");
        }
    });
    unmap(at(0), PINS * PAGE);
}

/// Files below and above the size up to which the kernel maps them itself: in a child every call works on either.
#[test]
fn a_child_calls_on_maps_of_files_of_any_size() {
    let _turn = crate::twin::turn();
    for pages in [2, 1024] {
        let made = file(pages * PAGE);
        let map = of_file(&made, pages, READ, libc::MAP_SHARED);
        let map = map.ours(crate::twin::DEFAULT).unwrap();
        let mut copy = vec![0_u8; PAGE];
        // SAFETY: the child has the map for itself.
        let status = forked(|| unsafe {
            let read = softfault_copy_out(map, copy.as_mut_ptr().cast(), PAGE);
            let calls = [
                i32::from(read as usize != PAGE || copy != content(PAGE)),
                softfault_fault_in(map, PAGE),
                softfault_pin(map, PAGE),
                softfault_unpin(map, PAGE),
                softfault_mlock(map, PAGE),
                softfault_munlock(map, PAGE),
                softfault_madvise(map, PAGE, libc::MADV_RANDOM),
                softfault_munmap(map, pages * PAGE),
            ];
            let failed = calls.iter().position(|&said| said != 0);
            if let Some(failed) = failed {
                return failed as i32 + 1;
            }
            // A window stays reserved, and a map of the kernel's is gone.
            let mut seen = vec![0; pages];
            let is_there = libc::mincore(map, pages * PAGE, seen.as_mut_ptr());
            if pages == 2 && is_there == 0 { 99 } else { 0 }
        });
        assert_eq!(status, 0, "{pages}: {status:#x}");
        unmap(map, pages * PAGE);
    }
}

/// A thread of the parent's makes a map longer and shorter, and has it out of the table for that, at most forks.
#[test]
fn a_child_has_a_map_that_the_parent_was_remapping() {
    let _turn = crate::twin::turn();
    let map = anonymous(8).ours(own_engine()).unwrap() as usize;
    let remap = |from: usize, to: usize| {
        // SAFETY: the pages that go are touched by nobody.
        unsafe { softfault_mremap(map as *mut _, from * PAGE, to * PAGE, 0) as usize }
    };
    assert_eq!(remap(8, 4), map);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
            while !over.load(SeqCst) {
                assert_eq!((remap(4, 8), remap(8, 4)), (map, map));
            }
        });
        // Also if a round fails.
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        for round in 0..50 {
            let mut byte = 0_u8;
            let status = forked(|| {
                // SAFETY: room for a byte.
                let read =
                    unsafe { softfault_copy_out(map as *const _, (&raw mut byte).cast(), 1) };
                i32::from(read != 1)
            });
            assert_eq!(status, 0, "round {round}: {status:#x}");
        }
    });
    unmap(map as *mut _, 4 * PAGE);
}

/// A pin is the parent's, and keeps no map of the child's as it is; the child's own do.
#[test]
fn a_child_remaps_what_its_parent_has_pinned() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    for arguments in [
        anonymous(PAGES),
        of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE),
    ] {
        let map = arguments.ours(own_engine()).unwrap();
        let at = |page: usize| map.wrapping_byte_add(page * PAGE);
        // SAFETY: within the map.
        unsafe { at(2).cast::<u8>().write_volatile(42) };
        for _ in 0..2 {
            assert_eq!(softfault_pin(at(1), 3 * PAGE), 0);
        }
        let remap = |page: usize, from: usize, to: usize| {
            let flags = libc::MREMAP_MAYMOVE;
            // SAFETY: the test goes on with the new address.
            let there = unsafe { softfault_mremap(at(page), from * PAGE, to * PAGE, flags) };
            match there == libc::MAP_FAILED {
                true => Err(crate::twin::errno()),
                false => Ok(there),
            }
        };
        let has = |map: *mut core::ffi::c_void, page: usize| {
            // SAFETY: it is there, as the call before has said.
            unsafe { map.byte_add(page * PAGE).cast::<u8>().read_volatile() == 42 }
        };
        // All of it, longer and shorter, and a part.
        let said = forked(|| match remap(0, PAGES, 100 * PAGES) {
            Ok(map) => i32::from(!has(map, 2)),
            Err(errno) => errno,
        });
        assert_eq!(said, 0, "{arguments:?}");
        let said = forked(|| match remap(0, PAGES, PAGES - 1) {
            Ok(map) => i32::from(!has(map, 2)),
            Err(errno) => errno,
        });
        assert_eq!(said, 0, "{arguments:?}");
        let said = forked(|| match remap(2, 4, 100) {
            Ok(map) => i32::from(!has(map, 0)),
            Err(errno) => errno,
        });
        assert_eq!(said, 0, "{arguments:?}");
        // The child's own pin is found first, and ends first.
        let said = forked(|| {
            let pinned = softfault_pin(at(1), 3 * PAGE);
            let busy = remap(0, PAGES, PAGES - 1) == Err(libc::EBUSY);
            let ended = softfault_unpin(at(1), 3 * PAGE);
            let remapped = remap(0, PAGES, PAGES - 1).is_ok();
            i32::from((pinned, busy, ended, remapped) != (0, true, 0, true))
        });
        assert_eq!(said, 0, "{arguments:?}");
        // They are pinned here.
        assert_eq!(remap(0, PAGES, PAGES - 1), Err(libc::EBUSY));
        for _ in 0..2 {
            assert_eq!(softfault_unpin(at(1), 3 * PAGE), 0);
        }
        unmap(map, PAGES * PAGE);
    }
}

/// Where nothing is in a child, something else can come to be, which is none of ours.
#[test]
fn a_child_does_not_know_maps_that_it_does_not_inherit() {
    let _turn = crate::twin::turn();
    let made = file(4 * PAGE);
    let advise = |map: *mut core::ffi::c_void, pages: usize, advice: i32| {
        // SAFETY: no byte changes.
        let said = answer(unsafe { softfault_madvise(map, pages * PAGE, advice) });
        assert_eq!(said, Ok(()), "{}", crate::twin::text());
    };
    for prot in [READ, WRITE] {
        let map = of_file(&made, 4, prot, libc::MAP_SHARED);
        let mut map = map.ours(crate::twin::DEFAULT).unwrap();
        // SAFETY: the child's own, or nobody's.
        let unmapped = |map, pages: usize| answer(unsafe { softfault_munmap(map, pages * PAGE) });
        let is_left_alone = |map: *mut core::ffi::c_void, pages: usize| {
            let flags = crate::twin::ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: replaces nothing.
            let put = unsafe { libc::mmap(map, pages * PAGE, WRITE, flags, -1, 0) };
            // What the child's C library or engine has put there already does as well.
            if put != map && crate::twin::errno() != libc::EEXIST {
                return 1;
            }
            if answer(softfault_fault_in(map, PAGE)) != Err(libc::ENOMEM) {
                return 2;
            }
            if unmapped(map, pages) != Err(libc::EINVAL) {
                return 3;
            }
            if put == map {
                // SAFETY: mapped above.
                unsafe { map.cast::<u8>().write_volatile(1) };
            }
            0
        };
        let has_all = |map| match unmapped(map, 4) {
            Ok(()) => 0,
            Err(errno) => errno,
        };
        advise(map, 4, libc::MADV_DONTFORK);
        assert_eq!(forked(|| is_left_alone(map, 4)), 0);
        advise(map, 4, libc::MADV_DOFORK);
        assert_eq!(forked(|| has_all(map)), 0);
        // By parts, and longer or shorter afterwards.
        advise(map.wrapping_byte_add(2 * PAGE), 2, libc::MADV_DONTFORK);
        advise(map, 3, libc::MADV_DONTFORK);
        assert_eq!(forked(|| is_left_alone(map, 4)), 0);
        for (from, to) in [(4, 2), (2, 4)] {
            // SAFETY: nobody uses the pages that go.
            map = unsafe { softfault_mremap(map, from * PAGE, to * PAGE, libc::MREMAP_MAYMOVE) };
            assert_ne!(map, libc::MAP_FAILED, "{}", crate::twin::text());
            assert_eq!(forked(|| is_left_alone(map, to)), 0);
        }
        advise(map.wrapping_byte_add(3 * PAGE), 1, libc::MADV_DOFORK);
        assert_eq!(forked(|| has_all(map)), 0);
        advise(map, 3, libc::MADV_DOFORK);
        assert_eq!(forked(|| has_all(map)), 0);
        unmap(map, 4 * PAGE);
    }
}

/// A parent's lock is none of the child's: it ends with the pages, and leaves the child's own lock as it is.
#[test]
fn a_child_keeps_what_it_has_locked_where_its_parent_has() {
    let _turn = crate::twin::turn();
    let made = file(8 * PAGE);
    for arguments in crate::kept::kernels_kinds(&made, 8) {
        let map = arguments.ours(crate::twin::DEFAULT).unwrap();
        assert_eq!(softfault_mlock(map, 8 * PAGE), 0);
        let locked = || crate::kept::locked_by_the_kernel(map, 8);
        assert_eq!(locked(), [true; 8], "{arguments:?}");
        let status = forked(|| {
            if locked() != [false; 8] {
                return 1;
            }
            if softfault_mlock(map, 8 * PAGE) != 0 || locked() != [true; 8] {
                return 2;
            }
            // SAFETY: nobody uses it any more.
            if unsafe { softfault_munmap(map, PAGE) } != 0 {
                return 3;
            }
            i32::from(locked()[1..] != [true; 7]) * 4
        });
        assert_eq!(status, 0, "{arguments:?}: {status:#x}");
        assert_eq!(locked(), [true; 8], "{arguments:?}");
        unmap(map, 8 * PAGE);
    }
}

/// A thread of the parent's is within a call at the fork, which no thread of the child's is: nobody else uses the map there.
#[test]
fn a_child_changes_a_map_that_a_call_of_its_parent_uses() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    for (arguments, engine) in [
        (anonymous(PAGES), own_engine()),
        (
            of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE),
            own_engine(),
        ),
        (
            of_file(&made, PAGES, WRITE, libc::MAP_SHARED),
            crate::twin::DEFAULT,
        ),
    ] {
        let map = arguments.ours(engine).unwrap() as usize;
        let is_kernels = arguments.flags == libc::MAP_SHARED;
        assert_eq!(softfault_pin(map as *mut _, PAGE), 0);
        let (from, mut to) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let fd = std::os::fd::AsRawFd::as_raw_fd(&from);
                // SAFETY: nobody else writes to the map.
                unsafe { softfault_read_from(fd, map as *mut _, PAGES * PAGE) }
            });
            // Also if this fails: the reader goes on until then.
            std::io::Write::write_all(&mut to, b"a byte").unwrap();
            let mut first = 0_u8;
            while first != b'a' {
                std::thread::yield_now();
                // SAFETY: room for a byte.
                let read = unsafe { softfault_copy_out(map as *mut _, (&raw mut first).cast(), 1) };
                assert_eq!(read, 1);
            }
            // It waits for the rest.
            let status = forked(|| {
                let flags = libc::MREMAP_MAYMOVE;
                // SAFETY: the child has the map for itself.
                unsafe {
                    let longer =
                        softfault_mremap(map as *mut _, PAGES * PAGE, 2 * PAGES * PAGE, flags);
                    if longer == libc::MAP_FAILED {
                        return crate::twin::errno();
                    }
                    if longer.cast::<u8>().read_volatile() != b'a' {
                        return 201;
                    }
                    if softfault_munmap(longer, 2 * PAGES * PAGE) != 0 {
                        return 202;
                    }
                    let mut seen = [0; PAGES];
                    let is_there = libc::mincore(longer, PAGES * PAGE, seen.as_mut_ptr()) == 0;
                    i32::from(is_kernels && is_there) * 203
                }
            });
            assert_eq!(status, 0, "{arguments:?}: {status:#x}");
            // SAFETY: nothing is mapped, since a call uses the map.
            let said = unsafe { softfault_mremap(map as *mut _, PAGES * PAGE, PAGE, 0) };
            assert_eq!(said, libc::MAP_FAILED, "the parent's is in use");
            drop(to);
            assert_eq!(reader.join().unwrap(), 6);
        });
        unmap(map as *mut _, PAGES * PAGE);
    }
}

/// The end of a pipe that a child is not to keep open, and the process that a signal handler has made: 0 in that.
static TO: AtomicI32 = AtomicI32::new(-1);
static MADE: AtomicI32 = AtomicI32::new(-1);
/// The map that the call uses, and the errno of the child's handler, which maps a page of it anew.
static USED: AtomicUsize = AtomicUsize::new(0);
static RENEWED: AtomicI32 = AtomicI32::new(-1);

/// Maps the page anew: errno, or 0.
fn renew_a_page() -> i32 {
    let page = (USED.load(SeqCst) + 3 * PAGE) as *mut _;
    let flags = crate::twin::ANONYMOUS | libc::MAP_FIXED;
    match softfault_mmap(page, PAGE, WRITE, flags, -1, 0) == page {
        true => 0,
        false => crate::twin::errno(),
    }
}

extern "C" fn fork_in_a_handler(_: i32) {
    // SAFETY: the child goes on with the call that was interrupted, or is killed.
    unsafe {
        let made = libc::fork();
        if made == 0 {
            libc::alarm(60);
            libc::close(TO.load(SeqCst));
            // As another thread of the child may: the call is in read(2), and holds no lock.
            let page = (USED.load(SeqCst) + 3 * PAGE) as *mut _;
            if softfault_munmap(page, PAGE) == 0 {
                RENEWED.store(renew_a_page(), SeqCst);
            }
        }
        MADE.store(made, SeqCst);
    }
}

/// A signal handler may fork within a call. The child goes on with the call, whose map stays; then it has the map for itself.
#[test]
fn a_child_ends_a_call_that_a_signal_has_interrupted() {
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap() as usize;
    USED.store(map, SeqCst);
    let (from, mut to) = std::io::pipe().unwrap();
    TO.store(std::os::fd::AsRawFd::as_raw_fd(&to), SeqCst);
    // SAFETY: a handler of the test's own, which makes a process.
    unsafe { libc::signal(libc::SIGUSR1, fork_in_a_handler as *const () as usize) };
    let reader = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            // SAFETY: only asks; nobody else writes to the map.
            let read = unsafe {
                // musl's is a pointer, which no other thread may have.
                let thread = libc::pthread_self() as usize;
                *reader.lock().unwrap() = Some((thread, libc::gettid()));
                let fd = std::os::fd::AsRawFd::as_raw_fd(&from);
                softfault_read_from(fd, map as *mut _, PAGES * PAGE)
            };
            if MADE.load(SeqCst) == 0 {
                // The page was the call's until its end.
                let renewed = (RENEWED.load(SeqCst), renew_a_page());
                // SAFETY: the child has the map for itself, and ends.
                unsafe {
                    let first = *(map as *const u8);
                    let flags = libc::MREMAP_MAYMOVE;
                    let longer =
                        softfault_mremap(map as *mut _, PAGES * PAGE, 2 * PAGES * PAGE, flags);
                    let is_right = (read, first) == (6, b'a') && longer != libc::MAP_FAILED;
                    let is_kept = renewed == (libc::EBUSY, 0);
                    libc::_exit(i32::from(!is_right) | i32::from(!is_kept) << 1);
                }
            }
            read
        });
        std::io::Write::write_all(&mut to, b"a byte").unwrap();
        let mut first = 0_u8;
        let waits = || {
            let (_, number) = (*reader.lock().unwrap())?;
            is_in_read(number).then_some(())
        };
        // Until it has the bytes and waits for more.
        while first != b'a' || waits().is_none() {
            std::thread::yield_now();
            // SAFETY: room for a byte.
            let read = unsafe { softfault_copy_out(map as *mut _, (&raw mut first).cast(), 1) };
            assert_eq!(read, 1);
        }
        let (thread, _) = reader.lock().unwrap().unwrap();
        // SAFETY: the thread is there, and handles the signal.
        let sent = unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
        assert_eq!(sent, 0);
        while MADE.load(SeqCst) < 0 {
            std::thread::yield_now();
        }
        drop(to);
        assert_eq!(read.join().unwrap(), 6);
    });
    // SAFETY: the default again.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_DFL) };
    assert_eq!(crate::child::wait(MADE.load(SeqCst)), 0);
    unmap(map as *mut _, PAGES * PAGE);
}
