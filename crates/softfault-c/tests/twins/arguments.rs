//! mmap: every flag with every protection, of every kind of descriptor, and every wrong argument.

use crate::twin::{Arguments, DEFAULT, Engine, PAGE, READ, file, of_file, own_engine, text};
use core::ffi::c_int;
use softfault_c::munmap::softfault_munmap;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

/// Bytes of the file: not whole pages.
const BYTES: usize = 10_000;

/// Descriptors, by name.
fn descriptors() -> Vec<(&'static str, c_int)> {
    let open = |file: &File, flags: c_int| {
        let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        // SAFETY: a string.
        let fd = unsafe { libc::open(path.as_ptr().cast(), flags) };
        assert!(fd >= 0, "{path}");
        fd
    };
    let made = file(BYTES);
    let mut ends = [0; 2];
    // SAFETY: fills both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let mut all = vec![
        ("read", open(&made, libc::O_RDONLY)),
        ("write", open(&made, libc::O_WRONLY)),
        ("both", open(&made, libc::O_RDWR)),
        ("append", open(&made, libc::O_RDWR | libc::O_APPEND)),
        ("path", open(&made, libc::O_PATH)),
        ("empty", file(0).into_raw_fd()),
        ("folder", File::open("/").unwrap().into_raw_fd()),
        ("pipe", ends[0]),
        ("none", -1),
        ("closed", 987_654),
    ];
    all[2].1 = made.into_raw_fd();
    all
}

/// Arguments that mmap(2) has and softfault has not.
fn is_declined(arguments: &Arguments) -> bool {
    let both = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    arguments.prot & libc::PROT_EXEC != 0
        || arguments.prot == libc::PROT_NONE
        || arguments.flags & both == both
}

/// Maps by both; the bytes are the same as far as the file goes.
fn compare(name: &str, arguments: Arguments, engine: Engine, len: usize) {
    let (ours, kernels) = (arguments.ours(engine), arguments.kernels());
    let wrong = || {
        format!(
            "{name} {arguments:x?}: ours {ours:?} ({}), the kernel {kernels:?}",
            text()
        )
    };
    match (ours, kernels) {
        (Err(ours), Err(kernels)) => {
            let declined = is_declined(&arguments) && ours == libc::EOPNOTSUPP;
            assert!(ours == kernels || declined, "{}", wrong());
        }
        (Err(ours), Ok(kernels)) => {
            assert!(
                is_declined(&arguments) && ours == libc::EOPNOTSUPP,
                "{}",
                wrong()
            );
            // SAFETY: nobody uses it.
            unsafe { libc::munmap(kernels, arguments.length) };
        }
        (Ok(ours), Ok(kernels)) => {
            assert!(!is_declined(&arguments), "{}", wrong());
            let bytes = match arguments.flags & libc::MAP_ANONYMOUS != 0 {
                true => arguments.length.next_multiple_of(PAGE),
                // The last page is there whole.
                false => (len.next_multiple_of(PAGE)).saturating_sub(arguments.offset as usize),
            };
            let bytes = bytes.min(arguments.length.next_multiple_of(PAGE));
            // SAFETY: both have these pages.
            let same = unsafe {
                let ours = core::slice::from_raw_parts(ours.cast::<u8>(), bytes);
                ours == core::slice::from_raw_parts(kernels.cast::<u8>(), bytes)
            };
            assert!(same, "other bytes: {}", wrong());
            // SAFETY: nobody uses them any more.
            unsafe {
                assert_eq!(softfault_munmap(ours, arguments.length), 0, "{}", text());
                libc::munmap(kernels, arguments.length);
            }
        }
        (Ok(_), Err(_)) => panic!("{}", wrong()),
    }
}

