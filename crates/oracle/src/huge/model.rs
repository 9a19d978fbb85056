//! The expected words of huge files, the promises to each mapping, and the answer that each
//! operation must give. Plain, and as a whole: no leaf, no lock, nothing shared.

use super::op::{HugeSetting, SLOTS, Spot};
use super::world::HugeRefusal;
use core::ops::Range;
use softfault_engine::fault::FaultError;
use softfault_engine::huge::HugeError;
use softfault_engine::mm::{MmError, Protection};
use std::collections::BTreeMap;

/// The state of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Hole,
    Reserved,
    /// Words that accesses go to.
    Page([u64; 3]),
}

#[derive(Debug)]
struct File {
    len: u64,
    at: Vec<At>,
    /// It has a number.
    is_named: bool,
}

#[derive(Debug, Clone)]
struct Mapping {
    file: u64,
    indexes: Range<u64>,
    reserves: bool,
}

/// The mapping of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    mapping: u64,
    index: u64,
    protection: Protection,
}

type Slots = Vec<Option<Shown>>;

/// How many pages the pool must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolShould {
    /// In no file.
    pub free: u64,
    /// Of those, promised.
    pub reserved: u64,
}

/// All files, mappings and spaces.
#[derive(Debug)]
pub struct HugeModel {
    setting: HugeSetting,
    files: BTreeMap<u64, File>,
    /// By number.
    named: Vec<u64>,
    mappings: BTreeMap<u64, Mapping>,
    spaces: BTreeMap<u8, Slots>,
    /// Of files and mappings.
    last: u64,
}

impl HugeModel {
    /// Files of holes, spaces in which nothing is mapped.
    pub fn new(setting: HugeSetting) -> Self {
        let mut model = Self {
            setting,
            files: BTreeMap::new(),
            named: Vec::new(),
            mappings: BTreeMap::new(),
            spaces: BTreeMap::new(),
            last: 0,
        };
        model.named = (0..setting.files).map(|_| model.new_file()).collect();
        for space in 0..setting.spaces as u8 {
            model.add_space(space);
        }
        model
    }

    fn new_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn new_file(&mut self) -> u64 {
        let pages = self.setting.file_pages;
        let file = File {
            len: pages,
            at: vec![At::Hole; pages as usize],
            is_named: true,
        };
        let number = self.new_number();
        self.files.insert(number, file);
        number
    }

    /// The numbers of all spaces.
    pub fn spaces(&self) -> Vec<u8> {
        self.spaces.keys().copied().collect()
    }

    /// A new space.
    pub fn add_space(&mut self, space: u8) {
        self.spaces.insert(space, vec![None; SLOTS]);
    }

    /// The expected counts of the pool.
    pub fn pool(&self) -> PoolShould {
        let all = || self.files.values().flat_map(|file| &file.at);
        let pages = all().filter(|at| matches!(at, At::Page(_))).count() as u64;
        let reserved = all().filter(|at| **at == At::Reserved).count() as u64;
        PoolShould {
            free: u64::from(self.setting.pool_pages) - pages,
            reserved,
        }
    }

    /// Length, pages and mappings that a numbered file must have.
    pub fn file(&self, file: usize) -> (u64, u64, usize) {
        let number = self.named[file];
        let file = &self.files[&number];
        let pages = file.at.iter().filter(|at| matches!(at, At::Page(_)));
        let mappings = self.mappings.values().filter(|known| known.file == number);
        (file.len, pages.count() as u64, mappings.count())
    }

    /// True if a mapping that reserves has the index.
    fn is_wanted(&self, file: u64, index: u64) -> bool {
        let mut mappings = self.mappings.values();
        mappings.any(|known| known.file == file && known.reserves && known.indexes.contains(&index))
    }

    /// Makes a mapping with its reservations, or returns the reason why not.
    fn new_mapping(&mut self, mapping: Mapping) -> Result<u64, HugeRefusal> {
        let Mapping {
            file,
            indexes,
            reserves,
        } = mapping.clone();
        let pool = self.pool();
        let known = self.files.get_mut(&file).expect("a file that is there");
        if indexes.is_empty() || indexes.end > known.at.len() as u64 {
            return Err(HugeRefusal::Huge(HugeError::Range));
        }
        if reserves {
            let within = |&index: &u64| index < known.len;
            let holes = indexes.filter(within);
            let holes: Vec<u64> = holes
                .filter(|&index| known.at[index as usize] == At::Hole)
                .collect();
            let (wanted, free) = (holes.len() as u64, pool.free - pool.reserved);
            if wanted > free {
                return Err(HugeRefusal::Huge(HugeError::Pool { wanted, free }));
            }
            for index in holes {
                known.at[index as usize] = At::Reserved;
            }
        }
        let number = self.new_number();
        self.mappings.insert(number, mapping);
        Ok(number)
    }

