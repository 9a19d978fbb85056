//! Pages that stay: `lock` and `unlock`.

mod files;
mod twin;

use files::{byte_at, made_file};
use softfault::{Advice, Engine, MIN_MEMORY, Swap, UncheckedAdvice};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use twin::{MIB, PAGE, engines};

fn engine() -> Engine {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY)
        .swap(swap);
    builder.build().unwrap()
}

#[test]
fn locked_pages_stay_and_the_others_take_turns() {
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        let small = MIN_MEMORY / 4;
        let mut kept = engine.map_anon(small);
        let mut other = engine.map_anon(3 * MIN_MEMORY);
        kept.write(0, &vec![1; small]);
        // Twice is once.
        assert!(kept.lock(true) && kept.lock(true));
        let out = |engine: &twin::AnyEngine| engine.stats().swap.unwrap();
        for round in 0..3 {
            other.write(0, &vec![round; 3 * MIN_MEMORY]);
            // None of it comes back from anywhere.
            let (faults, swap) = (engine.stats().faults, out(&engine));
            let mut bytes = vec![0; small];
            kept.read(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 1));
            kept.write(0, &bytes);
            assert_eq!(engine.stats().faults, faults);
            assert_eq!(out(&engine).pages_in, swap.pages_in);
        }
        assert!(kept.lock(false));
        other.write(0, &vec![9; 3 * MIN_MEMORY]);
        let swap = out(&engine);
        kept.read(0, &mut vec![0; small]);
        assert!(out(&engine).pages_in > swap.pages_in, "{swap:?}");
        drop((kept, other));
        engine.check_empty(before);
    }
}

#[test]
fn half_of_the_budget_can_be_locked_and_is_given_back() {
    let engine = engine();
    let large = engine.map_anon(MIN_MEMORY).unwrap();
    for _ in 0..3 {
        let error = large.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        // Pages that fitted were unlocked again.
        let maps: Vec<_> = (0..3)
            .map(|_| engine.map_anon(MIN_MEMORY / 8).unwrap())
            .collect();
        maps.iter().for_each(|map| map.lock().unwrap());
        maps[0].unlock().unwrap();
        let again = engine.map_anon(MIN_MEMORY / 8).unwrap();
        again.lock().unwrap();
        // Dropped as they are.
    }
}

#[test]
fn threads_lock_and_unlock_one_map() {
    let engine = engine();
    let map = engine.map_anon(MIN_MEMORY / 4).unwrap();
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        map.lock().unwrap();
                        map.unlock().unwrap();
                    }
                });
            }
        });
        map.unlock().unwrap();
        // None is left that stays: as much as ever can be locked.
        let others: Vec<_> = (0..3)
            .map(|_| engine.map_anon(MIN_MEMORY / 8).unwrap())
            .collect();
        others.iter().for_each(|map| map.lock().unwrap());
    }
}

#[test]
fn a_map_that_is_read_only_is_locked_and_written_to_later() {
    let engine = engine();
    let file = made_file("locked", MIB);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map_copy(&file) }.unwrap();
    let map = map.make_read_only().unwrap();
    map.lock().unwrap();
    let mut other = engine.map_anon(3 * MIN_MEMORY).unwrap();
    other.fill(1);
    assert_eq!(map.residency(..).unwrap().mapped, 256);
    let mut map = map.make_mut().unwrap();
    other.fill(2);
    // The kernel may write to all of it.
    std::io::Seek::rewind(&mut &file).unwrap();
    // SAFETY: the bytes are the map's.
    let count = unsafe { libc::read(file.as_raw_fd(), map.as_mut_ptr().cast(), MIB) };
    assert_eq!(count, MIB as isize);
    assert!((0..MIB).all(|at| map[at] == byte_at(at)));
    map.unlock().unwrap();
    other.fill(3);
    assert!(map.resident_bytes() < MIB);
    assert!((0..MIB).all(|at| map[at] == byte_at(at)));
}

