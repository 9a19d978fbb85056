//! Huge pages: faults against threads that take pages or leaf tables from under them.
//!
//! A span is four pages here, a file two spans. The seed draws the synchronisation that keeps leaves from
//! being unshared, the other policies, and how many fault mutexes there are. The bytes that each touch showed must have
//! been there at some moment; a page that was promised is there; at the end no page, no
//! promise and no byte of tables is left.

use crate::scene::explore;
use core::ops::Range;
use softfault_engine_shuttle::mm::Protection;
use softfault_engine_shuttle::policy::ShareSync;
use softfault_oracle::{
    HugeOp, HugeSetting, HugeWorld, Random, Spot, draw_huge, play_huge_together,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SPAN: usize = 4;
const PAGES: u64 = 2 * SPAN as u64;

fn setting(seed: u64, spaces: usize) -> HugeSetting {
    HugeSetting {
        policies: HugeSetting::policies_of(seed),
        leaf_pages: SPAN,
        fault_mutexes: [8, 1][(seed / 3 % 5 / 4) as usize],
        pool_pages: 16,
        file_pages: PAGES,
        files: 1,
        spaces,
    }
}

/// Maps `indexes` of a file at the slots of the same numbers, reserved.
fn map(space: u8, indexes: Range<u64>) -> HugeOp {
    map_of(0, space, indexes, true)
}

fn map_of(file: u8, space: u8, indexes: Range<u64>, reserve: bool) -> HugeOp {
    HugeOp::Map {
        space,
        file,
        slot: indexes.start as usize,
        shown: indexes.clone(),
        indexes,
        reserve,
        protection: Protection::ReadWrite,
    }
}

fn read(space: u8, slot: usize) -> HugeOp {
    let spot = Spot::First;
    HugeOp::Read { space, slot, spot }
}

fn write(space: u8, slot: usize) -> HugeOp {
    let spot = Spot::First;
    HugeOp::Write { space, slot, spot }
}

fn unmap(space: u8, slots: Range<usize>) -> HugeOp {
    HugeOp::Unmap { space, slots }
}

fn protect(space: u8, slots: Range<usize>, protection: Protection) -> HugeOp {
    HugeOp::Protect {
        space,
        slots,
        protection,
    }
}

fn truncate(pages: u64) -> HugeOp {
    HugeOp::Truncate { file: 0, pages }
}

fn punch(indexes: Range<u64>) -> HugeOp {
    HugeOp::Punch { file: 0, indexes }
}

/// Plays the lists under each schedule, and asserts `after` when the threads are through.
fn scene(
    name: &'static str,
    schedules: u64,
    change: impl Fn(&mut HugeSetting) + Send + Sync + Clone + 'static,
    (setup, lists): (Vec<HugeOp>, Vec<Vec<HugeOp>>),
    after: impl Fn(&HugeWorld) + Send + Sync + Clone + 'static,
) {
    explore(name, schedules, move |seed| {
        let mut setting = setting(seed, 2);
        change(&mut setting);
        play_huge_together(setting, &setup, &lists, &after);
    });
}

/// Pages that the file has, and those promised, of a pool of 16.
fn has(world: &HugeWorld, pages: u64, reserved: u64) {
    let counts = world.counts();
    assert_eq!(world.file(0).pages(), pages, "pages in the file");
    assert_eq!((counts.free, counts.reserved), (16 - pages, reserved));
}

#[test]
fn fault_against_unshare_by_unmap() {
    scene(
        "fault_against_unshare_by_unmap",
        3_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 0), read(1, 0)],
            vec![
                vec![write(0, 1), read(0, 0), write(0, 2)],
                vec![unmap(1, 1..2), write(1, 0), read(1, 2), unmap(1, 0..1)],
                vec![write(1, 2), read(0, 1), write(1, 3)],
            ],
        ),
        |world| has(world, 4, 0),
    );
}

