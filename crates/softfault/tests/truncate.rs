//! Files that are truncated, written, renamed or removed under a map.

mod child;
mod files;

use files::{byte_at, check, made_file, map, path};
use softfault::{Engine, FaultError, Mmap, OnTruncate};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

fn engine() -> Engine {
    files::engine(16 << 20)
}

fn byte(map: &Mmap, offset: usize) -> u8 {
    assert!(offset < map.len());
    // SAFETY: within the map.
    unsafe { map.as_ptr().add(offset).read_volatile() }
}

#[test]
fn past_the_new_end_pin_is_an_error() {
    let file = made_file("pin", 4 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    check(&map, 0);
    file.set_len((1 << 20) + 100).unwrap();
    assert_eq!(
        map.pin(2 << 20..(2 << 20) + 1).unwrap_err(),
        FaultError::BeyondEnd
    );
    assert_eq!(map.pin(..).unwrap_err(), FaultError::BeyondEnd);
    let mut buffer = [0; 10];
    assert_eq!(
        map.read_at(&mut buffer, 3 << 20).unwrap_err(),
        FaultError::BeyondEnd
    );
    let written = map.write_to(.., &mut std::io::sink()).unwrap_err();
    assert_eq!(written.kind(), std::io::ErrorKind::UnexpectedEof);
    // The rest is right, the last page is zeros after the end.
    check(&map, (1 << 20) - 1);
    check(&map, (1 << 20) + 99);
    assert!((100..PAGE).all(|at| byte(&map, (1 << 20) + at) == 0));
    assert!(map.pin(..(1 << 20) + PAGE).is_ok());
}

#[test]
fn past_the_new_end_a_touch_dies_of_sigbus() {
    let test = "past_the_new_end_a_touch_dies_of_sigbus";
    match child::scenario().as_deref() {
        None => {
            child::dies_of(libc::SIGBUS, test, "by others");
            child::dies_of(libc::SIGBUS, test, "by the engine");
        }
        Some(by) => {
            let file = made_file("dies", 4 << 20);
            let engine = engine();
            let map = map(&engine, &file);
            check(&map, 2 << 20);
            match by {
                "by others" => file.set_len(1 << 20).unwrap(),
                _ => engine.truncate(&file, 1 << 20).unwrap(),
            }
            check(&map, 0);
            byte(&map, 3 << 20);
            unreachable!("the touch was served");
        }
    }
}

/// Handlers of the user's, from before the engine.
#[cfg(target_arch = "x86_64")]
mod handler {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    pub static ADDR: AtomicUsize = AtomicUsize::new(0);
    pub static CODE: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn jump(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's arguments of a handler; the scenario has put
        // where to go on into r15.
        unsafe {
            ADDR.store((*info).si_addr() as usize, SeqCst);
            CODE.store((*info).si_code as usize, SeqCst);
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RIP as usize] = registers[libc::REG_R15 as usize];
        }
    }

    pub fn install() {
        // SAFETY: the handler suits its flags.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = jump as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut());
        }
    }

    /// Touches an address; `false` if that raised a signal.
    pub fn touch(address: *const u8) -> bool {
        let served: u64;
        // SAFETY: reads a byte; the handler goes on after the read.
        unsafe {
            core::arch::asm!(
                "lea r15, [rip + 2f]",
                "xor {served:e}, {served:e}",
                "mov {byte:l}, byte ptr [{address}]",
                "mov {served:e}, 1",
                "2:",
                served = out(reg) served,
                byte = out(reg) _,
                address = in(reg) address,
                out("r15") _,
            );
        }
        served == 1
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn past_the_new_end_the_users_handler_gets_the_address() {
    use std::sync::atomic::Ordering::SeqCst;
    let test = "past_the_new_end_the_users_handler_gets_the_address";
    if child::scenario().is_none() {
        return child::succeeds(test, "handler");
    }
    handler::install();
    let file = made_file("handler", 4 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    assert!(handler::touch(&map[77]));
    file.set_len(1 << 20).unwrap();
    for offset in [(2 << 20) + 123, (1 << 20), (4 << 20) - 1] {
        assert!(!handler::touch(&map[offset]));
        assert_eq!(handler::ADDR.load(SeqCst), map.as_ptr() as usize + offset);
        assert_eq!(handler::CODE.load(SeqCst), 2, "BUS_ADRERR");
    }
    assert_eq!(engine.stats().failed_touches, 3);
    // The thread's signals are as they were: bytes within the file are still served.
    assert!(handler::touch(&map[500_000]));
    check(&map, 500_000);
}

#[test]
fn zeros_if_asked_for() {
    let file = made_file("zero", 4 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .on_truncate(OnTruncate::Zeros)
        .build()
        .unwrap();
    let map = map(&engine, &file);
    check(&map, 0);
    file.set_len((1 << 20) + 5).unwrap();
    assert_eq!(byte(&map, 3 << 20), 0);
    assert_eq!(byte(&map, (4 << 20) - 1), 0);
    check(&map, (1 << 20) + 4);
    assert_eq!(byte(&map, (1 << 20) + 5), 0);
    let pinned = map.pin(1 << 20..).unwrap();
    assert!(pinned[5..].iter().all(|&byte| byte == 0));
    drop(pinned);
    engine.truncate(&file, 10).unwrap();
    check(&map, 9);
    assert!((10..4 << 20).step_by(509).all(|at| byte(&map, at) == 0));
}

#[test]
fn the_engines_truncate_takes_pages_out_and_growing_shows_new_bytes() {
    let file = made_file("engine", 4 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    for offset in (0..map.len()).step_by(PAGE) {
        check(&map, offset);
    }
    engine.truncate(&file, (1 << 20) + 10).unwrap();
    let left = map.residency(..).unwrap();
    assert!(
        left.mapped + left.cached <= (1 << 20) / PAGE + 1,
        "{left:?}"
    );
    assert_eq!(map.pin(2 << 20..).unwrap_err(), FaultError::BeyondEnd);
    check(&map, (1 << 20) + 9);
    assert!((10..PAGE).all(|at| byte(&map, (1 << 20) + at) == 0));

    engine.truncate(&file, 6 << 20).unwrap();
    assert!((10..PAGE).all(|at| byte(&map, (1 << 20) + at) == 0));
    assert_eq!(byte(&map, (4 << 20) - 1), 0, "a hole now");
    file.write_all_at(&[7; PAGE], 3 << 20).unwrap();
    assert_eq!(byte(&map, 3 << 20), 7);
    assert_eq!(map.len(), 4 << 20);
    // A file that is longer than the map was needs a new one.
    let longer = self::map(&engine, &file);
    assert_eq!(longer.len(), 6 << 20);
    assert_eq!(byte(&longer, 3 << 20), 7);
    assert_eq!(byte(&longer, (6 << 20) - 1), 0);
}

#[test]
fn a_file_that_ends_within_a_page_shows_zeros_after_it() {
    for bytes in [1, 4095, 4097, 65_537, (1 << 20) + 1] {
        let file = made_file("partial", bytes);
        let engine = engine();
        let map = map(&engine, &file);
        check(&map, bytes - 1);
        let end = bytes.next_multiple_of(PAGE);
        // SAFETY: the rest of the last page is mapped too, as with mmap.
        let rest = (bytes..end).map(|at| unsafe { map.as_ptr().add(at).read_volatile() });
        assert!(rest.into_iter().all(|byte| byte == 0), "{bytes} bytes");
    }
}

#[test]
fn a_file_that_ends_within_a_page_is_read_ahead_to_its_end() {
    for bytes in [1, 30_000, 65_537, (1 << 20) - 1, (1 << 20) + 9000] {
        let file = made_file("ahead", bytes);
        let engine = engine();
        let map = map(&engine, &file);
        map.prefetch(..).unwrap();
        while map.residency(..).unwrap().reading > 0 {}
        let residency = map.residency(..).unwrap();
        assert_eq!(residency.cached, residency.pages, "{bytes}: {residency:?}");
        assert_eq!(engine.stats().bytes_read, bytes as u64);
        for offset in (0..bytes).step_by(509).chain([bytes - 1]) {
            check(&map, offset);
        }
        assert_eq!(engine.stats().major_faults, 0, "{bytes} bytes");
    }
}

#[test]
fn a_change_by_others_shows_after_invalidate_and_in_new_maps() {
    let file = made_file("changed", 1 << 20);
    let engine = engine();
    let old = map(&engine, &file);
    check(&old, 40_000);
    file.write_all_at(&[0xEE; 100_000], 0).unwrap();
    check(&old, 40_000);
    // A new map sees the present bytes; the old one is left as it was.
    let new = map(&engine, &file);
    assert_eq!(byte(&new, 40_000), 0xEE);
    check(&old, 40_000);
    old.invalidate(36_864..45_056).unwrap();
    assert_eq!(byte(&old, 40_000), 0xEE);
    old.invalidate(..).unwrap();
    assert_eq!(byte(&old, 99_999), 0xEE);
    check(&old, 100_000);
}

/// A window of an older version is not taken for the present one by a truncate, done or refused.
#[test]
fn a_change_by_others_shows_in_new_maps_after_a_truncate() {
    let place = path("versions");
    std::fs::write(&place, [1; PAGE]).unwrap();
    let file = File::options().read(true).write(true).open(&place).unwrap();
    let reader = File::open(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    // Until the file's stamps tell its versions apart.
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    pause();
    let engine = engine();
    let old = map(&engine, &file);
    assert_eq!(byte(&old, 0), 1);
    file.write_all_at(&[2; PAGE], 0).unwrap();
    pause();
    assert!(
        engine.truncate(&reader, 10).is_err(),
        "not open for writing"
    );
    let new = map(&engine, &file);
    assert_eq!((byte(&old, 0), byte(&new, 0)), (1, 2));
    file.write_all_at(&[3; PAGE], 0).unwrap();
    engine.truncate(&file, PAGE as u64).unwrap();
    pause();
    let newest = map(&engine, &file);
    assert_eq!((byte(&new, 0), byte(&newest, 0)), (2, 3));
}

#[test]
fn invalidate_forgets_exactly_its_range() {
    let file = made_file("exactly", 1 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    for offset in (0..map.len()).step_by(PAGE) {
        check(&map, offset);
    }
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    map.invalidate(5 * PAGE + 1..5 * PAGE + 2).unwrap();
    let folios = map.residency(..).unwrap();
    assert!(folios.mapped < 256 && folios.mapped >= 240, "{folios:?}");
    assert_eq!(byte(&map, 5 * PAGE), 1);
    // Pages of other folios stay.
    check(&map, 16 * PAGE);
    assert_eq!(
        map.invalidate(..(1 << 20) + 1).unwrap_err(),
        FaultError::OutOfRange
    );
}

#[test]
fn a_pinned_page_survives_invalidate_and_truncate_by_another_thread() {
    let test = "a_pinned_page_survives_invalidate_and_truncate_by_another_thread";
    if child::scenario().is_none() {
        return child::succeeds(test, "pins");
    }
    let file = made_file("pins", 1 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    std::thread::scope(|scope| {
        let (map, engine, file) = (&map, &engine, &file);
        let pinned = map.pin(100_000..200_000).unwrap();
        let invalidates = scope.spawn(move || map.invalidate(..).unwrap());
        // Whether it waits for us or leaves the pages out: they stay.
        for _ in 0..200 {
            assert!(
                (0..100_000)
                    .step_by(PAGE)
                    .all(|at| pinned[at] == byte_at(100_000 + at))
            );
            std::thread::yield_now();
        }
        drop(pinned);
        invalidates.join().unwrap();
        let pinned = map.pin(100_000..200_000).unwrap();
        let truncates = scope.spawn(move || engine.truncate(file, 50_000).unwrap());
        for _ in 0..200 {
            assert!(
                (0..100_000)
                    .step_by(PAGE)
                    .all(|at| pinned[at] == byte_at(100_000 + at))
            );
            std::thread::yield_now();
        }
        drop(pinned);
        truncates.join().unwrap();
    });
    assert_eq!(
        map.pin(100_000..100_001).unwrap_err(),
        FaultError::BeyondEnd
    );
    check(&map, 49_999);
}

#[test]
fn a_removed_or_renamed_file_stays_mapped() {
    let place = path("renamed");
    let made = made_file("renamed", 1 << 20);
    drop(made);
    let bytes: Vec<u8> = (0..1 << 20).map(byte_at).collect();
    std::fs::write(&place, &bytes).unwrap();
    let engine = engine();
    let old = map(&engine, &File::open(&place).unwrap());
    check(&old, 0);
    let moved = path("moved");
    std::fs::rename(&place, &moved).unwrap();
    check(&old, 300_000);
    // Another file takes its name.
    std::fs::write(&place, [9; 70_000]).unwrap();
    let new = map(&engine, &File::open(&place).unwrap());
    assert_eq!((new.len(), byte(&new, 69_999)), (70_000, 9));
    check(&old, 69_999);
    // And another takes its place by rename, as editors and package managers do.
    std::fs::write(path("third"), [3; 80_000]).unwrap();
    std::fs::rename(path("third"), &place).unwrap();
    let third = map(&engine, &File::open(&place).unwrap());
    assert_eq!((third.len(), byte(&third, 79_999)), (80_000, 3));
    assert_eq!(byte(&new, 5), 9);
    std::fs::remove_file(&moved).unwrap();
    std::fs::remove_file(&place).unwrap();
    check(&old, 900_000);
    assert_eq!((byte(&new, 50_000), byte(&third, 50_000)), (9, 3));
}
