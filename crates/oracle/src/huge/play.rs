//! One list of operations, each of which is predicted.

use super::model::HugeModel;
use super::op::{HugeOp, HugeSetting, SLOTS, SPACES, Spot};
use super::world::HugeWorld;
use core::fmt::Debug;
use core::ops::Range;
use std::mem::ManuallyDrop;

/// Cores that take turns: each has buffered its last translations.
const CORES: usize = 3;

/// Plays `ops` on a pool and on the model, and asserts that every word, every error and
/// every count is the model's, and that nothing is left at the end.
pub fn play_huge(setting: HugeSetting, ops: &[HugeOp]) {
    let mut world = ManuallyDrop::new(HugeWorld::new(setting));
    let mut model = HugeModel::new(setting);
    for (number, op) in ops.iter().enumerate() {
        let op = resolve(op, &model, setting.files);
        obey(&mut world, &mut model, number, &op);
        check(&world, &model, &op);
    }
    for space in model.spaces() {
        for slot in 0..SLOTS {
            for spot in [Spot::First, Spot::Middle, Spot::Across] {
                let op = HugeOp::Read { space, slot, spot };
                obey(&mut world, &mut model, 0, &op);
            }
        }
    }
    check(&world, &model, &ops.len());
    ManuallyDrop::into_inner(world).finish();
}

fn cut(slots: &Range<usize>, to: usize) -> Range<usize> {
    slots.start..slots.end.min(slots.start + (SLOTS - to))
}

fn short(indexes: &Range<u64>, slot: usize) -> Range<u64> {
    indexes.start..indexes.end.min(indexes.start + (SLOTS - slot) as u64)
}

/// The same with numbers of spaces and files that there are, and within the slots.
fn resolve(op: &HugeOp, model: &HugeModel, files: usize) -> HugeOp {
    let mut op = op.clone();
    let spaces = model.spaces();
    match &mut op {
        HugeOp::Map { space, .. }
        | HugeOp::MapMore { space, .. }
        | HugeOp::Unmap { space, .. }
        | HugeOp::Protect { space, .. }
        | HugeOp::Remap { space, .. }
        | HugeOp::Read { space, .. }
        | HugeOp::Write { space, .. }
        | HugeOp::Fork { space, .. }
        | HugeOp::Exit { space } => *space = spaces[usize::from(*space) % spaces.len()],
        HugeOp::Truncate { .. } | HugeOp::Punch { .. } | HugeOp::Replace { .. } => {}
    }
    match &mut op {
        HugeOp::Map { file, .. }
        | HugeOp::Truncate { file, .. }
        | HugeOp::Punch { file, .. }
        | HugeOp::Replace { file } => *file %= files as u8,
        _ => {}
    }
    match &mut op {
        HugeOp::Map { shown, slot, .. } | HugeOp::MapMore { shown, slot, .. } => {
            *shown = short(shown, *slot);
        }
        HugeOp::Remap { slots, to, .. } => *slots = cut(slots, *to),
        HugeOp::Fork { child, .. } => {
            let free = |space: &u8| !spaces.contains(space);
            *child = (0..SPACES as u8).find(free).unwrap_or(*child);
        }
        _ => {}
    }
    op
}

fn same<T: PartialEq + Debug>(op: &HugeOp, got: T, should: T) {
    assert_eq!(got, should, "answer, and what it should be, of {op:?}");
}

fn obey(world: &mut HugeWorld, model: &mut HugeModel, number: usize, op: &HugeOp) {
    let of = |space: &u8| world.space(*space).expect("a space that is there");
    match op {
        HugeOp::Map {
            space,
            file,
            indexes,
            shown,
            slot,
            reserve,
            protection,
        } => {
            let file = usize::from(*file);
            let ranges = (indexes.clone(), shown.clone());
            let should = model.map(*space, file, ranges.clone(), *slot, *reserve, *protection);
            let (space, file) = (of(space), world.file(file));
            let got = world.map(&space, &file, ranges, *slot, *reserve, *protection);
            same(op, got, should);
        }
        HugeOp::MapMore {
            space,
            of: from,
            shown,
            slot,
        } => {
            let should = model.map_more(*space, *from, shown, *slot);
            same(op, world.map_more(&of(space), *from, shown, *slot), should);
        }
        HugeOp::Unmap { space, slots } => {
            model.unmap(*space, slots);
            world.unmap(&of(space), slots);
        }
        HugeOp::Protect {
            space,
            slots,
            protection,
        } => {
            let should = model.protect(*space, slots, *protection);
            same(op, world.protect(&of(space), slots, *protection), should);
        }
        HugeOp::Remap { space, slots, to } => {
            let should = model.remap(*space, slots, *to);
            same(op, world.remap(&of(space), slots, *to), should);
        }
        HugeOp::Read { space, slot, spot } => {
            let should = model.read(*space, (*slot, *spot));
            let mut core = turn(world, number);
            let got = world.read(&mut core, &of(space), (*slot, *spot));
            world.give_core(core);
            same(op, got, should);
        }
        HugeOp::Write { space, slot, spot } => {
            let word = number as u64 + 1;
            let should = model.write(*space, (*slot, *spot), word);
            let mut core = turn(world, number);
            let got = world.write(&mut core, &of(space), (*slot, *spot), word);
            world.give_core(core);
            same(op, got, should);
        }
        HugeOp::Fork { space, child } => {
            if !model.spaces().contains(child) {
                model.fork(*space, *child);
                world.fork(&of(space), *child);
            }
        }
        HugeOp::Exit { space } => {
            model.exit(*space);
            world.exit(*space);
            if model.spaces().len() < world.setting().spaces {
                model.add_space(*space);
                world.add_space(*space);
            }
        }
        HugeOp::Truncate { file, pages } => {
            let file = usize::from(*file);
            let should = model.truncate(file, *pages);
            same(op, world.file(file).truncate(*pages), should);
        }
        HugeOp::Punch { file, indexes } => {
            let file = usize::from(*file);
            let should = model.punch(file, indexes);
            same(op, world.file(file).punch_hole(indexes.clone()), should);
        }
        HugeOp::Replace { file } => {
            model.replace(usize::from(*file));
            world.replace(usize::from(*file));
        }
    }
}

/// One of the cores; the others are behind it.
fn turn(world: &HugeWorld, number: usize) -> softfault_engine::mmu::Core {
    let mut cores: Vec<_> = (0..CORES).map(|_| world.take_core()).collect();
    let core = cores.swap_remove(number % CORES);
    cores.into_iter().for_each(|core| world.give_core(core));
    core
}

fn check(world: &HugeWorld, model: &HugeModel, after: &impl Debug) {
    let (counts, should) = (world.counts(), model.pool());
    let got = (counts.free, counts.reserved);
    let should = (should.free, should.reserved);
    assert_eq!(got, should, "free and reserved pages after {after:?}");
    for file in 0..world.setting().files {
        let it = world.file(file);
        let got = (it.len(), it.pages(), it.mappings());
        let should = model.file(file);
        assert_eq!(got, should, "length, pages and mappings after {after:?}");
    }
}
