//! A list of operations a thread, at a time.

use super::history::{Came, During, History, Touch, View};
use super::op::{HugeOp, HugeSetting, SLOTS, Spot};
use super::world::{HugeRefusal, HugeWorld};
use crate::together;
use core::ops::Range;
use softfault_engine::fault::FaultError;
use softfault_engine::mm::{MmError, Protection};
use std::mem::ManuallyDrop;
use std::sync::Mutex;

/// Lets one thread play `setup`, then a thread each of `lists`. Asserts that each touch
/// showed a word that was there at some moment of it, that pages in files and pages in the pool are
/// all there are, the assertions of `after`, and that nothing is left when all is taken down.
///
/// A space is changed by one list only, and a file's length by one; all touch all.
/// Operations on spaces that are not there do nothing.
pub fn play_huge_together(
    setting: HugeSetting,
    setup: &[HugeOp],
    lists: &[Vec<HugeOp>],
    after: impl Fn(&HugeWorld),
) {
    let world = ManuallyDrop::new(HugeWorld::new(setting));
    let history = History::new(&setting);
    let touches: Mutex<Vec<Touch>> = Mutex::default();
    let play = |number: usize, list: &[HugeOp]| {
        let mut player = Player {
            world: &world,
            history: &history,
            next: (number as u64) << 32,
            touches: Vec::new(),
        };
        list.iter().for_each(|op| player.obey(op));
        touches.lock().unwrap().append(&mut player.touches);
    };
    play(1, setup);
    let play = &play;
    together(
        lists
            .iter()
            .enumerate()
            .map(|(number, list)| move || play(number + 2, list)),
    );
    check_pool(&world);
    let all: Vec<HugeOp> = (0..u8::MAX)
        .filter(|space| world.space(*space).is_some())
        .flat_map(|space| (0..SLOTS).map(move |slot| (space, slot)))
        .filter(|(space, slot)| history.view(*space, *slot).is_some())
        .flat_map(|(space, slot)| {
            [Spot::First, Spot::Middle, Spot::Across].map(|spot| HugeOp::Read { space, slot, spot })
        })
        .collect();
    after(&world);
    play(lists.len() + 2, &all);
    check_pool(&world);
    history.check(&touches.lock().unwrap());
    ManuallyDrop::into_inner(world).finish();
}

fn check_pool(world: &HugeWorld) {
    let counts = world.counts();
    let files = 0..world.setting().files;
    let pages: u64 = files.map(|file| world.file(file).pages()).sum();
    assert_eq!(counts.free + pages, counts.total, "pages that nobody has");
    assert!(counts.reserved <= counts.free, "{counts:?}");
}

struct Player<'a> {
    world: &'a HugeWorld,
    history: &'a History,
    /// Its next write is one more.
    next: u64,
    touches: Vec<Touch>,
}

