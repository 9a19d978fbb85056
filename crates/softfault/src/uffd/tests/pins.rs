//! Pages that a device may be writing to stay, also where the kernel does not say so at once. The device is a ring of io_uring, which
//! pins its buffers.

use super::{copy, of, page, present, reserve};
use crate::Faults;
use crate::uffd::UffdMmu;
use core::slice::from_ref;
use io_uring::{IoUring, opcode, types};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Access, Mmu, Reservation, WrittenPage};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd};

const PAGES: usize = 16;
const LIMIT: usize = 10;

/// A window full of pages, one of which the ring has pinned. `None` where that is not possible here.
fn scene(pinned: usize) -> Option<(UffdMmu, Reservation, IoUring)> {
    let made =
        UffdMmu::new(Faults::Messages).map_err(|errno| ("messages", format!("errno {errno}")));
    let made = made.and_then(|mmu| {
        mmu.prepare_pins();
        match mmu.sees_pins() {
            true => {
                let ring = IoUring::new(4).map_err(|error| ("kernel", error.to_string()))?;
                Ok((mmu, ring))
            }
            false => Err(("kernel", "no UFFDIO_MOVE".to_owned())),
        }
    });
    let (mmu, ring) = made
        .map_err(|(need, why)| softfault_skip::skipped(need, why))
        .ok()?;
    let window = reserve(&mmu, PAGES);
    for at in 0..PAGES {
        copy(&mmu, &window, at, at as u8, Access::Writable).unwrap();
    }
    let buffer = libc::iovec {
        iov_base: page(&window, pinned) as *mut _,
        iov_len: PAGE_SIZE,
    };
    // SAFETY: the page stays as long as the ring.
    let registered = unsafe { ring.submitter().register_buffers(from_ref(&buffer)) };
    registered
        .map_err(|why| softfault_skip::skipped("mlock", why))
        .ok()?;
    Some((mmu, window, ring))
}

/// Which pages stay, of all that were there; the others are thrown away, as after a write to swap.
fn evict(mmu: &UffdMmu, window: &Reservation) -> Vec<usize> {
    let there = present(window);
    let mut pages: Vec<_> = (0..PAGES)
        .filter(|&at| there[at])
        .map(|at| WrittenPage {
            window: window.clone(),
            addr: page(window, at),
            // SAFETY: a page that is there.
            sum: unsafe { mmu.sum(page(window, at) as *const u8) },
            stays: false,
        })
        .collect();
    mmu.spare_pinned(&mut pages);
    for page in pages.iter().filter(|page| !page.stays) {
        mmu.zap(from_ref(&(page.addr..page.addr + PAGE_SIZE)));
    }
    let stay = pages.iter().filter(|page| page.stays);
    let stay = stay.map(|page| (page.addr - window.addr) / PAGE_SIZE);
    let stay: Vec<_> = stay.collect();
    let there = (0..PAGES).filter(|&at| present(window)[at]);
    assert_eq!(there.collect::<Vec<_>>(), stay);
    stay
}

/// The ring's device writes to its page.
fn device_writes(ring: &mut IoUring, window: &Reservation, at: usize) {
    // SAFETY: a name, and a descriptor that nobody else has.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"ones".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "errno {}", crate::errno::errno());
        File::from_raw_fd(fd)
    };
    file.write_all(&[0xff; PAGE_SIZE]).unwrap();
    let to = page(window, at) as *mut u8;
    let fd = types::Fd(file.as_raw_fd());
    let read = opcode::ReadFixed::new(fd, to, PAGE_SIZE as u32, 0).build();
    // SAFETY: the buffer that was registered.
    unsafe { ring.submission().push(&read) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    let done = ring.completion().next().unwrap();
    assert_eq!(done.result(), PAGE_SIZE as i32);
}

#[test]
fn of_pages_that_the_program_has_locked_pinned_ones_stay() {
    let Some((mmu, window, mut ring)) = scene(5) else {
        return;
    };
    const ONFAULT: u32 = 1;
    // SAFETY: no byte changes.
    let locked = unsafe { libc::mlock2(page(&window, 4) as *const _, 4 * PAGE_SIZE, ONFAULT) };
    assert_eq!(locked, 0, "errno {}", crate::errno::errno());
    for _ in 0..LIMIT {
        assert_eq!(evict(&mmu, &window), [5]);
    }
    device_writes(&mut ring, &window, 5);
    assert_eq!(super::read(&window, 5), of(0xff));
    ring.submitter().unregister_buffers().unwrap();
    assert!(evict(&mmu, &window).is_empty());
}

