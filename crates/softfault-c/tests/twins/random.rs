//! Calls in any order, on maps of ours and of the kernel's, under a budget that is too small for all of them.

use crate::twin::{
    Answer, Arguments, Engine, PAGE, READ, Twin, WRITE, aged_file, anonymous, answer,
    engine_options, of_file, own_engine, text,
};
use core::ffi::c_int;
use core::ops::Range;
use softfault_c::engine::{SOFTFAULT_ALLOW_KERNEL_MAPS_NO, softfault_engine_new};
use softfault_c::fault_in::softfault_fault_in;
use softfault_c::madvise::{softfault_madvise, softfault_prefetch};
use softfault_c::mlock::{softfault_mlock, softfault_munlock};
use softfault_c::mprotect::softfault_mprotect;
use softfault_c::mremap::softfault_mremap;
use softfault_c::munmap::softfault_munmap;
use softfault_c::pin::{softfault_pin, softfault_unpin};
use softfault_oracle::Random;
use std::fs::File;

const MOST_PAGES: usize = 600;

/// Some pages, at least one.
fn part(draw: &mut Random, pages: usize) -> Range<usize> {
    let start = draw.below(pages);
    start..start + 1 + draw.below(pages - start)
}

/// A map, and the pages of it that the test has not unmapped.
struct Place {
    twin: Twin,
    mapped: Vec<bool>,
    shared: bool,
    writable: Vec<bool>,
    /// Zeros, until written.
    zeros: bool,
    /// mprotect or mmap with MAP_FIXED has changed a part: the kernel may have several mappings of it from then on.
    cut: bool,
}

impl Place {
    fn pages(&self) -> usize {
        self.mapped.len()
    }

    fn has(&self, part: &Range<usize>) -> bool {
        self.mapped[part.clone()].iter().all(|&mapped| mapped)
    }

    fn check(&self, part: Range<usize>) {
        for page in part.filter(|&page| self.mapped[page]) {
            self.twin.same(page, 1);
        }
    }

    /// Gives the kernel's addresses back, of which nothing is used any more.
    fn end(self) {
        let (_, kernels) = self.twin.at(0);
        // SAFETY: the test's own.
        let said = answer(unsafe { libc::munmap(kernels, self.pages() * PAGE) });
        assert_eq!(said, Ok(()));
    }

    /// A call on the pages of both.
    fn both(
        &self,
        part: &Range<usize>,
        call: impl FnOnce(*mut core::ffi::c_void, *mut core::ffi::c_void, usize) -> (c_int, c_int),
    ) -> (Answer, Answer) {
        let (ours, kernels) = self.twin.at(part.start);
        let (ours, kernels) = call(ours, kernels, part.len() * PAGE);
        (answer(ours), answer(kernels))
    }
}

struct World {
    draw: Random,
    file: File,
    engine: Engine,
    places: Vec<Place>,
}

impl World {
    fn map(&mut self) {
        let pages = 1 + self.draw.below(MOST_PAGES);
        let offset = self.draw.below(100) * PAGE;
        let kind = self.draw.below(3);
        let arguments = match kind {
            0 => anonymous(pages),
            1 => Arguments {
                offset: offset as i64,
                ..of_file(&self.file, pages, WRITE, libc::MAP_PRIVATE)
            },
            _ => Arguments {
                offset: offset as i64,
                ..of_file(&self.file, pages, READ, libc::MAP_SHARED)
            },
        };
        self.places.push(Place {
            twin: Twin::of(arguments, self.engine),
            mapped: vec![true; pages],
            shared: kind == 2,
            writable: vec![kind != 2; pages],
            zeros: kind == 0,
            cut: false,
        });
    }

