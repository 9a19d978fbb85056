//! Faults that no thread of ours is at: their reads are under way, or they wait for a thread.

use crate::uffd::Message;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use softfault_engine::fault::{FaultFlags, FaultRead};
use softfault_engine::lock::Mutex;

/// Faults at most: as many as a ring has reads, and those that are left to other threads.
const PLACES: usize = 512;

/// A thread that sleeps in a touch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    /// The touched address.
    pub(super) addr: usize,
    pub(super) flags: FaultFlags,
    /// The kernel's number of it.
    pub(super) thread: u32,
    /// Of its message.
    pub(super) number: u64,
    /// Which descriptor that came by.
    pub(super) from: u8,
    /// Changes of windows in place before its message was waited for.
    pub(super) changes: usize,
}

impl Touch {
    /// Of nobody.
    pub(super) const NONE: Self = Self {
        addr: 0,
        flags: FaultFlags {
            write: false,
            tried: false,
            io_done: false,
            asked: 0,
        },
        thread: 0,
        number: 0,
        from: 0,
        changes: 0,
    };

    pub(super) fn new(message: &Message, number: u64, changes: usize) -> Self {
        Self {
            addr: message.addr,
            flags: FaultFlags {
                write: message.write,
                ..FaultFlags::default()
            },
            thread: message.thread,
            number,
            from: message.from,
            changes,
        }
    }
}

/// A fault that has a place.
pub(super) struct Held {
    pub(super) touch: Touch,
    /// `None`: it is to be begun anew.
    pub(super) read: Option<FaultRead<'static>>,
}

/// All of them.
pub(super) struct UnderWay {
    taken: Bits,
    /// The fields of a place are used only by the thread that has taken it, or got it by its number.
    places: Box<[Mutex<Option<Held>>]>,
}

impl UnderWay {
    pub(super) fn new() -> Self {
        Self {
            taken: Bits::new(),
            places: (0..PLACES).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Gives a fault a place, or back if there is none.
    #[expect(
        clippy::result_large_err,
        reason = "no box: the heap may be in a map of ours"
    )]
    pub(super) fn put(&self, held: Held) -> Result<u16, Held> {
        let Some(place) = self.taken.take() else {
            return Err(held);
        };
        *self.places[usize::from(place)].lock() = Some(held);
        Ok(place)
    }

    /// Reads all places in use.
    pub(super) fn with<R>(&self, place: u16, look: impl FnOnce(&mut Held) -> R) -> R {
        let mut held = self.places[usize::from(place)].lock();
        look(held.as_mut().expect("it has a place"))
    }

    /// Takes it out.
    pub(super) fn take(&self, place: u16) -> Held {
        let held = self.places[usize::from(place)].lock().take();
        self.taken.give_back(place);
        held.expect("it had a place")
    }
}

/// A bit a place.
struct Bits([AtomicU64; PLACES / 64]);

impl Bits {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES / 64])
    }

    fn take(&self) -> Option<u16> {
        for (index, word) in self.0.iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // AcqRel pairs with the Release in `give_back`: the place was emptied before.
                match word.compare_exchange_weak(seen, seen | 1 << bit, AcqRel, Relaxed) {
                    Ok(_) => return Some((index * 64) as u16 + bit as u16),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    fn give_back(&self, place: u16) {
        let (word, bit) = (usize::from(place) / 64, place % 64);
        let before = self.0[word].fetch_and(!(1 << bit), Release);
        debug_assert!(before >> bit & 1 == 1, "given back twice");
    }
}

/// Places in a row, for the holder of its lock: each at most once.
pub(super) struct Places {
    row: [u16; PLACES],
    first: usize,
    count: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            row: [0; PLACES],
            first: 0,
            count: 0,
        }
    }
}

impl Places {
    pub(super) fn push(&mut self, place: u16) {
        assert!(self.count < PLACES, "a place is left once");
        self.row[(self.first + self.count) % PLACES] = place;
        self.count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the first out.
    pub(super) fn pop(&mut self) -> Option<u16> {
        self.count = self.count.checked_sub(1)?;
        let place = self.row[self.first];
        self.first = (self.first + 1) % PLACES;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(number: u64) -> Held {
        let message = Message {
            addr: 4096,
            write: false,
            thread: 1,
            from: 0,
        };
        Held {
            touch: Touch::new(&message, number, 0),
            read: None,
        }
    }

    #[test]
    fn each_has_a_place_of_its_own() {
        let all = UnderWay::new();
        let mut left = Places::default();
        for number in 0..PLACES as u64 {
            let place = all.put(held(number)).ok().unwrap();
            assert_eq!(u64::from(place), number, "the lowest first");
            left.push(place);
        }
        assert!(all.put(held(999)).is_err());
        assert_eq!(all.take(130).touch.number, 130);
        assert_eq!(all.put(held(1000)).ok(), Some(130));
        let mut count = 0;
        while let Some(place) = left.pop() {
            let number = all.with(place, |held| held.touch.number);
            assert_eq!(number, if place == 130 { 1000 } else { u64::from(place) });
            all.take(place);
            count += 1;
        }
        assert_eq!(count, PLACES);
        assert_eq!(all.put(held(1)).ok(), Some(0));
    }
}
