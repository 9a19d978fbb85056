//! The order of events, while several threads had their way: which states a slot, a
//! file's length and a word may have been in at some moment of a touch.
//!
//! A thread changes the slots of its own spaces only, and one thread alone gives a file
//! another length; so those have one order. Words are written by all: a word that a read shows
//! must have been written, and nothing may lie wholly in between.

use super::op::{HugeSetting, SLOTS};
use core::ops::Range;
use softfault_engine::fault::FaultError;
use softfault_engine::mm::Protection;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// From when to when.
#[derive(Debug, Clone, Copy)]
pub(super) struct During {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The mapping of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) file: usize,
    pub(super) index: u64,
    pub(super) reserves: bool,
    pub(super) protection: Protection,
}

/// The result of a touch of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    Read(u64),
    Written(u64),
    Refused { write: bool, error: FaultError },
}

/// A touch of one word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) during: During,
    pub(super) space: u8,
    pub(super) slot: usize,
    pub(super) word: usize,
    pub(super) came: Came,
}

/// In their order; the first is from the beginning on.
#[derive(Debug)]
struct Changes<T>(Vec<(During, T)>);

/// One word of a file: file, index, and which of the page.
type Place = (usize, u64, usize);

#[derive(Debug, Clone, Copy)]
struct Write {
    during: During,
    value: u64,
    /// It went there and nowhere else.
    is_sure: bool,
}

#[derive(Debug)]
struct Slots {
    views: BTreeMap<(u8, usize), Changes<Option<View>>>,
    lengths: Vec<Changes<u64>>,
    /// Holes that were made: file, indexes.
    holes: Vec<(During, usize, Range<u64>)>,
    /// Those of them that were cut off: no map has a promise of such a page any more. One that was punched keeps it.
    cuts: Vec<(During, usize, Range<u64>)>,
}

/// All that happened.
#[derive(Debug)]
pub(super) struct History {
    now: AtomicU64,
    // No thread is suspended with it in hand.
    slots: Mutex<Slots>,
}

const FIRST: During = During { begin: 0, end: 0 };

impl<T: Copy> Changes<T> {
    fn new(first: T) -> Self {
        Self(vec![(FIRST, first)])
    }

    fn last(&self) -> T {
        self.0.last().expect("there is a first").1
    }

    /// The states that were possible at some moment.
    fn seen(&self, during: During) -> impl Iterator<Item = T> {
        let before = |(change, _): &(During, T)| change.end < during.begin;
        let base = self.0.iter().rposition(before).unwrap_or(0);
        let rest = self.0[base..].iter();
        rest.filter(move |(change, _)| change.begin < during.end)
            .map(|(_, state)| *state)
    }
}

impl History {
    pub(super) fn new(setting: &HugeSetting) -> Self {
        let length = |_| Changes::new(setting.file_pages);
        Self {
            now: AtomicU64::new(1),
            slots: Mutex::new(Slots {
                views: BTreeMap::new(),
                lengths: (0..setting.files).map(length).collect(),
                holes: Vec::new(),
                cuts: Vec::new(),
            }),
        }
    }

    /// Does `f`, and says when.
    pub(super) fn during<R>(&self, f: impl FnOnce() -> R) -> (During, R) {
        let begin = self.now.fetch_add(1, Ordering::SeqCst);
        let done = f();
        let end = self.now.fetch_add(1, Ordering::SeqCst);
        (During { begin, end }, done)
    }

    /// The mapping of a slot now, for the thread that owns it.
    pub(super) fn view(&self, space: u8, slot: usize) -> Option<View> {
        let slots = self.slots.lock().unwrap();
        let known = slots.views.get(&(space, slot));
        known.and_then(|changes| changes.last())
    }

    /// A slot shows something else.
    pub(super) fn set_view(&self, during: During, space: u8, slot: usize, view: Option<View>) {
        let mut slots = self.slots.lock().unwrap();
        let changes = slots.views.entry((space, slot));
        let changes = changes.or_insert_with(|| Changes::new(None));
        changes.0.push((during, view));
    }

    /// All slots of a space show nothing.
    pub(super) fn clear_views(&self, during: During, space: u8) {
        for slot in 0..SLOTS {
            if self.view(space, slot).is_some() {
                self.set_view(during, space, slot, None);
            }
        }
    }

    /// A file has another length.
    pub(super) fn set_length(&self, during: During, file: usize, pages: u64) {
        let mut slots = self.slots.lock().unwrap();
        let before = slots.lengths[file].last();
        slots.lengths[file].0.push((during, pages));
        if pages < before {
            slots.holes.push((during, file, pages..before));
            slots.cuts.push((during, file, pages..before));
        }
    }

    /// A file has a hole.
    pub(super) fn punched(&self, during: During, file: usize, indexes: Range<u64>) {
        self.slots
            .lock()
            .unwrap()
            .holes
            .push((during, file, indexes));
    }

    /// Asserts that the result of each touch was possible.
    pub(super) fn check(&self, touches: &[Touch]) {
        let slots = self.slots.lock().unwrap();
        let writes = slots.writes(touches);
        for touch in touches {
            let mut views = slots.views_of(touch);
            assert!(
                views.any(|view| slots.explains(view, touch, &writes)),
                "nothing was so at any moment of {touch:?}: it showed one of {:?}; writes: {:?}",
                slots.views_of(touch).collect::<Vec<_>>(),
                slots
                    .views_of(touch)
                    .flatten()
                    .filter_map(|view| writes.get(&(view.file, view.index, touch.word)))
                    .collect::<Vec<_>>(),
            );
        }
    }
}

