//! Private memory that was taken: anonymous, or of a file that the program writes to without the file's changing.
//!
//! The engine serves the *live* parts of a mapping. The kernel does the calls that the engine cannot do for a part: the part is
//! *handed over*, where it is, with its bytes, and is the program's own from then on. A part that the program unmaps
//! is a *hole*, whose addresses stay taken until the mapping goes. A part that the program has *reserved* is its own, too, until it
//! is used (`reserved.rs`).
//!
//! ```text
//!   room    ┌──────────┬─────────────┬──────┬──────────┬──────────┐
//!           │ live     │ handed over │ hole │ live     │ reserved │
//!           └──────────┴─────────────┴──────┴──────────┴──────────┘
//! ```
//!
//! The code here has the mappings; `give` has the table too, `private_calls` the program's calls.

mod parts;
mod tables;

use crate::count::Decline;
use crate::leases::FileKey;
use crate::ranges::Ranges;
use crate::{marked, mode, options};
use core::ops::Range;
use libc::c_int;
use softfault::{Engine, MmapMut, Stats};
use std::collections::BTreeMap;

/// Bytes of a page of swap.
const PAGE: u64 = 4096;

/// A mapping of the program's that is private memory of the engine's.
pub struct PrivateMapping {
    /// The addresses that are taken.
    pub room: Range<usize>,
    /// The parts that the engine serves.
    pub live: Ranges,
    /// The parts that it serves or has served.
    pub taken: Ranges,
    /// Where there is nothing.
    pub holes: Ranges,
    /// Those of the program's own parts that are reserved: nobody may touch them, and nobody has.
    pub reserved: Ranges,
    /// `PROT_READ`, or that and `PROT_WRITE`.
    pub protection: c_int,
    /// The file, if it is under a lease.
    pub leased: Option<FileKey>,
    pub is_file: bool,
    /// Bytes of the pages up to the file's end; of memory that begins as zeros, all that there can be.
    pub file_bytes: usize,
    /// A block of malloc(3).
    pub is_block: bool,
    /// A part of it is not served any more.
    pub cut: bool,
    /// Of a reservation with MADV_DONTFORK, what no new mapping is in: children of fork do not have it.
    pub childless: Ranges,
    pub map: MmapMut,
}

/// All of them, by the starts of their rooms. None overlaps another.
#[derive(Default)]
pub struct PrivateMappings {
    mappings: BTreeMap<usize, PrivateMapping>,
    /// Bytes that may have to go to swap.
    promised: u64,
    /// Pages that tables may come to.
    tables: u64,
}