impl Player<'_> {
    fn touched(&mut self, during: During, (space, slot): (u8, usize), spot: Spot, came: &[Came]) {
        for (&(after, word), &came) in spot.words().iter().zip(came) {
            self.touches.push(Touch {
                during,
                space,
                slot: slot + after,
                word,
                came,
            });
        }
    }

    fn set_all(&self, during: During, space: u8, slots: Range<usize>, view: Option<View>) {
        for slot in slots {
            self.history.set_view(during, space, slot, view);
        }
    }

    fn obey(&mut self, op: &HugeOp) {
        let (world, history) = (self.world, self.history);
        match op {
            HugeOp::Read { space, slot, spot } => {
                let mut core = world.take_core();
                let (during, read) = history.during(|| {
                    let it = world.space(*space)?;
                    Some(world.read(&mut core, &it, (*slot, *spot)))
                });
                world.give_core(core);
                let Some((words, error)) = read else { return };
                let write = false;
                let refused = error.map(|error| Came::Refused { write, error });
                let came: Vec<Came> = words.into_iter().map(Came::Read).chain(refused).collect();
                self.touched(during, (*space, *slot), *spot, &came);
            }
            HugeOp::Write { space, slot, spot } => {
                self.next += 1;
                let value = self.next;
                let mut core = world.take_core();
                let (during, written) = history.during(|| {
                    let it = world.space(*space)?;
                    Some(world.write(&mut core, &it, (*slot, *spot), value))
                });
                world.give_core(core);
                let Some((done, error)) = written else { return };
                let write = true;
                let refused = error.map(|error: FaultError| Came::Refused { write, error });
                let written = std::iter::repeat_n(Came::Written(value), done);
                let came: Vec<Came> = written.chain(refused).collect();
                self.touched(during, (*space, *slot), *spot, &came);
            }
            HugeOp::Truncate { file, pages } => {
                let number = usize::from(*file);
                let it = world.file(number);
                let (during, done) = history.during(|| it.truncate(*pages));
                if done.is_ok() {
                    history.set_length(during, number, *pages);
                }
            }
            HugeOp::Punch { file, indexes } => {
                let number = usize::from(*file);
                let it = world.file(number);
                let (during, done) = history.during(|| it.punch_hole(indexes.clone()));
                if done.is_ok() {
                    history.punched(during, number, indexes.clone());
                }
            }
            HugeOp::Replace { .. } | HugeOp::MapMore { .. } => panic!("not for threads: {op:?}"),
            HugeOp::Map { .. }
            | HugeOp::Unmap { .. }
            | HugeOp::Protect { .. }
            | HugeOp::Remap { .. }
            | HugeOp::Fork { .. }
            | HugeOp::Exit { .. } => self.change(op),
        }
    }

    /// Changes the mappings of a space.
    fn change(&mut self, op: &HugeOp) {
        let (world, history) = (self.world, self.history);
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
                let Some(it) = world.space(*space) else {
                    return;
                };
                let number = usize::from(*file);
                let backing = world.file(number);
                let ranges = (indexes.clone(), shown.clone());
                let (during, done) = history
                    .during(|| world.map(&it, &backing, ranges, *slot, *reserve, *protection));
                if done.is_ok() {
                    for (index, slot) in shown.clone().zip(*slot..) {
                        let view = View {
                            file: number,
                            index,
                            reserves: *reserve,
                            protection: *protection,
                        };
                        history.set_view(during, *space, slot, Some(view));
                    }
                }
            }
            HugeOp::Unmap { space, slots } => {
                let Some(it) = world.space(*space) else {
                    return;
                };
                let (during, ()) = history.during(|| world.unmap(&it, slots));
                self.set_all(during, *space, slots.clone(), None);
            }
            HugeOp::Protect {
                space,
                slots,
                protection,
            } => {
                let Some(it) = world.space(*space) else {
                    return;
                };
                let (during, done) = history.during(|| world.protect(&it, slots, *protection));
                let unmapped = Err(HugeRefusal::Mm(MmError::Unmapped));
                assert!(done.is_ok() || done == unmapped, "{done:?}");
                self.protected(during, *space, slots, *protection);
            }
            HugeOp::Remap { space, slots, to } => {
                let Some(it) = world.space(*space) else {
                    return;
                };
                let (during, done) = history.during(|| world.remap(&it, slots, *to));
                if done.is_ok() {
                    for (from, to) in slots.clone().zip(*to..) {
                        let view = history.view(*space, from);
                        history.set_view(during, *space, to, view);
                        history.set_view(during, *space, from, None);
                    }
                }
            }
            HugeOp::Fork { space, child } => {
                let Some(it) = world.space(*space) else {
                    return;
                };
                if world.space(*child).is_some() {
                    return;
                }
                let (during, ()) = history.during(|| world.fork(&it, *child));
                for slot in 0..SLOTS {
                    if let view @ Some(_) = history.view(*space, slot) {
                        history.set_view(during, *child, slot, view);
                    }
                }
            }
            HugeOp::Exit { space } => {
                if world.space(*space).is_some() {
                    let (during, ()) = history.during(|| world.exit(*space));
                    history.clear_views(during, *space);
                }
            }
            _ => unreachable!("changes no space: {op:?}"),
        }
    }

    fn protected(&self, during: During, space: u8, slots: &Range<usize>, protection: Protection) {
        for slot in slots.clone() {
            if let Some(view) = self.history.view(space, slot) {
                let view = View { protection, ..view };
                self.history.set_view(during, space, slot, Some(view));
            }
        }
    }
}
