//! The contents of a made file: a function of the offset, cheap to compute forward and to check.
//!
//! A page is 512 little-endian words. Words 0 to 510 are a hash of the file's seed and their place; word
//! 511 is whatever makes the sum of the page a hash of the page's number. So one touched word is checked
//! by one hash, and a scan that sums whole pages at memory speed by one hash a page, with no table of
//! sums beside the file. The first page begins with a header in place of its first words, so that a file
//! made earlier is recognised.
//!
//! ```text
//!   page 0   | magic | seed | bytes | h(3) | h(4) ... h(510) | S(0) - the others |
//!   page p   | h(512p) | h(512p + 1) ...       ... h(512p+510)| S(p) - the others |
//! ```

use serde::{Deserialize, Serialize};
pub use softfault_sim::random::{mix, uniform};

/// Bytes in the unit that files are made of and checked in. The kernel's page size here; a larger one
/// would only check more rarely.
pub const PAGE: u64 = 4096;
/// Words in a page.
pub const WORDS: u64 = PAGE / 8;
/// The longest file: page numbers are below 2^32, so that products of two are words.
pub const FILE_MAX: u64 = PAGE << 32;
/// First word of a made file.
const MAGIC: u64 = u64::from_le_bytes(*b"softflt1");
/// Words of the first page that are the header.
const HEADER_WORDS: u64 = 3;
/// Sets the sums' hashes apart from the words'.
const SUM_KEY: u64 = 0x5355_4d53_5355_4d53;

/// The contents of one made file. All fields immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// Seed of the hashes.
    pub seed: u64,
    /// The file's length, a multiple of `PAGE`.
    pub bytes: u64,
}

impl Fill {
    /// The word that `page` holds at `index`, which is below 511: the balancing word has no short form.
    pub fn word(&self, page: u64, index: u64) -> u64 {
        assert!(
            index < WORDS - 1,
            "word {index} of a page has no short form"
        );
        match (page, index) {
            (0, 0) => MAGIC,
            (0, 1) => self.seed,
            (0, 2) => self.bytes,
            _ => mix(self.seed ^ (page * WORDS + index)),
        }
    }

    /// The wrapping sum of all words of `page`.
    pub fn page_sum(&self, page: u64) -> u64 {
        mix(self.seed ^ SUM_KEY ^ mix(page))
    }

    /// Which word a touch of `page` looks at: differs from page to page, and is never the balancing one.
    pub fn probe(&self, page: u64) -> u64 {
        page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 255
    }

    /// Writes the words of `page` into `words`.
    pub fn page(&self, page: u64, words: &mut [u64]) {
        let (last, body) = words.split_last_mut().expect("a page has words");
        let mut sum = 0u64;
        for (index, word) in body.iter_mut().enumerate() {
            *word = mix(self.seed ^ (page * WORDS + index as u64));
            sum = sum.wrapping_add(*word);
        }
        if page == 0 {
            for index in 0..HEADER_WORDS {
                sum = sum.wrapping_sub(body[index as usize]);
                body[index as usize] = self.word(0, index);
                sum = sum.wrapping_add(body[index as usize]);
            }
        }
        *last = self.page_sum(page).wrapping_sub(sum);
    }

    /// Recognises a made file of `bytes` bytes by the first words of its first page.
    pub fn recognise(first: &[u8], bytes: u64) -> Option<Self> {
        let word = |index: usize| {
            let at = first.get(index * 8..index * 8 + 8)?;
            Some(u64::from_ne_bytes(at.try_into().ok()?))
        };
        let fill = Self {
            seed: word(1)?,
            bytes: word(2)?,
        };
        (word(0)? == MAGIC && fill.bytes == bytes && bytes.is_multiple_of(PAGE)).then_some(fill)
    }
}

/// The word that a touched page must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// A made file's data.
    Filled(Fill),
    /// A made file of holes.
    Zeros,
    /// The caller's own file: accesses are not checked.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILL: Fill = Fill {
        seed: 7,
        bytes: 3 * PAGE,
    };

    #[test]
    fn words_and_sums_agree_with_the_page() {
        for number in 0..3 {
            let mut words = [0; WORDS as usize];
            FILL.page(number, &mut words);
            for index in 0..WORDS - 1 {
                assert_eq!(words[index as usize], FILL.word(number, index));
            }
            let sum = words.iter().fold(0u64, |sum, &w| sum.wrapping_add(w));
            assert_eq!(sum, FILL.page_sum(number));
            assert!(FILL.probe(number) < WORDS - 1);
        }
    }

    #[test]
    fn a_made_file_is_recognised_and_others_are_not() {
        let mut words = [0; WORDS as usize];
        FILL.page(0, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!(Fill::recognise(&bytes, FILL.bytes), Some(FILL));
        assert_eq!(Fill::recognise(&bytes, FILL.bytes + PAGE), None);
        assert_eq!(Fill::recognise(&bytes[..8], FILL.bytes), None);
        assert_eq!(Fill::recognise(&[0; 4096], FILL.bytes), None);
    }

    #[test]
    fn pages_differ() {
        let sums: std::collections::BTreeSet<u64> = (0..1000).map(|p| FILL.page_sum(p)).collect();
        assert_eq!(sums.len(), 1000);
        assert_ne!(FILL.word(1, 0), FILL.word(2, 0));
    }
}
