//! How often each page was written: a word a page, beside the memory, that is a sequence lock too.
//!
//! A writer marks the word, writes, and leaves the next version. A reader looks at the word before and after:
//! whatever it read between is of a version between.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Set while a page is written.
const WRITING: u32 = 1 << 31;

/// The words of all pages.
pub struct Versions(Vec<AtomicU32>);

/// The versions that a read may see: `done` has been written, `begun` perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The newest version that was written whole.
    pub done: u32,
    /// The newest version that anybody began to write.
    pub begun: u32,
}

impl Versions {
    /// Of so many pages, all of version 0.
    pub fn new(pages: u64) -> Self {
        Self((0..pages).map(|_| AtomicU32::new(0)).collect())
    }

    /// So many.
    pub fn pages(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes the next version of a page by `write`, which gets its number; waits while another thread
    /// writes the same page.
    pub fn write<E>(&self, page: u64, write: impl FnOnce(u32) -> Result<(), E>) -> Result<(), E> {
        let word = &self.0[page as usize];
        let version = loop {
            // Relaxed: the exchange decides.
            let version = word.load(Ordering::Relaxed);
            // Acquire, with the Release below: the writer before is done.
            let marked = word.compare_exchange_weak(
                version & !WRITING,
                version | WRITING,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match marked {
                Ok(version) => break version,
                Err(_) => std::thread::yield_now(),
            }
        };
        // Release, with the Acquire fence in `after`: a reader of the new bytes sees the mark.
        fence(Ordering::Release);
        let written = write(version + 1);
        let left = version + u32::from(written.is_ok());
        // Release, with the Acquire in `before` and above: a reader of the version sees the bytes written.
        word.store(left, Ordering::Release);
        written
    }

    /// Before a page is read.
    pub fn before(&self, page: u64) -> Seen {
        // Acquire, with the Release store in `write`.
        Self::seen(self.0[page as usize].load(Ordering::Acquire))
    }

    /// After a page was read.
    pub fn after(&self, page: u64) -> Seen {
        // Acquire, with the Release fence in `write`.
        fence(Ordering::Acquire);
        Self::seen(self.0[page as usize].load(Ordering::Relaxed))
    }

    fn seen(word: u32) -> Seen {
        let done = word & !WRITING;
        Seen {
            done,
            begun: done + u32::from(word & WRITING != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_begun_before_it_is_done() {
        let versions = Versions::new(2);
        let see = |page| (versions.before(page), versions.after(page));
        versions
            .write(1, |version| {
                assert_eq!(version, 1);
                assert_eq!(see(1).0, Seen { done: 0, begun: 1 });
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(see(1).1, Seen { done: 1, begun: 1 });
        assert_eq!(versions.write(1, |_| Err("no")), Err("no"));
        assert_eq!(
            see(1),
            (Seen { done: 1, begun: 1 }, Seen { done: 1, begun: 1 })
        );
        assert_eq!(see(0).0, Seen { done: 0, begun: 0 });
    }
}