    /// Takes mappings that no space shows away, with the pages that only they reserved; and files
    /// that nobody has.
    fn drop_unused(&mut self) {
        let mut gone: Vec<u64> = self.mappings.keys().copied().collect();
        let slots = self.spaces.values().flatten().flatten();
        for shown in slots {
            gone.retain(|&number| number != shown.mapping);
        }
        for number in gone {
            let mapping = self.mappings.remove(&number).expect("it is there");
            for index in mapping.indexes {
                let wanted = self.is_wanted(mapping.file, index);
                let file = self.files.get_mut(&mapping.file).expect("it is mapped");
                let at = &mut file.at[index as usize];
                if *at == At::Reserved && !wanted {
                    *at = At::Hole;
                }
            }
        }
        let mappings = &self.mappings;
        self.files.retain(|number, file| {
            file.is_named || mappings.values().any(|known| known.file == *number)
        });
    }

    fn slots(&mut self, space: u8) -> &mut Slots {
        self.spaces.get_mut(&space).expect("a space that is there")
    }

    fn show(
        &mut self,
        space: u8,
        mapping: u64,
        shown: &Range<u64>,
        slot: usize,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let has = self.mappings[&mapping].indexes.clone();
        if shown.is_empty() {
            return Err(HugeRefusal::Mm(MmError::Empty));
        }
        if shown.start < has.start || shown.end > has.end {
            return Err(HugeRefusal::Mm(MmError::Overflow));
        }
        let slots = self.slots(space);
        let twice = (slots.iter().flatten())
            .any(|known| known.mapping == mapping && shown.contains(&known.index));
        let places = &mut slots[slot..slot + (shown.end - shown.start) as usize];
        if twice || places.iter().any(Option::is_some) {
            return Err(HugeRefusal::Mm(MmError::Overlap));
        }
        for (index, place) in shown.clone().zip(places) {
            *place = Some(Shown {
                mapping,
                index,
                protection,
            });
        }
        Ok(())
    }

    /// As `HugeWorld::map`.
    pub fn map(
        &mut self,
        space: u8,
        file: usize,
        (indexes, shown): (Range<u64>, Range<u64>),
        slot: usize,
        reserves: bool,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let mapping = self.new_mapping(Mapping {
            file: self.named[file],
            indexes,
            reserves,
        })?;
        let done = self.show(space, mapping, &shown, slot, protection);
        self.drop_unused();
        done
    }

    /// As `HugeWorld::map_more`.
    pub fn map_more(
        &mut self,
        space: u8,
        of: usize,
        shown: &Range<u64>,
        slot: usize,
    ) -> Result<(), HugeRefusal> {
        let known = self.slots(space)[of].ok_or(HugeRefusal::Mm(MmError::Unmapped))?;
        self.show(space, known.mapping, shown, slot, known.protection)
    }

    /// As `HugeWorld::unmap`.
    pub fn unmap(&mut self, space: u8, slots: &Range<usize>) {
        self.slots(space)[slots.clone()].fill(None);
        self.drop_unused();
    }

    /// As `HugeWorld::protect`.
    pub fn protect(
        &mut self,
        space: u8,
        slots: &Range<usize>,
        protection: Protection,
    ) -> Result<(), HugeRefusal> {
        let places = &mut self.slots(space)[slots.clone()];
        for shown in places.iter_mut().flatten() {
            shown.protection = protection;
        }
        match places.iter().all(Option::is_some) {
            true => Ok(()),
            false => Err(HugeRefusal::Mm(MmError::Unmapped)),
        }
    }

    /// As `HugeWorld::remap`.
    pub fn remap(&mut self, space: u8, from: &Range<usize>, to: usize) -> Result<(), HugeRefusal> {
        let slots = self.slots(space);
        let target = to..to + from.len();
        let itself = target.start < from.end && from.start < target.end;
        if itself || slots[target.clone()].iter().any(Option::is_some) {
            return Err(HugeRefusal::Mm(MmError::Overlap));
        }
        if slots[from.clone()].iter().any(Option::is_none) {
            return Err(HugeRefusal::Mm(MmError::Unmapped));
        }
        for (from, to) in from.clone().zip(target) {
            slots[to] = slots[from].take();
        }
        Ok(())
    }

