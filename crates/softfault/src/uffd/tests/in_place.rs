//! A file's own mapping in the place of a window, and back, under readers.

use super::served::serve;
use super::{page, real, resident_kb, said_of};
use crate::table::Guarded;
use crate::table::scratch::Scratch;
use crate::uffd::in_place::REFUSED;
use crate::uffd::{FileToShow, UffdMmu};
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, MmuError, Reservation};
use softfault_oracle::Finally;
use std::ffi::CString;
use std::slice::from_ref;
use std::sync::Arc;

const PAGES: usize = 512;

/// The value of every byte of a page of the file.
fn byte(at: usize) -> u8 {
    (at % 251) as u8 + 1
}

/// A file in the table of descriptors that has lost its name.
fn file() -> Guarded {
    let bytes: Vec<u8> = (0..PAGES * PAGE_SIZE)
        .map(|at| byte(at / PAGE_SIZE))
        .collect();
    let scratch = Scratch::new(&bytes);
    let named = CString::new(scratch.0.to_str().unwrap()).unwrap();
    let here = libc::AT_FDCWD as usize;
    let args = [
        here,
        named.as_ptr() as usize,
        libc::O_RDONLY as usize,
        0,
        0,
        0,
    ];
    // SAFETY: a string that ends in zero; the descriptor is new.
    unsafe { Guarded::open(libc::SYS_openat, args) }.unwrap()
}

/// Pages of a window, and a handler that fills them as the file has them.
fn served(mmu: &Arc<UffdMmu>) -> Reservation {
    let window = mmu.reserve(PAGES * PAGE_SIZE, Protection::Read).unwrap();
    let (mmu, filled) = (mmu.clone(), window.clone());
    serve(&window, move |addr, _| {
        let at = (addr - filled.addr) / PAGE_SIZE;
        let bytes = [byte(at); PAGE_SIZE];
        // SAFETY: a page to copy from, in a window that is there.
        let copied = unsafe { mmu.copy((&filled, addr), &raw const bytes, Access::ReadOnly) };
        match copied {
            Ok(()) => {}
            Err(MmuError::Gone) if mmu.has_changed(addr) => {}
            // Signals: it may neither allocate nor panic.
            // SAFETY: ends the process.
            Err(_) => unsafe { libc::abort() },
        }
    });
    window
}

fn is_right(window: &Reservation, at: usize) -> bool {
    // SAFETY: a page of the window, or of the mapping in its place, as volatile bytes.
    let read = |offset| unsafe { ((page(window, at) + offset) as *const u8).read_volatile() };
    read(0) == byte(at) && read(PAGE_SIZE - 1) == byte(at)
}

fn shown(file: &Guarded) -> FileToShow<'_> {
    FileToShow {
        file,
        random: false,
    }
}

#[test]
fn readers_see_the_file_under_either_server() {
    let (mmu, file) = (Arc::new(real()), file());
    let window = served(&mmu);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Finally(|| stop.store(true, Ordering::Relaxed));
        for reader in 0..3 {
            let (window, stop) = (&window, &stop);
            scope.spawn(move || {
                let mut at = reader * 7;
                while !stop.load(Ordering::Relaxed) {
                    at = (at * 13 + 5) % PAGES;
                    assert!(is_right(window, at), "page {at}");
                    at += 1;
                }
            });
        }
        for round in 0..1000 {
            mmu.zap(from_ref(&window.range()));
            // SAFETY: the readers bring pages in until the mapping is there, which is in the place of
            // the window from one moment to the next: those are lost, and nobody counts them here.
            unsafe { mmu.show(&window, shown(&file)) }.unwrap();
            assert!(mmu.is_shown(window.addr));
            assert!(is_right(&window, round % PAGES));
            // SAFETY: shown above; the handler serves it.
            unsafe { mmu.take_over(&window, shown(&file)) }.unwrap();
            assert!(!mmu.is_shown(window.addr));
            assert!(is_right(&window, (round + 9) % PAGES));
        }
    });
}

