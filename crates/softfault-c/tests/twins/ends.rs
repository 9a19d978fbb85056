//! Files that end, or are closed.

use crate::twin::{
    Arguments, DEFAULT, PAGE, READ, Twin, WRITE, answer, errno, file, is_in_read, of_file,
    own_engine, text, unmap,
};
use core::sync::atomic::{AtomicI32, Ordering::SeqCst};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::mremap::softfault_mremap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_c::transfer::{
    softfault_copy_in, softfault_copy_out, softfault_read_from, softfault_write_to,
};
use std::os::fd::AsRawFd;

/// The kernel's answer when a page is brought in.
fn populate(twin: &Twin, page: usize) -> Result<(), i32> {
    let (_, kernels) = twin.at(page);
    // SAFETY: changes no byte.
    answer(unsafe { libc::madvise(kernels, PAGE, libc::MADV_POPULATE_READ) })
}

#[test]
fn a_map_reaches_past_the_end_of_its_file() {
    let _turn = crate::twin::turn();
    for bytes in [0, 1, PAGE, 2 * PAGE + 77] {
        let made = file(bytes);
        for engine in [DEFAULT, own_engine()] {
            for (prot, flags) in [
                (READ, libc::MAP_SHARED),
                (READ, libc::MAP_PRIVATE),
                (WRITE, libc::MAP_PRIVATE),
                (WRITE, libc::MAP_SHARED),
            ] {
                let twin = Twin::of(of_file(&made, 6, prot, flags), engine);
                for page in 0..6 {
                    let (ours, _) = twin.at(page);
                    let said = match answer(softfault_fault_in(ours, PAGE)) {
                        // Of a map that the kernel serves, as behind the end of one below.
                        Err(libc::EIO) => Err(libc::EFAULT),
                        said => said,
                    };
                    assert_eq!(said, populate(&twin, page), "{bytes} {prot} {flags} {page}");
                    if said.is_ok() {
                        twin.same(page, 1);
                    }
                }
                assert_eq!(twin.unmap(0, 6), (Ok(()), Ok(())), "{}", text());
            }
        }
    }
}

#[test]
fn a_touch_past_the_end_raises_sigbus() {
    let _turn = crate::twin::turn();
    let made = file(10);
    for (prot, flags) in [(READ, libc::MAP_SHARED), (WRITE, libc::MAP_PRIVATE)] {
        let map = of_file(&made, 4, prot, flags).ours(own_engine()).unwrap();
        let status = crate::child::forked(|| {
            // SAFETY: within the map: a touch that ends the child.
            unsafe { map.cast::<u8>().add(2 * PAGE).read_volatile() };
            0
        });
        assert!(libc::WIFSIGNALED(status), "{status:x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
    }
}

#[test]
fn a_map_stays_when_its_file_is_closed() {
    let _turn = crate::twin::turn();
    for engine in [DEFAULT, own_engine()] {
        let made = file(64 * PAGE);
        let arguments = of_file(&made, 64, READ, libc::MAP_SHARED);
        let twin = Twin::of(arguments, engine);
        drop(made);
        twin.same(0, 64);
        assert_eq!(twin.unmap(0, 64), (Ok(()), Ok(())));
    }
}

#[test]
fn written_bytes_are_in_the_file() {
    let _turn = crate::twin::turn();
    let made = file(8 * PAGE);
    let arguments = Arguments {
        ..of_file(&made, 8, WRITE, libc::MAP_SHARED)
    };
    let map = arguments.ours(own_engine()).unwrap();
    // SAFETY: within the map, which nobody uses afterwards.
    unsafe {
        map.cast::<u8>().add(5 * PAGE).write_volatile(123);
        let said = answer(softfault_c::msync::softfault_msync(
            map,
            8 * PAGE,
            libc::MS_SYNC,
        ));
        assert_eq!(said, Ok(()), "{}", text());
    }
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&made, &mut byte, 5 * PAGE as u64).unwrap();
    assert_eq!(byte, [123]);
    unmap(map, 8 * PAGE);
    assert!(made.as_raw_fd() >= 0);
}

