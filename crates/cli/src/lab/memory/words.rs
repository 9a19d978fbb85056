//! The contents of a written page: each word says which page, place and version it is of, so that a word of
//! another page, of another place or of an older version is recognised.
//!
//! ```text
//!   word    | hash of seed, page and place | version |
//!             32 bits                        32 bits
//! ```
//! A page is populated whole, as version 0. Version v of it is one word more, at a place that page and
//! version determine: so the newest word of any place can be told without a table.

use super::super::fill::{WORDS, mix};

/// Sets the places' hashes apart from the words'.
const PLACE_KEY: u64 = 0x504c_4143_4553_4f46;

/// The words of one memory. Immutable.
#[derive(Clone, Copy)]
pub struct Words {
    seed: u64,
}

impl Words {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed: mix(seed) }
    }

    /// The word of a version at a place of a page.
    pub fn word(self, page: u64, place: u64, version: u32) -> u64 {
        let hash = mix(self.seed ^ (page * WORDS + place));
        hash & 0xffff_ffff_0000_0000 | u64::from(version)
    }

    /// The version that `word` is of; `None` if it is none of this place.
    pub fn version(self, page: u64, place: u64, word: u64) -> Option<u32> {
        let version = word as u32;
        (word == self.word(page, place, version)).then_some(version)
    }

    /// Where version `version` (above 0) of a page was written.
    pub fn place(self, page: u64, version: u32) -> u64 {
        mix(self.seed ^ PLACE_KEY ^ (page << 32) ^ u64::from(version)) % WORDS
    }

    /// The newest version up to `newest` that was written at `place`, if it is among the last `look` ones.
    pub fn newest_at(self, page: u64, place: u64, newest: u32, look: u32) -> Option<u32> {
        let oldest = newest.saturating_sub(look);
        let found = (oldest + 1..=newest)
            .rev()
            .find(|&version| self.place(page, version) == place);
        found.or((oldest == 0).then_some(0))
    }

    /// The versions of all words of a page whose newest is `newest`.
    pub fn image(self, page: u64, newest: u32) -> [u32; WORDS as usize] {
        let mut image = [0; WORDS as usize];
        let mut left = WORDS;
        for version in (1..=newest).rev() {
            let at = &mut image[self.place(page, version) as usize];
            if *at == 0 {
                *at = version;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_of_one_page_place_and_version() {
        let words = Words::new(1);
        let word = words.word(7, 9, 3);
        assert_eq!(words.version(7, 9, word), Some(3));
        for (page, place) in [(8, 9), (7, 8), (6, 9)] {
            assert_eq!(words.version(page, place, word), None);
        }
        assert_eq!(Words::new(2).version(7, 9, word), None);
        for bit in 32..64 {
            assert_eq!(words.version(7, 9, word ^ 1 << bit), None);
        }
        assert_eq!(words.version(7, 9, 0), None);
    }

    #[test]
    fn an_image_has_the_newest_version_of_each_place() {
        let words = Words::new(5);
        for newest in [0, 1, 40, 3000] {
            let image = words.image(11, newest);
            let mut slow = [0; WORDS as usize];
            for version in 1..=newest {
                slow[words.place(11, version) as usize] = version;
            }
            assert_eq!(image, slow);
            for place in 0..WORDS {
                let found = words.newest_at(11, place, newest, u32::MAX);
                assert_eq!(found, Some(slow[place as usize]));
            }
        }
        // Words that are too old are not known.
        let old = words.place(11, 1);
        let newer = (2..=100).any(|version| words.place(11, version) == old);
        assert!(newer || words.newest_at(11, old, 100, 50).is_none());
    }
}
