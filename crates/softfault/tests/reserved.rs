//! Address space that a program has reserved, and of which it takes parts into use: the engine serves these, and leaves the rest
//! alone. For programs that take over mapped memory by themselves.

mod child;
mod filter;
mod private_parts;

use core::ffi::c_void;
use private_parts::{MEMORY, PAGE, PAGES, addresses, check, word, write};
use softfault::{Engine, Faults, MmapMut, Swap, UncheckedAdvice};
use std::ops::Range;

const SPAN: usize = 2 << 20;

fn engine() -> Engine {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let builder = Engine::builder().memory(MEMORY).faults(Faults::Threads);
    builder.swap(swap).build().unwrap()
}

/// Address space from a multiple of a page table's span on.
fn reserve() -> usize {
    let bytes = PAGES * PAGE + SPAN;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let null = core::ptr::null_mut();
    // SAFETY: new address space.
    let start = unsafe { libc::mmap(null, bytes, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    (start as usize).next_multiple_of(SPAN)
}

fn over(engine: &Engine, start: usize) -> MmapMut {
    // SAFETY: the test's own address space.
    unsafe { MmapMut::over_reserved(engine, &addresses(start, &(0..PAGES))) }.unwrap()
}

fn take(map: &MmapMut, start: usize, pages: Range<usize>) {
    // SAFETY: nobody uses the part.
    unsafe { map.take_part(&addresses(start, &pages)) }.unwrap();
}

/// True if the kernel may read there: it looks at the protection as a load does.
fn may_be_read(addr: usize) -> bool {
    let name = c"softfault-reserved".as_ptr();
    // SAFETY: a new file in memory, closed below.
    let file = unsafe { libc::memfd_create(name, libc::MFD_CLOEXEC) };
    // SAFETY: the kernel checks the address.
    let written = unsafe { libc::write(file, addr as *const c_void, 1) };
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    written == 1
}

#[test]
fn parts_come_to_be_zeros_that_go_to_swap() {
    let (engine, start) = (engine(), reserve());
    let map = over(&engine, start);
    assert!(!may_be_read(start));
    let (first, second) = (3..PAGES / 2, PAGES / 2 + 100..PAGES);
    for part in [&first, &second] {
        take(&map, start, part.clone());
        check(start, part.clone(), |_| 0);
        write(start, part.clone(), 1);
    }
    for part in [&first, &second] {
        check(start, part.clone(), |page| word(page, 1));
    }
    let stats = engine.stats();
    assert!(stats.swap.unwrap().pages_out > 0);
    assert!(stats.peak_bytes <= MEMORY as u64);
    assert!(!may_be_read(start + 2 * PAGE), "below");
    assert!(!may_be_read(start + first.end * PAGE), "between them");
    drop(map);
    assert!(!may_be_read(start + 3 * PAGE), "it goes with the map");
}

#[test]
fn a_part_that_was_given_up_comes_back_as_zeros() {
    let (engine, start) = (engine(), reserve());
    let map = over(&engine, start);
    take(&map, start, 0..PAGES);
    write(start, 0..PAGES, 1);
    let (gone, given) = (40..900, 1500..2100);
    // SAFETY: the map is not asked for either, until it takes it back.
    unsafe {
        map.unmap_addresses(&addresses(start, &gone)).unwrap();
        map.hand_over(&addresses(start, &given)).unwrap();
    }
    assert!(!may_be_read(start + gone.start * PAGE));
    check(start, given.clone(), |page| word(page, 1));
    for part in [&gone, &given] {
        take(&map, start, part.clone());
        check(start, part.clone(), |_| 0);
        write(start, part.clone(), 2);
    }
    let is_new = |page: usize| gone.contains(&page) || given.contains(&page);
    check(start, 0..PAGES, |page| {
        word(page, 1 + usize::from(is_new(page)))
    });
    // Advice reaches the part that came back: it is the window's again.
    let offset = gone.start * PAGE;
    // SAFETY: nothing relies on the bytes.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, gone.len() * PAGE) }
        .unwrap();
    check(start, gone, |_| 0);
}

#[test]
fn a_child_goes_on_with_it_and_takes_more() {
    let (engine, start) = (engine(), reserve());
    let map = over(&engine, start);
    take(&map, start, 0..PAGES / 2);
    write(start, 0..PAGES / 2, 1);
    let status = child::forked(|| {
        check(start, 0..PAGES / 2, |page| word(page, 1));
        assert!(!may_be_read(start + PAGES / 2 * PAGE));
        take(&map, start, PAGES / 2..PAGES);
        check(start, PAGES / 2..PAGES, |_| 0);
        write(start, 0..PAGES, 2);
        check(start, 0..PAGES, |page| word(page, 2));
        0
    });
    assert_eq!(status, 0);
    check(start, 0..PAGES / 2, |page| word(page, 1));
    assert!(!may_be_read(start + PAGES / 2 * PAGE));
}

#[test]
fn a_place_between_page_tables_is_refused() {
    let (engine, start) = (engine(), reserve());
    let part = addresses(start, &(1..PAGES));
    // SAFETY: the test's own address space.
    let refused = unsafe { MmapMut::over_reserved(&engine, &part) };
    let kind = refused.err().map(|error| error.kind());
    assert_eq!(kind, Some(std::io::ErrorKind::InvalidInput));
}

/// Failed before: the kernel kept the part from children, so that the child of a program that went on with it died of SIGSEGV.
#[test]
fn a_part_that_cannot_be_served_is_the_programs_and_its_childs() {
    let test = "a_part_that_cannot_be_served_is_the_programs_and_its_childs";
    child::alone(test, || {
        let (engine, start) = (engine(), reserve());
        let map = over(&engine, start);
        let pages = 3..PAGES / 2;
        let part = addresses(start, &pages);
        // It cannot be registered with userfaultfd.
        filter::deny(&[libc::SYS_ioctl], libc::ENOMEM);
        // SAFETY: nobody uses the part.
        unsafe { map.take_part(&part) }.unwrap_err();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the program's own address space.
        let opened = unsafe { libc::mprotect(part.start as *mut c_void, part.len(), protection) };
        assert_eq!(opened, 0);
        write(start, pages.clone(), 1);
        let status = child::forked(|| {
            check(start, pages.clone(), |page| word(page, 1));
            0
        });
        assert_eq!(status, 0);
        check(start, pages.clone(), |page| word(page, 1));
    });
}