/// The space that faults shares with one that goes.
#[test]
fn fault_against_exit_of_a_sharer() {
    scene(
        "fault_against_exit_of_a_sharer",
        3_000,
        |setting| setting.spaces = 3,
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 0), read(1, 0)],
            vec![
                vec![write(0, 1), read(0, 0), write(0, 2)],
                vec![HugeOp::Exit { space: 1 }],
                vec![map(2, 0..4), read(2, 1), unmap(2, 0..4)],
            ],
        ),
        |world| {
            assert_eq!(world.file(0).sharers(0), 1);
            has(world, 3, 1);
        },
    );
}

#[test]
fn huge_fault_against_truncate() {
    scene(
        "huge_fault_against_truncate",
        2_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 1), read(1, 1)],
            vec![
                vec![write(0, 1), write(0, 2), read(0, 1)],
                vec![read(1, 2), write(1, 1), read(1, 0)],
                vec![truncate(1), truncate(PAGES)],
            ],
        ),
        |_| {},
    );
}

/// While the thread that makes the hole waits for the third space's share lock, the second begins to share the leaf that the first
/// has kept, and faults the page in again: the first, whose share lock that thread has, shows it once more.
#[test]
fn a_mapping_that_is_through_shows_the_page_again() {
    scene(
        "a_mapping_that_is_through_shows_the_page_again",
        3_000,
        |setting| {
            setting.spaces = 3;
            setting.policies = ShareSync::VmaLock.into();
        },
        (
            vec![
                map(0, 0..4),
                map(1, 0..4),
                map(2, 0..2),
                write(0, 0),
                write(0, 1),
                read(2, 0),
            ],
            vec![
                vec![punch(0..1)],
                vec![write(2, 1), read(2, 0)],
                vec![read(1, 0)],
            ],
        ),
        |_| {},
    );
}

/// Pages beyond the end when truncate returns are in no file and no table.
#[test]
fn nothing_is_left_beyond_the_end() {
    scene(
        "nothing_is_left_beyond_the_end",
        3_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 0)],
            vec![
                vec![write(0, 3), write(0, 1)],
                vec![write(1, 1), write(1, 3)],
                vec![truncate(1)],
            ],
        ),
        |world| has(world, 1, 0),
    );
}

#[test]
fn fault_against_punch() {
    scene(
        "fault_against_punch",
        2_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 1), read(1, 1)],
            vec![
                vec![write(0, 1), read(0, 2), read(0, 1)],
                vec![read(1, 1), write(1, 1), read(1, 1)],
                vec![punch(0..3)],
            ],
        ),
        |world| {
            let pages = world.file(0).pages();
            has(world, pages, 4 - pages);
        },
    );
}

/// Both want the page, and it is filled once: neither word is lost.
#[test]
fn two_faults_on_one_page() {
    let of = |space, spot| HugeOp::Write {
        space,
        slot: 1,
        spot,
    };
    scene(
        "two_faults_on_one_page",
        1_500,
        |setting| setting.files = 2,
        (
            // Pages that somebody has used: they are cleared while they are taken.
            vec![
                map(0, 0..4),
                map(1, 0..4),
                write(0, 1),
                write(0, 2),
                punch(0..4),
            ],
            vec![
                vec![of(0, Spot::First)],
                vec![of(1, Spot::Middle)],
                vec![read(0, 1)],
            ],
        ),
        |world| {
            assert_eq!(world.pool().stats().filled, 3, "filled once");
            has(world, 1, 3);
        },
    );
}

/// Three spaces begin at once: there is one leaf, and all are counted.
#[test]
fn share_against_share() {
    scene(
        "share_against_share",
        3_000,
        |setting| setting.spaces = 3,
        (
            vec![map(0, 0..4), map(1, 0..4), map(2, 0..4)],
            vec![
                vec![write(0, 0), read(0, 1)],
                vec![write(1, 1), read(1, 0)],
                vec![write(2, 0), read(2, 2)],
            ],
        ),
        |world| {
            assert_eq!(world.file(0).sharers(0), 3);
            has(world, 3, 1);
        },
    );
}

