//! Threads that map, look up and unmap the same addresses.

use crate::twin::{
    ANONYMOUS, DEFAULT, PAGE, READ, WRITE, anonymous, answer, content, errno, file, of_file,
    own_engine, text, unmap,
};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::{softfault_copy_out, softfault_read_from};

const PAGES: usize = 32;
const ROUNDS: usize = 500;

#[test]
fn calls_on_maps_that_go_meanwhile() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let all = content(PAGES * PAGE);
    let (at, over, read) = (
        AtomicPtr::new(core::ptr::null_mut()),
        AtomicBool::new(false),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (at, over, all, read) = (&at, &over, &all, &read);
            scope.spawn(move || {
                // One that fails ends the others.
                let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
                let mut copy = vec![0; PAGE];
                let mut round = thread;
                while !over.load(SeqCst) {
                    round += 1;
                    let page = round * 7 % PAGES;
                    let start: *mut u8 = at.load(SeqCst);
                    if start.is_null() {
                        continue;
                    }
                    let addr = start.wrapping_add(page * PAGE).cast();
                    // SAFETY: the buffer is this thread's.
                    match unsafe { softfault_copy_out(addr, copy.as_mut_ptr().cast(), PAGE) } {
                        -1 => assert_eq!(errno(), libc::ENOMEM, "{}", text()),
                        count => {
                            assert_eq!(count as usize, PAGE);
                            assert!(copy == all[page * PAGE..(page + 1) * PAGE]);
                            read.fetch_add(1, SeqCst);
                        }
                    }
                    if softfault_pin(addr, PAGE) == 0 {
                        // Its pages may have gone, and with them the pin.
                        let said = answer(softfault_unpin(addr, PAGE));
                        assert!(
                            matches!(said, Ok(()) | Err(libc::EINVAL | libc::ENOMEM)),
                            "{said:?}"
                        );
                    } else {
                        assert_eq!(errno(), libc::ENOMEM, "{}", text());
                    }
                    let said = answer(softfault_fault_in(addr, PAGE));
                    assert!(matches!(said, Ok(()) | Err(libc::ENOMEM)), "{said:?}");
                }
            });
        }
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        let mut round = 0;
        // Until there was something to see.
        while (round < ROUNDS || read.load(SeqCst) < ROUNDS) && !over.load(SeqCst) {
            round += 1;
            let map = of_file(&made, PAGES, READ, libc::MAP_SHARED);
            let map = map.ours(own_engine()).unwrap();
            at.store(map.cast(), SeqCst);
            // SAFETY: nobody touches it; calls on it fail.
            unsafe {
                if round % 2 == 0 {
                    let half = PAGES / 2 * PAGE;
                    assert_eq!(softfault_munmap(map.byte_add(half), half), 0, "{}", text());
                    assert_eq!(softfault_munmap(map, half), 0, "{}", text());
                } else {
                    assert_eq!(softfault_munmap(map, PAGES * PAGE), 0, "{}", text());
                }
            }
        }
    });
}

#[test]
fn threads_have_maps_of_their_own() {
    let _turn = crate::twin::turn();
    std::thread::scope(|scope| {
        for thread in 1..4u8 {
            scope.spawn(move || {
                for _ in 0..100 {
                    let map = anonymous(4).ours(own_engine()).unwrap().cast::<u8>();
                    // SAFETY: this thread's.
                    unsafe {
                        map.add(PAGE).write_volatile(thread);
                        assert_eq!(map.add(PAGE).read_volatile(), thread);
                        assert_eq!(map.read_volatile(), 0);
                        assert_eq!(softfault_munmap(map.cast(), 4 * PAGE), 0, "{}", text());
                    }
                }
            });
        }
    });
}

/// Reads all of a map again and again while `unmaps` takes a part of it away: the call has the bytes, or finds no map.
fn while_a_part_goes(map: &AtomicPtr<u8>, mut unmaps: impl FnMut()) {
    let over = AtomicBool::new(false);
    let (reads, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
            let mut copy = vec![0_u8; PAGES * PAGE];
            while !over.load(SeqCst) {
                let start = map.load(SeqCst);
                // SAFETY: the buffer is this thread's.
                let read = unsafe {
                    softfault_copy_out(start.cast(), copy.as_mut_ptr().cast(), PAGES * PAGE)
                };
                match read {
                    -1 => {
                        assert_eq!(errno(), libc::ENOMEM, "{}", text());
                        refused.fetch_add(1, SeqCst);
                    }
                    count => {
                        assert_eq!(count as usize, PAGES * PAGE);
                        reads.fetch_add(1, SeqCst);
                    }
                }
            }
        });
        let _over = softfault_oracle::Finally(|| over.store(true, SeqCst));
        let mut rounds = 0;
        let seen = || reads.load(SeqCst) >= ROUNDS && refused.load(SeqCst) > 0;
        while (rounds < ROUNDS || !seen()) && !over.load(SeqCst) {
            rounds += 1;
            unmaps();
        }
    });
}

