//! Visible readers: where faults say which VMA they read, each on a line of its
//! own processor.
//!
//! ```text
//!   processor 0   | word | word | word | word |      a word: 0, or the VMA that
//!   processor 1   | word | word | word | word |      somebody reads, and a bit
//!   ...
//! ```
//!
//! A reader that finds a word 0 claims it, for as long as it reads one VMA. One word
//! a processor would be enough but for readers that were preempted, or that wait, with a
//! VMA locked: the next one on the processor takes the next word.
//!
//! The table belongs to all spaces of a machine, and outlives their VMAs: a late
//! wake-up uses nothing but the address of a word. A thread that sleeps on the word by
//! then looks at it again.
//!
//! [`biased`](super::biased) explains the orderings of the words.

use core::fmt;

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::hint;
use sync::wait::WaitWord;

use super::super::vma::Vma;

/// Words of a processor.
const WORDS: usize = 4;
/// Of a word: a writer sleeps until it is another.
const AWAITED: u32 = 1 << 31;

/// The table of a machine's visible readers: 128 bytes a processor.
pub struct VisibleReaders {
    head: Head,
    lines: Box<[Line]>,
    /// Words of a line that are used: all, but in tests.
    words: usize,
}

/// Hardly ever written, and on another cache line than fields that are.
#[repr(align(128))]
struct Head {
    /// Lines that were ever used are below. Only grows.
    used: AtomicU32,
}

/// Two lines of the cache: processors fetch them by twos.
#[derive(Default)]
#[repr(align(128))]
struct Line([WaitWord; WORDS]);

/// A word that says that somebody reads a VMA.
#[derive(Clone, Copy)]
pub(super) struct Visible<'a>(&'a WaitWord);

/// The value of a word while a thread reads the VMA. `None` for VMAs with too great
/// an index, if there could be so many.
#[inline]
fn number(vma: &Vma) -> Option<u32> {
    let number = vma.index() + 1;
    (number < AWAITED).then_some(number)
}

impl VisibleReaders {
    /// A table for so many processors. With more of them, some share a line.
    pub fn new(processors: usize) -> Self {
        Self::with_words(processors, WORDS)
    }

    /// The same with fewer words a processor, from 1 to 4.
    ///
    /// # Panics
    /// If there is no processor, or no word.
    pub fn with_words(processors: usize, words: usize) -> Self {
        assert!(processors > 0 && (1..=WORDS).contains(&words));
        Self {
            head: Head {
                used: AtomicU32::new(0),
            },
            lines: (0..processors).map(|_| Line::default()).collect(),
            words,
        }
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of::<Self>()
    }

    /// Says that the caller reads the VMA (r2). `None` if its processor's words
    /// are all in use.
    #[inline]
    pub(super) fn enter(&self, vma: &Vma) -> Option<Visible<'_>> {
        let number = number(vma)?;
        let line = sync::cpu() % self.lines.len();
        // Acquire pairs with the Release of a writer's look at the number; threads
        // that raise it hand that on. A writer that will not visit this line has
        // ended the bias, and the caller sees that.
        if line as u32 >= self.head.used.load(Acquire) {
            self.head.used.fetch_max(line as u32 + 1, Acquire); // As above.
        }
        let words = &self.lines[line].0[..self.words];
        // Acquire pairs with the Release of a writer's look.
        let free = |word: &&WaitWord| word.compare_exchange(0, number, Acquire, Relaxed).is_ok();
        words.iter().find(free).map(Visible)
    }

    /// Waits until all readers have left that had announced before this that they read the VMA,
    /// and have not left on their own (w3, w4).
    pub(super) fn wait_for_readers(&self, vma: &Vma) {
        let Some(number) = number(vma) else {
            return;
        };
        // A read-modify-write, as is raising it: one of the two comes first.
        // Release pairs with the Acquire in `enter`.
        let used = self.head.used.fetch_add(0, Release) as usize;
        for line in &self.lines[..used] {
            for word in &line.0[..self.words] {
                wait_for_reader(word, number);
            }
        }
    }

    /// Lines that a writer would visit now, or a little fewer.
    pub(super) fn used(&self) -> u32 {
        self.head.used.load(Relaxed)
    }

    /// How many say that they read the VMA, as of now.
    pub fn readers(&self, vma: &Vma) -> u32 {
        let words = self.lines.iter().flat_map(|line| &line.0[..self.words]);
        let readers = words.filter(|word| Some(word.load(Relaxed) & !AWAITED) == number(vma));
        readers.count() as u32
    }
}

impl Visible<'_> {
    /// The reader leaves (r5).
    #[inline]
    pub(super) fn leave(self) {
        // Release pairs with the Acquire of the writer that looks or waits: this
        // one's reads come before it. A read-modify-write, so that it hands the
        // Release of a writer's look on to the next claimer of the word.
        let number = self.0.swap(0, Release);
        assert!(number & !AWAITED != 0, "vma_end_read of no VMA");
        // From here on the VMA may be anything; see the module's text.
        if number & AWAITED != 0 {
            self.0.wake(u32::MAX);
        }
    }
}

/// Waits while the word says that somebody reads the VMA of this number.
fn wait_for_reader(word: &WaitWord, number: u32) {
    // w3. Release pairs with the Acquire in `enter`, Acquire with the Release in
    // `leave`: later changes are read-modify-writes and hand it on.
    let mut now = word.fetch_add(0, AcqRel);
    let is_over = |now: u32| now & !AWAITED != number;
    // w4. Acquire as above, here and below.
    if is_over(now) || hint::spin_until(|| is_over(word.load(Acquire))) {
        return;
    }
    while !is_over(now) {
        // It may have left, and another have come that sees that there is no
        // bias any more, and goes.
        match word.compare_exchange(now, number | AWAITED, Acquire, Acquire) {
            Ok(_) => {
                word.wait(number | AWAITED, None);
                now = word.load(Acquire);
            }
            Err(other) => now = other,
        }
    }
}

impl fmt::Debug for VisibleReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibleReaders")
            .field("lines", &self.lines.len())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Visible({})", self.0.load(Relaxed))
    }
}
