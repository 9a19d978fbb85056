//! madvise, msync, mlock, mprotect: every value, on every kind of map.

use crate::twin::{
    ANONYMOUS, Answer, Arguments, DEFAULT, PAGE, READ, Twin, WRITE, anonymous, answer, errno, file,
    of_file, own_engine, text, unmap,
};
use core::ffi::{c_int, c_void};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::msync::softfault_msync;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::softfault_copy_out;
use std::fs::File;

const PAGES: usize = 4;

/// Each kind of map, of which the file is `made`.
fn kinds(made: &File) -> [(&'static str, Arguments); 5] {
    [
        ("anonymous", anonymous(PAGES)),
        (
            "anonymous, read",
            Arguments {
                prot: READ,
                ..anonymous(PAGES)
            },
        ),
        ("copy", of_file(made, PAGES, WRITE, libc::MAP_PRIVATE)),
        ("shared, read", of_file(made, PAGES, READ, libc::MAP_SHARED)),
        (
            "shared, written",
            of_file(made, PAGES, WRITE, libc::MAP_SHARED),
        ),
    ]
}

/// Addresses and lengths, from the first byte of the map on.
const RANGES: [(usize, usize); 9] = [
    (0, 0),
    (0, 1),
    (0, PAGES * PAGE),
    (PAGE, 2 * PAGE),
    (1, PAGE),
    (PAGE + 5, 0),
    (0, (PAGES + 1) * PAGE),
    (PAGES * PAGE, PAGE),
    (0, usize::MAX - 2 * PAGE),
];

type Call = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;

/// Calls both on every kind and range with every value; `differs` says where they are known to.
fn compare(
    (ours, kernels): (Call, Call),
    values: impl Iterator<Item = c_int>,
    differs: impl Fn(&str, (usize, usize), c_int, Answer, Answer) -> bool,
) {
    for value in values {
        // A hole stays.
        let made = file(PAGES * PAGE - 100);
        for (name, arguments) in kinds(&made) {
            for range in RANGES {
                let mut twin = Twin::of(
                    Arguments {
                        length: PAGES * PAGE,
                        ..arguments
                    },
                    own_engine(),
                );
                // Behind it is nobody's page.
                twin.length = PAGES * PAGE;
                let (start, len) = range;
                let (o, k) = (
                    twin.ours.wrapping_add(start),
                    twin.kernels.wrapping_add(start),
                );
                // SAFETY: advice that gives bytes up is compared below.
                let said = answer(unsafe { ours(o.cast(), len, value) });
                let overflows = (o as usize).checked_add(len).is_none();
                let beyond = !overflows && start + len > PAGES * PAGE;
                // Memory behind the kernel's map is somebody's.
                let kernel = match beyond {
                    true => said.and(Err(0)),
                    // SAFETY: within the map, or no range.
                    false => answer(unsafe { kernels(k.cast(), len, value) }),
                };
                let known = differs(name, range, value, said, kernel);
                assert!(
                    said == kernel || known,
                    "{name} {range:x?} {value}: ours {said:?} ({}), the kernel {kernel:?}",
                    text()
                );
                if beyond {
                    assert_ne!(said, Ok(()), "{name} {range:x?} {value}");
                }
                if arguments.prot & libc::PROT_READ != 0 && said == kernel {
                    twin.same(0, PAGES);
                }
                let gone = twin.unmap(0, PAGES);
                assert_eq!(gone, (Ok(()), Ok(())), "{name} {}", text());
            }
        }
    }
}

#[test]
fn every_advice() {
    let _turn = crate::twin::turn();
    // Neither advice that breaks memory (100, 101), nor guards (102, 103), of which old kernels know nothing.
    let values = -1..=24;
    compare(
        (softfault_madvise, libc::madvise),
        values,
        |name, (_, len), advice, said, kernel| match advice {
            // These are for maps that the kernel serves.
            libc::MADV_DONTFORK if name.starts_with("anonymous") || name == "copy" => {
                said == Err(libc::EOPNOTSUPP)
            }
            libc::MADV_DONTDUMP => said == Err(libc::EOPNOTSUPP),
            // Hints that the kernel may not be built for, or not for files.
            12..=15 | libc::MADV_COLD | libc::MADV_PAGEOUT => said.is_ok(),
            libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK | 24 => said == Err(libc::EINVAL),
            libc::MADV_POPULATE_WRITE if !name.contains("written") => {
                // A map that may only be read: EACCES here, EFAULT or EINVAL there.
                said.is_err() && kernel.is_err()
            }
            // Kernels differ about a map that may only be read of a file that may be written to.
            libc::MADV_REMOVE if name == "shared, read" => said == Err(libc::EACCES),
            libc::MADV_REMOVE => said.is_err() && kernel.is_err() || len == 0,
            libc::MADV_FREE => said.is_err() && kernel.is_err(),
            _ => false,
        },
    );
}

#[test]
fn every_flag_of_msync() {
    let _turn = crate::twin::turn();
    compare((softfault_msync, libc::msync), -1..=8, |_, _, _, _, _| {
        false
    });
}

unsafe extern "C" fn lock(addr: *mut c_void, len: usize, lock: c_int) -> c_int {
    match lock {
        1 => softfault_mlock(addr, len),
        _ => softfault_munlock(addr, len),
    }
}

unsafe extern "C" fn kernels_lock(addr: *mut c_void, len: usize, lock: c_int) -> c_int {
    // SAFETY: no byte changes.
    unsafe {
        match lock {
            1 => libc::mlock(addr, len),
            _ => libc::munlock(addr, len),
        }
    }
}

#[test]
fn locks() {
    let _turn = crate::twin::turn();
    compare((lock, kernels_lock), 0..=1, |_, _, lock, said, kernel| {
        // A user's limit is looked at first.
        lock == 1 && (said, kernel) == (Err(libc::EINVAL), Err(libc::ENOMEM))
    });
}

#[test]
fn every_protection() {
    let _turn = crate::twin::turn();
    compare(
        (softfault_mprotect, libc::mprotect),
        -1..=9,
        |name, _, prot, said, _| match prot {
            0 | 4..=7 => said == Err(libc::EOPNOTSUPP) || said == Err(libc::EINVAL),
            -1 | 8 | 9 => matches!(said, Err(libc::EINVAL | libc::ENOMEM)),
            // The file is open for both.
            2 | 3 if name == "shared, read" => said == Err(libc::EACCES),
            _ => false,
        },
    );
}

#[test]
fn a_map_is_written_to_once_it_may_be() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    for arguments in [
        Arguments {
            prot: READ,
            ..anonymous(PAGES)
        },
        of_file(&made, PAGES, READ, libc::MAP_PRIVATE),
    ] {
        let twin = Twin::of(arguments, own_engine());
        let (ours, kernels) = twin.at(0);
        // SAFETY: nothing is written before it may be.
        unsafe {
            assert_eq!(
                softfault_mprotect(ours, PAGES * PAGE, WRITE),
                0,
                "{}",
                text()
            );
            assert_eq!(libc::mprotect(kernels, PAGES * PAGE, WRITE), 0);
        }
        twin.write(5000, 77);
        twin.same(0, PAGES);
        // SAFETY: nothing is written any more.
        unsafe {
            assert_eq!(
                softfault_mprotect(ours, PAGES * PAGE, READ),
                0,
                "{}",
                text()
            );
            assert_eq!(libc::mprotect(kernels, PAGES * PAGE, READ), 0);
        }
        twin.same(0, PAGES);
        assert_eq!(arguments.flags & ANONYMOUS & libc::MAP_SHARED, 0);
        assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
    }
}

