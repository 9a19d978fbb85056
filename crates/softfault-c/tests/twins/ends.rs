//! Files that end, or are closed.

use crate::twin::{
    Arguments, DEFAULT, PAGE, READ, Twin, WRITE, answer, file, of_file, own_engine, text, unmap,
};
use softfault_c::fault_in::softfault_fault_in;
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
                    let said = answer(softfault_fault_in(ours, PAGE));
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
        // SAFETY: the child does nothing but touch, and end.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                map.cast::<u8>().add(2 * PAGE).read_volatile();
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
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