    /// As `HugeWorld::fork`: the copies want what is reserved, and nothing more is.
    pub fn fork(&mut self, space: u8, child: u8) {
        let mut copy = self.spaces[&space].clone();
        let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
        for shown in copy.iter_mut().flatten() {
            let made = copies.entry(shown.mapping).or_insert_with(|| {
                self.last += 1;
                let mapping = self.mappings[&shown.mapping].clone();
                self.mappings.insert(self.last, mapping);
                self.last
            });
            shown.mapping = *made;
        }
        self.spaces.insert(child, copy);
    }

    /// As `HugeWorld::exit`.
    pub fn exit(&mut self, space: u8) {
        self.spaces.remove(&space);
        self.drop_unused();
    }

    /// As `HugeFile::truncate`.
    pub fn truncate(&mut self, file: usize, pages: u64) -> Result<(), HugeError> {
        let number = self.named[file];
        let file = self.files.get_mut(&number).expect("it has a number");
        if pages > file.at.len() as u64 {
            return Err(HugeError::Range);
        }
        file.len = pages;
        file.at[pages as usize..].fill(At::Hole);
        Ok(())
    }

    /// As `HugeFile::punch_hole`.
    pub fn punch(&mut self, file: usize, indexes: &Range<u64>) -> Result<(), HugeError> {
        let number = self.named[file];
        if indexes.is_empty() || indexes.end > self.files[&number].at.len() as u64 {
            return Err(HugeError::Range);
        }
        for index in indexes.clone() {
            let wanted = self.is_wanted(number, index);
            let file = self.files.get_mut(&number).expect("it has a number");
            let at = &mut file.at[index as usize];
            if matches!(at, At::Page(_)) {
                *at = if wanted { At::Reserved } else { At::Hole };
            }
        }
        Ok(())
    }

    /// As `HugeWorld::replace`.
    pub fn replace(&mut self, file: usize) {
        let new = self.new_file();
        let old = core::mem::replace(&mut self.named[file], new);
        self.files.get_mut(&old).expect("it was there").is_named = false;
        self.drop_unused();
    }

    /// The words of the page that a touch of a slot comes to, which is faulted in.
    fn touch(&mut self, space: u8, slot: usize, write: bool) -> Result<&mut [u64; 3], FaultError> {
        let pool = self.pool();
        let shown = self.spaces[&space].get(slot).copied().flatten();
        let shown = shown.ok_or(FaultError::NotMapped)?;
        match (shown.protection, write) {
            (Protection::ReadWrite, _) | (Protection::Read, false) => {}
            _ => return Err(FaultError::Protection),
        }
        let number = self.mappings[&shown.mapping].file;
        let file = self.files.get_mut(&number).expect("it is mapped");
        if shown.index >= file.len {
            return Err(FaultError::BeyondEnd);
        }
        let at = &mut file.at[shown.index as usize];
        match at {
            At::Hole if pool.free == pool.reserved => return Err(FaultError::NoMemory),
            At::Hole | At::Reserved => *at = At::Page([0; 3]),
            At::Page(_) => {}
        }
        match at {
            At::Page(words) => Ok(words),
            At::Hole | At::Reserved => unreachable!("filled above"),
        }
    }

    /// As `HugeWorld::read`.
    pub fn read(
        &mut self,
        space: u8,
        (slot, spot): (usize, Spot),
    ) -> (Vec<u64>, Option<FaultError>) {
        let mut words = Vec::new();
        for &(after, word) in spot.words() {
            match self.touch(space, slot + after, false) {
                Ok(page) => words.push(page[word]),
                Err(error) => return (words, Some(error)),
            }
        }
        (words, None)
    }

    /// As `HugeWorld::write`.
    pub fn write(
        &mut self,
        space: u8,
        (slot, spot): (usize, Spot),
        value: u64,
    ) -> (usize, Option<FaultError>) {
        for (done, &(after, word)) in spot.words().iter().enumerate() {
            match self.touch(space, slot + after, true) {
                Ok(page) => page[word] = value,
                Err(error) => return (done, Some(error)),
            }
        }
        (spot.words().len(), None)
    }
}
