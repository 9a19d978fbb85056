//! The taken mappings, by address.

use crate::count::Decline;
use crate::leases::{FileKey, Leases, Written};
use crate::marked;
use crate::private::PrivateMappings;
use crate::ranges::Ranges;
use crate::reserved::Reservations;
use crate::tree::Tree;
use crate::{block_list, inside};
use core::ops::Range;
use libc::c_int;
use softfault::{Engine, Mmap};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A mapping of the program's that the engine serves.
pub struct Taken {
    /// Whole pages.
    pub addresses: Range<usize>,
    /// Behind the file's last page in it: a touch from there on is a SIGBUS.
    pub end_of_file: usize,
    /// The window that it is a part of.
    pub window: Range<usize>,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub sharing: i32,
    /// The file, if it is under a lease.
    pub leased: Option<FileKey>,
    pub map: Mmap,
}

/// All that was taken, and the engine that serves it.
pub struct Table {
    /// By their first addresses; none overlaps another.
    taken: BTreeMap<usize, Taken>,
    /// Of this process; made with the first mapping that is taken.
    pub engine: Option<Engine>,
    /// Why there can be none.
    pub refused: Option<String>,
    /// Why the engine could not map the last memory that it failed for.
    pub why_failed: Option<String>,
    pub leases: Leases,
    /// Windows of which nothing is mapped, and which the engine may have yet.
    pub idle: Vec<Range<usize>>,
    /// Private memory.
    pub private: PrivateMappings,
    /// Address space that may come to be private memory.
    pub reservations: Reservations,
    /// In a child of fork: the engine of the private memory that it goes on with.
    pub inherited: Option<Engine>,
    /// The tree of processes whose budget the engine has a share of.
    pub tree: Option<Tree>,
    /// The first file whose mappings were handed back, for somebody writes to it: to be told.
    pub written: Option<Written>,
    /// It is told, or was; in children of fork too.
    pub tells_of_writer: bool,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    taken: BTreeMap::new(),
    engine: None,
    refused: None,
    why_failed: None,
    leases: Leases::new(),
    idle: Vec::new(),
    private: PrivateMappings::new(),
    reservations: Reservations::new(),
    inherited: None,
    tree: None,
    written: None,
    tells_of_writer: false,
});

/// Locks it: in a thread that is inside, whose signals are masked.
pub fn lock() -> MutexGuard<'static, Table> {
    debug_assert!(
        inside::is_inside(),
        "a call of this thread's would lock it once more"
    );
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks it; `None` after a second: a thread that has exited may have left it locked, and another lets it go soon.
pub fn lock_or_give_up() -> Option<MutexGuard<'static, Table>> {
    debug_assert!(
        inside::is_inside(),
        "a call of this thread's would lock it once more"
    );
    const TRIES: u32 = 1000;
    const PAUSE: Duration = Duration::from_millis(1);
    (0..TRIES).find_map(|_| {
        let locked = TABLE.try_lock().ok();
        if locked.is_none() {
            std::thread::sleep(PAUSE);
        }
        locked
    })
}

impl Table {
    /// Keeps why the engine could not map memory, for the line about it.
    pub fn failed(&mut self, why: &io::Error) -> Decline {
        self.why_failed = Some(why.to_string());
        Decline::Error
    }

    /// The mappings that overlap a range, the last first.
    pub fn over(&self, range: &Range<usize>) -> impl Iterator<Item = &Taken> {
        let before = self.taken.range(..range.end).rev();
        let (start, end) = (range.start, range.end);
        let before = before.map(|(_, taken)| taken);
        before.take_while(move |taken| start < end && taken.addresses.end > start)
    }

    /// True if something in a range is a mapping of the program's.
    pub fn has_any(&self, range: &Range<usize>) -> bool {
        self.over(range).next().is_some()
    }

    /// The windows that overlap a range, those among them of which nothing that is mapped does.
    pub fn windows_over(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        // Windows do not overlap, and something is mapped in each: the next mapping before the range, or behind it, is in a
        // window that begins, or ends, outside.
        let before = self.taken.range(..range.start).next_back();
        let behind = self
            .taken
            .range(range.start..range.end)
            .map(|(_, taken)| taken);
        let behind = behind.chain(
            self.taken
                .range(range.end..)
                .map(|(_, taken)| taken)
                .take(1),
        );
        let all = before.map(|(_, taken)| taken).into_iter().chain(behind);
        let mut windows: Vec<_> = all.map(|taken| taken.window.clone()).collect();
        windows.retain(|window| overlap(window, range));
        windows.dedup();
        windows
    }

    /// The parts of a range that are in no window.
    pub fn outside_windows(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut outside = Vec::new();
        let mut free = range.start;
        for window in self.windows_over(range) {
            outside.push(free..window.start.max(free));
            free = window.end.min(range.end);
        }
        outside.push(free..range.end);
        outside.retain(|part| !part.is_empty());
        outside
    }

