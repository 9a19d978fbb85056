//! Where windows of files are: small ones are parts of a reservation that they share.
//!
//! A reservation costs half a dozen system calls, and a mapping of the kernel's; each
//! with a resident costs a page table, and Linux frees that only when 2 MiB are zapped
//! at once, which is more than a small window has. So windows of up to 1 MiB are parts
//! of an *arena*:
//!
//! ```text
//!   Arenas ── classes   64 KiB, 128 KiB, ... 1 MiB: a part is of the least that fits
//!      └── Arena        one reservation, one table of ranges, a bit a part
//!            └── Window one part; the rest of it has no pages
//! ```
//!
//! A part begins at a block of the index, so folios and buckets know nothing of this.
//! Ranges count the residents of all windows in them (`window`).
//!
//! **A part has one owner at a time.** The owner that gives it back has evicted all of its
//! folios, and each of those was zapped before it left the index; so nothing of it is
//! mapped, and nobody is about to zap a page of it alone. A zap of a whole range happens
//! between the last `leave` and `zapped`, when no window of the arena has a page there,
//! and the next owner cannot enter. Pages that others may have put there (`mlockall`
//! populates) go with a zap of the part.
//!
//! An arena without windows is given back. The first of a class is small, and each is
//! twice as large as the one before, up to [`LARGEST`].
//!
//! Lock: one, for the bits; nothing is locked, reserved or released under it.

use super::folio::BLOCK_BYTES;
use super::window::{Spans, Window};
use super::{MapError, Node};
use crate::PAGE_SIZE;
use crate::lock::Mutex;
use crate::mmu::{Mmu, MmuError, Reservation, TABLE_SPAN};
use crate::page::Protection;
use crate::policy::MapBy;
use std::collections::{BTreeMap, BTreeSet};
use sync::Arc;

/// Sizes of parts: a block, and each twice as much as the one before.
const CLASSES: usize = 5;
/// The largest part.
const LARGEST_PART: usize = BLOCK_BYTES << (CLASSES - 1);
/// The largest arena.
const LARGEST: usize = 16 * TABLE_SPAN;

/// The arenas of a node.
pub(crate) struct Arenas {
    classes: [Mutex<Class>; CLASSES],
}

/// Arenas whose parts are of one size.
#[derive(Default)]
struct Class {
    /// By their start.
    arenas: BTreeMap<usize, Arena>,
    /// The starts of those that have a free part.
    free: BTreeSet<usize>,
}

struct Arena {
    reservation: Reservation,
    spans: Arc<Spans>,
    /// A bit for each part that is in use.
    used: Vec<u64>,
    windows: usize,
}

impl Default for Arenas {
    fn default() -> Self {
        Self {
            classes: core::array::from_fn(|_| Mutex::new(Class::default())),
        }
    }
}

/// True if a window of so many bytes is no part of an arena.
pub(super) fn is_alone(bytes: usize) -> bool {
    class_of(bytes).is_none()
}

/// Bytes of a class's parts.
fn part_bytes(class: usize) -> usize {
    BLOCK_BYTES << class
}

/// The class of the least parts that have so many bytes.
fn class_of(bytes: usize) -> Option<usize> {
    (0..CLASSES).find(|&class| bytes <= part_bytes(class))
}

impl Class {
    /// Takes a free part of an arena that is there.
    fn take(&mut self, part_bytes: usize) -> Option<(Reservation, Arc<Spans>)> {
        let start = *self.free.first()?;
        let arena = self
            .arenas
            .get_mut(&start)
            .expect("an arena with a free part");
        let part = arena.take(part_bytes);
        if arena.is_full(part_bytes) {
            self.free.remove(&start);
        }
        Some(part)
    }

    /// Adds an arena, of which a part is taken.
    fn add(&mut self, arena: Arena, part_bytes: usize) {
        let start = arena.reservation.addr;
        if !arena.is_full(part_bytes) {
            self.free.insert(start);
        }
        self.arenas.insert(start, arena);
    }

    /// Takes a part back; its arena, if that was the last.
    fn give(&mut self, addr: usize, part_bytes: usize) -> Option<Arena> {
        let arena = self.arenas.range_mut(..=addr).next_back();
        let (&start, arena) = arena.expect("a part of an arena");
        let part = (addr - start) / part_bytes;
        let bit = 1 << (part % 64);
        assert!(
            arena.used[part / 64] & bit != 0,
            "a part is given back once"
        );
        arena.used[part / 64] &= !bit;
        arena.windows -= 1;
        if arena.windows > 0 {
            self.free.insert(start);
            return None;
        }
        self.free.remove(&start);
        self.arenas.remove(&start)
    }

    /// Bytes of the next arena.
    fn next_bytes(&self) -> usize {
        let most = LARGEST / TABLE_SPAN;
        TABLE_SPAN * most.min(1 << self.arenas.len().min(most))
    }
}

impl Arena {
    fn new(reservation: Reservation, spans: Arc<Spans>, part_bytes: usize) -> Self {
        let parts = reservation.bytes / part_bytes;
        Self {
            reservation,
            spans,
            used: vec![0; parts.div_ceil(64)],
            windows: 0,
        }
    }

    fn is_full(&self, part_bytes: usize) -> bool {
        self.windows == self.reservation.bytes / part_bytes
    }

