//! Grace periods: the time until every lookup has ended that may have found a VMA before it was unmapped.
//!
//! [`Rcu`](crate::policy::VmaReuse::Rcu) alone, Linux's way before document 004. A lookup
//! without a lock is a read section, from before it walks the tree until it has its
//! reference to the VMA that it found, or none. The slot of a VMA that was taken out goes
//! back to the slab when all sections have ended that were under way by then: no lookup
//! ever meets another VMA in the slot that it found.
//!
//! ```text
//!   unmap, under mmap_lock                          reader
//!   g1  out of the tree                             s1  epoch                 (Acquire)
//!   g2  epoch += 1                    (Release)     s2  word[epoch % 2] += 1  (Acquire)
//!   g3  each word[old epoch % 2] is 0 (AcqRel)      s3  the same epoch? if not: s5, and again
//!   g4  the slot is free                            s4  walks, takes a reference or none
//!                                                   s5  that word -= 1        (Release)
//! ```
//!
//! Both s2 and g3 are read-modify-writes of one word, so one comes first. If it is s2, g3
//! finds the reader there and the slot waits. If it is g3, s2 has seen it, and with it g2:
//! s3 finds another epoch than an old s1, and the reader begins again. A reader whose
//! epoch is the new one has seen g1 by s1: it does not find the VMA any more. Epochs are
//! compared whole, so that one which is two later is another.
//!
//! Readers have a word of their own processor for even epochs and one for odd ones, and
//! keep to it wherever they are by the time they end. A slot that is taken out while an epoch's
//! readers are waited for waits for the end of the next one.
//!
//! Linux's readers of RCU write nothing, for the kernel knows when a processor has been
//! through all sections that it was in. A process knows no such thing of its threads: so
//! these are Linux's SRCU, at two read-modify-writes a lookup.

use core::fmt;

use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};

use crate::lock::{Mutex, order};

/// Slots that wait before the readers' words are looked at: there is a word for each
/// processor.
const BATCH: usize = 64;

/// The grace periods of a machine's VMAs: 64 bytes a processor.
pub struct GracePeriods {
    head: Head,
    /// The words; that of a processor is written by the lookups that begin there.
    lines: Box<[Line]>,
    /// Immutable.
    batch: usize,
    /// Held to take a VMA out, and to wait for a slot.
    retired: Mutex<Retired, { order::GRACE_PERIODS }>,
}

/// Hardly ever written, and on another cache line than fields that are.
#[repr(align(64))]
struct Head {
    /// Written under `retired`.
    epoch: AtomicU64,
    /// Lines that were ever used are below. Only grows.
    used: AtomicU32,
}

/// Readers of a processor, by epoch: even ones, odd ones.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU32; 2]);

/// Slots that were taken out.
#[derive(Default)]
struct Retired {
    /// In the epoch before this one: they wait for its readers.
    waiting: Vec<u32>,
    /// Since then.
    since: Vec<u32>,
    /// The most that there ever were.
    most: usize,
}

impl Retired {
    fn count(&self) -> usize {
        self.waiting.len() + self.since.len()
    }
}

/// A lookup that is under way. It must not wait for anything.
#[must_use]
pub struct ReadSection<'a>(&'a AtomicU32);

impl GracePeriods {
    /// For so many processors. With more of them, some share a line.
    pub fn new(processors: usize) -> Self {
        Self::with_batch(processors, BATCH)
    }

    /// The same with other batches than `BATCH`. For models.
    pub fn with_batch(processors: usize, batch: usize) -> Self {
        assert!(processors > 0 && batch > 0);
        Self {
            head: Head {
                epoch: AtomicU64::new(0),
                used: AtomicU32::new(0),
            },
            lines: (0..processors).map(|_| Line::default()).collect(),
            batch,
            retired: Mutex::ranked(Retired::default()),
        }
    }

