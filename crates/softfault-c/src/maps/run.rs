//! Pages of a window that the same maps have.

/// Pages that the same maps have: one at least, by their numbers. The last that was mapped is the last.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) end: usize,
    pub(super) readers: Vec<u64>,
    /// Those that were made to be written to.
    pub(super) writers: Vec<u64>,
    /// Whether they may be written to, if not as their map was made. Then no other map has them.
    pub(super) changed: Option<bool>,
}

impl Run {
    /// To which its maps are added.
    pub(super) fn until(end: usize) -> Self {
        Self {
            end,
            readers: Vec::new(),
            writers: Vec::new(),
            changed: None,
        }
    }

    pub(super) fn add(&mut self, number: u64, writable: bool) {
        match writable {
            true => self.writers.push(number),
            false => self.readers.push(number),
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.readers.retain(|&map| map != number);
        self.writers.retain(|&map| map != number);
    }

    pub(super) fn count(&self) -> usize {
        self.readers.len() + self.writers.len()
    }

    /// The last first: of those that can be written to, and then of the others, or the other way round.
    pub(super) fn maps(&self, writable: bool) -> impl Iterator<Item = &u64> {
        let (first, then) = match writable {
            true => (&self.writers, &self.readers),
            false => (&self.readers, &self.writers),
        };
        first.iter().rev().chain(then.iter().rev())
    }
}