    fn step(&mut self) {
        if self.places.is_empty() || self.places.len() < 14 && self.draw.below(6) == 0 {
            return self.map();
        }
        let at = self.draw.below(self.places.len());
        let action = self.draw.below(12);
        let draw = &mut self.draw;
        let place = &mut self.places[at];
        let part = part(draw, place.pages());
        let is_whole = place.mapped.iter().all(|&mapped| mapped);
        let well: (Answer, Answer) = (Ok(()), Ok(()));
        match action {
            0..=2 => {
                for page in part.filter(|&page| place.mapped[page] && place.writable[page]) {
                    place
                        .twin
                        .write(page * PAGE + draw.below(PAGE), draw.below(256) as u8);
                }
            }
            3 if place.has(&part) => {
                let said = place.twin.unmap_to_map_again(part.start, part.len());
                assert_eq!(said, Ok(()), "{}", text());
                place.mapped[part].fill(false);
                if place.mapped.iter().all(|&mapped| !mapped) {
                    self.places.swap_remove(at).end();
                }
            }
            // Of a range with a hole, nothing goes.
            3 if !place.shared => {
                let (ours, _) = place.twin.at(part.start);
                // SAFETY: it fails.
                let said = answer(unsafe { softfault_munmap(ours, part.len() * PAGE) });
                assert_eq!(said, Err(libc::EINVAL));
            }
            4 if place.has(&part) && !place.shared => {
                let said = place.both(&part, |ours, kernels, len| {
                    // SAFETY: both give up the same bytes.
                    unsafe {
                        (
                            softfault_madvise(ours, len, libc::MADV_DONTNEED),
                            libc::madvise(kernels, len, libc::MADV_DONTNEED),
                        )
                    }
                });
                assert_eq!(said, well, "{}", text());
                place.check(part);
            }
            5 if place.has(&part) => {
                let part = part.start..part.end.min(part.start + 60);
                let (ours, len) = (place.twin.at(part.start).0, part.len() * PAGE);
                assert_eq!(answer(softfault_mlock(ours, len)), Ok(()), "{}", text());
                place.check(part);
                assert_eq!(answer(softfault_munlock(ours, len)), Ok(()), "{}", text());
            }
            6 if place.has(&part) && !place.shared => {
                let part = part.start..part.end.min(part.start + 60);
                let (ours, len) = (place.twin.at(part.start).0, part.len() * PAGE - 5);
                assert_eq!(answer(softfault_pin(ours, len)), Ok(()), "{}", text());
                place.check(part);
                assert_eq!(answer(softfault_unpin(ours, len)), Ok(()), "{}", text());
            }
            7 if is_whole && !place.shared => {
                let most = match place.cut {
                    true => place.pages(),
                    false => MOST_PAGES,
                };
                let pages = 1 + draw.below(most);
                let (old, new) = (place.pages() * PAGE, pages * PAGE);
                // SAFETY: the test goes on with the new addresses.
                let (ours, kernels) = unsafe {
                    let ours = place.twin.ours.cast();
                    let kernels = place.twin.kernels.cast();
                    (
                        softfault_mremap(ours, old, new, libc::MREMAP_MAYMOVE),
                        libc::mremap(kernels, old, new, libc::MREMAP_MAYMOVE),
                    )
                };
                assert!(
                    ours != libc::MAP_FAILED && kernels != libc::MAP_FAILED,
                    "{}",
                    text()
                );
                place.twin = Twin {
                    ours: ours.cast(),
                    kernels: kernels.cast(),
                    length: new,
                };
                place.mapped = vec![true; pages];
                // The parts may differ only if it cannot grow.
                let writable = place.writable[0];
                place.writable.resize(pages, writable);
                // New pages of a file may lie behind its end.
                place.check(0..pages.min(old / PAGE));
            }
            8 | 10 if place.has(&part) && !place.shared => {
                let part = match action {
                    8 if is_whole => 0..place.pages(),
                    _ => part,
                };
                let writable = draw.below(2) == 0;
                let prot = if writable { WRITE } else { READ };
                let said = place.both(&part, |ours, kernels, len| {
                    // SAFETY: nothing is written that may not be.
                    unsafe {
                        (
                            softfault_mprotect(ours, len, prot),
                            libc::mprotect(kernels, len, prot),
                        )
                    }
                });
                assert_eq!(said, well, "{}", text());
                place.cut |= part.len() < place.pages();
                place.writable[part].fill(writable);
            }
            // Parts that were unmapped, too.
            11 if place.zeros => {
                let prot = if draw.below(3) > 0 { WRITE } else { READ };
                let mut fixed = anonymous(part.len());
                fixed.prot = prot;
                fixed.flags |= libc::MAP_FIXED;
                let (ours, kernels) = place.twin.at(part.start);
                let said = fixed.ours_at(ours, Engine(self.engine.0));
                assert_eq!(said, Ok(ours), "{}", text());
                assert_eq!(fixed.kernels_at(kernels), Ok(kernels));
                place.cut = true;
                place.mapped[part.clone()].fill(true);
                place.writable[part.clone()].fill(prot == WRITE);
                place.check(part);
            }
            9 if place.has(&part) => {
                let (ours, len) = (place.twin.at(part.start).0, part.len() * PAGE);
                assert_eq!(answer(softfault_prefetch(ours, len)), Ok(()), "{}", text());
                assert_eq!(answer(softfault_fault_in(ours, len)), Ok(()), "{}", text());
            }
            _ => place.check(part),
        }
    }
}

