//! mremap of parts that grow.

use crate::twin::{
    Engine, PAGE, READ, Twin, WRITE, anonymous, answer, engine_options, errno, file, text,
};
use core::ffi::c_void;
use core::ops::Range;
use softfault_c::engine::softfault_engine_new;
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::softfault_madvise;
use softfault_c::mlock::softfault_mlock;
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};

const PAGES: usize = 8;

/// Lets a part of both grow, which goes elsewhere, or all of them grow or shrink; where it is then.
pub fn grow(twin: &Twin, part: &Range<usize>, pages: usize) -> Twin {
    let (ours, kernels) = twin.at(part.start);
    let (old, new) = (part.len() * PAGE, pages * PAGE);
    // SAFETY: the test goes on with the new addresses.
    let (ours, kernels) = unsafe {
        (
            softfault_mremap(ours, old, new, libc::MREMAP_MAYMOVE),
            libc::mremap(kernels, old, new, libc::MREMAP_MAYMOVE),
        )
    };
    assert_ne!(ours, libc::MAP_FAILED, "{part:?}: {}", text());
    assert_ne!(kernels, libc::MAP_FAILED, "{}", errno());
    Twin {
        ours: ours.cast(),
        kernels: kernels.cast(),
        length: new,
    }
}

fn is_mapped(addr: *mut c_void) -> bool {
    match answer(softfault_fault_in(addr, PAGE)) {
        Ok(()) => true,
        said => {
            assert_eq!(said, Err(libc::ENOMEM));
            false
        }
    }
}

#[test]
fn parts_grow_elsewhere() {
    let _turn = crate::twin::turn();
    let made = file(64 * PAGE);
    for (part, pages) in [(0..1, 2), (2..5, 20), (5..8, 40), (3..4, 600)] {
        for zeros in [true, false] {
            let twin = match zeros {
                true => Twin::anonymous(PAGES),
                // It grows into the file, as far as that is looked at.
                false => Twin::of_file(&made, PAGES, WRITE, libc::MAP_PRIVATE),
            };
            // Some are written to, and some only read.
            for page in [0, 3, 4, 7] {
                twin.write(page * PAGE + 100, page as u8 + 1);
            }
            twin.same(0, PAGES);
            let grown = grow(&twin, &part, pages);
            let same = if zeros { pages } else { pages.min(50) };
            grown.same(0, same);
            grown.write(PAGE - 1, 9);
            grown.write((same - 1) * PAGE, 10);
            grown.same(0, same);
            for page in 0..PAGES {
                let is_left = !part.contains(&page);
                assert_eq!(is_mapped(twin.at(page).0), is_left, "{part:?} {page}");
                if is_left {
                    twin.same(page, 1);
                    assert_eq!(twin.unmap(page, 1), (Ok(()), Ok(())));
                }
            }
            assert_eq!(grown.unmap(0, pages), (Ok(()), Ok(())), "{}", text());
        }
    }
}

#[test]
fn the_state_of_a_part_goes_with_it() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    for page in 0..PAGES {
        twin.write(page * PAGE, page as u8 + 1);
    }
    let (ours, kernels) = twin.at(2);
    // SAFETY: nothing is written that may not be.
    unsafe {
        let said = answer(softfault_mprotect(ours, 3 * PAGE, READ));
        assert_eq!(said, Ok(()), "{}", text());
        assert_eq!(libc::mprotect(kernels, 3 * PAGE, READ), 0);
    }
    assert_eq!(
        answer(softfault_mlock(ours, 2 * PAGE)),
        Ok(()),
        "{}",
        text()
    );
    let grown = grow(&twin, &(2..5), 6);
    grown.same(0, 6);
    let dropped = |page: usize| {
        // SAFETY: nobody relies on the bytes.
        answer(unsafe { softfault_madvise(grown.at(page).0, PAGE, libc::MADV_DONTNEED) })
    };
    let locked = Err(libc::EINVAL);
    assert_eq!([0, 1, 2, 5].map(dropped), [locked, locked, Ok(()), Ok(())]);
    // SAFETY: all of it may only be read.
    let same =
        unsafe { softfault_c::transfer::softfault_copy_in(grown.at(5).0, twin.ours.cast(), 1) };
    assert_eq!((same, errno()), (-1, libc::EACCES));
    for page in [0, 1, 5, 6, 7] {
        twin.same(page, 1);
        assert_eq!(twin.unmap(page, 1), (Ok(()), Ok(())));
    }
    assert_eq!(grown.unmap(0, 6), (Ok(()), Ok(())));
}

