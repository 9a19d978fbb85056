//! Pages that stay in memory: pins, which nest, and locks, which do not.

use super::change::number;
use super::find::{Part, kept_offsets};
use super::{Arc, Maps, MmapRaw, NotMapped, Range, change, common, look, without};
use crate::failure::Failure;
use core::time::Duration;
use softfault::{FaultError, Kept};

/// The ways to keep pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepReason {
    Pinned,
    Locked,
    /// In a child of fork: pinned by its parent, and not here. The child may end it, and it goes with the pages' mapping.
    PinnedByParent,
    /// The same of a lock, which ends with the pages' mapping only.
    LockedByParent,
}

/// Pages that stay. Protected by the lock of the table; [`release`](Self::release) is called without it.
pub(crate) struct KeptRange {
    pub(super) range: Range<usize>,
    pub(super) why: KeepReason,
    /// As long as they stay.
    map: Arc<MmapRaw>,
    kept: Kept,
}

/// Bytes that are locked by one piece: unlocking a part of a piece keeps the others anew first.
const LOCKED_PIECE: usize = 2 << 20;

impl KeptRange {
    fn new(part: &Part, why: KeepReason) -> Result<Self, FaultError> {
        let kept = part
            .map
            .keep(part.kept_offsets(), why == KeepReason::Locked)?;
        Ok(Self {
            range: part.range.clone(),
            why,
            map: part.map.clone(),
            kept,
        })
    }

    pub(super) fn map(&self) -> &Arc<MmapRaw> {
        &self.map
    }

    /// True if it is a part of this map.
    pub(super) fn is_of(&self, map: &Arc<MmapRaw>) -> bool {
        Arc::ptr_eq(&self.map, map)
    }

    /// In a child of fork, which inherits neither pins nor locks.
    pub(super) fn inherit(&mut self) {
        self.why = match self.why {
            KeepReason::Pinned | KeepReason::PinnedByParent => KeepReason::PinnedByParent,
            KeepReason::Locked | KeepReason::LockedByParent => KeepReason::LockedByParent,
        };
    }

    pub(super) fn release(self) {
        if self.is_parents() {
            // Nothing is kept by it here, and the same pages may be by something else.
            return core::mem::forget(self.kept);
        }
        // SAFETY: kept of this map; a map is remapped only when nothing of it is kept.
        unsafe { self.map.release(self.kept) };
    }

    fn is_parents(&self) -> bool {
        match self.why {
            KeepReason::Pinned | KeepReason::Locked => false,
            KeepReason::PinnedByParent | KeepReason::LockedByParent => true,
        }
    }

    /// Unlocks pages of it. The others stay locked, each part of them by itself; after an error all of it is as it was.
    fn unlock(self, pages: &[Range<usize>]) -> Result<Vec<Self>, (Self, FaultError)> {
        debug_assert_eq!(self.why, KeepReason::Locked);
        let Self {
            range,
            why,
            map,
            kept,
        } = self;
        let mut rest = vec![range.clone()];
        for pages in pages {
            rest = without(&rest, pages);
        }
        let offsets: Vec<_> = rest.iter().map(|rest| kept_offsets(&map, rest)).collect();
        let of = |range, kept| Self {
            range,
            why,
            map: map.clone(),
            kept,
        };
        // SAFETY: as in `release`.
        match unsafe { map.release_but(kept, &offsets) } {
            Ok(kept) => Ok(rest
                .into_iter()
                .zip(kept)
                .map(|(rest, kept)| of(rest, kept))
                .collect()),
            Err((kept, error)) => Err((of(range, kept), error)),
        }
    }

    /// Enters the kept range into the table; if its pages were unmapped meanwhile, releases it.
    fn enter(self) -> Result<(), NotMapped> {
        let mut maps = change();
        let window = maps.window_mut(self.range.start);
        let window = window.filter(|window| window.uncovered(&self.range).is_empty());
        match window {
            Some(window) => {
                window.kept.push(self);
                Ok(())
            }
            None => {
                drop(maps);
                self.release();
                Err(NotMapped)
            }
        }
    }
}

