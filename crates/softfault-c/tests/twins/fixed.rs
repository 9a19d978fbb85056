//! mmap at an address: MAP_FIXED and MAP_FIXED_NOREPLACE.

use crate::twin::{
    Arguments, PAGE, READ, Twin, WRITE, anonymous, answer, content, file, of_file, own_engine,
    text, unmap,
};
use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::softfault_mlock;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use std::sync::Barrier;

const PAGES: usize = 8;
const ROUNDS: usize = 500;
const EXISTS: i32 = libc::MAP_FIXED_NOREPLACE;

fn zeros(count: usize, prot: i32, flag: i32) -> Arguments {
    let plain = anonymous(count);
    Arguments {
        prot,
        flags: plain.flags | flag,
        ..plain
    }
}

fn filled() -> Twin {
    let twin = Twin::anonymous(PAGES);
    for at in (0..PAGES * PAGE).step_by(500) {
        twin.write(at, at as u8 | 1);
    }
    twin
}

/// Maps over a part of both; both are there then.
fn put(twin: &Twin, part: &Range<usize>, prot: i32, flag: i32) {
    let fixed = zeros(part.len(), prot, flag);
    let (ours, kernels) = twin.at(part.start);
    assert_eq!(
        fixed.ours_at(ours, own_engine()),
        Ok(ours),
        "{part:?} {}",
        text()
    );
    // There the test has the addresses, whatever is there.
    let fixed = zeros(part.len(), prot, libc::MAP_FIXED | flag & !EXISTS);
    assert_eq!(fixed.kernels_at(kernels), Ok(kernels));
}

#[test]
fn zeros_are_put_over_parts() {
    let _turn = crate::twin::turn();
    for more in [0, libc::MAP_POPULATE, libc::MAP_LOCKED, EXISTS] {
        let twin = filled();
        for part in [2..4, 0..1, 3..7, 7..8, 0..8] {
            if more == EXISTS {
                // It replaces nothing: so the map that is there goes before.
                let gone = twin.unmap_to_map_again(part.start, part.len());
                assert_eq!(gone, Ok(()), "{}", text());
                if part.len() == PAGES {
                    break;
                }
                put(&twin, &part, WRITE, more);
            } else {
                put(&twin, &part, WRITE, libc::MAP_FIXED | more);
            }
            twin.same(0, PAGES);
            twin.write(part.start * PAGE + 3, 33);
            twin.write(part.end * PAGE - 1, 34);
            twin.same(0, PAGES);
        }
        if more != EXISTS {
            assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())), "{}", text());
        }
    }
}

#[test]
fn unmapped_memory_is_mapped_again() {
    let _turn = crate::twin::turn();
    let twin = filled();
    assert_eq!(twin.unmap_to_map_again(2, 2), Ok(()));
    assert_eq!(twin.unmap_to_map_again(6, 1), Ok(()));
    // A hole, half of it with its neighbour, and all of it with both.
    put(&twin, &(3..4), READ, EXISTS);
    twin.same(3, 5 - 3);
    put(&twin, &(1..3), WRITE, libc::MAP_FIXED);
    twin.same(0, 6);
    put(&twin, &(5..8), WRITE, libc::MAP_FIXED);
    twin.same(0, PAGES);
    for page in [1, 2, 5, 6, 7] {
        twin.write(page * PAGE + 11, page as u8);
    }
    twin.same(0, PAGES);
    // It is one map again.
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())), "{}", text());
    let (ours, _) = twin.at(0);
    assert_eq!(answer(softfault_fault_in(ours, PAGE)), Err(libc::ENOMEM));
}

#[test]
fn nothing_is_replaced_where_that_is_asked() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let twins = [
        filled(),
        Twin::of_file(&made, PAGES, READ, libc::MAP_SHARED),
    ];
    for twin in &twins {
        for part in [0..1, 3..5, 0..8, 7..8] {
            let (ours, kernels) = twin.at(part.start);
            let fixed = zeros(part.len(), WRITE, EXISTS);
            assert_eq!(fixed.ours_at(ours, own_engine()), Err(libc::EEXIST));
            assert_eq!(fixed.kernels_at(kernels), Err(libc::EEXIST));
        }
        twin.same(0, PAGES);
        // One page of the range is there.
        assert_eq!(twin.unmap(0, 4), (Ok(()), Ok(())));
        let (ours, kernels) = twin.at(1);
        let fixed = zeros(4, WRITE, EXISTS);
        assert_eq!(fixed.ours_at(ours, own_engine()), Err(libc::EEXIST));
        assert_eq!(fixed.kernels_at(kernels), Err(libc::EEXIST));
        assert_eq!(answer(softfault_fault_in(ours, PAGE)), Err(libc::ENOMEM));
        twin.same(4, 4);
    }
    // Others' maps, which the kernel knows.
    let foreign = anonymous(2).kernels().unwrap();
    for flags in [0, libc::MAP_FIXED] {
        let fixed = zeros(2, WRITE, EXISTS | flags);
        assert_eq!(fixed.ours_at(foreign, own_engine()), Err(libc::EEXIST));
        assert_eq!(fixed.kernels_at(foreign), Err(libc::EEXIST));
    }
    // SAFETY: it is there.
    unsafe {
        foreign.cast::<u8>().write_volatile(1);
        libc::munmap(foreign, 2 * PAGE);
    }
    for twin in twins {
        assert_eq!(twin.unmap(4, 4), (Ok(()), Ok(())));
    }
}

