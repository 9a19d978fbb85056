//! Beginning the faults of many messages, by the thread that reads them.

use super::pool::ServingThreads;
use super::under_way::{Held, Touch};
use crate::process::Process;
use crate::uffd::MESSAGES;
use softfault_engine::fault::{self, Begun, FaultRead, FaultWait, NeverInterrupted, Outcome};
use softfault_engine::store::{Read, Store};
use std::sync::Arc;

/// Reads messages and begins their faults, until there is one that this thread has to wait in. Then another reads on.
///
/// Where faults have to be waited in, few are begun at a time: what a fault waits for is there more often the later it is begun, and
/// more of what follows it.
pub(super) fn by_messages(pool: &ServingThreads, process: &'static Process) {
    let mmu = process.mmu();
    let (mut again, mut most) = (0, pool.batch());
    // Descriptors that may have messages.
    let mut ready = u8::MAX;
    loop {
        if ready == 0 {
            ready = mmu.wait_for_messages(again);
            again = again.saturating_add(1);
            continue;
        }
        let from = ready.trailing_zeros() as u8;
        ready &= ready - 1;
        let (mut touches, mut count) = ([Touch::NONE; MESSAGES], 0);
        mmu.read_messages(from, most, |message| {
            touches[count] = Touch::new(&message, pool.asked.note(message.thread));
            count += 1;
        });
        if count == 0 {
            continue;
        }
        again = 0;
        let touches = &mut touches[..count];
        let (first, late) = begin(pool, process, touches);
        let Some((touch, waiting)) = first else {
            most = (2 * most).min(MESSAGES);
            continue;
        };
        pool.stop_reading(1);
        pool.end(process, &touch, waiting.wait());
        let late = &touches[..late];
        return late.iter().for_each(|touch| pool.serve(process, touch));
    }
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
) -> (Option<(Touch, Waiting)>, usize) {
    let mut batch = Batch::new(pool);
    let (mut first, mut late) = (None, 0);
    for at in 0..touches.len() {
        let touch = &touches[at];
        pool.refuse_own(touch);
        let waiting = match fault::begin(process.space(), touch.addr, touch.flags) {
            Begun::Over(outcome) => {
                pool.end(process, touch, outcome);
                continue;
            }
            Begun::Read(read) => match batch.add(touch, read) {
                Ok(()) => continue,
                Err(read) => Waiting::Read(read),
            },
            Begun::Waits(wait) => Waiting::Other(wait),
        };
        if first.is_none() {
            first = Some((*touch, waiting));
            continue;
        }
        let flags = match waiting {
            Waiting::Read(read) => {
                drop(read);
                touch.flags
            }
            Waiting::Other(wait) => wait.leave(),
        };
        let touch = Touch { flags, ..*touch };
        match pool.under_way.put(Held { touch, read: None }) {
            Ok(place) => pool.leave(place),
            Err(Held { touch, .. }) => {
                touches[late] = touch;
                late += 1;
            }
        }
    }
    batch.submit();
    (first, late)
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

    /// Begins what was added. What the store does not take is left to other threads.
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
        // SAFETY: each buffer is the frames of a folio that stays locked until the read has arrived.
        let started = unsafe { store.submit_apart(&reads[..places.len()]) };
        for &place in &places[started..] {
            drop(under_way.with(place, |held| held.read.take()));
            self.pool.leave(place);
        }
    }
}
