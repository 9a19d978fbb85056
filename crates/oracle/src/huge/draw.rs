//! Lists for threads, from a seed.

use super::op::{HugeOp, HugeSetting, Spot};
use crate::random::Random;
use core::ops::Range;
use softfault_engine::mm::Protection;

/// A setup, and a list a thread: thread `n` changes space `n`, and the first one the
/// files' lengths.
pub fn draw_huge(
    random: &mut Random,
    setting: &HugeSetting,
    ops: usize,
) -> (Vec<HugeOp>, Vec<Vec<HugeOp>>) {
    let threads = setting.spaces;
    let mut setup = Vec::new();
    for space in 0..threads as u8 {
        setup.push(map(random, setting, space));
        let slot = random.below(setting.file_pages as usize);
        let spot = Spot::First;
        setup.push(HugeOp::Write { space, slot, spot });
    }
    let mut list = |thread| {
        let ops = 0..ops;
        ops.map(|_| any(random, setting, thread)).collect()
    };
    let lists = (0..threads as u8).map(&mut list).collect();
    (setup, lists)
}

fn part(random: &mut Random, pages: u64) -> Range<u64> {
    let start = random.below(pages as usize) as u64;
    start..start + 1 + random.below((pages - start) as usize) as u64
}

fn slots(random: &mut Random, setting: &HugeSetting) -> Range<usize> {
    let part = part(random, 2 * setting.file_pages);
    part.start as usize..part.end as usize
}

/// All of a file, where it is aligned.
fn map(random: &mut Random, setting: &HugeSetting, space: u8) -> HugeOp {
    let pages = setting.file_pages;
    let indexes = match random.below(4) {
        0 => part(random, pages),
        _ => 0..pages,
    };
    HugeOp::Map {
        space,
        file: random.below(setting.files) as u8,
        slot: random.below(2) * pages as usize,
        shown: indexes.clone(),
        indexes,
        reserve: random.below(2) == 0,
        protection: [
            Protection::ReadWrite,
            Protection::ReadWrite,
            Protection::Read,
        ][random.below(3)],
    }
}

fn any(random: &mut Random, setting: &HugeSetting, thread: u8) -> HugeOp {
    let pages = setting.file_pages;
    let file = random.below(setting.files) as u8;
    match random.below(20) {
        0 | 1 => map(random, setting, thread),
        2 | 3 => HugeOp::Unmap {
            space: thread,
            slots: slots(random, setting),
        },
        4 => HugeOp::Protect {
            space: thread,
            slots: slots(random, setting),
            protection: [Protection::Read, Protection::ReadWrite][random.below(2)],
        },
        5 => HugeOp::Remap {
            space: thread,
            slots: slots(random, setting),
            to: 2 * pages as usize,
        },
        6 => HugeOp::Punch {
            file,
            indexes: part(random, pages),
        },
        7 if thread == 0 => HugeOp::Truncate {
            file,
            pages: random.below(pages as usize + 1) as u64,
        },
        8 => {
            let child = thread + setting.spaces as u8;
            let (space, exit) = (thread, random.below(2) == 0);
            match exit {
                true => HugeOp::Exit { space: child },
                false => HugeOp::Fork { space, child },
            }
        }
        kind => {
            let space = random.below(2 * setting.spaces) as u8;
            let slot = random.below(2 * pages as usize);
            let spot = [Spot::First, Spot::Middle, Spot::Across][random.below(3)];
            match kind % 2 {
                0 => HugeOp::Read { space, slot, spot },
                _ => HugeOp::Write { space, slot, spot },
            }
        }
    }
}
