//! Beginning the faults of many messages, by the thread that reads them.

use super::pool::ServingThreads;
use super::under_way::{Held, Touch};
use crate::process::Process;
use crate::uffd::{LOOKS, MESSAGES, SEEN_FOR};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{
    self, FaultRead, FaultWait, NeverInterrupted, Outcome, StartedFault,
};
use softfault_engine::stage::Stage;
use softfault_engine::store::{Read, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::stage;

/// Reads messages and begins their faults, until there is one that this thread has to wait in. Then another reads on.
///
/// Where faults have to be waited in, few are begun at a time: the later a fault is begun, the more often its page, and the
/// pages behind it, are there already.
pub(super) fn by_messages(pool: &'static ServingThreads, process: &'static Process) {
    let mmu = process.mmu();
    let MessageReaderStart {
        mut most,
        mut next,
        mut seen,
    } = pool.reader_start();
    // Changes of windows in place before the messages came.
    let mut changes = 0;
    let mut again = 0;
    let mut polling = MessagePolling::default();
    // Descriptors that may have messages.
    let mut ready = 0;
    loop {
        let Some(from) = first_from(ready, next) else {
            let is_seen = again == 0 && seen.is_some_and(|at| at.elapsed() < SEEN_FOR);
            if !is_seen {
                seen = Some(Instant::now());
            }
            changes = mmu.changes();
            ready = polling.after(|polling| mmu.wait_for_messages(again, is_seen, polling));
            again = again.saturating_add(1);
            continue;
        };
        ready &= !(1 << from);
        next = (from + 1) % DESCRIPTORS;
        let (mut touches, mut count) = ([Touch::NONE; MESSAGES], 0);
        mmu.read_messages(from, most, |message| {
            let page = message.addr & !(PAGE_SIZE - 1);
            if let Some(number) = pool.asked.note(message.thread, page, message.from) {
                touches[count] = Touch::new(&message, number, changes);
                count += 1;
            }
        });
        if count == 0 {
            continue;
        }
        again = 0;
        stage::take_over(Stage::Handler as u8);
        let touches = &mut touches[..count];
        let (first, late) = begin(pool, process, touches, &mut polling);
        let Some((touch, waiting)) = first else {
            most = (2 * most).min(MESSAGES);
            continue;
        };
        let start = MessageReaderStart {
            most: 1,
            next,
            seen,
        };
        if !pool.stop_reading(start, late > 0) {
            let Err(touch) = leave(pool, &touch, waiting) else {
                most = 1;
                continue;
            };
            pool.stop_reading(start, true);
            return pool.serve(process, &touch);
        }
        pool.grow(process, true);
        pool.end(process, &touch, waiting.wait(), true);
        let late = &touches[..late];
        return late.iter().for_each(|touch| pool.serve(process, touch));
    }
}

/// Whether a message may come soon: a thread was woken just now, and the last such thread touched its next missing page at once.
///
/// A program that finds its pages in the page cache, one after the other, would otherwise pay for two wake-ups of idle processors a page,
/// its own and that of the thread that reads messages. One that works between its touches, or that has no processor while this thread
/// looks, would pay for looks in vain: after such a look there is none for a while, each time for longer.
#[derive(Default)]
struct MessagePolling {
    /// The fault of the last message has ended: its thread goes on.
    ended: bool,
    /// The last message after such an end came soon.
    came: bool,
    /// Waits to come in which there is no look.
    rests: u32,
    /// Of the last look that was in vain.
    rested: u32,
}

/// A message that comes within this time of a thread that slept for it would have been found by a look: it took a wake-up more.
const SOON: Duration = Duration::from_micros(100);
/// Waits without a look at most, after one in vain.
const MOST_RESTS: u32 = 1024;

impl MessagePolling {
    /// Waits, and notes how long that took.
    fn after(&mut self, wait: impl FnOnce(bool) -> u8) -> u8 {
        if !core::mem::take(&mut self.ended) {
            return wait(false);
        }
        let looks = self.came && self.rests == 0;
        self.rests = self.rests.saturating_sub(1);
        let begin = Instant::now();
        let ready = wait(looks);
        let took = begin.elapsed();
        self.came = took < SOON;
        if looks && took < LOOKS {
            self.rested = 0;
        } else if looks {
            self.rested = (2 * self.rested).clamp(1, MOST_RESTS);
            self.rests = self.rested;
        }
        ready
    }
}

/// How the next reader of messages begins.
#[derive(Clone, Copy)]
pub(super) struct MessageReaderStart {
    /// Messages that it reads at first.
    pub(super) most: usize,
    /// The descriptor that it looks at first. Each reader goes on after the last one: of readers that all began with the first
    /// descriptor, and left after a few messages, none would come to the last while the first has any.
    pub(super) next: u8,
    /// When the numbers of all descriptors were looked at last.
    pub(super) seen: Option<Instant>,
}

impl Default for MessageReaderStart {
    fn default() -> Self {
        Self {
            most: 1,
            next: 0,
            seen: None,
        }
    }
}

/// Descriptors that may have messages, a bit each.
const DESCRIPTORS: u8 = u8::BITS as u8;

/// The first descriptor of `ready`, from `next` on and around.
fn first_from(ready: u8, next: u8) -> Option<u8> {
    let behind = ready.rotate_right(u32::from(next)).trailing_zeros() as u8;
    (ready != 0).then_some((behind + next) % DESCRIPTORS)
}

/// A fault that a thread has to wait in.
enum Waiting {
    Read(FaultRead<'static>),
    Other(FaultWait<'static>),
}

impl Waiting {
    fn wait(self) -> Outcome {
        match self {
            Self::Read(read) => read.wait(&NeverInterrupted),
            Self::Other(wait) => wait.wait(&NeverInterrupted),
        }
    }
}

/// Begins faults. The first that a thread has to wait in is the caller's; others are left to others. Where there is no room for those, they
/// are the caller's too, afterwards: as many, from the front, as the second says.
fn begin(
    pool: &ServingThreads,
    process: &'static Process,
    touches: &mut [Touch],
    polling: &mut MessagePolling,
) -> (Option<(Touch, Waiting)>, usize) {
    let mut batch = Batch::new(pool);
    let (mut first, mut late) = (None, 0);
    polling.ended = false;
    for at in 0..touches.len() {
        let touch = &touches[at];
        pool.refuse_own(touch);
        let waiting = match fault::begin(process.space(), touch.addr, touch.flags) {
            StartedFault::Over(outcome) => {
                pool.end(process, touch, outcome, false);
                polling.ended = true;
                continue;
            }
            StartedFault::Read(read) => match batch.add(touch, read) {
                Ok(()) => continue,
                // It is another's to wait in, which looks for itself.
                Err(read) if first.is_some() => Waiting::Read(read),
                // This thread goes on where the page cache has it.
                Err(read) => match read.at_hand() {
                    Ok(StartedFault::Over(outcome)) => {
                        pool.end(process, touch, outcome, false);
                        polling.ended = true;
                        continue;
                    }
                    Ok(StartedFault::Waits(wait)) => Waiting::Other(wait),
                    Ok(StartedFault::Read(read)) | Err(read) => Waiting::Read(read),
                },
            },
            StartedFault::Waits(wait) => Waiting::Other(wait),
        };
        if first.is_none() {
            first = Some((*touch, waiting));
            continue;
        }
        if let Err(touch) = leave(pool, touch, waiting) {
            touches[late] = touch;
            late += 1;
        }
    }
    batch.submit();
    (first, late)
}

/// Leaves a fault to another thread; gives it back if there is no room.
fn leave(pool: &ServingThreads, touch: &Touch, waiting: Waiting) -> Result<(), Touch> {
    let flags = match waiting {
        Waiting::Read(read) => {
            drop(read);
            touch.flags
        }
        Waiting::Other(wait) => wait.leave(),
    };
    let touch = Touch { flags, ..*touch };
    match pool.under_way.put(Held { touch, read: None }) {
        Ok(place) => {
            pool.leave(place);
            Ok(())
        }
        Err(Held { touch, .. }) => Err(touch),
    }
}

/// Reads of one store that are begun together.
pub(super) struct Batch<'a> {
    pool: &'a ServingThreads,
    store: Option<Arc<dyn Store>>,
    /// Where their faults are.
    places: [u16; MESSAGES],
    count: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(pool: &'a ServingThreads) -> Self {
        Self {
            pool,
            store: None,
            places: [0; MESSAGES],
            count: 0,
        }
    }

    /// Adds a read, or gives it back, if its store has to be waited for or there are too many.
    fn add(&mut self, touch: &Touch, read: FaultRead<'static>) -> Result<(), FaultRead<'static>> {
        if !read.store().takes_apart() {
            return Err(read);
        }
        let held = Held {
            touch: *touch,
            read: Some(read),
        };
        match self.pool.under_way.put(held) {
            Ok(place) => {
                self.push(place);
                Ok(())
            }
            Err(Held { read, .. }) => Err(read.expect("it was put there")),
        }
    }

    /// Adds the read of a fault that has a place.
    pub(super) fn push(&mut self, place: u16) {
        let store = |held: &mut Held| {
            let read = held.read.as_ref().expect("it has a read");
            match &self.store {
                Some(store) if Arc::ptr_eq(store, read.store()) => None,
                _ => Some(read.store().clone()),
            }
        };
        if let Some(store) = self.pool.under_way.with(place, store) {
            self.submit();
            self.store = Some(store);
        } else if self.count == MESSAGES {
            self.submit();
        }
        self.places[self.count] = place;
        self.count += 1;
    }

    /// Begins the added reads. Reads that the store refuses are left to other threads.
    pub(super) fn submit(&mut self) {
        let places = &self.places[..core::mem::take(&mut self.count)];
        let Some(store) = self.store.as_ref().filter(|_| !places.is_empty()) else {
            return;
        };
        let under_way = &self.pool.under_way;
        let request = |place: u16| {
            under_way.with(place, |held| {
                let read = held.read.as_ref().expect("it has a read");
                read.request(u64::from(place))
            })
        };
        let mut reads: [Read; MESSAGES] = [request(places[0]); MESSAGES];
        for (read, &place) in reads.iter_mut().zip(places).skip(1) {
            *read = request(place);
        }
        let submitting = Stage::Submit.span();
        // SAFETY: each buffer is the frames of a folio that stays locked until the read has arrived.
        let started = unsafe { store.submit_apart(&reads[..places.len()]) };
        drop(submitting);
        stage::let_go(Stage::Read as u8);
        for &place in &places[started..] {
            drop(under_way.with(place, |held| held.read.take()));
            self.pool.leave(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_leave_after_one_descriptor_come_to_all() {
        let mut next = 0;
        let mut order = [0; 16];
        for from in &mut order {
            // All of them have messages, all the time.
            *from = first_from(u8::MAX, next).unwrap();
            next = (*from + 1) % DESCRIPTORS;
        }
        assert_eq!(order, core::array::from_fn(|place| place as u8 % 8));
        assert_eq!(first_from(0b0010_0001, 1), Some(5));
        assert_eq!(first_from(0b0010_0001, 6), Some(0));
        assert_eq!(first_from(0, 3), None);
    }

    #[test]
    fn a_look_before_a_sleep_has_to_be_worth_it() {
        let mut polling = MessagePolling::default();
        // No fault has ended: nobody goes on.
        assert_eq!(polling.after(u8::from), 0);
        let mut after_an_end = |wait: &dyn Fn(bool) -> u8| {
            polling.ended = true;
            polling.after(wait)
        };
        // The first sleeps and sees that it was short, unless this thread has lost its processor; the second looks.
        while after_an_end(&u8::from) == 0 {}
        // Messages that come just after each look: there are fewer and fewer.
        let late = |looked: bool| {
            let begin = Instant::now();
            while begin.elapsed() < 3 * LOOKS / 2 {}
            u8::from(looked)
        };
        let looks = (0..200).filter(|_| after_an_end(&late) == 1).count();
        assert!(looks <= 8, "{looks} looks in vain");
    }
}