/// Two maps of a file show one window: what is unmapped of either is written, though the other still shows it.
#[test]
fn written_bytes_are_in_the_file_when_one_of_two_maps_goes() {
    let _turn = crate::twin::turn();
    let made = crate::twin::aged_file(8 * PAGE);
    let engine = crate::twin::writing_engine();
    let arguments = of_file(&made, 8, WRITE, libc::MAP_SHARED);
    let first = arguments.ours(engine).unwrap();
    let second = arguments.ours(engine).unwrap();
    assert_eq!(first, second, "one window");
    let has = |page: usize| {
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&made, &mut byte, (page * PAGE) as u64).unwrap();
        byte[0]
    };
    let at = |page: usize| first.wrapping_byte_add(page * PAGE);
    // SAFETY: within the maps.
    let write = |page: usize| unsafe { at(page).cast::<u8>().write_volatile(123) };
    write(1);
    unmap(at(0), 2 * PAGE);
    assert_eq!(has(1), 123);
    // The rest of that map, with a page that stays locked.
    write(5);
    assert_eq!(
        softfault_c::mlock::softfault_mlock(at(5), PAGE),
        0,
        "{}",
        text()
    );
    unmap(at(2), 6 * PAGE);
    assert_eq!(has(5), 123);
    unmap(at(0), 8 * PAGE);
}

