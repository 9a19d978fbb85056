//! Figures of `/proc`.

#![allow(dead_code)]

use std::ops::Range;

/// Those of a line `name: 123 kB`, in bytes.
pub fn bytes(path: &str, name: &str) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let figure = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: usize = figure.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The same, of this process.
pub fn status(name: &str) -> usize {
    bytes("/proc/self/status", name).expect(name)
}

/// The same, of the machine.
pub fn machine(name: &str) -> usize {
    bytes("/proc/meminfo", name).expect(name)
}

/// A mapping of this process.
pub struct Mapping {
    pub range: Range<usize>,
    /// As in `r--p`.
    pub permissions: String,
    /// The lines of smaps behind the first.
    lines: Vec<String>,
}

impl Mapping {
    /// The rest of the line `name: rest`.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.lines.iter().filter_map(|line| line.split_once(':'));
        let (_, field) = fields.find(|(of, _)| *of == name)?;
        Some(field.trim())
    }

    /// True if it has one of its flags, which have two letters each.
    pub fn has_flag(&self, flag: &str) -> bool {
        let flags = self.field("VmFlags").expect("flags");
        flags.split(' ').any(|one| one == flag)
    }
}

/// All mappings of this process.
pub fn mappings() -> Vec<Mapping> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split(' ');
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let ends = words.next().and_then(|first| first.split_once('-'));
        match ends.and_then(|(start, end)| Some(hex(start)?..hex(end)?)) {
            Some(range) => mappings.push(Mapping {
                range,
                permissions: words.next().expect("permissions").to_owned(),
                lines: Vec::new(),
            }),
            None => mappings.last_mut().unwrap().lines.push(line.to_owned()),
        }
    }
    mappings
}

/// The mapping at an address.
pub fn mapping(at: usize) -> Option<Mapping> {
    let mut all = mappings().into_iter();
    all.find(|mapping| mapping.range.contains(&at))
}
