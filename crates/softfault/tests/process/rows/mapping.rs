//! Calls that change the mappings of the address space.

use crate::call::{self, answer, errno, mprotect, part};
use crate::row::{Row, Verdict, skip};
use crate::scene::{Kind, PAGE, Scene};
use libc::{PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE};
use std::ops::Range;

const REMOVED: Range<usize> = 300..420;

pub const ROWS: &[Row] = &[
    Row {
        name: "mprotect",
        does: "`mprotect` to something else, and back",
        kinds: &[Kind::File, Kind::Copy, Kind::Anon, Kind::Huge],
        verdict: Verdict::Right,
        then: "SIGSEGV meanwhile, as the protection says",
        play: |kind| {
            let scene = Scene::new(kind);
            let usual = if scene.is_writable() {
                PROT_READ | PROT_WRITE
            } else {
                PROT_READ
            };
            for other in [
                PROT_NONE,
                PROT_READ | PROT_EXEC,
                PROT_READ | PROT_WRITE,
                PROT_READ,
            ] {
                (0..300).for_each(|page| scene.check(page));
                let some = part(&scene, 512..5120);
                mprotect(&some, other).expect("mprotect");
                (5120..scene.pages()).for_each(|page| scene.check(page));
                mprotect(&some, usual).expect("mprotect");
                scene.check_all();
            }
            scene
        },
    },
    Row {
        name: "mprotect-all-none",
        does: "`mprotect(PROT_NONE)` of a map with many pages in memory, and back later",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            let all = scene.addresses();
            mprotect(&all, PROT_NONE).expect("mprotect");
            let other = Scene::new(kind);
            other.check_all();
            let usual = if scene.is_writable() {
                PROT_READ | PROT_WRITE
            } else {
                PROT_READ
            };
            mprotect(&all, usual).expect("mprotect");
            scene
        },
    },
    Row {
        name: "munmap-part",
        does: "`munmap` of a part of a map",
        kinds: Kind::SERVED,
        verdict: Verdict::Error,
        then: "SIGSEGV at a touch of it, as after any `munmap`; the rest stays. What is mapped there before the whole map is dropped may be thrown away, as with `mmap(MAP_FIXED)`",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            REMOVED.for_each(|page| scene.check(page));
            let range = part(&scene, REMOVED);
            // SAFETY: nobody touches that part any more.
            unsafe { assert_eq!(libc::munmap(range.start as *mut _, range.len()), 0) };
            assert!(!readable(range.start));
            // Else the allocator, or softfault itself, might map something there.
            keep_free(&range);
            check_rest(&scene);
            assert!(!readable(range.start));
            // SAFETY: as above.
            unsafe { assert_eq!(libc::munmap(range.start as *mut _, range.len()), 0) };
            // Its end is no abort, and the next map of this size is right.
            let kind = scene.kind();
            drop(scene);
            Scene::new(kind)
        },
    },
    Row {
        name: "map-over",
        does: "`mmap(MAP_FIXED)` over a part of a map",
        kinds: Kind::SERVED,
        verdict: Verdict::Documented,
        then: "the program's memory is there until softfault evicts pages at these addresses, or another map gets the addresses: drop the map first",
        play: |kind| {
            let scene = Scene::new(kind);
            REMOVED.for_each(|page| scene.check(page));
            map_at(&part(&scene, REMOVED));
            check_rest(&scene);
            check_rest(&scene);
            replaced(scene)
        },
    },
    Row {
        name: "mremap-away",
        does: "`mremap` of a part of a map to another place",
        kinds: Kind::SERVED,
        verdict: Verdict::Documented,
        then: "pages that were in memory are at the new place, the others read as zeros there: the kernel takes the registration away without a report; SIGSEGV at the old place. A later mapping there is thrown away, as above",
        play: |kind| {
            let scene = Scene::new(kind);
            REMOVED.for_each(|page| scene.check(page));
            let range = part(&scene, 200..800);
            let moved = mremap(&range, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
            // As above: softfault mapped folios there, and an eviction threw them away.
            keep_free(&range);
            check_moved(&scene, moved, 200..800);
            check_rest_but(&scene, 200..800);
            assert!(!readable(range.start));
            replaced(scene)
        },
    },
    Row {
        name: "mremap-dontunmap",
        does: "`mremap(MREMAP_DONTUNMAP)` of a part of a map of a file",
        kinds: &[Kind::File],
        verdict: Verdict::Documented,
        then: "as above at the new place; the old one is read again",
        play: |kind| {
            let scene = Scene::new(kind);
            REMOVED.for_each(|page| scene.check(page));
            let range = part(&scene, 200..800);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            let moved = mremap(&range, flags);
            check_moved(&scene, moved, 200..800);
            scene
        },
    },
    Row {
        name: "mincore-msync",
        does: "`mincore`, `msync`, `remap_file_pages`, `mbind`, `move_pages`, PR_SET_VMA_ANON_NAME",
        kinds: &[Kind::File, Kind::Copy, Kind::Anon, Kind::Huge],
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            let all = scene.addresses();
            let start = all.start as *mut libc::c_void;
            let mut pages = vec![0_u8; scene.pages()];
            // SAFETY: calls that the row is about; `pages` has room for all of it.
            unsafe {
                assert_eq!(libc::mincore(start, all.len(), pages.as_mut_ptr()), 0);
                for flags in [libc::MS_SYNC, libc::MS_ASYNC, libc::MS_INVALIDATE] {
                    libc::msync(start, all.len(), flags);
                    scene.check_all();
                }
                if kind != Kind::Huge {
                    libc::syscall(libc::SYS_remap_file_pages, start, 4 * PAGE, 0, 8, 0);
                }
                libc::syscall(libc::SYS_mbind, start, all.len(), 0, 0_usize, 0, 0);
                libc::syscall(libc::SYS_mbind, start, 64 * PAGE, 3, &1_u64, 2, 2);
                let addresses: Vec<usize> = all.clone().step_by(PAGE).take(64).collect();
                let mut status = [0_i32; 64];
                let (addresses, status) = (addresses.as_ptr(), status.as_mut_ptr());
                libc::syscall(libc::SYS_move_pages, 0, 64, addresses, 0_usize, status, 0);
                let name = c"named".as_ptr();
                libc::prctl(libc::PR_SET_VMA, 0, start, 100 * PAGE, name);
            }
            scene
        },
    },
    Row {
        name: "userfaultfd",
        does: "a userfaultfd of the program's own, registered over a map",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EBUSY; elsewhere it works beside softfault's",
        play: |kind| {
            let scene = Scene::new(kind);
            assert_eq!(register(&scene.addresses()), libc::EBUSY);
            scene
        },
    },
    Row {
        name: "mseal",
        does: "`mseal` of a map (Linux 6.10)",
        kinds: Kind::SERVED,
        verdict: Verdict::Error,
        then: "pages in memory of a read-only map can never be evicted; they stay right",
        play: |kind| {
            let scene = Scene::new(kind);
            let range = part(&scene, 100..300);
            (100..200).for_each(|page| scene.check(page));
            const SYS_MSEAL: i64 = 462;
            // SAFETY: the call that the row is about.
            let sealed = unsafe { libc::syscall(SYS_MSEAL, range.start, range.len(), 0) };
            if let Err(error) = answer(sealed) {
                skip("kernel", &format!("mseal: {error}"));
            }
            scene.check_all();
            scene.check_goes_on();
            // Its window cannot go; nobody else may get its pages.
            drop(scene);
            let other = Scene::new(Kind::Anon);
            other.check_all();
            Scene::new(kind)
        },
    },
];

