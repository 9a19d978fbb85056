//! A fault against `munmap`: of its own VMA, of a part of it, of a neighbour;
//! and against a mapping that takes the slot of the VMA that went.

use crate::scene::{directed, explore, map_file, map_zeros, read, unmap, write};
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::anon::Anonymous;
use softfault_engine_shuttle::fault::{self, NeverInterrupted, Stop};
use softfault_oracle::{Rig, Stage};
use sync::Arc;
use sync::thread::spawn;

#[test]
fn fault_against_unmap() {
    let stage = Stage::of_pages(6);
    directed(
        "fault_against_unmap",
        4_000,
        &stage,
        vec![map_file(0, 0..4, 0)],
        vec![
            vec![read(0, 0..3)],
            vec![read(0, 1..4)],
            vec![unmap(0, 1..3), map_file(0, 1..2, 5)],
        ],
    );
}

#[test]
fn anonymous_fault_against_unmap() {
    let stage = Stage::of_pages(6);
    directed(
        "anonymous_fault_against_unmap",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4)],
        vec![
            vec![write(0, 0..3), read(0, 1..3)],
            vec![write(0, 1..2), read(0, 1..2)],
            vec![unmap(0, 1..3), map_zeros(0, 1..2)],
        ],
    );
}

/// Two spaces share the slab: a slot that one gave up is the other's.
#[test]
fn fault_against_reuse_in_another_space() {
    let stage = Stage {
        spaces: 2,
        pages: 4,
        ..Stage::default()
    };
    directed(
        "fault_against_reuse_in_another_space",
        5_000,
        &stage,
        vec![map_file(0, 0..2, 0), map_zeros(1, 2..3)],
        vec![
            vec![read(0, 0..2), read(0, 0..1)],
            vec![unmap(0, 0..2)],
            vec![map_zeros(1, 0..2), write(1, 0..1), unmap(1, 2..3)],
        ],
    );
}

/// The frame of a page that goes is somebody else's next: not while a core still
/// reads it.
#[test]
fn access_against_reuse_of_its_frame() {
    directed(
        "access_against_reuse_of_its_frame",
        4_000,
        &Stage::of_pages(4),
        vec![map_zeros(0, 0..1), map_zeros(0, 2..4), write(0, 0..1)],
        vec![
            vec![read(0, 0..1), read(0, 0..1), read(0, 0..1)],
            vec![unmap(0, 0..1)],
            vec![write(0, 2..4)],
        ],
    );
}

/// Memory is mapped where its window is, and unmapped, and the next has the same addresses: a core that touches them all the time,
/// and buffers what it finds, sees none of the memory before.
#[test]
fn fault_against_the_next_window() {
    explore("fault_against_the_next_window", 2_000, |seed| {
        let policies = Stage::default().with_policies_of(seed).policies;
        let rig = Arc::new(Rig::with_policies(2048, policies));
        let window = || Anonymous::new(rig.node.clone(), PAGE_SIZE).unwrap();
        let first = window();
        let addr = first.addresses().start;
        rig.map_anonymous(&first);
        let toucher = {
            let rig = rig.clone();
            spawn(move || {
                let mut core = rig.mmu.core().unwrap();
                let mut last = 0;
                for _ in 0..5 {
                    let mut byte = [0];
                    match fault::read_at(&mut core, &rig.space, addr, &mut byte, &NeverInterrupted)
                    {
                        Ok(()) if byte == [0] => {}
                        Ok(()) => {
                            assert!(byte[0] >= last, "{byte:?} after {last}");
                            last = byte[0];
                        }
                        Err(stopped) => assert!(matches!(stopped.why, Stop::Error(_))),
                    }
                }
            })
        };
        let mut anon = first;
        for round in 1..=3 {
            if round > 1 {
                drop(anon);
                anon = window();
                assert_eq!(anon.addresses().start, addr);
                rig.map_anonymous(&anon);
                assert_eq!(rig.touch(addr), Ok(0));
            }
            rig.write(addr, &[round]).unwrap();
            assert_eq!(rig.touch(addr), Ok(round));
            rig.unmap(anon.addresses());
            while !Anonymous::is_unused(&anon) {
                sync::thread::yield_now();
            }
        }
        toucher.join().unwrap();
        drop(anon);
        Arc::into_inner(rig).unwrap().finish();
    });
}