#[test]
fn the_kernel_may_write_to_locked_pages_beside_evictions() {
    let engine = engine();
    let source = made_file("source", 16 * PAGE);
    // Two windows side by side, and one around.
    let mut around = engine.map_anon(2 * MIN_MEMORY).unwrap();
    around.fill(1);
    let mut locked = engine.map_anon(16 * PAGE).unwrap();
    std::thread::scope(|scope| {
        let pressing = scope.spawn(|| (0..6).for_each(|round| around.fill(round)));
        // Once at least, however late this thread comes to it.
        loop {
            locked.lock().unwrap();
            std::io::Seek::rewind(&mut &source).unwrap();
            // SAFETY: the bytes are the map's.
            let count = unsafe {
                let target = locked.as_mut_ptr();
                libc::read(source.as_raw_fd(), target.cast(), 16 * PAGE)
            };
            assert_eq!(
                count,
                16 * PAGE as isize,
                "{}",
                std::io::Error::last_os_error()
            );
            locked.unlock().unwrap();
            if pressing.is_finished() {
                break;
            }
        }
    });
    assert!((0..16 * PAGE).all(|at| locked[at] == byte_at(at)));
}

/// Protects memory as reclaim does that goes over pages which stay: the kernel asks for
/// no particular descriptor of the process.
fn protect(range: &[u8]) {
    #[repr(C)]
    struct Call(u64, u64, u64);
    const USER_MODE_ONLY: libc::c_int = 1;
    const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
    const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xC018_AA06;
    // SAFETY: a descriptor of this function's own; a write to protected pages ends in
    // the engine's handler.
    unsafe {
        let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
        let fd = libc::syscall(libc::SYS_userfaultfd, flags) as libc::c_int;
        assert!(fd >= 0);
        let mut api = Call(0xAA, 0, 0);
        assert_eq!(libc::ioctl(fd, UFFDIO_API as _, &raw mut api), 0);
        let mut pages = Call(range.as_ptr() as u64, range.len() as u64, 1);
        assert_eq!(libc::ioctl(fd, UFFDIO_WRITEPROTECT as _, &raw mut pages), 0);
        libc::close(fd);
    }
}

#[test]
fn locked_pages_are_unprotected() {
    let engine = engine();
    let source = made_file("protected", 16 * PAGE);
    let mut map = engine.map_anon(16 * PAGE).unwrap();
    map.fill(1);
    protect(&map);
    let read = |map: &mut [u8]| {
        std::io::Seek::rewind(&mut &source).unwrap();
        // SAFETY: the bytes are the map's.
        unsafe { libc::read(source.as_raw_fd(), map.as_mut_ptr().cast(), map.len()) }
    };
    assert_eq!(read(&mut map), -1);
    map.lock().unwrap();
    assert_eq!(read(&mut map), 16 * PAGE as isize);
    assert!((0..16 * PAGE).all(|at| map[at] == byte_at(at)));
    // Also pages that were locked while they could only be read, and at their address after a move.
    let map = map.make_read_only().unwrap();
    protect(&map);
    let mut map = map.make_mut().unwrap();
    assert_eq!(read(&mut map), 16 * PAGE as isize);
    let may_move = softfault::RemapOptions::new().may_move(true);
    // SAFETY: nobody has a reference to its bytes.
    unsafe { map.remap(MIB, may_move) }.unwrap();
    assert_eq!(read(&mut map[..16 * PAGE]), 16 * PAGE as isize);
}

#[test]
fn a_shared_file_is_locked_too() {
    let engine = engine();
    let file = made_file("shared", MIB);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    map.lock().unwrap();
    map.lock().unwrap();
    let mut other = engine.map_anon(3 * MIN_MEMORY).unwrap();
    other.fill(1);
    assert_eq!(map.residency(..).unwrap().mapped, 256);
    // SAFETY: refused.
    let refused = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    map.unlock().unwrap();
    map.unlock().unwrap();
    map.advise(Advice::PageOut).unwrap();
    assert_eq!(map.residency(..).unwrap().mapped, 0);
    map.lock().unwrap();
    // Dropped as it is; another has as much room.
    drop(map);
    let map = engine.map_anon(MIN_MEMORY / 2 - 64 * PAGE).unwrap();
    map.lock().unwrap();
}