/// More with `SOFTFAULT_C_OPERATIONS=100000`, and others with `SOFTFAULT_C_SEED`.
#[test]
fn calls_in_any_order() {
    let _turn = crate::twin::turn();
    let said = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|said| said.parse::<u64>().unwrap())
    };
    let operations = said("SOFTFAULT_C_OPERATIONS").unwrap_or(1000);
    let seed = said("SOFTFAULT_C_SEED").unwrap_or(1);
    println!("SOFTFAULT_C_SEED={seed}");
    let folder = format!("{}\0", env!("CARGO_TARGET_TMPDIR"));
    let mut options = engine_options();
    options.memory = 8 << 20;
    options.allow_kernel_maps = SOFTFAULT_ALLOW_KERNEL_MAPS_NO;
    options.small_maps = -1;
    options.swap_directory = folder.as_ptr().cast();
    options.swap_size = 128 << 20;
    // SAFETY: a structure of its size.
    let engine = unsafe { softfault_engine_new(&options) };
    assert!(!engine.is_null(), "{}", text());
    let mut world = World {
        draw: Random::new(seed),
        // No map reaches behind it.
        file: aged_file((MOST_PAGES + 100 + MOST_PAGES) * PAGE),
        engine: Engine(engine),
        places: Vec::new(),
    };
    for _ in 0..operations {
        world.step();
    }
    for place in world.places.drain(..) {
        place.check(0..place.pages());
        for page in (0..place.pages()).filter(|&page| place.mapped[page]) {
            let said = place.twin.unmap_to_map_again(page, 1);
            assert_eq!(said, Ok(()), "{}", text());
        }
        place.end();
    }
    // SAFETY: nobody has it any more.
    unsafe { softfault_c::engine::softfault_engine_free(engine) };
}

/// Slices of one file are found in one step each, however many there are: this is done at once, or never ends.
#[test]
fn ten_thousand_maps_of_one_file() {
    let _turn = crate::twin::turn();
    let pages = 10_000;
    let made = aged_file(pages * PAGE);
    let map = |first: usize, count: usize| {
        let mut arguments = of_file(&made, count, READ, libc::MAP_SHARED);
        arguments.offset = (first * PAGE) as i64;
        arguments.ours(own_engine()).unwrap()
    };
    let whole = map(0, pages);
    let slices: Vec<_> = (0..pages).map(|page| map(page, 1)).collect();
    assert_eq!(slices[0], whole);
    for &slice in slices.iter().rev() {
        assert_eq!(answer(softfault_prefetch(slice, 1)), Ok(()));
        crate::twin::unmap(slice, PAGE);
    }
    assert_eq!(answer(softfault_fault_in(whole, PAGE)), Ok(()));
    crate::twin::unmap(whole, pages * PAGE);
    assert_eq!(answer(softfault_fault_in(whole, PAGE)), Err(libc::ENOMEM));
}
