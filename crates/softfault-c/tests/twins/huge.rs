//! Maps of huge pages, of the machine's pool.

use crate::huge_scene::{PAGE as HUGE, Pool, available};
use crate::twin::{
    ANONYMOUS, Answer, Arguments, DEFAULT, PAGE, READ, Twin, WRITE, anonymous, answer, errno,
    of_file, text, unmap as unmap_ours, writing_engine,
};
use core::ffi::c_void;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::transfer::softfault_copy_in;
use std::fs::File;
use std::os::fd::FromRawFd;

/// Of 2 MiB, and of the machine's default size, if that is the same.
fn sizes() -> Vec<i32> {
    let about = std::fs::read_to_string("/proc/meminfo").unwrap();
    let is_default = about
        .lines()
        .any(|line| line.starts_with("Hugepagesize:") && line.ends_with(" 2048 kB"));
    let sizes = [libc::MAP_HUGE_2MB, 0];
    sizes[..if is_default { 2 } else { 1 }].to_vec()
}

fn huge(length: usize, prot: i32, size: i32) -> Arguments {
    Arguments {
        length,
        prot,
        flags: ANONYMOUS | libc::MAP_HUGETLB | size,
        ..anonymous(1)
    }
}

/// Nothing is mapped there any more.
fn is_gone(addr: *mut c_void) -> bool {
    let mut seen = 0;
    // SAFETY: only asks.
    let said = unsafe { libc::mincore(addr, PAGE, &mut seen) };
    (said, errno()) == (-1, libc::ENOMEM)
}

/// The answers for a range, by its first byte and its length.
fn both(
    twin: &Twin,
    (first, length): (usize, usize),
    ours: impl FnOnce(*mut c_void, usize) -> i32,
    kernels: impl FnOnce(*mut c_void, usize) -> i32,
) -> Answer {
    let ours = answer(ours(twin.ours.wrapping_add(first).cast(), length));
    let kernels = answer(kernels(twin.kernels.wrapping_add(first).cast(), length));
    assert_eq!(ours, kernels, "{first:#x} {length:#x}: {}", text());
    ours
}

fn unmap(twin: &Twin, range: (usize, usize)) -> Answer {
    // SAFETY: nobody uses it any more.
    let ours = |addr, length| unsafe { softfault_munmap(addr, length) };
    // SAFETY: the same.
    both(twin, range, ours, |addr, length| unsafe {
        libc::munmap(addr, length)
    })
}

fn protect(twin: &Twin, range: (usize, usize), prot: i32) -> Answer {
    // SAFETY: nobody writes to pages that may not be written to.
    let ours = |addr, length| unsafe { softfault_mprotect(addr, length, prot) };
    // SAFETY: the same.
    both(twin, range, ours, |addr, length| unsafe {
        libc::mprotect(addr, length, prot)
    })
}

/// mremap(2) to another length, at the same address.
fn remap(twin: &Twin, range: (usize, usize), to: usize) -> Answer {
    let said = |addr, now| match now {
        libc::MAP_FAILED => -1,
        now => {
            assert_eq!(now, addr, "it stays there");
            0
        }
    };
    // SAFETY: nobody uses the pages that go.
    let ours = |addr, length| said(addr, unsafe { softfault_mremap(addr, length, to, 0) });
    both(twin, range, ours, |addr, length| {
        // SAFETY: the same.
        said(addr, unsafe { libc::mremap(addr, length, to, 0) })
    })
}

/// Calls that take parts of huge pages on some kernels.
fn about_parts(twin: &Twin) {
    const DROP: i32 = libc::MADV_DONTNEED;
    // SAFETY: nobody relies on the bytes.
    let ours = |addr, length| unsafe { softfault_madvise(addr, length, DROP) };
    // SAFETY: the same.
    let _ = both(twin, (0, PAGE), ours, |addr, length| unsafe {
        libc::madvise(addr, length, DROP)
    });
    let ours = |addr: *mut c_void, length| softfault_mlock(addr, length);
    // SAFETY: no byte changes.
    let _ = both(twin, (PAGE, PAGE), ours, |addr, length| unsafe {
        libc::mlock(addr, length)
    });
    let ours = |addr: *mut c_void, length| softfault_munlock(addr, length);
    // SAFETY: the same.
    let _ = both(twin, (0, HUGE), ours, |addr, length| unsafe {
        libc::munlock(addr, length)
    });
}