    /// Takes a part; there is one.
    fn take(&mut self, part_bytes: usize) -> (Reservation, Arc<Spans>) {
        let word = self.used.iter().position(|word| *word != u64::MAX);
        let word = word.expect("a free part");
        let bit = self.used[word].trailing_ones() as usize;
        let addr = self.reservation.addr + (word * 64 + bit) * part_bytes;
        assert!(addr < self.reservation.range().end, "a free part");
        self.used[word] |= 1 << bit;
        self.windows += 1;
        let part = Reservation {
            addr,
            bytes: part_bytes,
            token: self.reservation.token,
        };
        (part, self.spans.clone())
    }
}

impl Node {
    /// A window that is only read, of `bytes` bytes, without a page. Its tables are
    /// charged.
    pub(crate) fn make_window(&self, bytes: u64) -> Result<Window, MapError> {
        let bytes = usize::try_from(bytes).ok();
        let bytes = bytes.and_then(|bytes| bytes.max(1).checked_next_multiple_of(PAGE_SIZE));
        let bytes = bytes.ok_or(MmuError::NoMemory)?;
        let Some(class) = class_of(bytes) else {
            let whole = bytes.checked_next_multiple_of(TABLE_SPAN);
            let whole = whole.ok_or(MmuError::NoMemory)?;
            let mut takes_moves = self.policies.map_by == MapBy::Move;
            let (reservation, spans) = self.reserve_by(whole, |mmu| {
                let for_moves = takes_moves.then(|| mmu.reserve_for_moves(whole)).flatten();
                takes_moves = for_moves.is_some();
                for_moves.map_or_else(|| mmu.reserve(whole, Protection::Read), Ok)
            })?;
            let window = window(reservation, bytes, spans);
            return Ok(match takes_moves {
                true => window.with_moves(),
                false => window,
            });
        };
        let part_bytes = part_bytes(class);
        let class = &self.arenas.classes[class];
        let next_bytes = {
            let mut class = class.lock();
            if let Some((part, spans)) = class.take(part_bytes) {
                return Ok(window(part, bytes, spans));
            }
            class.next_bytes()
        };
        let (reservation, spans) = self.reserve(next_bytes, Protection::Read)?;
        let mut arena = Arena::new(reservation, spans, part_bytes);
        let (part, spans) = arena.take(part_bytes);
        class.lock().add(arena, part_bytes);
        Ok(window(part, bytes, spans))
    }

    /// Takes a window back that has no page.
    pub(crate) fn give_window(&self, window: &Window) {
        let part = window.reservation();
        let Some(class) = class_of(part.bytes) else {
            return self.release(window.whole());
        };
        let part_bytes = part_bytes(class);
        let all = part.addr..part.addr + part_bytes;
        // Empty already, unless somebody else has populated it.
        self.mmu.zap(core::slice::from_ref(&all));
        self.mmu.part_released(&all);
        let empty = self.arenas.classes[class]
            .lock()
            .give(part.addr, part_bytes);
        if let Some(arena) = empty {
            self.release(arena.reservation);
        }
    }

    /// A window of its own that may be written to, of `bytes` bytes, without a page. Its tables are
    /// charged.
    pub(crate) fn make_writable_window(&self, bytes: u64) -> Result<Window, MapError> {
        self.will_write()?;
        let bytes = usize::try_from(bytes).ok();
        let whole = bytes.and_then(|bytes| bytes.max(1).checked_next_multiple_of(TABLE_SPAN));
        let whole = whole.ok_or(MmuError::NoMemory)?;
        let (reservation, spans) = self.reserve(whole, Protection::ReadWrite)?;
        Ok(Window::part(reservation, spans))
    }

    /// Takes it back; it has no page.
    pub(crate) fn give_writable_window(&self, window: &Window) {
        self.release(window.whole());
    }

    /// Address space whose residents are counted; the pages for that are charged.
    fn reserve(
        &self,
        bytes: usize,
        protection: Protection,
    ) -> Result<(Reservation, Arc<Spans>), MapError> {
        self.reserve_by(bytes, |mmu| mmu.reserve(bytes, protection))
    }

    /// The same, reserved so.
    fn reserve_by(
        &self,
        bytes: usize,
        reserve: impl FnOnce(&dyn Mmu) -> Result<Reservation, MmuError>,
    ) -> Result<(Reservation, Arc<Spans>), MapError> {
        let tables = Spans::table_pages(bytes);
        self.hold(tables)?;
        let reserved = reserve(&*self.mmu);
        let counted = reserved.and_then(|reservation| match Spans::new(&reservation) {
            Some(spans) => Ok((reservation, spans)),
            None => {
                self.mmu.release(reservation);
                Err(MmuError::NoMemory)
            }
        });
        if counted.is_err() {
            self.let_go(tables);
        }
        Ok(counted?)
    }

    fn release(&self, whole: Reservation) {
        let tables = Spans::table_pages(whole.bytes);
        self.mmu.release(whole);
        self.let_go(tables);
    }
}

/// The window over the first `bytes` of a part.
fn window(part: Reservation, bytes: usize, spans: Arc<Spans>) -> Window {
    debug_assert!(bytes <= part.bytes && bytes <= isize::MAX as usize);
    Window::part(Reservation { bytes, ..part }, spans)
}

const _: () = assert!(LARGEST_PART < TABLE_SPAN && TABLE_SPAN.is_multiple_of(BLOCK_BYTES));