/// The kernel calls a file for its mapping when the old one is gone already.
#[test]
fn a_file_that_refuses_leaves_the_window() {
    let mmu = Arc::new(real());
    let args = [
        libc::AF_UNIX as usize,
        (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the descriptor is new.
    let socket = unsafe { Guarded::open(libc::SYS_socket, args) }.unwrap();
    let window = served(&mmu);
    assert!(is_right(&window, 3));
    // SAFETY: nobody touches it meanwhile.
    let shown = unsafe { mmu.show(&window, shown(&socket)) };
    assert_eq!(shown, Err(MmuError::System(libc::ENODEV)));
    assert!(!mmu.is_shown(window.addr));
    assert!((0..PAGES).all(|at| is_right(&window, at)));
}

/// The kernel may have no memory for the last steps, when the file's mapping has gone already.
#[test]
fn a_place_that_cannot_be_taken_over_shows_the_file() {
    let (mmu, file) = (Arc::new(real()), file());
    let window = served(&mmu);
    // SAFETY: nobody touches it.
    unsafe { mmu.show(&window, shown(&file)) }.unwrap();
    for _ in 0..2 {
        REFUSED.set(true);
        // SAFETY: shown above.
        let taken = unsafe { mmu.take_over(&window, shown(&file)) };
        REFUSED.set(false);
        assert_eq!(taken, Err(MmuError::NoMemory));
        assert!(mmu.is_shown(window.addr));
        assert!((0..PAGES).all(|at| is_right(&window, at)));
    }
    // SAFETY: shown still; the handler serves it.
    unsafe { mmu.take_over(&window, shown(&file)) }.unwrap();
    assert!(!mmu.is_shown(window.addr));
    assert!((0..PAGES).all(|at| is_right(&window, at)));
}

#[test]
fn memory_taken_over_is_a_window() {
    let (mmu, file) = (Arc::new(real()), file());
    let window = served(&mmu);
    // SAFETY: nobody touches it.
    unsafe { mmu.show(&window, shown(&file)) }.unwrap();
    // SAFETY: shown above.
    unsafe { mmu.take_over(&window, shown(&file)) }.unwrap();
    assert_eq!(resident_kb(&window), 0, "nothing of the file is left");
    for at in 0..PAGES {
        assert!(is_right(&window, at));
    }
    assert_eq!(resident_kb(&window), PAGES * PAGE_SIZE / 1024);
    mmu.zap(from_ref(&window.range()));
    assert_eq!(resident_kb(&window), 0);
    // The kernel's zero page, for a hole.
    mmu.zero(&window, page(&window, 3), PAGE_SIZE).unwrap();
    assert_eq!(super::read(&window, 3 * PAGE_SIZE / PAGE_SIZE), 0);
    // Children have it not, as they have no window.
    let flags = said_of(&window, "VmFlags:");
    assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    assert!(flags.split(' ').any(|flag| flag == "um"), "{flags}");
}

#[test]
fn a_window_freed_beside_a_mapping_is_no_spare() {
    let (mmu, file) = (Arc::new(real()), file());
    let window = served(&mmu);
    // SAFETY: nobody touches it.
    unsafe { mmu.show(&window, shown(&file)) }.unwrap();
    let start = window.addr;
    mmu.release(window);
    assert!(!mmu.is_shown(start));
    let other = mmu.reserve(PAGES * PAGE_SIZE, Protection::Read).unwrap();
    assert_eq!(resident_kb(&other), 0);
    let faults = {
        let (mmu, filled) = (mmu.clone(), other.clone());
        serve(&other, move |addr, _| {
            let sevens = [7; PAGE_SIZE];
            // SAFETY: as in `served`.
            let copied = unsafe { mmu.copy((&filled, addr), &raw const sevens, Access::ReadOnly) };
            copied.unwrap();
        })
    };
    // SAFETY: a page of the window.
    assert_eq!(unsafe { (page(&other, 5) as *const u8).read_volatile() }, 7);
    assert_eq!(faults.take(), (1, 0), "it is a window");
}