impl PrivateMappings {
    /// None.
    pub const fn new() -> Self {
        Self {
            mappings: BTreeMap::new(),
            promised: 0,
            tables: 0,
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Those that begin as a file are under no lease any more.
    pub fn end_leases(&mut self, file: FileKey) {
        let leased = self.mappings.values_mut();
        let leased = leased.filter(|mapping| mapping.leased == Some(file));
        leased.for_each(|mapping| mapping.leased = None);
    }

    /// The starts of those whose rooms overlap a range.
    pub fn over(&self, range: &Range<usize>) -> Vec<usize> {
        let before = self.mappings.range(..range.end).rev();
        let over = before.take_while(|(_, mapping)| mapping.room.end > range.start);
        let mut starts: Vec<_> = over.map(|(&start, _)| start).collect();
        starts.reverse();
        starts
    }

    /// That which starts there.
    pub fn get(&self, start: usize) -> Option<&PrivateMapping> {
        self.mappings.get(&start)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, start: usize) -> Option<&mut PrivateMapping> {
        self.mappings.get_mut(&start)
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PrivateMapping> {
        self.mappings.values_mut()
    }

    /// Takes one out, with its promise.
    pub fn remove(&mut self, start: usize) -> Option<PrivateMapping> {
        let mapping = self.mappings.remove(&start)?;
        self.promised -= mapping.live.len() as u64;
        self.tables -= mapping.tables();
        Some(mapping)
    }

    /// Promised memory must find room in swap, and its tables in the budget: no store is refused later for lack of them.
    pub fn has_room(&self, engine: &Engine, bytes: usize, tables: u64) -> Result<(), Decline> {
        let stats = engine.stats();
        let all = swap_bytes(&stats).ok_or(Decline::NoSwap)?;
        let is_in_files = fits_in_files(all, mode::limit(libc::RLIMIT_FSIZE));
        if !is_in_files || self.promised + bytes as u64 > all {
            return Err(Decline::SwapFull);
        }
        match tables::fit(self.tables + tables, stats.budget_bytes) {
            true => Ok(()),
            false => Err(Decline::TablesFull),
        }
    }

    /// Bytes of swap that are promised.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// True if a range has addresses of one.
    pub fn is_over(&self, range: &Range<usize>) -> bool {
        !self.over(range).is_empty()
    }

    /// True if there is nothing in a range, although its addresses are taken.
    pub fn is_hole(&self, range: &Range<usize>) -> bool {
        let starts = self.over(range);
        let holes = |start: &usize| self.mappings[start].holes.within(range);
        let holes: usize = starts.iter().flat_map(holes).map(|hole| hole.len()).sum();
        holes == range.len()
    }

    /// The first part of a range where there is nothing, although its addresses are taken.
    pub fn first_hole(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut starts = self.over(range).into_iter();
        starts.find_map(|start| self.mappings[&start].holes.within(range).into_iter().next())
    }

    /// The parts of a range that are in none of their rooms.
    pub fn gaps(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut gaps = Ranges::of(range.clone());
        for start in self.over(range) {
            gaps.remove(&self.mappings[&start].room);
        }
        gaps.within(range)
    }

    /// The parts of a range that are served and may be written to.
    pub fn writable_parts(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.parts(range, libc::PROT_WRITE)
    }

    /// The parts of a range that are served; a touch behind the end of a file is a SIGBUS.
    pub fn served_parts(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.parts(range, libc::PROT_READ)
    }

    fn parts(&self, range: &Range<usize>, allowed: c_int) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mappings = self.over(range).into_iter();
        let mappings = mappings.map(|start| &self.mappings[&start]);
        for mapping in mappings.filter(|mapping| mapping.protection & allowed != 0) {
            let end = (mapping.room.start).saturating_add(mapping.file_bytes);
            let live = mapping.live.within(range).into_iter();
            let live = live.map(|part| part.start..part.end.min(end));
            parts.extend(live.filter(|part| part.start < part.end));
        }
        parts
    }

    /// The part with an address that is served.
    pub fn served(&self, addr: usize) -> Option<Range<usize>> {
        let room = self.room_of(addr)?;
        let parts = self.served_parts(&room);
        parts.into_iter().find(|part| part.contains(&addr))
    }

    /// The room that has an address.
    pub fn room_of(&self, addr: usize) -> Option<Range<usize>> {
        let starts = self.over(&(addr..addr + 1));
        starts
            .first()
            .map(|start| self.mappings[start].room.clone())
    }

    /// True if parts of a mapping may be made zeros.
    pub fn can_renew(&self, start: usize) -> bool {
        self.get(start).is_some_and(|mapping| {
            let is_zeros = !mapping.is_file && !mapping.is_block;
            is_zeros && mapping.protection == libc::PROT_READ | libc::PROT_WRITE
        })
    }

    /// Enters one.
    pub fn add(&mut self, mapping: PrivateMapping) {
        self.promised += mapping.live.len() as u64;
        self.tables += mapping.tables();
        marked::mark(&mapping.room, true);
        self.mappings.insert(mapping.room.start, mapping);
    }
}

/// Bytes that an engine's swap has room for.
pub fn swap_bytes(stats: &Stats) -> Option<u64> {
    Some(stats.swap?.slots_total * PAGE)
}

/// True if a file may be as long as swap, where that is the limit.
pub fn fits_in_files(swap: u64, limit: u64) -> bool {
    let options = options::get().swap.as_ref();
    options.is_none_or(|options| options.file_bytes(swap) <= limit)
}

/// Pages that the tables of a new mapping of so many bytes may come to.
pub fn new_tables(bytes: usize) -> u64 {
    tables::of_room(&(0..bytes)) + tables::of_parts(&(0..bytes), &Ranges::of(0..bytes))
}

impl PrivateMapping {
    /// Pages that its tables may come to.
    fn tables(&self) -> u64 {
        tables::of_room(&self.room) + tables::of_parts(&self.room, &self.taken)
    }

    /// Pages that they may come to in addition, if a range is taken too.
    fn more_tables(&self, range: &Range<usize>) -> u64 {
        let mut taken = self.taken.clone();
        taken.add(range);
        tables::of_parts(&self.room, &taken) - tables::of_parts(&self.room, &self.taken)
    }

    /// The parts of a range that are the program's own by now.
    pub fn handed_over(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut own = Ranges::of(self.room.clone());
        for part in [&self.live, &self.holes] {
            for part in part.within(&self.room) {
                own.remove(&part);
            }
        }
        own.within(range)
    }

    /// The reserved parts, each with whether children do not have it.
    pub fn reserved_parts(&self) -> Vec<(Range<usize>, bool)> {
        let reserved = self.reserved.within(&self.room);
        let childless = |part| self.childless.within(part).into_iter();
        let mut others = Ranges::default();
        reserved.iter().for_each(|part| others.add(part));
        let childless: Vec<_> = reserved.iter().flat_map(childless).collect();
        childless.iter().for_each(|part| others.remove(part));
        let others = others.within(&self.room).into_iter();
        let parts = others.map(|part| (part, false));
        parts
            .chain(childless.into_iter().map(|part| (part, true)))
            .collect()
    }

    /// The offset of an address in the map.
    pub fn offset(&self, addr: usize) -> usize {
        addr - self.room.start
    }
}