/// The page in which a map of some bytes ends can be touched behind them, and every call reaches as far as a touch.
#[test]
fn the_rest_of_the_last_page_is_the_maps() {
    let _turn = crate::twin::turn();
    let made = file(5000);
    for engine in [DEFAULT, own_engine()] {
        for (fd, flags) in [
            (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
            (made.as_raw_fd(), libc::MAP_PRIVATE),
            (made.as_raw_fd(), libc::MAP_SHARED),
        ] {
            let arguments = Arguments {
                length: 5000,
                prot: WRITE,
                flags,
                fd,
                offset: 0,
            };
            let map = arguments.ours(engine).unwrap();
            let tail = map.wrapping_byte_add(8000);
            let mut read = [0_u8; 3];
            // SAFETY: within the last page of the map, which is this test's.
            unsafe {
                assert_eq!(
                    softfault_copy_in(tail, b"abc".as_ptr().cast(), 3),
                    3,
                    "{flags}"
                );
                assert_eq!(tail.cast::<[u8; 3]>().read(), *b"abc");
                let copied = softfault_copy_out(tail, read.as_mut_ptr().cast(), 3);
                assert_eq!(copied, 3, "{flags}: {}", text());
                assert_eq!(read, *b"abc");
            }
            pinned_for_a_call(tail);
            if fd < 0 {
                let flags = libc::MREMAP_MAYMOVE;
                // SAFETY: the pages that go are this test's.
                unsafe {
                    let map = softfault_mremap(map, 8192, 13_000, flags);
                    assert_ne!(map, libc::MAP_FAILED, "{}", text());
                    let tail = map.byte_add(16_000);
                    assert_eq!(softfault_copy_in(tail, b"abc".as_ptr().cast(), 3), 3);
                    unmap(map, 16_384);
                }
            } else {
                unmap(map, 8192);
            }
        }
        // A window ends with its file; the rest of the page is kept with it.
        let map = of_file(&made, 2, READ, libc::MAP_SHARED).ours(engine);
        let map = map.unwrap();
        pinned_for_a_call(map.wrapping_byte_add(6000));
        unmap(map, 2 * PAGE);
    }
}

/// A pin has a system call read bytes.
fn pinned_for_a_call(addr: *mut core::ffi::c_void) {
    let pipe = crate::twin::pipe();
    // SAFETY: within a map.
    unsafe {
        assert_eq!(softfault_pin(addr, 10), 0, "{}", text());
        assert_eq!(libc::write(pipe[1], addr, 10), 10);
        assert_eq!(softfault_unpin(addr, 10), 0, "{}", text());
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}

/// A window ends with its file, and its last page is all of it a map's.
#[test]
fn a_map_grows_to_the_last_page_of_its_file() {
    let _turn = crate::twin::turn();
    const WHOLE: usize = 512;
    for tail in [1, 100, PAGE] {
        let made = file(WHOLE * PAGE + tail);
        for engine in [DEFAULT, own_engine()] {
            for pages in [1, WHOLE] {
                let arguments = of_file(&made, pages, READ, libc::MAP_SHARED);
                let twin = Twin::of(arguments, engine);
                twin.same(0, pages);
                let twin = crate::grow::grow(&twin, &(0..pages), WHOLE + 1);
                twin.same(0, WHOLE + 1);
                pinned_for_a_call(twin.at(WHOLE).0.wrapping_byte_add(PAGE - 10));
                let twin = crate::grow::grow(&twin, &(0..WHOLE + 1), WHOLE);
                let twin = crate::grow::grow(&twin, &(0..WHOLE), WHOLE + 1);
                twin.same(0, WHOLE + 1);
                let gone = twin.unmap(0, WHOLE + 1);
                assert_eq!(gone, (Ok(()), Ok(())), "{}", text());
            }
        }
        let map = of_file(&made, 1, READ, libc::MAP_SHARED).ours(own_engine());
        // SAFETY: it fails.
        let said = unsafe { softfault_mremap(map.unwrap(), PAGE, (WHOLE + 2) * PAGE, 0) };
        assert_eq!((said, errno()), (libc::MAP_FAILED, libc::EINVAL));
        unmap(map.unwrap(), PAGE);
    }
}

/// A part that was copied before the end of a file counts, as it does for the kernel's write(2) and read(2).
#[test]
fn bytes_before_an_error_count() {
    let _turn = crate::twin::turn();
    const PAGES: usize = 600;
    let sink = file(0);
    for bytes in [PAGE, 256 * PAGE, 300 * PAGE + 77] {
        for (engine, prot, flags) in [
            (own_engine(), READ, libc::MAP_PRIVATE),
            (own_engine(), READ, libc::MAP_SHARED),
            (own_engine(), WRITE, libc::MAP_PRIVATE),
            (own_engine(), WRITE, libc::MAP_SHARED),
            (DEFAULT, READ, libc::MAP_PRIVATE),
            (DEFAULT, WRITE, libc::MAP_PRIVATE),
            (crate::twin::writing_engine(), WRITE, libc::MAP_SHARED),
        ] {
            // Bytes that are written behind its end may stay in its last page.
            let made = file(bytes);
            let twin = Twin::of(of_file(&made, PAGES, prot, flags), engine);
            for start in [0, 3 * PAGE - 5, bytes.next_multiple_of(PAGE)] {
                let at = |map: *mut u8| map.wrapping_add(start).cast();
                let len = PAGES * PAGE - start;
                let mut copy = vec![0_u8; len];
                // A map that the kernel serves has EIO behind the end: it does not tell that from a failed read.
                let done = |count: isize| match count {
                    -1 if errno() == libc::EIO => Err(libc::EFAULT),
                    -1 => Err(errno()),
                    count => Ok(count),
                };
                // SAFETY: so many bytes, in the buffer and in the map.
                let ours = done(unsafe {
                    softfault_copy_out(at(twin.ours), copy.as_mut_ptr().cast(), len)
                });
                // SAFETY: the kernel looks where it may read.
                let kernel =
                    done(unsafe { libc::pwrite(sink.as_raw_fd(), at(twin.kernels), len, 0) });
                let case = format!("{bytes} {prot} {flags} {start}: {}", text());
                assert_eq!(ours, kernel, "{case}");
                if let Ok(count) = ours {
                    let mut same = vec![0_u8; count as usize];
                    std::os::unix::fs::FileExt::read_exact_at(&sink, &mut same, 0).unwrap();
                    assert!(copy[..count as usize] == same, "{case}");
                }
                let written = file(0);
                let ours = done(softfault_write_to(written.as_raw_fd(), at(twin.ours), len));
                assert_eq!(ours, kernel, "{case}: {}", text());
                if let Ok(count) = ours {
                    let mut same = vec![0_u8; count as usize];
                    std::os::unix::fs::FileExt::read_exact_at(&written, &mut same, 0).unwrap();
                    assert!(copy[..count as usize] == same, "{case}");
                }
                if prot == READ {
                    continue;
                }
                let bytes = vec![start as u8 + 1; len];
                // SAFETY: so many bytes, in the buffer and in the map.
                let ours =
                    done(unsafe { softfault_copy_in(at(twin.ours), bytes.as_ptr().cast(), len) });
                let from = file(0);
                std::os::unix::fs::FileExt::write_all_at(&from, &bytes, 0).unwrap();
                // SAFETY: the kernel looks where it may write.
                let kernel =
                    done(unsafe { libc::pread(from.as_raw_fd(), at(twin.kernels), len, 0) });
                assert_eq!(ours, kernel, "{case}: {}", text());
                // SAFETY: nobody else uses the map.
                let ours = done(unsafe {
                    std::io::Seek::rewind(&mut (&from)).unwrap();
                    softfault_read_from(from.as_raw_fd(), at(twin.ours), len)
                });
                assert_eq!(ours, kernel, "{case}: {}", text());
            }
            assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())), "{}", text());
        }
    }
}