/// Unmapped pages that several threads map again at the same time, and only where nothing is.
#[test]
fn of_threads_that_claim_pages_one_has_them() {
    const THREADS: u8 = 3;
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap();
    let part = map.wrapping_byte_add(2 * PAGE).expose_provenance();
    let (have, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let step = Barrier::new(THREADS.into());
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (have, others, step) = (&have, &others, &step);
            // No panic in here: the others would wait without end.
            scope.spawn(move || {
                let part: *mut c_void = core::ptr::with_exposed_provenance_mut(part);
                for round in 1..=ROUNDS {
                    if thread == 1 {
                        // SAFETY: nobody touches the pages.
                        unsafe { softfault_munmap(part, 4 * PAGE) };
                    }
                    step.wait();
                    let mapped = zeros(4, WRITE, EXISTS).ours_at(part, own_engine());
                    if mapped == Ok(part) && keeps(part, thread) {
                        have.fetch_add(1, SeqCst);
                    } else if mapped == Err(libc::EEXIST) {
                        others.fetch_add(1, SeqCst);
                    }
                    step.wait();
                    let is_one = have.load(SeqCst) == round;
                    step.wait();
                    if !is_one {
                        break;
                    }
                }
            });
        }
    });
    let others = others.into_inner();
    assert_eq!(
        (have.into_inner(), others),
        (ROUNDS, 2 * ROUNDS),
        "one of three in each round"
    );
    unmap(map, PAGES * PAGE);
}

/// Pages that one thread unmaps, and another maps again as soon as they are free.
#[test]
fn pages_are_free_when_they_are_given_back() {
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap();
    let part = map.wrapping_byte_add(2 * PAGE).expose_provenance();
    let (unmaps, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    // One that fails ends the other.
    let fails = || {
        softfault_oracle::Finally(|| {
            failed.fetch_or(std::thread::panicking(), SeqCst);
        })
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _fails = fails();
            for round in 1..=ROUNDS {
                while unmaps.load(SeqCst) != round {
                    assert!(!failed.load(SeqCst), "the other thread has failed");
                    std::thread::yield_now();
                }
                unmap(core::ptr::with_exposed_provenance_mut(part), 4 * PAGE);
            }
        });
        let _fails = fails();
        let part = core::ptr::with_exposed_provenance_mut(part);
        for round in 1..=ROUNDS {
            assert!(keeps(part, round as u8), "{round}");
            unmaps.store(round, SeqCst);
            while zeros(4, WRITE, EXISTS).ours_at(part, own_engine()) != Ok(part) {
                assert!(!failed.load(SeqCst), "the other thread has failed");
            }
        }
        assert!(keeps(part, 1));
    });
    unmap(map, PAGES * PAGE);
}

/// True if four pages that this thread has to itself keep what is written there.
fn keeps(part: *mut c_void, byte: u8) -> bool {
    let byte_of = |page: usize| part.wrapping_byte_add(page * PAGE + 9).cast::<u8>();
    // SAFETY: this thread's.
    unsafe {
        (0..4).for_each(|page| byte_of(page).write_volatile(byte));
        std::thread::yield_now();
        (0..4).all(|page| byte_of(page).read_volatile() == byte)
    }
}