#[test]
fn every_flag_with_every_protection() {
    let _turn = crate::twin::turn();
    let kinds = [
        0,
        libc::MAP_SHARED,
        libc::MAP_PRIVATE,
        libc::MAP_SHARED_VALIDATE,
        libc::MAP_ANONYMOUS,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    ];
    let besides = [
        0,
        libc::MAP_POPULATE,
        libc::MAP_NORESERVE,
        libc::MAP_POPULATE | libc::MAP_NONBLOCK,
        libc::MAP_LOCKED,
        libc::MAP_STACK,
        libc::MAP_DENYWRITE | libc::MAP_EXECUTABLE,
    ];
    for (name, fd) in descriptors() {
        let len = if name == "empty" { 0 } else { BYTES };
        for engine in [DEFAULT, own_engine()] {
            for flags in kinds
                .iter()
                .flat_map(|kind| besides.map(|more| kind | more))
            {
                // Of nothing there is nothing to lock.
                if len == 0 && flags & libc::MAP_LOCKED != 0 {
                    continue;
                }
                for prot in 0..=7 {
                    let arguments = Arguments {
                        length: BYTES,
                        prot,
                        flags,
                        fd,
                        offset: 0,
                    };
                    compare(name, arguments, engine, len);
                }
            }
        }
    }
}

#[test]
fn every_length_and_offset() {
    let _turn = crate::twin::turn();
    let lengths = [
        0,
        1,
        PAGE,
        BYTES,
        3 * PAGE,
        5 * PAGE,
        1 << 50,
        usize::MAX - PAGE,
        usize::MAX,
    ];
    let offsets = [
        0,
        PAGE as i64,
        1,
        2 * PAGE as i64,
        3 * PAGE as i64,
        1 << 30,
        -(PAGE as i64),
        i64::MAX - (PAGE as i64 - 1),
    ];
    for (name, fd) in descriptors() {
        let len = if name == "empty" { 0 } else { BYTES };
        for engine in [DEFAULT, own_engine()] {
            for flags in [
                libc::MAP_SHARED,
                libc::MAP_PRIVATE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            ] {
                for prot in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                    for length in lengths {
                        for offset in offsets {
                            let arguments = Arguments {
                                length,
                                prot,
                                flags,
                                fd,
                                offset,
                            };
                            compare(name, arguments, engine, len);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn features_of_mmap_that_softfault_lacks() {
    let _turn = crate::twin::turn();
    let made = file(BYTES);
    for engine in [DEFAULT, own_engine()] {
        for flags in [
            libc::MAP_GROWSDOWN,
            // MAP_32BIT, on x86.
            0x40,
            libc::MAP_SYNC,
            1 << 25,
        ] {
            for (kind, fd) in [
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
                (libc::MAP_SHARED, made.as_raw_fd()),
            ] {
                let arguments = Arguments {
                    length: PAGE,
                    prot: libc::PROT_READ,
                    flags: flags | kind,
                    fd,
                    offset: 0,
                };
                assert_eq!(
                    arguments.ours(engine),
                    Err(libc::EOPNOTSUPP),
                    "{arguments:x?}"
                );
                assert!(!text().is_empty());
            }
        }
        let odd = Arguments {
            length: PAGE,
            prot: 0x100 | libc::PROT_READ,
            flags: libc::MAP_SHARED,
            fd: made.as_raw_fd(),
            offset: 0,
        };
        assert_eq!(odd.ours(engine), Err(libc::EINVAL));
    }
}

/// Its first touch would end the process.
#[test]
fn a_thread_that_blocks_sigbus_cannot_map() {
    let _turn = crate::twin::turn();
    let made = file(BYTES);
    let map = of_file(&made, 2, READ, libc::MAP_SHARED);
    let mapped = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            // SAFETY: zeros are a set; the mask is this thread's own.
            unsafe {
                let mut set: libc::sigset_t = core::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut());
            }
            map.ours(own_engine()).map(|map| map as usize)
        });
        blocked.join().unwrap()
    });
    assert_eq!(mapped, Err(libc::EINVAL));
}