/// POSIX lets a call that succeeds change errno; a program that looks at it late is to find its own all the same.
#[test]
fn calls_that_succeed_leave_errno_as_it_was() {
    const OWN: c_int = 77;
    let _turn = crate::twin::turn();
    let set = || {
        // SAFETY: the thread's own word.
        unsafe { *libc::__errno_location() = OWN };
    };
    let made = file(PAGES * PAGE);
    for (name, arguments) in kinds(&made) {
        for engine in [DEFAULT, own_engine()] {
            set();
            let map = arguments.ours(engine).unwrap();
            let mut errnos = vec![("mmap", errno())];
            let len = PAGES * PAGE;
            let mut bytes = vec![0_u8; len];
            let calls: [(&str, &mut dyn FnMut() -> bool); 7] = [
                ("fault_in", &mut || softfault_fault_in(map, len) == 0),
                ("pin", &mut || softfault_pin(map, len) == 0),
                ("unpin", &mut || softfault_unpin(map, len) == 0),
                ("mlock", &mut || softfault_mlock(map, len) == 0),
                ("munlock", &mut || softfault_munlock(map, len) == 0),
                ("msync", &mut || {
                    softfault_msync(map, len, libc::MS_SYNC) == 0
                }),
                ("copy_out", &mut || {
                    // SAFETY: a buffer of so many bytes.
                    let read = unsafe { softfault_copy_out(map, bytes.as_mut_ptr().cast(), len) };
                    read as usize == len
                }),
            ];
            for (call, made) in calls {
                set();
                assert!(made(), "{name} {call}: {}", text());
                errnos.push((call, errno()));
            }
            set();
            unmap(map, len);
            errnos.push(("munmap", errno()));
            let changed: Vec<_> = errnos.iter().filter(|(_, errno)| *errno != OWN).collect();
            assert!(changed.is_empty(), "{name}: {changed:?}");
        }
    }
}