#[test]
fn a_declined_call_replaces_nothing() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let twin = filled();
    let (ours, _) = twin.at(2);
    let declined = Err(libc::EOPNOTSUPP);
    let fixed = |arguments: Arguments| Arguments {
        flags: arguments.flags | libc::MAP_FIXED,
        ..arguments
    };
    // Other memory.
    for other in [
        of_file(&made, 2, WRITE, libc::MAP_PRIVATE),
        of_file(&made, 2, READ, libc::MAP_SHARED),
        of_file(&made, 2, WRITE, libc::MAP_SHARED),
        zeros(2, WRITE, libc::MAP_STACK),
    ] {
        assert_eq!(
            fixed(other).ours_at(ours, own_engine()),
            declined,
            "{other:?}"
        );
    }
    twin.same(0, PAGES);
    // Over files, beyond the end of a map, over others' maps, and where nothing is.
    let copy = of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE);
    let copy = copy.ours(own_engine()).unwrap();
    let shared = of_file(&made, PAGES, READ, libc::MAP_SHARED);
    let shared = shared.ours(own_engine()).unwrap();
    let foreign = anonymous(2).kernels().unwrap();
    let nothing = anonymous(2).kernels().unwrap();
    // SAFETY: memory of the test's.
    unsafe {
        foreign.cast::<u8>().write_volatile(77);
        libc::munmap(nothing, 2 * PAGE);
    }
    let behind = twin.at(PAGES - 1).0;
    for (place, flag) in [
        (copy, libc::MAP_FIXED),
        (shared, libc::MAP_FIXED),
        (behind, libc::MAP_FIXED),
        (foreign, libc::MAP_FIXED),
        (nothing, libc::MAP_FIXED),
        (nothing, EXISTS),
    ] {
        let said = zeros(2, WRITE, flag).ours_at(place, own_engine());
        assert_eq!(said, declined, "{place:?}");
        assert!(!text().is_empty());
    }
    twin.same(0, PAGES);
    let bytes = content(PAGES * PAGE);
    for map in [copy, shared] {
        // SAFETY: a map of so many bytes.
        let map = unsafe { core::slice::from_raw_parts(map.cast::<u8>(), bytes.len()) };
        assert!(map == bytes);
    }
    // SAFETY: it is there.
    unsafe {
        assert_eq!(foreign.cast::<u8>().read_volatile(), 77);
        libc::munmap(foreign, 2 * PAGE);
    }
    unmap(copy, PAGES * PAGE);
    unmap(shared, PAGES * PAGE);
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

#[test]
fn addresses_that_cannot_be() {
    let _turn = crate::twin::turn();
    let twin = filled();
    let (ours, kernels) = twin.at(1);
    let last = usize::MAX & !(PAGE - 1);
    for flag in [libc::MAP_FIXED, EXISTS] {
        let fixed = zeros(2, WRITE, flag);
        let odd = (ours.wrapping_byte_add(1), kernels.wrapping_byte_add(1));
        assert_eq!(fixed.ours_at(odd.0, own_engine()), Err(libc::EINVAL));
        assert_eq!(fixed.kernels_at(odd.1), Err(libc::EINVAL));
        for beyond in [last, last - PAGE, 1 << 60, (1 << 60) + 1] {
            let beyond = core::ptr::without_provenance_mut(beyond);
            assert_eq!(fixed.ours_at(beyond, own_engine()), Err(libc::ENOMEM));
            assert_eq!(fixed.kernels_at(beyond), Err(libc::ENOMEM));
        }
    }
    twin.same(0, PAGES);
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

#[test]
fn pins_and_locks_of_replaced_pages_end() {
    let _turn = crate::twin::turn();
    let twin = filled();
    let (ours, _) = twin.at(0);
    assert_eq!(
        answer(softfault_mlock(ours, PAGES * PAGE)),
        Ok(()),
        "{}",
        text()
    );
    assert_eq!(answer(softfault_pin(twin.at(3).0, 2 * PAGE)), Ok(()));
    put(&twin, &(2..4), WRITE, libc::MAP_FIXED);
    twin.same(0, PAGES);
    let said = answer(softfault_unpin(twin.at(3).0, 2 * PAGE));
    assert_eq!(said, Err(libc::EINVAL), "it ended with one of its pages");
    // Locked pages are not given up: those that were replaced are not locked, the others are.
    for page in 0..PAGES {
        let (ours, _) = twin.at(page);
        // SAFETY: nobody relies on the bytes.
        let said = answer(unsafe { softfault_madvise(ours, PAGE, libc::MADV_DONTNEED) });
        let expected = match (2..4).contains(&page) {
            true => Ok(()),
            false => Err(libc::EINVAL),
        };
        assert_eq!(said, expected, "page {page}");
    }
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

#[test]
fn a_child_of_fork_replaces_its_own() {
    let _turn = crate::twin::turn();
    let twin = filled();
    assert_eq!(twin.unmap(5, 2), (Ok(()), Ok(())));
    let child = |at: fn(&Twin, usize) -> *mut c_void| {
        let replaced = zeros(4, WRITE, libc::MAP_FIXED).ours_at(at(&twin, 3), own_engine());
        let is_there = replaced == Ok(at(&twin, 3));
        let byte =
            |page: usize, offset: usize| at(&twin, page).wrapping_byte_add(offset).cast::<u8>();
        // SAFETY: the child's own memory.
        unsafe {
            byte(6, 5).write_volatile(3);
            let old = byte(2, 308).read_volatile();
            let new = byte(3, 212).read_volatile();
            let gone = answer(softfault_munmap(at(&twin, 0), 7 * PAGE));
            i32::from(!(is_there && old != 0 && new == 0 && gone.is_ok()))
        }
    };
    // Both were written to.
    assert_eq!((8500 % PAGE, 12_500 % PAGE), (308, 212));
    let status = crate::child::forked(|| child(|twin, page| twin.at(page).0));
    assert_eq!(status, 0, "{status:#x}");
    twin.same(0, 5);
    for part in [0..5, 7..8] {
        assert_eq!(twin.unmap(part.start, part.len()), (Ok(()), Ok(())));
    }
}
