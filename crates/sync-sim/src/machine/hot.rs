//! Where time goes: operations that waited for a line, and sleeps on words, by the place in the
//! source that did them.

use core::panic::Location;

/// A place in the source whose operations waited for lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotLine {
    /// The place: file, line and column.
    pub place: String,
    /// Operations whose line was elsewhere.
    pub misses: u64,
    /// Those of them that had to queue behind others.
    pub queued: u64,
    /// Nanoseconds in such queues, of all threads together.
    pub queue_ns: u64,
    /// Nanoseconds in which lines were on the way.
    pub transfer_ns: u64,
}

impl HotLine {
    /// Nanoseconds in all.
    pub fn ns(&self) -> u64 {
        self.queue_ns + self.transfer_ns
    }
}

/// A place in the source that slept on a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSleep {
    /// The place: file, line and column.
    pub place: String,
    /// Sleeps that have ended.
    pub sleeps: u64,
    /// Nanoseconds from the sleep to the wake-up call or the time-out, of all threads together.
    pub ns: u64,
}

/// A place in the source as it is shown: file, line and column. The engine's
/// source is not in the folder of the crate that it is compiled as.
pub fn place_of(at: &Location<'_>) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in at.file().split('/') {
        match (part, parts.last()) {
            ("..", Some(&last)) if last != ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("{}:{}:{}", parts.join("/"), at.line(), at.column())
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    at: Option<&'static Location<'static>>,
    misses: u64,
    queued: u64,
    queue: u64,
    transfer: u64,
}

/// All places, by the address of their location: an open table that is never
/// read in its own order.
#[derive(Debug)]
pub struct Hot {
    entries: Vec<Entry>,
    used: usize,
}

impl Hot {
    pub fn new() -> Self {
        Self {
            entries: vec![Entry::default(); 1024],
            used: 0,
        }
    }

    /// Counts a miss. True if the table should [`grow`](Self::grow).
    #[inline]
    pub fn count(&mut self, at: &'static Location<'static>, queue: u64, transfer: u64) -> bool {
        let entry = self.find(at);
        entry.misses += 1;
        entry.queued += u64::from(queue > 0);
        entry.queue += queue;
        entry.transfer += transfer;
        self.used * 2 > self.entries.len()
    }

    #[inline]
    fn find(&mut self, at: &'static Location<'static>) -> &mut Entry {
        let mask = self.entries.len() - 1;
        let mut index = (core::ptr::from_ref(at).addr() >> 3).wrapping_mul(0x9E37_79B9) >> 4 & mask;
        loop {
            match self.entries[index].at {
                Some(there) if core::ptr::eq(there, at) => break,
                Some(_) => index = (index + 1) & mask,
                None => {
                    self.entries[index].at = Some(at);
                    self.used += 1;
                    break;
                }
            }
        }
        &mut self.entries[index]
    }

    /// Makes the table twice as large.
    #[cold]
    pub fn grow(&mut self) {
        let twice = vec![Entry::default(); self.entries.len() * 2];
        let old = core::mem::replace(&mut self.entries, twice);
        self.used = 0;
        for entry in old {
            if let Some(at) = entry.at {
                *self.find(at) = entry;
            }
        }
    }

    /// The places, those first that took most.
    pub fn lines(&self) -> Vec<HotLine> {
        let mut lines: Vec<HotLine> = (self.places().into_iter())
            .map(|entry| HotLine {
                place: entry.at.map(place_of).unwrap_or_default(),
                misses: entry.misses,
                queued: entry.queued,
                queue_ns: entry.queue / 1000,
                transfer_ns: entry.transfer / 1000,
            })
            .collect();
        lines.sort_by_key(|line| core::cmp::Reverse(line.ns()));
        lines
    }

    /// The same of a table of sleeps, each counted as a queue.
    pub fn sleeps(&self) -> Vec<HotSleep> {
        let mut sleeps: Vec<HotSleep> = (self.places().into_iter())
            .map(|entry| HotSleep {
                place: entry.at.map(place_of).unwrap_or_default(),
                sleeps: entry.misses,
                ns: entry.queue / 1000,
            })
            .collect();
        sleeps.sort_by_key(|sleep| core::cmp::Reverse(sleep.ns));
        sleeps
    }

    /// An entry for each place, in the order of the source.
    fn places(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.at.is_some())
            .copied()
            .collect();
        // A place may have several locations, one for each copy of the code.
        entries.sort_by_key(|entry| entry.at);
        entries.dedup_by(|other, entry| {
            let same = other.at == entry.at;
            if same {
                entry.misses += other.misses;
                entry.queued += other.queued;
                entry.queue += other.queue;
                entry.transfer += other.transfer;
            }
            same
        });
        entries
    }
}