#[test]
fn parts_that_do_not_grow_stay() {
    let _turn = crate::twin::turn();
    let twin = Twin::anonymous(PAGES);
    twin.write(5 * PAGE, 5);
    let (ours, kernels) = twin.at(4);
    let of = |ours: *mut c_void, new: usize, flags: i32| {
        // SAFETY: it fails, and nothing goes.
        let said = unsafe { softfault_mremap(ours, 2 * PAGE, new, flags) };
        assert_eq!(said, libc::MAP_FAILED);
        errno()
    };
    // SAFETY: it fails, and nothing goes.
    let kernel = unsafe { libc::mremap(kernels, 2 * PAGE, 3 * PAGE, 0) };
    assert_eq!((kernel, errno()), (libc::MAP_FAILED, libc::ENOMEM));
    assert_eq!(of(ours, 3 * PAGE, 0), libc::ENOMEM);
    assert_eq!(answer(softfault_pin(ours, 10)), Ok(()));
    assert_eq!(of(ours, 3 * PAGE, libc::MREMAP_MAYMOVE), libc::EBUSY);
    assert_eq!(answer(softfault_unpin(ours, 10)), Ok(()));
    assert_eq!(of(ours, 1 << 60, libc::MREMAP_MAYMOVE), libc::ENOMEM);
    twin.same(0, PAGES);
    assert_eq!(twin.unmap(0, PAGES), (Ok(()), Ok(())));
}

#[test]
fn a_part_larger_than_the_budget_grows() {
    let _turn = crate::twin::turn();
    let folder = format!("{}\0", env!("CARGO_TARGET_TMPDIR"));
    let mut options = engine_options();
    options.memory = 8 << 20;
    options.swap_directory = folder.as_ptr().cast();
    options.swap_size = 64 << 20;
    // SAFETY: a structure of its size.
    let engine = Engine(unsafe { softfault_engine_new(&options) });
    assert!(!engine.0.is_null(), "{}", text());
    let pages = 4000;
    let map = anonymous(pages).ours(engine).unwrap().cast::<u8>();
    for page in 0..pages {
        // SAFETY: within the map.
        unsafe { map.add(page * PAGE + page).write_volatile(page as u8 | 1) };
    }
    // SAFETY: the test goes on with the new address.
    let grown = unsafe {
        let part = map.add(500 * PAGE).cast();
        softfault_mremap(part, 3000 * PAGE, 5000 * PAGE, libc::MREMAP_MAYMOVE)
    };
    assert_ne!(grown, libc::MAP_FAILED, "{}", text());
    for page in 0..pages {
        let within = (500..3500).contains(&page);
        let at = match within {
            true => grown.cast::<u8>().wrapping_add((page - 500) * PAGE),
            false => map.wrapping_add(page * PAGE),
        };
        // SAFETY: mapped, there or where it was.
        assert_eq!(unsafe { at.add(page).read_volatile() }, page as u8 | 1);
    }
    // SAFETY: nobody uses them any more.
    unsafe {
        assert_eq!(softfault_munmap(map.cast(), 500 * PAGE), 0);
        assert_eq!(softfault_munmap(map.add(3500 * PAGE).cast(), 500 * PAGE), 0);
        assert_eq!(softfault_munmap(grown, 5000 * PAGE), 0);
        softfault_c::engine::softfault_engine_free(engine.0.cast_mut());
    }
}