#[test]
fn a_map_has_whole_huge_pages() {
    let _turn = crate::twin::turn();
    let Some(_pool) = Pool::with(4) else { return };
    let before = available();
    for size in sizes() {
        for length in [1, PAGE, HUGE, HUGE + 1] {
            for prot in [WRITE, READ] {
                let twin = Twin::of(huge(length, prot, size), DEFAULT);
                let whole = length.next_multiple_of(HUGE);
                if prot == WRITE {
                    twin.write(whole - 1, 7);
                }
                let other = if prot == WRITE { READ } else { WRITE };
                for part in [(0, PAGE), (PAGE, HUGE - PAGE), (0, whole - PAGE)] {
                    assert_eq!(unmap(&twin, part), Err(libc::EINVAL));
                    assert_eq!(protect(&twin, part, other), Err(libc::EINVAL));
                }
                about_parts(&twin);
                assert_eq!(protect(&twin, (0, HUGE), other), Ok(()));
                assert_eq!(unmap(&twin, (0, whole)), Ok(()));
                assert!(is_gone(twin.ours.cast()));
                assert!(is_gone(twin.ours.wrapping_add(whole - PAGE).cast()));
            }
        }
    }
    assert_eq!(available(), before);
}

#[test]
fn a_map_of_huge_pages_gets_shorter_by_whole_ones() {
    let _turn = crate::twin::turn();
    let Some(_pool) = Pool::with(4) else { return };
    let before = available();
    for protects in [false, true] {
        let twin = Twin::of(huge(2 * HUGE, WRITE, libc::MAP_HUGE_2MB), DEFAULT);
        twin.write(0, 7);
        assert_eq!(remap(&twin, (0, 2 * HUGE), 2 * HUGE), Ok(()));
        assert_eq!(remap(&twin, (0, PAGE), 2 * PAGE), Ok(()), "the same page");
        assert_eq!(remap(&twin, (PAGE, HUGE), PAGE), Err(libc::EINVAL));
        assert_eq!(remap(&twin, (0, 2 * HUGE), 3 * HUGE), Err(libc::EINVAL));
        assert_eq!(remap(&twin, (0, HUGE), 2 * HUGE), Err(libc::EINVAL));
        assert_eq!(remap(&twin, (HUGE, HUGE), 2 * HUGE), Err(libc::EINVAL));
        if protects {
            assert_eq!(protect(&twin, (HUGE, HUGE), READ), Ok(()));
        }
        assert_eq!(remap(&twin, (0, 2 * HUGE), HUGE + PAGE), Ok(()));
        twin.same(0, HUGE / PAGE);
        assert_eq!(remap(&twin, (0, 2 * HUGE), PAGE), Ok(()));
        twin.same(0, HUGE / PAGE);
        assert_eq!(unmap(&twin, (0, PAGE)), Err(libc::EINVAL));
        assert_eq!(unmap(&twin, (0, HUGE)), Ok(()));
        assert!(is_gone(twin.ours.cast()));
    }
    // By its parts, from below.
    let twin = Twin::of(huge(2 * HUGE, WRITE, libc::MAP_HUGE_2MB), DEFAULT);
    assert_eq!(unmap(&twin, (0, HUGE)), Ok(()));
    twin.write(HUGE, 7);
    assert_eq!(unmap(&twin, (HUGE, PAGE)), Err(libc::EINVAL));
    twin.same(HUGE / PAGE, HUGE / PAGE);
    assert_eq!(unmap(&twin, (HUGE, HUGE)), Ok(()));
    assert!(is_gone(twin.ours.cast()));
    assert_eq!(available(), before);
}

