//! Parents and children that end in either order, and the memory that stays behind.

use crate::child::{alone, assert_exit, forked, start, wait};
use crate::scene::{BUDGET, PAGE, PAGES, check, check_scene, engine, scene, write};
use softfault::{Engine, FaultError, Swap};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

fn slots_used(engine: &Engine) -> u64 {
    engine.stats().swap.unwrap().slots_used
}

fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: fills both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: new ones.
    let [reading, writing] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (reading.into(), writing.into())
}

/// A child that waits to be killed.
fn waiting_child() -> libc::pid_t {
    start(|| {
        loop {
            // SAFETY: nothing to say.
            unsafe { libc::pause() };
        }
    })
}

fn kill(child: libc::pid_t) {
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait(child);
}

#[test]
fn slots_come_back_when_no_child_lives() {
    alone("ends::slots_come_back_when_no_child_lives", || {
        let engine = engine();
        let map = scene(&engine);
        let before = slots_used(&engine);
        // Two that overlap, and one that exits.
        let first = waiting_child();
        let second = waiting_child();
        assert_exit(forked(|| 0), 0);
        drop(map);
        assert_eq!(slots_used(&engine), before, "two may read them");
        kill(first);
        assert_eq!(slots_used(&engine), before, "one may read them");
        kill(second);
        assert_eq!(slots_used(&engine), 0);
    });
}

#[test]
fn a_grandchild_keeps_slots_that_it_may_read() {
    alone("ends::a_grandchild_keeps_slots_that_it_may_read", || {
        let engine = engine();
        let map = scene(&engine);
        let before = slots_used(&engine);
        let (mut reading, mut writing) = pipe();
        let status = forked(|| {
            let grandchild = waiting_child();
            writing.write_all(&grandchild.to_ne_bytes()).unwrap();
            0
        });
        assert_exit(status, 0);
        let mut grandchild = [0; 4];
        reading.read_exact(&mut grandchild).unwrap();
        drop(map);
        assert_eq!(slots_used(&engine), before);
        // SAFETY: it waits to be killed.
        unsafe { libc::kill(i32::from_ne_bytes(grandchild), libc::SIGKILL) };
        while slots_used(&engine) > 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_child_that_execs_is_gone() {
    alone("ends::a_child_that_execs_is_gone", || {
        let engine = engine();
        let map = scene(&engine);
        // SAFETY: the child execs.
        let child = start(|| {
            let (sleep, end) = (c"/bin/sleep".as_ptr(), core::ptr::null::<u8>());
            // SAFETY: replaces the child.
            unsafe { libc::execl(sleep, sleep, c"1000".as_ptr(), end) };
            1
        });
        drop(map);
        while slots_used(&engine) > 0 {
            std::thread::yield_now();
        }
        kill(child);
    });
}

#[test]
fn a_full_swap_gets_the_slots_of_dead_children_back() {
    alone(
        "ends::a_full_swap_gets_the_slots_of_dead_children_back",
        || {
            let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(2 * BUDGET as u64);
            let engine = Engine::builder()
                .allow_kernel_maps(false)
                .memory(BUDGET)
                .swap(swap)
                .build()
                .unwrap();
            let mut map = engine.map_anon(2 * BUDGET).unwrap();
            let pages = 2 * BUDGET / PAGE;
            (0..pages).for_each(|page| write(&mut map, page, 1));
            for round in 2..6 {
                assert_exit(forked(|| 0), 0);
                // Every slot that was in use had the dead child's mark.
                (0..pages).for_each(|page| write(&mut map, page, round));
                (0..pages).for_each(|page| check(&map, page, round, "parent"));
            }
        },
    );
}

#[test]
fn a_child_outlives_its_parent() {
    let (mut reading, writing) = pipe();
    let status = forked(|| {
        let engine = engine();
        let mut map = scene(&engine);
        let parent = std::process::id() as libc::pid_t;
        start(|| {
            // SAFETY: only asks.
            while unsafe { libc::getppid() } == parent {
                std::thread::yield_now();
            }
            check_scene(&map, "orphan");
            (0..PAGES).for_each(|page| write(&mut map, page, 2));
            (0..PAGES).for_each(|page| check(&map, page, 2, "orphan"));
            (&writing).write_all(b"all of it").unwrap();
            0
        });
        0
    });
    drop(writing);
    assert_exit(status, 0);
    let mut told = String::new();
    reading.read_to_string(&mut told).unwrap();
    assert_eq!(told, "all of it");
}

#[test]
fn without_a_directory_a_child_reads_all_and_is_told_when_it_has_no_room() {
    let name = format!("goes-away-{}", std::process::id());
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir(&dir).unwrap();
    let swap = Swap::in_dir(&dir).bytes(256 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap)
        .build()
        .unwrap();
    let map = scene(&engine);
    std::fs::remove_dir(&dir).unwrap();
    let status = forked(|| {
        // Clean pages go without being written.
        let rest = engine.stats().swap.unwrap();
        assert_eq!(rest.slots_total, 0);
        let written = (0..PAGES).try_for_each(|page| map.populate(page * PAGE..(page + 1) * PAGE));
        assert_eq!(written.unwrap_err(), FaultError::NoMemory);
        0
    });
    assert_exit(status, 0);
    check_scene(&map, "parent");
}
