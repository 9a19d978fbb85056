//! The protocol, step by step, over a queue that answers when told to. A wait
//! that ends by its limit instead of by a wake-up fails its test.

use super::super::descriptor::{Descriptor, Source};
use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Reap, StoreError};

use super::held::HeldQueue;
use super::queue::{Queue, RingEntry};
use super::table::Request;
use super::{ENTRIES, Ring};

/// Longer than any step takes.
const FOREVER_NS: u64 = 20_000_000_000;
const PAGE: i64 = PAGE_SIZE as i64;

fn ring() -> Ring {
    Ring::new(Queue::Held(HeldQueue::default()), ENTRIES)
}

fn held(ring: &Ring) -> &HeldQueue {
    let Queue::Held(held) = &ring.queue else {
        unreachable!("made so")
    };
    held
}

fn request(cookie: u64) -> Request {
    let buffer = std::ptr::without_provenance_mut(PAGE_SIZE);
    Request {
        cookie,
        source: Source::NONE,
        offset: 0,
        buffer,
        bytes: PAGE_SIZE,
        drop_behind: false,
        whole: false,
        then: None,
    }
}

/// Submits reads with these cookies and returns what the kernel would get.
fn start<const N: usize>(ring: &Ring, cookies: [u64; N]) -> [RingEntry; N] {
    assert_eq!(ring.submit(N, |i| request(cookies[i])), N);
    std::array::from_fn(|_| held(ring).next().expect("submitted"))
}

/// What was delivered, in order.
#[derive(Default)]
struct Inbox(Mutex<Vec<(u64, Result<usize, StoreError>)>>);

impl Inbox {
    fn cookies(&self) -> Vec<u64> {
        self.0
            .lock()
            .expect("whole")
            .iter()
            .map(|delivered| delivered.0)
            .collect()
    }
}

impl Complete for Inbox {
    fn complete(&self, cookie: u64, result: Result<usize, StoreError>) {
        self.0.lock().expect("whole").push((cookie, result));
    }
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

fn waiters(ring: &Ring, cookie: u64) -> u32 {
    let table = ring.table.lock();
    table.find(cookie).map_or(0, |slot| table.waiters(slot))
}

/// A thread that waits for a read, and has come as far as sleeping, or leading
/// if nobody did.
fn waiter<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    ring: &'scope Ring,
    inbox: &'scope Inbox,
    cookie: u64,
) -> thread::ScopedJoinHandle<'scope, Reap> {
    let (led, before) = (held(ring).is_led(), waiters(ring, cookie));
    let thread = scope.spawn(move || ring.reap(cookie, inbox, FOREVER_NS));
    until(|| {
        if led {
            waiters(ring, cookie) > before
        } else {
            held(ring).is_led()
        }
    });
    thread
}

#[track_caller]
fn delivered(waiter: thread::ScopedJoinHandle<'_, Reap>) {
    assert_eq!(
        waiter.join().expect("no panic"),
        Reap::NotInFlight,
        "its wake-up was lost"
    );
}

#[test]
fn the_leader_wakes_those_whose_read_came_and_nobody_else() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [leaders, one, other] = start(&ring, [10, 11, 12]);
    thread::scope(|scope| {
        let leader = waiter(scope, &ring, &inbox, 10);
        let first = waiter(scope, &ring, &inbox, 11);
        let second = waiter(scope, &ring, &inbox, 11);
        let third = waiter(scope, &ring, &inbox, 12);
        held(&ring).answer(one, PAGE);
        delivered(first);
        delivered(second);
        assert!(!leader.is_finished() && !third.is_finished());
        held(&ring).answer(other, PAGE);
        delivered(third);
        held(&ring).answer(leaders, PAGE);
        delivered(leader);
    });
    assert_eq!(inbox.cookies(), [11, 12, 10]);
    assert!(ring.table.lock().is_empty());
}

#[test]
fn a_departing_leader_is_succeeded_by_one_who_waits() {
    let (ring, inbox) = (ring(), Inbox::default());
    let entries = start(&ring, [0, 1, 2, 3, 4, 5, 6, 7]);
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..8).map(|i| waiter(scope, &ring, &inbox, i)).collect();
        // Each time it is the leader's own read that comes.
        for (entry, thread) in entries.into_iter().zip(threads.drain(..)) {
            until(|| held(&ring).is_led());
            held(&ring).answer(entry, PAGE);
            delivered(thread);
        }
    });
    assert_eq!(inbox.cookies(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(!ring.table.lock().led);
}

#[test]
fn one_of_several_waiters_of_a_read_succeeds_and_the_others_still_wake() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        let leader = waiter(scope, &ring, &inbox, 0);
        let others: Vec<_> = (0..5).map(|_| waiter(scope, &ring, &inbox, 1)).collect();
        held(&ring).answer(first, PAGE);
        delivered(leader);
        until(|| held(&ring).is_led());
        assert_eq!(waiters(&ring, 1), 4, "one leads, four sleep");
        held(&ring).answer(second, PAGE);
        others.into_iter().for_each(delivered);
    });
}

#[test]
fn a_leader_whose_time_is_up_is_succeeded_too() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [_first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        // The test itself leads until the other sleeps.
        ring.table.lock().led = true;
        let other = scope.spawn(|| ring.reap(1, &inbox, FOREVER_NS));
        until(|| waiters(&ring, 1) == 1);
        ring.table.lock().led = false;
        assert_eq!(ring.reap(0, &inbox, 1_000_000), Reap::TimedOut);
        until(|| held(&ring).is_led());
        held(&ring).answer(second, PAGE);
        delivered(other);
    });
}

