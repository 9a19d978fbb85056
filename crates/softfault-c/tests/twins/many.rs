//! Many ranges, and bytes copied, with an answer each.

use crate::twin::{
    DEFAULT, PAGE, READ, WRITE, aged_file, anonymous, answer, content, errno, file, of_file,
    own_engine, pipe, text, unmap,
};
use core::ffi::c_void;
use libc::{iovec, timespec};
use softfault_c::fault_in::{softfault_fault_in, softfault_fault_in_many};
use softfault_c::madvise::softfault_prefetch;
use softfault_c::munmap::softfault_munmap;
use softfault_c::transfer::{
    softfault_copy_in, softfault_copy_out, softfault_read_from, softfault_write_to,
};
use std::fs::File;
use std::io::Seek;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGES: usize = 64;

#[test]
fn each_range_has_its_answer() {
    let _turn = crate::twin::turn();
    let (one, two) = (file(PAGES * PAGE), file(PAGES * PAGE));
    let map = |file: &File| {
        of_file(file, PAGES + 4, READ, libc::MAP_PRIVATE)
            .ours(own_engine())
            .unwrap()
    };
    let maps = [map(&one), map(&two)];
    let range = |map: usize, offset: usize, len: usize| iovec {
        iov_base: maps[map].cast::<u8>().wrapping_add(offset).cast(),
        iov_len: len,
    };
    let ranges = [
        range(0, 5, 10),
        range(1, 3 * PAGE, PAGE),
        range(0, (PAGES + 1) * PAGE, 1),
        range(0, 7 * PAGE, 0),
        range(0, 0, usize::MAX),
        iovec {
            iov_base: core::ptr::without_provenance_mut(PAGE),
            iov_len: 1,
        },
        range(1, PAGES * PAGE - 1, 2),
    ];
    let expected = [
        0,
        0,
        libc::EFAULT,
        0,
        libc::EINVAL,
        libc::ENOMEM,
        libc::EFAULT,
    ];
    let mut results = [-1; 7];
    // SAFETY: arrays of so many.
    let missing = unsafe {
        softfault_fault_in_many(ranges.as_ptr(), 7, core::ptr::null(), results.as_mut_ptr())
    };
    assert_eq!((missing, results), (4, expected), "{}", text());
    // Without results, the count is the answer.
    // SAFETY: as many.
    let missing = unsafe {
        softfault_fault_in_many(ranges.as_ptr(), 2, core::ptr::null(), core::ptr::null_mut())
    };
    assert_eq!(missing, 0);
    for map in maps {
        unmap(map, (PAGES + 4) * PAGE);
    }
}

/// Maps of every kind and of two engines, some of which the kernel serves, in one call: ranges that are of two maps, and errors
/// in the midst of them.
#[test]
fn maps_of_all_kinds_come_by_one_call() {
    let _turn = crate::twin::turn();
    let made = aged_file(PAGES * PAGE);
    let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
    let mut second = of_file(&made, PAGES / 2, READ, shared);
    second.offset = (PAGES / 2 * PAGE) as i64;
    let all = [
        (of_file(&made, PAGES / 2, READ, shared), own_engine()),
        (second, own_engine()),
        (of_file(&made, PAGES + 4, READ, private), own_engine()),
        (of_file(&made, PAGES, WRITE, private), DEFAULT),
        (of_file(&made, PAGES, WRITE, shared), own_engine()),
        (anonymous(PAGES), own_engine()),
        (anonymous(PAGES), DEFAULT),
    ];
    let maps = all.map(|(arguments, engine)| arguments.ours(engine).unwrap());
    let range = |map: usize, page: usize, len: usize| iovec {
        iov_base: maps[map].cast::<u8>().wrapping_add(page * PAGE).cast(),
        iov_len: len,
    };
    // Every map in turn, and the last page of the first with the first of the second, which lies behind it.
    let mut asked = vec![(range(0, PAGES / 2 - 1, 2 * PAGE), 0)];
    for page in 0..PAGES / 2 {
        asked.extend((0..maps.len()).map(|map| (range(map, page, 1 + page * 60), 0)));
    }
    asked.insert(7, (range(2, PAGES - 1, 2 * PAGE), libc::EFAULT));
    asked.insert(3, (range(5, 0, usize::MAX), libc::EINVAL));
    asked.push((range(2, PAGES + 2, 1), libc::EFAULT));
    let ranges: Vec<_> = asked.iter().map(|(range, _)| *range).collect();
    let expected: Vec<_> = asked.iter().map(|&(_, errno)| errno).collect();
    let mut results = vec![-1; ranges.len()];
    let null = core::ptr::null();
    // SAFETY: arrays of so many.
    let missing = unsafe {
        softfault_fault_in_many(ranges.as_ptr(), ranges.len(), null, results.as_mut_ptr())
    };
    assert_eq!((missing, &results), (3, &expected), "{}", text());
    let bytes = content(PAGES * PAGE);
    let at = |map: usize| maps[map].cast::<u8>();
    for page in (0..PAGES / 2).map(|page| page * PAGE) {
        // SAFETY: within the maps.
        let found = [0, 1, 2, 3, 4, 5, 6].map(|map| unsafe { at(map).add(page).read_volatile() });
        let (low, high) = (bytes[page], bytes[page + PAGES / 2 * PAGE]);
        assert_eq!(found, [low, high, low, low, low, 0, 0]);
    }
    for ((arguments, _), map) in all.iter().zip(maps) {
        unmap(map, arguments.length);
    }
}