/// Of several parts that are to change none does where one cannot; mprotect(2) changes those before it.
#[test]
fn a_range_with_a_part_of_a_huge_page_changes_nothing() {
    let _turn = crate::twin::turn();
    let Some(_pool) = Pool::with(4) else { return };
    let map = huge(3 * HUGE, WRITE, libc::MAP_HUGE_2MB);
    let map = map.ours(DEFAULT).unwrap();
    let protect = |at: usize, length: usize| {
        // SAFETY: nobody writes to pages that may not be written to.
        answer(unsafe { softfault_mprotect(map.wrapping_byte_add(at), length, READ) })
    };
    assert_eq!(protect(HUGE, HUGE), Ok(()), "{}", text());
    assert_eq!(protect(0, 2 * HUGE + PAGE), Err(libc::EINVAL));
    let stored = [0, HUGE, 2 * HUGE].map(|at| {
        // SAFETY: the byte is the test's.
        unsafe { softfault_copy_in(map.byte_add(at), [7_u8].as_ptr().cast(), 1) }
    });
    assert_eq!(stored, [1, -1, 1], "as before the call");
    assert_eq!(protect(0, 3 * HUGE), Ok(()), "{}", text());
    unmap_ours(map, 3 * HUGE);
}

#[test]
fn a_size_that_no_page_has_is_refused() {
    let _turn = crate::twin::turn();
    for bits in [13, 40, 62] {
        let arguments = huge(PAGE, WRITE, bits << libc::MAP_HUGE_SHIFT);
        let (ours, kernels) = (arguments.ours(DEFAULT), arguments.kernels());
        assert_eq!(ours, kernels, "{bits}: {}", text());
        assert_eq!(ours, Err(libc::EINVAL));
    }
}

/// A file of so many huge pages, of which it has none yet.
fn huge_file(pages: usize) -> File {
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: a name; the answer is a descriptor of its own.
    let file = unsafe {
        let fd = libc::memfd_create(c"huge".as_ptr(), flags);
        assert!(fd >= 0, "{}", errno());
        File::from_raw_fd(fd)
    };
    file.set_len((pages * HUGE) as u64).unwrap();
    file
}

fn shared(file: &File, length: usize, prot: i32) -> Arguments {
    Arguments {
        length,
        ..of_file(file, 1, prot, libc::MAP_SHARED)
    }
}

#[test]
fn a_map_of_a_file_of_huge_pages_has_whole_ones() {
    let _turn = crate::twin::turn();
    let Some(_pool) = Pool::with(4) else { return };
    let before = available();
    // An engine that would write to it finds that it cannot. If it reads it, it has a window with small pages.
    let cases = [(DEFAULT, &[WRITE, READ][..]), (writing_engine(), &[WRITE])];
    for (engine, prots) in cases {
        for length in [1, PAGE, HUGE, HUGE + 1] {
            let file = huge_file(2);
            for &prot in prots {
                let twin = Twin::of(shared(&file, length, prot), engine);
                let whole = length.next_multiple_of(HUGE);
                if prot == WRITE {
                    // SAFETY: within the map.
                    unsafe { twin.ours.add(whole - 1).write_volatile(7) };
                }
                twin.same(0, whole / PAGE);
                // SAFETY: as above.
                let last = unsafe { twin.kernels.add(whole - 1).read_volatile() };
                assert_eq!(last, 7);
                for part in [(0, PAGE), (PAGE, HUGE - PAGE), (0, whole - PAGE)] {
                    assert_eq!(unmap(&twin, part), Err(libc::EINVAL));
                }
                if prot == WRITE {
                    assert_eq!(protect(&twin, (0, PAGE), READ), Err(libc::EINVAL));
                    assert_eq!(protect(&twin, (0, whole), READ), Ok(()));
                }
                assert_eq!(unmap(&twin, (0, whole)), Ok(()));
                assert!(is_gone(twin.ours.wrapping_add(whole - PAGE).cast()));
            }
        }
    }
    assert_eq!(available(), before, "nothing is left");
}

/// A touch for which the pool has no page is a SIGBUS: a map of which the pages are there, or reserved, has none.
#[test]
fn a_file_of_huge_pages_that_are_not_to_be_had_is_not_mapped() {
    let _turn = crate::twin::turn();
    let Some(pool) = Pool::with(2) else { return };
    let file = huge_file(1);
    let hog = pool.emptied();
    for engine in [DEFAULT, writing_engine()] {
        let arguments = shared(&file, HUGE, WRITE);
        let (ours, kernels) = (arguments.ours(engine), arguments.kernels());
        assert_eq!((ours, kernels), (Err(libc::ENOMEM), Err(libc::ENOMEM)));
    }
    drop(hog);
}