impl Slots {
    fn views_of(&self, touch: &Touch) -> impl Iterator<Item = Option<View>> {
        let known = self.views.get(&(touch.space, touch.slot));
        let seen: Vec<_> = match known {
            Some(changes) => changes.seen(touch.during).collect(),
            None => vec![None],
        };
        seen.into_iter()
    }

    /// Everything that was written, holes included, by word.
    fn writes(&self, touches: &[Touch]) -> BTreeMap<Place, Vec<Write>> {
        let mut writes: BTreeMap<Place, Vec<Write>> = BTreeMap::new();
        for touch in touches {
            let Came::Written(value) = touch.came else {
                continue;
            };
            let mut places: Vec<Place> = self
                .views_of(touch)
                .flatten()
                .filter(|view| view.protection == Protection::ReadWrite)
                .map(|view| (view.file, view.index, touch.word))
                .collect();
            places.dedup();
            for place in &places {
                writes.entry(*place).or_default().push(Write {
                    during: touch.during,
                    value,
                    is_sure: places.len() == 1,
                });
            }
        }
        for (during, file, indexes) in &self.holes {
            for index in indexes.clone() {
                for word in 0..3 {
                    writes.entry((*file, index, word)).or_default().push(Write {
                        during: *during,
                        value: 0,
                        is_sure: true,
                    });
                }
            }
        }
        writes
    }

    /// True if the page had been cut off before the touch had ended.
    fn was_cut(&self, view: &View, touch: &Touch) -> bool {
        self.cuts.iter().any(|(during, file, indexes)| {
            *file == view.file && indexes.contains(&view.index) && during.begin < touch.during.end
        })
    }

    fn explains(
        &self,
        view: Option<View>,
        touch: &Touch,
        writes: &BTreeMap<Place, Vec<Write>>,
    ) -> bool {
        let (write, error) = match touch.came {
            Came::Read(_) => (false, None),
            Came::Written(_) => (true, None),
            Came::Refused { write, error } => (write, Some(error)),
        };
        let Some(view) = view else {
            return error == Some(FaultError::NotMapped);
        };
        let allowed = match view.protection {
            Protection::None => false,
            Protection::Read => !write,
            Protection::ReadWrite => true,
        };
        if !allowed {
            return error == Some(FaultError::Protection);
        }
        let lengths = &self.lengths[view.file];
        match error {
            Some(FaultError::BeyondEnd) => {
                let mut seen = lengths.seen(touch.during);
                return seen.any(|pages| pages <= view.index);
            }
            // Promised pages are there, except those that were cut off once.
            Some(FaultError::NoMemory) => return !view.reserves || self.was_cut(&view, touch),
            Some(_) => return false,
            None => {}
        }
        if !lengths.seen(touch.during).any(|pages| pages > view.index) {
            return false;
        }
        let Came::Read(value) = touch.came else {
            return true;
        };
        let place = (view.file, view.index, touch.word);
        may_show(
            touch.during,
            value,
            writes.get(&place).map_or(&[], |all| all),
        )
    }
}

/// True if a word may have had this value at some moment: it was written, or was so from
/// the beginning, and no other was surely written between that and the read.
fn may_show(read: During, value: u64, writes: &[Write]) -> bool {
    let first = Write {
        during: FIRST,
        value: 0,
        is_sure: true,
    };
    let mut sources = std::iter::once(&first)
        .chain(writes)
        .filter(|write| write.value == value && write.during.begin < read.end);
    sources.any(|source| {
        !writes.iter().any(|other| {
            other.is_sure && source.during.end < other.during.begin && other.during.end < read.begin
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    /// The verdict on a touch of page 0, which is promised and not there, after another change of the file.
    fn is_accepted(change: impl FnOnce(&History, During)) -> bool {
        let setting = HugeSetting {
            policies: HugeSetting::policies_of(0),
            leaf_pages: 4,
            fault_mutexes: 1,
            pool_pages: 8,
            file_pages: 8,
            files: 1,
            spaces: 1,
        };
        let history = History::new(&setting);
        let view = View {
            file: 0,
            index: 0,
            reserves: true,
            protection: Protection::ReadWrite,
        };
        let (during, ()) = history.during(|| ());
        history.set_view(during, 0, 0, Some(view));
        let (during, ()) = history.during(|| ());
        change(&history, during);
        let (during, ()) = history.during(|| ());
        let touch = Touch {
            during,
            space: 0,
            slot: 0,
            word: 0,
            came: Came::Refused {
                write: true,
                error: FaultError::NoMemory,
            },
        };
        catch_unwind(move || history.check(&[touch])).is_ok()
    }

    /// Failed before: a file that was once made shorter owed nothing to any of its maps.
    #[test]
    fn only_pages_that_were_cut_off_lose_their_promise() {
        assert!(!is_accepted(|_, _| ()));
        assert!(!is_accepted(
            |history, during| history.set_length(during, 0, 7)
        ));
        assert!(!is_accepted(|history, during| history.punched(
            during,
            0,
            0..1
        )));
        assert!(is_accepted(|history, during| {
            history.set_length(during, 0, 0);
            history.set_length(during, 0, 8);
        }));
    }
}