/// Failed before: a step of the call failed as a whole, and nothing was written.
#[test]
fn bytes_before_the_new_end_of_a_file_are_written() {
    let _turn = crate::twin::turn();
    for (engine, flags) in [
        (own_engine(), libc::MAP_SHARED),
        (own_engine(), libc::MAP_PRIVATE),
        (DEFAULT, libc::MAP_SHARED),
        (DEFAULT, libc::MAP_PRIVATE),
    ] {
        let made = crate::twin::aged_file(16 * PAGE);
        let twin = Twin::of(of_file(&made, 16, READ, flags), engine);
        made.set_len(4 * PAGE as u64).unwrap();
        for (start, written) in [(0, 4 * PAGE), (PAGE + 5, 3 * PAGE - 5)] {
            let (ours, kernels) = (file(0), file(0));
            let len = 16 * PAGE - start;
            let at = |map: *mut u8| map.wrapping_add(start).cast();
            // SAFETY: the kernel looks where it may read.
            let of_kernel = unsafe { libc::pwrite(kernels.as_raw_fd(), at(twin.kernels), len, 0) };
            assert_eq!(of_kernel, written as isize);
            let of_ours = softfault_write_to(ours.as_raw_fd(), at(twin.ours), len);
            assert_eq!(of_ours, of_kernel, "{flags} {start}: {}", text());
            let mut both = [vec![0_u8; written], vec![0_u8; written]];
            for (file, bytes) in [ours, kernels].iter().zip(&mut both) {
                std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0).unwrap();
            }
            assert!(both[0] == both[1], "{flags} {start}");
        }
        assert_eq!(twin.unmap(0, 16), (Ok(()), Ok(())), "{}", text());
    }
}

/// Failed before: the bytes that had been read from the pipe were counted, and nothing was stored.
#[test]
fn bytes_that_the_map_cannot_take_do_not_count() {
    let _turn = crate::twin::turn();
    let made = file(4 * PAGE);
    let map = of_file(&made, 4, WRITE, libc::MAP_SHARED)
        .ours(DEFAULT)
        .unwrap() as usize;
    let (from, mut to) = std::io::pipe().unwrap();
    let reader = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            // SAFETY: only asks; nobody else uses the map.
            unsafe {
                reader.store(libc::gettid(), SeqCst);
                let read = softfault_read_from(from.as_raw_fd(), map as *mut _, 4 * PAGE);
                (read, if read < 0 { errno() } else { 0 })
            }
        });
        while reader.load(SeqCst) == 0 || !is_in_read(reader.load(SeqCst)) {
            std::thread::yield_now();
        }
        made.set_len(0).unwrap();
        std::io::Write::write_all(&mut to, b"a byte").unwrap();
        drop(to);
        assert_eq!(read.join().unwrap(), (-1, libc::EIO), "{}", text());
    });
    unmap(map as *mut _, 4 * PAGE);
}

/// Failed before: EFAULT, by which madvise(2) tells a failed read, as if it were no error of the disk.
#[test]
fn a_page_that_the_kernel_cannot_bring_in_is_an_error_of_a_read() {
    let _turn = crate::twin::turn();
    if !softfault::Advice::PopulateRead.is_supported() {
        softfault_skip::skipped("kernel", "the kernel has no MADV_POPULATE_READ");
        return;
    }
    let made = file(4 * PAGE);
    let map = of_file(&made, 4, WRITE, libc::MAP_SHARED)
        .ours(DEFAULT)
        .unwrap();
    made.set_len(PAGE as u64).unwrap();
    assert_eq!(answer(softfault_fault_in(map, PAGE)), Ok(()), "{}", text());
    let all = answer(softfault_fault_in(map, 4 * PAGE));
    assert_eq!(all, Err(libc::EIO), "{}", text());
    unmap(map, 4 * PAGE);
}

/// Failed before: calls ended where the length did that was asked for, and a touch did not.
#[test]
fn calls_reach_to_the_end_of_the_last_page() {
    let _turn = crate::twin::turn();
    let made = file(64 * PAGE);
    for (prot, flags) in [
        (READ, libc::MAP_SHARED),
        (READ, libc::MAP_PRIVATE),
        (WRITE, libc::MAP_SHARED),
    ] {
        let arguments = Arguments {
            length: PAGE + 904,
            ..of_file(&made, 2, prot, flags)
        };
        let map = arguments.ours(own_engine()).unwrap();
        let mut bytes = vec![0_u8; 2 * PAGE];
        // SAFETY: room for as many.
        let copied = unsafe { softfault_copy_out(map, bytes.as_mut_ptr().cast(), bytes.len()) };
        assert_eq!(copied, 2 * PAGE as isize, "{prot} {flags}: {}", text());
        // SAFETY: nobody uses it meanwhile.
        let longer =
            unsafe { softfault_mremap(map, PAGE + 904, 3 * PAGE + 1, libc::MREMAP_MAYMOVE) };
        assert_ne!(longer, libc::MAP_FAILED, "{prot} {flags}: {}", text());
        let from = longer.wrapping_byte_add(3 * PAGE);
        // SAFETY: as above.
        let copied = unsafe { softfault_copy_out(from, bytes.as_mut_ptr().cast(), PAGE) };
        assert_eq!(copied, PAGE as isize, "{prot} {flags}: {}", text());
        unmap(longer, 4 * PAGE);
    }
}
