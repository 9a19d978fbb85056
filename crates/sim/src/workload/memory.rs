//! Anonymous memory that threads share, and the values that each of its pages may show.
//!
//! A page's first word says which page it is and how often it was written. One
//! thread at a time writes to a page, so a read finds the last write that was over
//! when it began, or one that was under way: a page that lost a write on its way
//! through swap shows, and so does one that is another's.

use super::gang::Member;
use super::tally::Waited;
use crate::job::{Job, PAGE};
use crate::outcome::Trouble;
use crate::random::mix;
use crate::rig::{AnonymousMap, Rig};
use crate::world;
use softfault_engine::fault::FaultError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sync::Arc;

/// The bits of a word that count writes.
const WRITES: u32 = 24;

/// The memory.
pub struct Memory {
    map: AnonymousMap,
    /// Beside the machine: to look here is no operation of anybody.
    pages: Mutex<Vec<Page>>,
    count: u64,
}

/// Writes to a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    /// Those that were begun.
    begun: u64,
    /// The last one that is over.
    over: u64,
    /// One is under way.
    busy: bool,
}

/// Whether the memory of a job can go to swap.
pub fn check(job: &Job) -> Result<(), Trouble> {
    match job.region > job.swap {
        false => Ok(()),
        true => Err(Trouble::Job(format!(
            "{} bytes of memory: more than the {} of swap",
            job.region, job.swap
        ))),
    }
}

/// Draws a page and whether it is written, for access `number` of `thread`.
pub fn draw(seed: u64, thread: usize, number: u64) -> (u64, bool) {
    let word = mix(mix(seed ^ mix(thread as u64)) ^ number);
    (word, mix(word) & 1 == 1)
}

impl Memory {
    /// Maps the job's memory and writes to all of it, in order.
    pub fn populated(job: &Job, rig: &Rig) -> Result<Arc<Self>, String> {
        let count = job.region / PAGE;
        let memory = Self {
            map: rig.map_anonymous(job.region)?,
            pages: Mutex::new(vec![Page::default(); count as usize]),
            count,
        };
        let mut view = rig.view()?;
        for page in 0..count {
            let written = rig.write(&mut view, memory.address(page), word(page, 0));
            written.map_err(|error| format!("cannot populate page {page}: {error:?}"))?;
        }
        Ok(Arc::new(memory))
    }

    /// How many pages it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn address(&self, page: u64) -> usize {
        self.map.start() + (page * PAGE) as usize
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn page(&self, page: u64) -> Page {
        self.pages()[page as usize]
    }

    /// The number of a write that begins now; `None` if another is under way.
    fn begin(&self, page: u64) -> Option<u64> {
        let page = &mut self.pages()[page as usize];
        if core::mem::replace(&mut page.busy, true) {
            return None;
        }
        page.begun += 1;
        Some(page.begun)
    }

    fn end(&self, page: u64, written: bool) {
        let page = &mut self.pages()[page as usize];
        page.busy = false;
        if written {
            page.over = page.begun;
        }
    }
}

impl Member {
    /// Reads or writes a page, and checks the bytes. A page that cannot be read counts
    /// as failed where the disk has bad pages, and is an error elsewhere.
    pub fn access(
        &mut self,
        memory: &Memory,
        page: u64,
        writes: bool,
        what: Waited,
    ) -> Result<(), String> {
        let since = world::now_ns();
        let addr = memory.address(page);
        // Somebody else's write is as good to look at as any.
        let write = writes.then(|| memory.begin(page)).flatten();
        let done = match write {
            Some(number) => {
                let done = self.rig.write(&mut self.view, addr, word(page, number));
                memory.end(page, done.is_ok());
                done
            }
            None => {
                let before = memory.page(page);
                match self.rig.read(&mut self.view, addr) {
                    Ok(found) => {
                        let after = memory.page(page);
                        match (before.over..=after.begun).any(|n| word(page, n) == found) {
                            true => Ok(()),
                            false => return Err(lost(page, found, before, after)),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
        };
        self.tally.longest(what, world::now_ns() - since);
        self.tally.touches += 1;
        match done {
            Ok(()) => Ok(()),
            Err(FaultError::Io(_) | FaultError::Short) if self.errors_expected => {
                self.tally.failed += 1;
                Ok(())
            }
            Err(error) => Err(format!("cannot touch page {page} of memory: {error:?}")),
        }
    }
}

/// The first word of a page after so many writes.
fn word(page: u64, writes: u64) -> u64 {
    (page + 1) << WRITES | writes
}

fn lost(page: u64, found: u64, before: Page, after: Page) -> String {
    let (of, writes) = (
        (found >> WRITES).wrapping_sub(1),
        found & ((1 << WRITES) - 1),
    );
    format!(
        "wrong data in page {page} of memory: page {of} after write {writes}, not page {page} after {} to {}",
        before.over, after.begun
    )
}
