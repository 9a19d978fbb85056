//! Threads that map, look up and unmap the same addresses.

use crate::twin::{PAGE, READ, anonymous, answer, content, errno, file, of_file, own_engine, text};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::softfault_read_at;

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
                    match unsafe { softfault_read_at(addr, copy.as_mut_ptr().cast(), PAGE) } {
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
