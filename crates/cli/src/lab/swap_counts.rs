//! What an engine counts of its swap, as words.

use crate::results::row::Swap;

/// Pages that went to swap and came back since the engine was built, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapCounts {
    /// Pages written.
    pub pages_out: u64,
    /// Pages mapped from swap, by a touch or around one.
    pub pages_in: u64,
    /// Pages dropped without a write.
    pub clean_drops: u64,
    /// Pages that stayed, since somebody waited for them.
    pub rescued: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Times no slot was free.
    pub full: u64,
    /// Swap-ins that let their lock go to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Of those, the ones that came back and found the folio gone.
    pub retry_io_miss: u64,
}

impl SwapCounts {
    /// Words that it takes.
    pub const WORDS: usize = 8;

    /// The counters as words.
    pub fn to_words(mut self) -> [u64; Self::WORDS] {
        self.fields().map(|field| *field)
    }

    /// The counters that `words` hold.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let mut counts = Self::default();
        for (field, word) in counts.fields().into_iter().zip(words) {
            *field = *word;
        }
        counts
    }

    /// As a row has them.
    pub fn told(&self) -> Swap {
        Swap {
            pages_out: self.pages_out,
            pages_in: self.pages_in,
            clean_drops: self.clean_drops,
            rescued: self.rescued,
            full: self.full,
            write_errors: Some(self.write_errors),
            retry_mmap_drop: Some(self.retry_mmap_drop),
            retry_io_miss: Some(self.retry_io_miss),
        }
    }

    fn fields(&mut self) -> [&mut u64; Self::WORDS] {
        [
            &mut self.pages_out,
            &mut self.pages_in,
            &mut self.clean_drops,
            &mut self.rescued,
            &mut self.write_errors,
            &mut self.full,
            &mut self.retry_mmap_drop,
            &mut self.retry_io_miss,
        ]
    }
}