const SCENARIO: &str = "SOFTFAULT_TEST_LOCKED";

/// Runs a test of this file once for each scenario, in a process of its own; there it is the answer.
fn alone(name: &str, scenarios: &[&str]) -> Option<String> {
    let here = std::env::var(SCENARIO).ok();
    if here.is_none() {
        for scenario in scenarios {
            let name = format!("uffd::tests::pins::{name}");
            crate::table::in_child::run_alone(&name, SCENARIO, scenario);
        }
    }
    here
}

/// The program locks these pages, and may lock so many in all from then on.
fn lock_up_to_a_limit(start: usize, pages: usize, most: usize) {
    let bytes = (most * PAGE_SIZE) as u64;
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    const ONFAULT: u32 = 1;
    // SAFETY: no byte changes; a limit of this process, which is the test's alone; the rights of this thread are given up.
    unsafe {
        let locked = libc::mlock2(start as *const _, pages * PAGE_SIZE, ONFAULT);
        assert_eq!(locked, 0, "errno {}", crate::errno::errno());
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
        let nobody = 65534;
        sync::system_call!(libc::SYS_setresuid, nobody, nobody, nobody);
    }
}

/// The program has locked as much as it may, or a page less, or may lock nothing any more. In the last case pinned pages went, before.
#[test]
fn pinned_pages_stay_where_the_program_may_lock_no_more() {
    const LOCKED: usize = 4;
    let test = "pinned_pages_stay_where_the_program_may_lock_no_more";
    let Some(most) = alone(test, &["0", "4", "5"]) else {
        return;
    };
    let Some((mmu, window, mut ring)) = scene(5) else {
        return;
    };
    let part = page(&window, 4);
    lock_up_to_a_limit(part, LOCKED, most.parse().unwrap());
    let expected: &[usize] = match most.as_str() {
        "5" => &[5],
        _ => &[4, 5, 6, 7],
    };
    for _ in 0..LIMIT {
        assert_eq!(evict(&mmu, &window), expected);
    }
    device_writes(&mut ring, &window, 5);
    assert_eq!(super::read(&window, 5), of(0xff));
    // A page that the program locks no more is as any other.
    // SAFETY: no byte changes.
    let unlocked = unsafe { libc::munlock(part as *const _, LOCKED * PAGE_SIZE) };
    assert_eq!(unlocked, 0);
    assert_eq!(evict(&mmu, &window), [5]);
}

/// The kernel moves none of them.
#[test]
fn pages_that_may_not_be_written_to_stay_for_a_few_passes() {
    let Some((mmu, window, mut ring)) = scene(5) else {
        return;
    };
    let part = page(&window, 4) as *mut _;
    // SAFETY: nobody writes to it.
    unsafe { libc::mprotect(part, 4 * PAGE_SIZE, libc::PROT_READ) };
    assert_eq!(evict(&mmu, &window), [4, 5, 6, 7], "and no other");
    device_writes(&mut ring, &window, 5);
    assert_eq!(super::read(&window, 5), of(0xff));
    let passes = (0..LIMIT).position(|_| evict(&mmu, &window).is_empty());
    assert!(passes.is_some_and(|passes| passes > 1), "{passes:?}");
}

/// The same where the program has locked as much as it may, and none of them.
#[test]
fn pages_that_may_not_be_written_to_go_where_the_program_may_lock_no_more() {
    let test = "pages_that_may_not_be_written_to_go_where_the_program_may_lock_no_more";
    if alone(test, &["elsewhere"]).is_none() {
        return;
    }
    let Some((mmu, window, _ring)) = scene(5) else {
        return;
    };
    let elsewhere = reserve(&mmu, 4);
    lock_up_to_a_limit(elsewhere.addr, 4, 4);
    let part = page(&window, 4) as *mut _;
    // SAFETY: nobody writes to it.
    unsafe { libc::mprotect(part, 4 * PAGE_SIZE, libc::PROT_READ) };
    assert_eq!(evict(&mmu, &window), [4, 5, 6, 7], "and no other");
    let passes = (0..LIMIT).position(|_| evict(&mmu, &window).is_empty());
    assert!(passes.is_some_and(|passes| passes > 1), "{passes:?}");
}