/// Checks all pages but those taken out.
fn check_rest(scene: &Scene) {
    check_rest_but(scene, REMOVED);
}

pub fn check_rest_but(scene: &Scene, removed: Range<usize>) {
    let pages = (0..scene.pages()).filter(|page| !removed.contains(page));
    pages.for_each(|page| scene.check(page));
}

/// The scene is damaged: its map stays as it is, and another is right.
pub fn replaced(scene: Scene) -> Scene {
    let kind = scene.kind();
    core::mem::forget(scene);
    Scene::new(kind)
}

/// Other memory of the program's, all of it touched.
fn map_at(range: &Range<usize>) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = PROT_READ | PROT_WRITE;
    // SAFETY: the call that the row is about.
    unsafe {
        let start = range.start as *mut libc::c_void;
        let mapped = libc::mmap(start, range.len(), protection, flags, -1, 0);
        assert_eq!(mapped, start);
        start.cast::<u8>().write_bytes(0x5a, range.len());
    }
}

/// Maps nothing to be touched where nothing is mapped, so that nothing else is.
fn keep_free(range: &Range<usize>) {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let start = range.start as *mut libc::c_void;
    // SAFETY: it replaces nothing.
    let mapped = unsafe { libc::mmap(start, range.len(), libc::PROT_NONE, flags, -1, 0) };
    assert_eq!(mapped, start);
}

/// Moves memory to a place of its own.
fn mremap(range: &Range<usize>, flags: i32) -> usize {
    let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the new place is nobody else's.
    unsafe {
        let place = libc::mmap(
            core::ptr::null_mut(),
            range.len(),
            PROT_NONE,
            nothing,
            -1,
            0,
        );
        assert_ne!(place, libc::MAP_FAILED);
        let moved = libc::mremap(
            range.start as *mut _,
            range.len(),
            range.len(),
            flags,
            place,
        );
        assert_eq!(moved, place, "{}", std::io::Error::last_os_error());
        moved.addr()
    }
}

/// Checks that moved pages are right, or zeros.
fn check_moved(scene: &Scene, start: usize, pages: Range<usize>) {
    let mut right = 0;
    for (at, page) in pages.enumerate() {
        let words = peek(start + at * PAGE).expect("mapped by the program");
        let zeros = words.iter().all(|&word| word == 0);
        right += usize::from(!zeros);
        assert!(
            zeros || scene.is_right(page, &words),
            "page {page} is not right"
        );
    }
    println!("{right} pages moved");
}

fn readable(addr: usize) -> bool {
    peek(addr).is_some()
}

/// A page as a child of fork finds it, which may die of it; the kernel copies it if it is there.
pub fn peek(addr: usize) -> Option<[u64; PAGE / 8]> {
    let mut words = [0_u64; PAGE / 8];
    call::touched_elsewhere(addr, &mut words).then_some(words)
}

/// Registers memory with another userfaultfd; returns the answer.
fn register(range: &Range<usize>) -> i32 {
    const USER_MODE_ONLY: i32 = 1;
    const UFFDIO_API: u32 = 0xc018_aa3f;
    const UFFDIO_REGISTER: u32 = 0xc020_aa00;
    // SAFETY: the structures are those of the calls.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) as i32;
        let mut api = [0xAA_u64, 0, 0];
        assert_eq!(
            libc::ioctl(fd, UFFDIO_API as libc::Ioctl, api.as_mut_ptr()),
            0
        );
        let mut register = [range.start as u64, range.len() as u64, 1, 0];
        let said = errno(answer(libc::ioctl(
            fd,
            UFFDIO_REGISTER as libc::Ioctl,
            register.as_mut_ptr(),
        )));
        libc::close(fd);
        said
    }
}