#[test]
fn who_was_called_to_lead_but_has_no_read_any_more_passes_it_on() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [_, _, last] = start(&ring, [0, 1, 2]);
    thread::scope(|scope| {
        // The test itself leads, without collecting.
        ring.table.lock().led = true;
        let sleeper = |cookie| {
            let thread = scope.spawn({
                let (ring, inbox) = (&ring, &inbox);
                move || ring.reap(cookie, inbox, FOREVER_NS)
            });
            until(|| waiters(&ring, cookie) == 1);
            thread
        };
        let (called, other) = (sleeper(1), sleeper(2));
        // It leaves and calls the waiter of read 1; before that one has the
        // lock, its read is taken back (the kernel took fewer than it got).
        let mut table = ring.table.lock();
        table.led = false;
        let slot = table.find(1).expect("in flight");
        table.give_back(slot);
        ring.words[usize::from(slot)].fetch_add(1, Relaxed);
        drop(table);
        ring.words[usize::from(slot)].wake(1);
        delivered(called);
        until(|| held(&ring).is_led());
        held(&ring).answer(last, PAGE);
        delivered(other);
    });
}

#[test]
fn a_follower_whose_time_is_up_leaves_no_trace() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        let leader = waiter(scope, &ring, &inbox, 0);
        assert_eq!(ring.reap(1, &inbox, 1_000_000), Reap::TimedOut);
        assert_eq!(ring.reap(1, &inbox, 0), Reap::TimedOut);
        assert_eq!(waiters(&ring, 1), 0);
        assert_eq!(ring.table.lock().waited_for(), None);
        held(&ring).answer(second, PAGE);
        held(&ring).answer(first, PAGE);
        delivered(leader);
    });
    assert_eq!(inbox.cookies(), [1, 0]);
}

#[test]
fn what_the_kernel_did_not_take_is_given_back_and_its_waiters_told() {
    let (ring, inbox) = (ring(), Inbox::default());
    held(&ring).limit(2);
    assert_eq!(ring.submit(5, |i| request(i as u64)), 2);
    assert_eq!(ring.reap(2, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert_eq!(ring.reap(1, &inbox, 0), Reap::TimedOut);
    assert!(inbox.cookies().is_empty());
}

#[test]
fn a_read_is_in_flight_until_it_was_delivered() {
    /// Looks at the ring from within a delivery.
    struct Look<'a>(&'a Ring, AtomicBool);
    impl Complete for Look<'_> {
        fn complete(&self, cookie: u64, _result: Result<usize, StoreError>) {
            let found = self.0.table.lock().find(cookie).is_some();
            self.1.store(found, Relaxed);
        }
    }
    let ring = ring();
    let look = Look(&ring, AtomicBool::new(false));
    let [entry] = start(&ring, [3]);
    held(&ring).answer(entry, PAGE);
    assert_eq!(ring.reap(3, &look, FOREVER_NS), Reap::NotInFlight);
    assert!(look.1.load(Relaxed), "who asks meanwhile must wait");
}

#[test]
fn a_poll_delivers_more_than_a_batch() {
    let (ring, inbox) = (ring(), Inbox::default());
    let entries: [RingEntry; 100] = start(&ring, std::array::from_fn(|i| i as u64));
    entries
        .into_iter()
        .for_each(|entry| held(&ring).answer(entry, PAGE));
    assert_eq!(ring.reap(u64::MAX, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert_eq!(inbox.cookies(), (0..100).collect::<Vec<u64>>());
}

#[test]
fn cut_and_refused_reads_are_submitted_again_for_their_waiters() {
    let (ring, inbox) = (ring(), Inbox::default());
    let bytes = 4 * PAGE_SIZE;
    assert_eq!(
        ring.submit(1, |_| Request {
            bytes,
            ..request(7)
        }),
        1
    );
    let next = || {
        until(|| held(&ring).is_led());
        loop {
            if let Some(entry) = held(&ring).next() {
                return entry;
            }
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let leader = waiter(scope, &ring, &inbox, 7);
        let entry = next();
        assert_eq!((entry.offset, entry.bytes), (0, bytes));
        held(&ring).answer(entry, i64::from(-libc::ECANCELED));
        let entry = next();
        assert_eq!((entry.offset, entry.bytes), (0, bytes));
        held(&ring).answer(entry, PAGE + 1);
        let entry = next();
        assert_eq!(
            (entry.offset, entry.bytes),
            (PAGE as u64, bytes - PAGE_SIZE)
        );
        assert_eq!(entry.buffer.addr(), 2 * PAGE_SIZE);
        held(&ring).answer(entry, 3 * PAGE);
        delivered(leader);
    });
    assert_eq!(*inbox.0.lock().expect("whole"), [(7, Ok(bytes))]);
}

#[test]
fn the_reaper_reads_what_the_kernel_refuses_for_good() {
    // SAFETY: the name is a string that ends in zero; the descriptor is new.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"store".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        std::fs::File::from_raw_fd(fd)
    };
    file.write_all(b"by hand").expect("write");
    let mut page = vec![0u8; PAGE_SIZE];
    let file = Descriptor::own(file.into(), false).expect("a file of ours");
    let (source, buffer) = (Source::of(&file), page.as_mut_ptr());
    let (ring, inbox) = (ring(), Inbox::default());
    assert_eq!(
        ring.submit(1, |_| Request {
            source,
            buffer,
            ..request(7)
        }),
        1
    );
    // Nothing can be submitted again: neither now nor the eighth time.
    held(&ring).limit(0);
    let entry = held(&ring).next().expect("submitted");
    held(&ring).answer(entry, i64::from(-libc::EAGAIN));
    assert!(ring.reads_from(source));
    assert_eq!(ring.reap(7, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert!(!ring.reads_from(source));
    assert_eq!(*inbox.0.lock().expect("whole"), [(7, Ok(7))]);
    assert_eq!(&page[..8], b"by hand\0");
}