/// One leaves while the other comes, and neither is the last by mistake.
#[test]
fn share_against_unshare() {
    scene(
        "share_against_unshare",
        3_000,
        |setting| setting.spaces = 3,
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 0), read(1, 0)],
            vec![
                vec![unmap(0, 0..4)],
                vec![protect(1, 0..2, Protection::Read), read(1, 3)],
                vec![map(2, 0..4), write(2, 0), read(2, 1)],
            ],
        ),
        |world| assert_eq!(world.file(0).sharers(0), 1),
    );
}

#[test]
fn fork_and_exit_while_sharing() {
    scene(
        "fork_and_exit_while_sharing",
        3_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 0), read(1, 0)],
            vec![
                vec![
                    HugeOp::Fork { space: 0, child: 2 },
                    write(2, 1),
                    read(2, 0),
                    HugeOp::Exit { space: 2 },
                ],
                vec![write(0, 1), read(2, 1), write(2, 2)],
                vec![HugeOp::Exit { space: 1 }],
            ],
        ),
        |world| {
            let pages = world.file(0).pages();
            has(world, pages, 4 - pages);
        },
    );
}

#[test]
fn remap_across_a_shared_table() {
    let remap = |space, slots, to| HugeOp::Remap { space, slots, to };
    scene(
        "remap_across_a_shared_table",
        3_000,
        |_| {},
        (
            vec![map(0, 0..8), map(1, 0..8), write(0, 3), read(1, 3)],
            vec![
                vec![remap(1, 2..6, 16), write(1, 17), remap(1, 16..20, 32)],
                vec![write(0, 2), read(1, 3), write(0, 5)],
                vec![read(1, 17), write(1, 33), read(1, 1)],
            ],
        ),
        |_| {},
    );
}

#[test]
fn protect_of_a_part_against_a_sharers_fault() {
    scene(
        "protect_of_a_part_against_a_sharers_fault",
        3_000,
        |_| {},
        (
            vec![map(0, 0..4), map(1, 0..4), write(0, 1), read(1, 1)],
            vec![
                vec![
                    protect(1, 1..2, Protection::Read),
                    read(1, 1),
                    protect(1, 1..2, Protection::ReadWrite),
                    write(1, 1),
                ],
                vec![write(0, 2), write(0, 1), read(0, 3)],
                vec![write(1, 1), read(1, 2)],
            ],
        ),
        |_| {},
    );
}

/// Truncate and hole punch meet faults that have their share lock, and an unmap that has
/// it and wants `i_mmap`: they let `i_mmap` go and wait.
#[test]
fn back_out_of_truncate() {
    let seen = Arc::new(AtomicU64::new(0));
    let backed_out = seen.clone();
    let touches = |space| [5, 1, 0, 1].map(|slot| read(space, slot)).to_vec();
    scene(
        "back_out_of_truncate",
        3_000,
        |_| {},
        (
            vec![map(0, 0..8), map(1, 0..8), write(0, 1), read(1, 1)],
            vec![
                touches(0),
                vec![unmap(1, 5..6), read(1, 1), unmap(1, 1..2), unmap(1, 0..1)],
                vec![punch(1..2), truncate(1), truncate(PAGES)],
            ],
        ),
        move |world| {
            backed_out.fetch_add(world.pool().stats().backed_out, Ordering::Relaxed);
        },
    );
    let one = std::env::var("SOFTFAULT_SHUTTLE_SEED").is_ok();
    assert!(one || seen.load(Ordering::Relaxed) > 0, "never backed out");
}