#[test]
fn a_deadline_that_is_over_reads_nothing() {
    let _turn = crate::twin::turn();
    let made = file(PAGES * PAGE);
    let map = of_file(&made, PAGES, READ, libc::MAP_SHARED)
        .ours(own_engine())
        .unwrap();
    let range = iovec {
        iov_base: map,
        iov_len: PAGES * PAGE,
    };
    let over = timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    let mut result = 0;
    // SAFETY: one range.
    let missing = unsafe { softfault_fault_in_many(&range, 1, &over, &mut result) };
    assert_eq!((missing, result), (1, libc::ETIMEDOUT), "{}", text());
    for wrong in [(0, 1_000_000_000), (0, -1), (-1, 0)] {
        let wrong = timespec {
            tv_sec: wrong.0,
            tv_nsec: wrong.1,
        };
        // SAFETY: one range.
        let said = unsafe { softfault_fault_in_many(&range, 1, &wrong, &mut result) };
        assert_eq!((said, errno()), (-1, libc::EINVAL));
    }
    // SAFETY: nothing is looked at.
    let said = unsafe {
        softfault_fault_in_many(
            core::ptr::null(),
            1,
            core::ptr::null(),
            core::ptr::null_mut(),
        )
    };
    assert_eq!((said, errno()), (-1, libc::EFAULT));
    unmap(map, PAGES * PAGE);
}

#[test]
fn bytes_go_in_and_out() {
    let _turn = crate::twin::turn();
    let bytes = PAGES * PAGE - 1000;
    let made = file(bytes);
    let map = of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE)
        .ours(own_engine())
        .unwrap();
    let all = content(bytes);
    let mut copy = vec![9; PAGES * PAGE];
    // SAFETY: buffers of so many bytes, here and below.
    let copied = unsafe { softfault_copy_out(map, copy.as_mut_ptr().cast(), PAGES * PAGE) };
    assert_eq!(copied, (PAGES * PAGE) as isize, "{}", text());
    assert!(copy[..bytes] == all[..] && copy[bytes..].iter().all(|&byte| byte == 0));
    let into = map.cast::<u8>().wrapping_add(4000).cast::<c_void>();
    // SAFETY: within the map.
    let copied = unsafe { softfault_copy_in(into, all.as_ptr().cast(), 5000) };
    assert_eq!(copied, 5000, "{}", text());
    // SAFETY: within the map.
    assert!(unsafe { core::slice::from_raw_parts(into.cast::<u8>(), 5000) } == &all[..5000]);
    let to = file(0);
    assert_eq!(
        softfault_write_to(to.as_raw_fd(), into, 5000),
        5000,
        "{}",
        text()
    );
    let mut wrote = vec![0; 5000];
    to.read_exact_at(&mut wrote, 0).unwrap();
    assert!(wrote == all[..5000]);
    (&to).rewind().unwrap();
    // Fewer, where the descriptor has ended.
    // SAFETY: within the map.
    let read = unsafe { softfault_read_from(to.as_raw_fd(), map, 3 * PAGE) };
    assert_eq!(read, 5000);
    // SAFETY: within the map.
    assert!(unsafe { core::slice::from_raw_parts(map.cast::<u8>(), 5000) } == &all[..5000]);
    let null = core::ptr::null_mut();
    // SAFETY: they fail.
    unsafe {
        assert_eq!(
            (softfault_copy_out(map, null, 1), errno()),
            (-1, libc::EFAULT)
        );
        assert_eq!(
            (softfault_copy_in(map, null, 1), errno()),
            (-1, libc::EFAULT)
        );
        assert_eq!(
            (softfault_read_from(-1, map, 1), errno()),
            (-1, libc::EBADF)
        );
        assert_eq!(
            (softfault_write_to(987_654, map, 1), errno()),
            (-1, libc::EBADF)
        );
        let unmapped = core::ptr::without_provenance_mut(PAGE);
        let byte = copy.as_mut_ptr().cast();
        assert_eq!(
            (softfault_copy_out(unmapped, byte, 1), errno()),
            (-1, libc::ENOMEM)
        );
        assert_eq!(softfault_copy_out(unmapped, byte, 0), 0);
        assert_eq!(answer(softfault_prefetch(unmapped, 1)), Err(libc::ENOMEM));
        assert_eq!(answer(softfault_prefetch(map, PAGES * PAGE)), Ok(()));
        assert_eq!(softfault_munmap(map, PAGES * PAGE), 0);
    }
    let readable = of_file(&made, PAGES, READ, libc::MAP_SHARED)
        .ours(own_engine())
        .unwrap();
    // SAFETY: they fail.
    unsafe {
        let said = softfault_copy_in(readable, all.as_ptr().cast(), 1);
        assert_eq!((said, errno()), (-1, libc::EACCES));
        let said = softfault_read_from(to.as_raw_fd(), readable, 1);
        assert_eq!((said, errno()), (-1, libc::EACCES));
        assert_eq!(softfault_munmap(readable, PAGES * PAGE), 0);
    }
}

#[test]
fn bytes_written_before_an_error_count() {
    let _turn = crate::twin::turn();
    let map = anonymous(PAGES).ours(own_engine()).unwrap();
    let ends = pipe();
    // As much as a pipe holds, and then EAGAIN.
    let wrote = softfault_write_to(ends[1], map, PAGES * PAGE);
    assert_eq!(wrote, 16 * PAGE as isize);
    let wrote = softfault_write_to(ends[1], map, PAGES * PAGE);
    assert_eq!((wrote, errno()), (-1, libc::EAGAIN));
    assert_eq!(answer(softfault_fault_in(map, PAGES * PAGE)), Ok(()));
    for fd in ends {
        // SAFETY: ours.
        unsafe { libc::close(fd) };
    }
    unmap(map, PAGES * PAGE);
}