    /// The first address of a range where the program has nothing, although the engine or the kernel has: in the windows, and in
    /// private memory.
    pub fn first_hole(&self, range: &Range<usize>) -> Option<usize> {
        let mut holes = Ranges::default();
        (self.windows_over(range).iter()).for_each(|window| holes.add(window));
        self.over(range)
            .for_each(|taken| holes.remove(&taken.addresses));
        let shared = holes.within(range).into_iter().next();
        let private = self.private.first_hole(range);
        let starts = shared.into_iter().chain(private).map(|hole| hole.start);
        starts.min()
    }

    /// Enters one.
    pub fn add(&mut self, taken: Taken) {
        // Windows that the engine has closed since are not there: something else may be.
        (self.idle).retain(|window| !overlap(window, &taken.window));
        self.taken.insert(taken.addresses.start, taken);
    }

    /// Takes the one out that begins there.
    pub fn remove(&mut self, start: usize) -> Option<Taken> {
        self.taken.remove(&start)
    }

    /// Takes those out that are parts of a window, in the order of their addresses.
    pub fn remove_window(&mut self, window: &Range<usize>) -> Vec<Taken> {
        let starts: Vec<_> = self
            .taken
            .range(window.clone())
            .map(|(&start, _)| start)
            .collect();
        starts
            .iter()
            .filter_map(|start| self.taken.remove(start))
            .collect()
    }

    /// Where a mapping of a file is that is under a lease.
    pub fn of_file(&self, file: FileKey) -> Option<Range<usize>> {
        let mut taken = self.taken.values();
        let found = taken.find(|taken| taken.leased == Some(file));
        found.map(|taken| taken.addresses.clone())
    }

    /// The mappings of a range are under no lease any more, though they may be there.
    pub fn end_lease(&mut self, range: &Range<usize>) {
        let taken = self.taken.range_mut(range.clone());
        taken.for_each(|(_, taken)| taken.leased = None);
    }

    /// The part with an address that the engine serves, of a mapping.
    pub fn served(&self, addr: usize) -> Option<Range<usize>> {
        let taken = self.over(&(addr..addr + 1)).next();
        let shared = taken.map(|taken| taken.addresses.start..taken.end_of_file);
        let served = shared.or_else(|| self.private.served(addr))?;
        served.contains(&addr).then_some(served)
    }

    /// True if a window has none.
    pub fn is_free(&self, window: &Range<usize>) -> bool {
        self.taken.range(window.clone()).next().is_none()
    }

    /// Idle windows are gone, or about to go. Their marks go too, but where something else has their addresses by now: an engine
    /// closes idle windows by itself, and private memory comes to be there.
    pub fn forget_idle(&mut self) {
        for window in core::mem::take(&mut self.idle) {
            let is_used = !self.windows_over(&window).is_empty()
                || self.private.is_over(&window)
                || !self.reservations.over(&window).is_empty()
                || block_list::lock().is_over(&window);
            marked::mark(&window, is_used);
        }
    }

    /// Takes all out.
    pub fn take_all(&mut self) -> BTreeMap<usize, Taken> {
        core::mem::take(&mut self.taken)
    }
}

impl Table {
    /// A range is reserved by now: the kernel has a mapping there that may not be touched, and that nobody has touched. `is_part`: it was
    /// put there (MAP_FIXED), as a program gives a part of a reservation up.
    pub fn reserve(&mut self, range: &Range<usize>, least: usize, is_part: bool) {
        for start in self.private.over(range) {
            self.private.reserve_part(start, range);
        }
        for gap in self.private.gaps(range) {
            let known = self.reservations.over(&gap);
            let is_known = |own: &Range<usize>| {
                let is_within = own.start <= gap.start && gap.end <= own.end;
                // Advice about that is not true of the new mapping.
                is_within && !self.reservations.is_childless(own.start)
            };
            if known.iter().any(is_known) {
                continue;
            }
            if is_part && self.reservations.join(&gap, least) {
                continue;
            }
            if gap.len() >= least {
                self.reservations.forget(&gap);
                self.reservations.remember(&gap, false);
            }
        }
    }

    /// `madvise(2)` of a range that may be reserved.
    pub fn advise_reserved(&mut self, range: &Range<usize>, advice: c_int) {
        match advice {
            _ if stays_reserved(advice) => {}
            libc::MADV_DONTFORK | libc::MADV_DOFORK if !self.private.is_over(range) => {
                let is_childless = advice == libc::MADV_DONTFORK;
                self.reservations.keep_from_children(range, is_childless);
            }
            _ => self.forget_reserved(range),
        }
    }

    /// A range is not reserved any more.
    pub fn forget_reserved(&mut self, range: &Range<usize>) {
        self.reservations.forget(range);
        for start in self.private.over(range) {
            if let Some(mapping) = self.private.get_mut(start) {
                mapping.reserved.remove(range);
            }
        }
    }
}

pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// True if memory after an advice about it is reserved as before.
fn stays_reserved(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_NORMAL
            | libc::MADV_RANDOM
            | libc::MADV_SEQUENTIAL
            | libc::MADV_WILLNEED
            | libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_DODUMP
    )
}
