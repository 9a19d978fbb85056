//! The coming events: a heap of moments, earliest first, those of one moment in
//! the order in which they were put in.

/// Bits of a thread's number.
const THREAD_BITS: u32 = 20;
/// The most threads of a machine.
pub const MOST_THREADS: usize = 1 << THREAD_BITS;

/// Something that happens to a thread at a moment. Which of its things it is
/// (to run, or a time-out) and whether it still is to happen, the thread knows
/// by the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(u128);

impl Event {
    #[inline]
    fn new(time: u64, number: u64, thread: u32) -> Self {
        Self(u128::from(time) << 64 | u128::from(number << THREAD_BITS | u64::from(thread)))
    }

    /// When, in picoseconds.
    #[inline]
    pub fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Its number, which no other event has.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 as u64 >> THREAD_BITS
    }

    /// Its receiver.
    #[inline]
    pub fn thread(self) -> u32 {
        self.0 as u32 & ((1 << THREAD_BITS) - 1)
    }
}

/// All that is to happen.
#[derive(Debug)]
pub struct Events {
    heap: Vec<Event>,
    last: u64,
}

impl Events {
    pub fn new() -> Self {
        Self {
            heap: Vec::with_capacity(4096),
            last: 0,
        }
    }

    /// When the next thing happens; never if there is none.
    #[inline]
    pub fn next_time(&self) -> u64 {
        self.heap.first().map_or(u64::MAX, |event| event.time())
    }

    /// Puts an event in and returns its number.
    #[inline]
    pub fn push(&mut self, time: u64, thread: u32) -> u64 {
        self.last += 1;
        let event = Event::new(time, self.last, thread);
        let mut at = self.heap.len();
        self.heap.push(event);
        while at > 0 {
            let above = (at - 1) / 2;
            if self.heap[above] <= event {
                break;
            }
            self.heap[at] = self.heap[above];
            at = above;
        }
        self.heap[at] = event;
        self.last
    }

    /// Takes the next event out.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sink(last);
        }
        Some(first)
    }

    /// Takes the next event out and puts another in. There is a next one, and
    /// it comes before.
    #[inline]
    pub fn replace(&mut self, time: u64, thread: u32) -> (Event, u64) {
        self.last += 1;
        let first = self.heap[0];
        self.sink(Event::new(time, self.last, thread));
        (first, self.last)
    }

    /// Puts an event in the place of the first.
    #[inline]
    fn sink(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let mut at = 0;
        loop {
            let mut below = 2 * at + 1;
            if below >= heap.len() {
                break;
            }
            if below + 1 < heap.len() {
                below += usize::from(heap[below + 1] < heap[below]);
            }
            if event <= heap[below] {
                break;
            }
            heap[at] = heap[below];
            at = below;
        }
        heap[at] = event;
    }
}