#[test]
fn a_part_of_private_memory_goes_under_a_copy() {
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap();
    // SAFETY: within the map.
    unsafe { map.cast::<u8>().write_bytes(1, PAGES * PAGE) };
    let page = map.wrapping_byte_add(PAGES / 2 * PAGE);
    let again = crate::twin::Arguments {
        flags: ANONYMOUS | libc::MAP_FIXED,
        ..anonymous(1)
    };
    while_a_part_goes(&AtomicPtr::new(map.cast()), || {
        unmap(page, PAGE);
        // The copy that has begun may not be over.
        while let Err(errno) = again.ours_at(page, own_engine()) {
            assert_eq!(errno, libc::EBUSY, "{}", text());
        }
    });
    unmap(map, PAGES * PAGE);
}

#[test]
fn a_part_of_a_map_of_the_kernels_goes_under_a_copy() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let arguments = of_file(&made, PAGES, WRITE, libc::MAP_SHARED);
    let at = AtomicPtr::new(arguments.ours(DEFAULT).unwrap().cast());
    while_a_part_goes(&at, || {
        let map = at.load(SeqCst).cast::<core::ffi::c_void>();
        std::thread::yield_now();
        unmap(map.wrapping_byte_add(PAGES / 2 * PAGE), PAGE);
        let next = arguments.ours(DEFAULT).unwrap();
        at.store(next.cast(), SeqCst);
        unmap(map, PAGES / 2 * PAGE);
        let rest = map.wrapping_byte_add((PAGES / 2 + 1) * PAGE);
        unmap(rest, (PAGES / 2 - 1) * PAGE);
    });
    unmap(at.load(SeqCst).cast(), PAGES * PAGE);
}

/// A call that waits for a pipe keeps the pages that it is to fill, and no other: nobody waits for it.
#[test]
fn an_unmap_does_not_wait_for_a_call_that_is_blocked() {
    let _turn = crate::twin::turn();
    let map = anonymous(8).ours(own_engine()).unwrap() as usize;
    let at = |page: usize| (map + page * PAGE) as *mut core::ffi::c_void;
    let mut ends = [0; 2];
    // SAFETY: fills both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let again = crate::twin::Arguments {
        flags: ANONYMOUS | libc::MAP_FIXED,
        ..anonymous(1)
    };
    std::thread::scope(|scope| {
        // Also if this fails: the reader goes on until then.
        // SAFETY: this test's.
        let end = softfault_oracle::Finally(|| _ = unsafe { libc::close(ends[1]) });
        let reader = scope.spawn(|| {
            // SAFETY: nobody else uses the pages.
            unsafe { softfault_read_from(ends[0], at(1), 2 * PAGE) }
        });
        // Until it has its pages: one of them cannot be renewed then.
        let begun = || again.ours_at(at(2), own_engine()) == Err(libc::EBUSY);
        while !begun() {
            std::thread::yield_now();
        }
        unmap(at(2), PAGE);
        unmap(at(5), PAGE);
        assert_eq!(again.ours_at(at(5), own_engine()), Ok(at(5)), "{}", text());
        assert_eq!(again.ours_at(at(2), own_engine()), Err(libc::EBUSY));
        // SAFETY: the bytes of a page and one more; the reader goes on behind the page that is left.
        unsafe {
            let bytes = vec![3_u8; PAGE + 1];
            let written = libc::write(ends[1], bytes.as_ptr().cast(), bytes.len());
            assert_eq!(written as usize, bytes.len());
        }
        drop(end);
        assert_eq!(reader.join().unwrap() as usize, PAGE + 1);
    });
    assert_eq!(again.ours_at(at(2), own_engine()), Ok(at(2)), "{}", text());
    // SAFETY: within the map.
    unsafe {
        assert_eq!(at(1).cast::<u8>().read_volatile(), 3);
        assert_eq!(at(2).cast::<u8>().read_volatile(), 0, "it is new");
        libc::close(ends[0]);
    }
    unmap(at(0), 8 * PAGE);
}