    /// Bytes of the words.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of::<Self>()
    }

    /// Slots that wait for their readers.
    pub fn waiting(&self) -> usize {
        self.retired.lock().count()
    }

    /// The most that ever waited at a time.
    pub fn most_waiting(&self) -> usize {
        self.retired.lock().most
    }

    /// Begins a lookup: no slot that it finds is reused before its end.
    #[inline]
    pub fn read_section(&self) -> ReadSection<'_> {
        loop {
            // s1. Pairs with the Release in `next_epoch`: slots that were taken out before are not
            // found.
            let epoch = self.head.epoch.load(Acquire);
            let line = sync::cpu() % self.lines.len();
            // Acquire pairs with the Release of the look at the number; threads that raise it
            // hand that on. A writer that will not look at this line has changed the epoch, and s3
            // sees that.
            if line as u32 >= self.head.used.load(Acquire) {
                self.head.used.fetch_max(line as u32 + 1, Acquire); // As above.
            }
            let word = &self.lines[line].0[(epoch % 2) as usize];
            // s2. Pairs with the Release in `is_over`.
            word.fetch_add(1, Acquire);
            let section = ReadSection(word);
            // s3. Relaxed: see the module's text.
            if self.head.epoch.load(Relaxed) == epoch {
                return section;
            }
        }
    }

    /// A slot was removed from the tree. It is handed to `free` when all lookups that
    /// may have found it are over, together with others and by any later caller.
    pub fn retire(&self, slot: u32, free: impl FnMut(u32)) {
        let mut retired = self.retired.lock();
        retired.since.push(slot);
        retired.most = retired.most.max(retired.count());
        if retired.since.len() >= self.batch {
            self.advance(&mut retired, free);
        }
    }

    /// Waits until a slot is freed. False if none waits for its readers.
    pub fn wait(&self, mut free: impl FnMut(u32)) -> bool {
        loop {
            let mut retired = self.retired.lock();
            if retired.count() == 0 {
                return false;
            }
            if self.advance(&mut retired, &mut free) {
                return true;
            }
            drop(retired);
            sync::thread::yield_now();
        }
    }

    /// Frees slots whose grace period is over. True if there were any.
    fn advance(&self, retired: &mut Retired, mut free: impl FnMut(u32)) -> bool {
        let before = retired.count();
        // At first those that have waited, then those that came since: an epoch begins
        // when the readers of the last but one are gone.
        for _ in 0..2 {
            if !retired.waiting.is_empty() && !self.is_over() {
                break;
            }
            retired.waiting.drain(..).for_each(&mut free);
            if retired.since.is_empty() {
                break;
            }
            core::mem::swap(&mut retired.waiting, &mut retired.since);
            self.next_epoch();
        }
        if !retired.waiting.is_empty() && self.is_over() {
            retired.waiting.drain(..).for_each(&mut free);
        }
        retired.count() < before
    }

    /// g2. The caller holds `retired`.
    fn next_epoch(&self) {
        let epoch = self.head.epoch.load(Relaxed);
        // Release pairs with the Acquire of s1.
        self.head.epoch.store(epoch + 1, Release);
    }

    /// g3: true if all readers of the epoch before this one have gone. The caller holds
    /// `retired`.
    fn is_over(&self) -> bool {
        let old = (self.head.epoch.load(Relaxed) + 1) % 2;
        // A read-modify-write, as is raising it: one of the two comes first. Release pairs
        // with the Acquire in `read_section`.
        let used = self.head.used.fetch_add(0, Release) as usize;
        self.lines[..used].iter().all(|line| {
            let word = &line.0[old as usize];
            // Relaxed: a look that saves taking the line from its processor. Release pairs
            // with the Acquire of s2, Acquire with the Release of s5.
            word.load(Relaxed) == 0 && word.fetch_add(0, AcqRel) == 0
        })
    }
}

impl Drop for ReadSection<'_> {
    #[inline]
    fn drop(&mut self) {
        // s5. Pairs with the Acquire in `is_over`: all looks come before it.
        let readers = self.0.fetch_sub(1, Release);
        assert!(readers > 0, "the end of a read section without a reader");
    }
}

impl fmt::Debug for GracePeriods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracePeriods")
            .field("lines", &self.lines.len())
            .field("epoch", &self.head.epoch.load(Relaxed))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ReadSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadSection")
    }
}
