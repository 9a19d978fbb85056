//! A fault against `fork`, and parent and child against each other afterwards.

use crate::scene::{directed, explore, map_file, map_zeros, read, unmap, write};
use core::mem::ManuallyDrop;
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::anon::Anonymous;
use softfault_oracle::{Op, Rig, Stage};
use sync::Arc;
use sync::thread::spawn;

#[test]
fn fault_against_fork() {
    let stage = Stage::of_pages(4);
    directed(
        "fault_against_fork",
        5_000,
        &stage,
        vec![map_zeros(0, 0..2), map_file(0, 2..4, 0), write(0, 0..1)],
        vec![
            vec![write(0, 0..2), read(0, 1..3)],
            vec![read(0, 0..1), write(0, 0..1), read(0, 0..1)],
            vec![Op::Fork { space: 0 }, write(1, 0..2), read(1, 0..3)],
        ],
    );
}

#[test]
fn fork_against_unmap() {
    let stage = Stage::of_pages(4);
    directed(
        "fork_against_unmap",
        5_000,
        &stage,
        vec![map_zeros(0, 0..4), write(0, 0..3)],
        vec![
            vec![unmap(0, 1..2), map_zeros(0, 1..2), write(0, 1..2)],
            vec![write(0, 0..3)],
            vec![
                Op::Fork { space: 0 },
                write(1, 0..2),
                Op::Fork { space: 1 },
                read(2, 0..3),
                Op::Exit { space: 1 },
            ],
        ],
    );
}

/// A write after the fork is not the child's: also where a core knew
/// the page as its own to write to.
#[test]
fn writes_against_fork() {
    directed(
        "writes_against_fork",
        3_000,
        &Stage::of_pages(2),
        vec![map_zeros(0, 0..2), write(0, 0..2)],
        vec![
            vec![write(0, 0..2), write(0, 0..2), write(0, 0..2)],
            vec![
                Op::Fork { space: 0 },
                read(1, 0..2),
                read(1, 0..2),
                write(1, 0..1),
                read(0, 0..1),
            ],
        ],
    );
}

/// The copy shows one moment, also of memory that is copied one part after the other: of a thread's writes to two of them it
/// never has the second without the first.
#[test]
fn a_copy_shows_one_moment() {
    explore("a_copy_shows_one_moment", 3_000, |seed| {
        let policies = Stage::of_pages(2).with_policies_of(seed).policies;
        let rig = Arc::new(Rig::with_policies(4096, policies));
        let part = || Anonymous::new(rig.node.clone(), PAGE_SIZE).unwrap();
        let mut parts = [part(), part()];
        // In the order in which a fork copies them.
        parts.sort_by_key(|part| part.addresses().start);
        parts.iter().for_each(|part| rig.map_anonymous(part));
        let at = parts.each_ref().map(|part| part.addresses().start);
        let write = move |rig: &Rig, count: u8| {
            at.iter()
                .for_each(|&addr| rig.write(addr, &[count]).unwrap());
        };
        write(&rig, 1);
        let writer = {
            let rig = rig.clone();
            spawn(move || (2..5).for_each(|count| write(&rig, count)))
        };
        // Left as it is where a check fails, which says more than its mappings would.
        let child = ManuallyDrop::new(rig.another_space());
        rig.space.fork(&child).unwrap();
        writer.join().unwrap();
        let [first, second] = at.map(|addr| {
            let mut byte = [0];
            rig.read_in(&child, addr, &mut byte).unwrap();
            byte[0]
        });
        assert!(first == second || first == second + 1, "{first}, {second}");
        child.exit(|_, _| {});
        drop((ManuallyDrop::into_inner(child), parts));
        Arc::into_inner(rig).unwrap().finish();
    });
}

/// A page that is shared since a fork is copied while others read it.
#[test]
fn reads_against_copy() {
    directed(
        "reads_against_copy",
        3_000,
        &Stage::of_pages(2),
        vec![map_zeros(0, 0..2), write(0, 0..2), Op::Fork { space: 0 }],
        vec![
            vec![read(0, 0..1), read(0, 0..1), read(0, 0..1)],
            vec![write(0, 0..1), read(1, 0..1)],
            vec![read(1, 0..1), write(1, 0..1), read(1, 0..1)],
        ],
    );
}