/// Hole punch is through with all mappings however often those that it has been through
/// share again.
#[test]
fn punch_comes_to_an_end() {
    let touches = |space| (0..10).map(|_| read(space, 0)).collect();
    scene(
        "punch_comes_to_an_end",
        3_000,
        |setting| {
            setting.spaces = 3;
            setting.policies = ShareSync::VmaLock.into();
        },
        (
            vec![
                map(0, 0..4),
                map(1, 0..4),
                map(2, 0..4),
                write(0, 1),
                read(1, 1),
                read(2, 1),
            ],
            vec![touches(0), touches(1), touches(2), vec![punch(1..2)]],
        ),
        |world| {
            let times = world.pool().stats().backed_out;
            // Each mapping once; and once more if a fault on the page beside it has mapped it again (`around`) before the hole
            // had its fault mutex.
            assert!(times <= 2 * 3, "backed out {times} times");
        },
    );
}

/// A page that goes back is another file's next: not while a core still writes to it,
/// whoever unmapped it.
#[test]
fn punch_against_the_unmap_of_the_page() {
    scene(
        "punch_against_the_unmap_of_the_page",
        1_500,
        |setting| {
            setting.files = 2;
            setting.pool_pages = 1;
        },
        (
            vec![
                map_of(0, 0, 0..2, false),
                map_of(1, 1, 0..2, false),
                write(0, 0),
            ],
            vec![
                vec![write(0, 0), write(0, 0), write(0, 0)],
                vec![unmap(0, 0..2)],
                vec![punch(0..2), write(1, 0), read(1, 0), read(1, 0)],
            ],
        ),
        |_| {},
    );
}

/// A promise is kept whoever else wants pages: through a hole, and while others come and
/// go that have reserved the same.
#[test]
fn promises_against_a_greedy_file() {
    scene(
        "promises_against_a_greedy_file",
        1_500,
        |setting| {
            setting.files = 2;
            setting.pool_pages = 3;
            setting.spaces = 3;
        },
        (
            vec![map(0, 0..2), map_of(1, 1, 0..4, false), write(0, 0)],
            vec![
                vec![punch(0..2), write(0, 0), write(0, 1)],
                vec![write(1, 0), write(1, 1), write(1, 2)],
                vec![map(2, 0..2), write(2, 1), unmap(2, 0..2)],
            ],
        ),
        |world| {
            // Two for the one, and the rest for the other.
            let counts = world.counts();
            let pages = world.file(0).pages();
            assert_eq!((pages, counts.reserved), (2, 0));
        },
    );
}

/// A pool with no page to spare: a map of pages that are reserved already needs none, whoever
/// faults meanwhile.
#[test]
fn map_where_all_is_promised() {
    scene(
        "map_where_all_is_promised",
        3_000,
        |setting| setting.pool_pages = 2,
        (
            vec![map(0, 0..2)],
            vec![vec![map(1, 0..2)], vec![write(0, 0), write(0, 1)]],
        ),
        |world| assert_eq!(world.file(0).mappings(), 2, "no page was wanted"),
    );
}

/// A mapping that comes while the file is cut off reserves nothing beyond its end.
#[test]
fn map_against_truncate() {
    scene(
        "map_against_truncate",
        3_000,
        |_| {},
        (
            vec![map(0, 0..4), write(0, 1)],
            vec![
                vec![map(1, 0..4), write(1, 0)],
                vec![truncate(1)],
                vec![unmap(0, 0..4)],
            ],
        ),
        |world| {
            let pages = world.file(0).pages();
            has(world, pages, 1 - pages);
        },
    );
}

fn drawn(name: &'static str, schedules: u64, spaces: usize, ops: usize) {
    explore(name, schedules, move |seed| {
        let mut random = Random::new(seed);
        let setting = HugeSetting {
            pool_pages: [16, 5, 3][random.below(3)],
            files: 1 + random.below(2),
            ..setting(seed, spaces)
        };
        let (setup, lists) = draw_huge(&mut random, &setting, ops);
        play_huge_together(setting, &setup, &lists, |_| {});
    });
}

#[test]
fn two_spaces_of_huge_pages() {
    drawn("two_spaces_of_huge_pages", 3_000, 2, 6);
}

#[test]
fn three_spaces_of_huge_pages() {
    drawn("three_spaces_of_huge_pages", 2_000, 3, 5);
}