impl Maps {
    /// Takes out all that is kept of a range for this reason.
    fn take_kept(&mut self, range: &Range<usize>, why: KeepReason) -> Vec<KeptRange> {
        let mut taken = Vec::new();
        let below = self.windows.range_mut(..range.end);
        for (_, window) in below
            .rev()
            .take_while(|(_, window)| window.range().end > range.start)
        {
            let is_it =
                |kept: &mut KeptRange| kept.why == why && !common(&kept.range, range).is_empty();
            taken.extend(window.kept.extract_if(.., is_it));
        }
        taken
    }
}

/// The right of one thread to lock or unlock some pages that the kernel serves, until it is dropped. The kernel's locks do not nest:
/// a lock that fails halfway would unlock what another thread has locked meanwhile.
struct LockTurn {
    /// An address of the window.
    at: usize,
    number: u64,
}

impl LockTurn {
    /// Takes a turn for each part, and waits for those of other threads. All threads take their turns in the order of addresses, so
    /// that no two wait for each other.
    fn of(parts: &[Part]) -> Vec<Self> {
        let by_kernel = parts.iter().filter(|part| !part.map.is_managed());
        by_kernel.filter_map(Self::of_pages_of).collect()
    }

    /// `None` if the window was unmapped meanwhile.
    fn of_pages_of(part: &Part) -> Option<Self> {
        loop {
            let mut maps = change();
            let window = maps.window_mut(part.range.start)?;
            let mut others = window.locking.iter();
            if others.all(|(_, pages)| common(pages, &part.range).is_empty()) {
                let (at, number) = (part.range.start, number());
                window.locking.push((number, part.range.clone()));
                return Some(Self { at, number });
            }
            drop(maps);
            // The other may read the pages from a disk.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for LockTurn {
    fn drop(&mut self) {
        let mut maps = change();
        // It may have been unmapped meanwhile, and another be there.
        if let Some(window) = maps.window_mut(self.at) {
            window.locking.retain(|&(number, _)| number != self.number);
        }
    }
}

/// Brings a range of one map into memory and keeps it there.
pub(crate) fn pin(range: &Range<usize>) -> Result<(), Failure> {
    let part = Part::of_one(range).map_err(|NotMapped| Failure::not_mapped())?;
    let part = part
        .ok_or_else(|| Failure::invalid("the range is not within one map: pin each map alone"))?;
    let kept = KeptRange::new(&part, KeepReason::Pinned)?;
    kept.enter().map_err(|NotMapped| Failure::not_mapped())
}

/// Ends a pin of the range.
pub(crate) fn unpin(range: &Range<usize>) -> Result<(), Failure> {
    let taken = {
        let mut maps = change();
        let window = maps.window_mut(range.start);
        let window = window.ok_or_else(Failure::not_mapped)?;
        let last = |why: KeepReason| {
            let is_it = |kept: &KeptRange| kept.why == why && kept.range == *range;
            window.kept.iter().rposition(is_it)
        };
        let place = last(KeepReason::Pinned).or_else(|| last(KeepReason::PinnedByParent));
        let text = "no pin has this address and length: pass those of softfault_pin";
        let place = place.ok_or_else(|| Failure::invalid(text))?;
        window.kept.swap_remove(place)
    };
    taken.release();
    Ok(())
}

/// Locks pages; those that are locked stay so.
pub(crate) fn lock(pages: &Range<usize>) -> Result<(), Failure> {
    let parts = Part::of(pages).map_err(|NotMapped| Failure::not_mapped())?;
    let _turns = LockTurn::of(&parts);
    let mut made = Vec::new();
    let mut locked = Ok(());
    // The parts stay until all is in the table: their calls keep pages that are unmapped meanwhile, which is seen only there.
    'all: for part in &parts {
        for range in not_locked(&part.range) {
            let part = Part {
                range,
                ..part_of(part)
            };
            match KeptRange::new(&part, KeepReason::Locked) {
                Ok(kept) => made.push(kept),
                Err(error) => {
                    locked = Err(error);
                    break 'all;
                }
            }
        }
    }
    if let Err(error) = locked {
        made.into_iter().for_each(KeptRange::release);
        return Err(error.into());
    }
    let ranges: Vec<_> = made.iter().map(|kept| kept.range.clone()).collect();
    // All of them, also if one was unmapped meanwhile: a range that is not released stays as long as its map.
    let entered = made.into_iter().map(KeptRange::enter);
    let entered = entered.fold(Ok(()), Result::and);
    entered.map_err(|NotMapped| {
        for range in ranges {
            let taken = change().take_kept(&range, KeepReason::Locked);
            taken.into_iter().for_each(KeptRange::release);
        }
        Failure::not_mapped()
    })
}

fn part_of(part: &Part) -> Part {
    Part {
        map: part.map.clone(),
        range: part.range.clone(),
        call: part.call.clone(),
        ..*part
    }
}

/// The parts of some pages of one map that are not locked, in pieces.
fn not_locked(pages: &Range<usize>) -> Vec<Range<usize>> {
    let maps = look();
    let mut rest = vec![pages.clone()];
    if let Some(window) = maps.window(pages.start) {
        for kept in window
            .kept
            .iter()
            .filter(|kept| kept.why == KeepReason::Locked)
        {
            rest = without(&rest, &kept.range);
        }
    }
    let pieces = rest.into_iter().flat_map(|range| {
        let starts = range.clone().step_by(LOCKED_PIECE);
        starts.map(move |start| start..range.end.min(start + LOCKED_PIECE))
    });
    pieces.collect()
}

/// True if some pages of one map are locked.
pub(crate) fn is_locked(pages: &Range<usize>) -> bool {
    let maps = look();
    let window = maps.window(pages.start);
    window.is_some_and(|window| {
        let mut kept = window.kept.iter();
        kept.any(|kept| kept.why == KeepReason::Locked && !common(&kept.range, pages).is_empty())
    })
}

/// The parts of some pages of one map that are locked; EBUSY if any of them is pinned and goes with the map. Pages that another map
/// has, too, stay.
pub(crate) fn locked_unpinned(pages: &Range<usize>) -> Result<Vec<Range<usize>>, Failure> {
    let maps = look();
    let window = maps.window(pages.start);
    let window = window.ok_or_else(Failure::not_mapped)?;
    let over = window
        .kept
        .iter()
        .map(|kept| (kept.why, common(&kept.range, pages)));
    let mut locked = Vec::new();
    for (why, part) in over.filter(|(_, part)| !part.is_empty()) {
        match why {
            KeepReason::Pinned => {
                if window.has_of_one_map(&part) {
                    return Err(Failure::pinned());
                }
            }
            KeepReason::Locked => locked.push(part),
            KeepReason::PinnedByParent | KeepReason::LockedByParent => {}
        }
    }
    Ok(locked)
}

/// Unlocks pages.
pub(crate) fn unlock(pages: &Range<usize>) -> Result<(), Failure> {
    // Until what stays locked is in the table again, as in `lock`.
    let parts = Part::of(pages).map_err(|NotMapped| Failure::not_mapped())?;
    let _turns = LockTurn::of(&parts);
    let taken = change().take_kept(pages, KeepReason::Locked);
    let mut unlocked = Ok(());
    for kept in taken {
        let (left, error) = match kept.unlock(core::slice::from_ref(pages)) {
            Ok(rest) => (rest, None),
            Err((kept, error)) => (vec![kept], Some(error)),
        };
        for kept in left {
            // Pages that were unmapped meanwhile are released.
            let _ = kept.enter();
        }
        unlocked = error.map_or(unlocked, |error| Err(error.into()));
    }
    unlocked
}

/// Releases the kept ranges of pages that are mapped no more; locked pages beside them stay locked, as far as possible.
pub(super) fn unmapped(kept: Vec<KeptRange>, gone: &[Range<usize>]) {
    for kept in kept {
        if kept.why != KeepReason::Locked {
            kept.release();
            continue;
        }
        match kept.unlock(gone) {
            Ok(rest) => rest.into_iter().for_each(|rest| _ = rest.enter()),
            Err((kept, _)) => kept.release(),
        }
    }
}

/// Locks parts of a map again that has been remapped. As with mremap(2), pages that cannot be locked are not, and that is no
/// error.
pub(crate) fn lock_again(pages: &[Range<usize>]) {
    for pages in pages {
        let _ = lock(pages);
    }
}
