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
use std::os::fd::AsRawFd;

const PAGES: usize = 16;
const LIMIT: usize = 10;

/// A window full of pages, one of which the ring has pinned. `None` where that is not possible here.
fn scene(pinned: usize) -> Option<(UffdMmu, Reservation, IoUring)> {
    let made = UffdMmu::new(Faults::Messages).map_err(|errno| format!("messages: errno {errno}"));
    let made = made.and_then(|mmu| {
        mmu.prepare_pins();
        match mmu.sees_pins() {
            true => Ok((mmu, IoUring::new(4).map_err(|error| error.to_string())?)),
            false => Err("no UFFDIO_MOVE".to_owned()),
        }
    });
    let (mmu, ring) = made
        .map_err(|why| softfault_skip::skipped("pins", format_args!("{why}")))
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
        .map_err(|why| softfault_skip::skipped("pins", format_args!("{why}")))
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
    let ones = std::env::temp_dir().join(format!("softfault-pins-{at}-{}", std::process::id()));
    std::fs::write(&ones, [0xff; PAGE_SIZE]).unwrap();
    let file = File::open(&ones).unwrap();
    let to = page(window, at) as *mut u8;
    let fd = types::Fd(file.as_raw_fd());
    let read = opcode::ReadFixed::new(fd, to, PAGE_SIZE as u32, 0).build();
    // SAFETY: the buffer that was registered.
    unsafe { ring.submission().push(&read) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    let done = ring.completion().next().unwrap();
    assert_eq!(done.result(), PAGE_SIZE as i32);
    std::fs::remove_file(&ones).unwrap();
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

/// The program has locked as much as it may, or a page less.
#[test]
fn pinned_pages_stay_where_the_program_may_lock_no_more() {
    const SCENARIO: &str = "SOFTFAULT_TEST_LOCKED";
    const LOCKED: usize = 4;
    let Some(left) = std::env::var(SCENARIO).ok() else {
        for left in ["0", "1"] {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "uffd::tests::pins::pinned_pages_stay_where_the_program_may_lock_no_more";
            let test = test.args(["--exact", name, "--nocapture"]);
            let output = test.env(SCENARIO, left).output().unwrap();
            assert!(output.status.success(), "{left}: {output:?}");
        }
        return;
    };
    let Some((mmu, window, mut ring)) = scene(5) else {
        return;
    };
    let bytes = (LOCKED + left.parse::<usize>().unwrap()) * PAGE_SIZE;
    let limit = libc::rlimit {
        rlim_cur: bytes as u64,
        rlim_max: bytes as u64,
    };
    let part = page(&window, 4) as *const _;
    const ONFAULT: u32 = 1;
    // SAFETY: a limit of this process, which is the test's alone; the rights of this thread are given up; no byte changes.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
        let nobody = 65534;
        sync::system_call!(libc::SYS_setresuid, nobody, nobody, nobody);
        assert_eq!(libc::mlock2(part, LOCKED * PAGE_SIZE, ONFAULT), 0);
    }
    let expected: &[usize] = match left.as_str() {
        "0" => &[4, 5, 6, 7],
        _ => &[5],
    };
    for _ in 0..LIMIT {
        assert_eq!(evict(&mmu, &window), expected);
    }
    device_writes(&mut ring, &window, 5);
    assert_eq!(super::read(&window, 5), of(0xff));
    // What the program locks no more is as any other.
    // SAFETY: no byte changes.
    assert_eq!(unsafe { libc::munlock(part, LOCKED * PAGE_SIZE) }, 0);
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
