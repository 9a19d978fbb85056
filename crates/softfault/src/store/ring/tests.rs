//! The protocol, step by step, over a queue that answers when told to. A wait
//! that ends by its limit instead of by a wake-up fails its test.

use super::super::descriptor::{Descriptor, Source};
use super::super::read_path::ReadPath;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Reap, StoreError};

use super::held::HeldQueue;
use super::queue::{Queue, RingEntry};
use super::table::Request;
use super::{ENTRIES, Ring, apart};

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
        how: ReadPath::Past,
        whole: false,
        then: None,
    }
}

/// Submits reads with these cookies and returns the entries for the kernel.
fn start<const N: usize>(ring: &Ring, cookies: [u64; N]) -> [RingEntry; N] {
    assert_eq!(ring.submit(N, |i| request(cookies[i])), N);
    std::array::from_fn(|_| held(ring).next().expect("submitted"))
}

/// The deliveries, in order.
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

/// A thread that waits for a read, and has come as far as sleeping, or polling
/// if nobody did.
fn waiter<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    ring: &'scope Ring,
    inbox: &'scope Inbox,
    cookie: u64,
) -> thread::ScopedJoinHandle<'scope, Reap> {
    let (has_poller, before) = (held(ring).has_poller(), waiters(ring, cookie));
    let thread = scope.spawn(move || ring.reap(cookie, inbox, FOREVER_NS));
    until(|| {
        if has_poller {
            waiters(ring, cookie) > before
        } else {
            held(ring).has_poller()
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

/// Failed before: the thread that delivers read it itself in the end, by a call that waits for the file's lock. The lock's holder may sleep for
/// a read that the same thread is to deliver.
#[test]
fn reads_of_the_ring_apart_that_would_wait_are_given_back() {
    let ring = Ring::alone_with(Queue::Held(HeldQueue::default()));
    let inbox = Inbox::default();
    let gives_back = |cookie, refused: i32| {
        let [entry] = start(&ring, [cookie]);
        let mut next = Some(entry);
        while let Some(entry) = next {
            held(&ring).answer(entry, i64::from(-refused));
            // SAFETY: no other thread has the ring.
            unsafe { ring.deliver_next(&inbox, FOREVER_NS) };
            next = held(&ring).next();
        }
        let last = inbox.0.lock().expect("whole").pop();
        assert_eq!(last, Some((cookie, Err(apart::WOULD_WAIT))), "{refused}");
        assert!(!ring.reads_from(Source::NONE), "its slot is free");
    };
    gives_back(7, libc::EAGAIN);
    gives_back(8, libc::EOPNOTSUPP);
    // What the kernel does not take without a wait is not begun: before, it was, with one.
    held(&ring).refuse(libc::EOPNOTSUPP);
    assert_eq!(ring.submit(1, |_| request(10)), 0);
    assert!(held(&ring).next().is_none());
}

#[test]
fn the_leader_wakes_those_whose_read_came_and_nobody_else() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [leaders, one, other] = start(&ring, [10, 11, 12]);
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 10);
        let first = waiter(scope, &ring, &inbox, 11);
        let second = waiter(scope, &ring, &inbox, 11);
        let third = waiter(scope, &ring, &inbox, 12);
        held(&ring).answer(one, PAGE);
        delivered(first);
        delivered(second);
        assert!(!poller.is_finished() && !third.is_finished());
        held(&ring).answer(other, PAGE);
        delivered(third);
        held(&ring).answer(leaders, PAGE);
        delivered(poller);
    });
    assert_eq!(inbox.cookies(), [11, 12, 10]);
    assert!(ring.table.lock().is_empty());
}

#[test]
fn a_departing_leader_is_succeeded_by_a_waiter() {
    let (ring, inbox) = (ring(), Inbox::default());
    let entries = start(&ring, [0, 1, 2, 3, 4, 5, 6, 7]);
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..8).map(|i| waiter(scope, &ring, &inbox, i)).collect();
        // Each time it is the poller's own read that comes.
        for (entry, thread) in entries.into_iter().zip(threads.drain(..)) {
            until(|| held(&ring).has_poller());
            held(&ring).answer(entry, PAGE);
            delivered(thread);
        }
    });
    assert_eq!(inbox.cookies(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(!ring.table.lock().has_poller);
}

#[test]
fn one_of_several_waiters_of_a_read_succeeds_and_the_others_still_wake() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 0);
        let others: Vec<_> = (0..5).map(|_| waiter(scope, &ring, &inbox, 1)).collect();
        held(&ring).answer(first, PAGE);
        delivered(poller);
        until(|| held(&ring).has_poller());
        assert_eq!(waiters(&ring, 1), 4, "one polls, four sleep");
        held(&ring).answer(second, PAGE);
        others.into_iter().for_each(delivered);
    });
}

#[test]
fn a_leader_whose_time_is_up_is_succeeded_too() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [_first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        // The test itself polls until the other sleeps.
        ring.table.lock().has_poller = true;
        let other = scope.spawn(|| ring.reap(1, &inbox, FOREVER_NS));
        until(|| waiters(&ring, 1) == 1);
        ring.table.lock().has_poller = false;
        assert_eq!(ring.reap(0, &inbox, 1_000_000), Reap::TimedOut);
        until(|| held(&ring).has_poller());
        held(&ring).answer(second, PAGE);
        delivered(other);
    });
}

#[test]
fn a_called_leader_without_a_read_passes_it_on() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [_, _, last] = start(&ring, [0, 1, 2]);
    thread::scope(|scope| {
        // The test itself polls, without collecting.
        ring.table.lock().has_poller = true;
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
        table.has_poller = false;
        let slot = table.find(1).expect("in flight");
        table.give_back(slot);
        ring.words[usize::from(slot)].fetch_add(1, Relaxed);
        drop(table);
        ring.words[usize::from(slot)].wake(1);
        delivered(called);
        until(|| held(&ring).has_poller());
        held(&ring).answer(last, PAGE);
        delivered(other);
    });
}

#[test]
fn a_follower_whose_time_is_up_leaves_no_trace() {
    let (ring, inbox) = (ring(), Inbox::default());
    let [first, second] = start(&ring, [0, 1]);
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 0);
        assert_eq!(ring.reap(1, &inbox, 1_000_000), Reap::TimedOut);
        assert_eq!(ring.reap(1, &inbox, 0), Reap::TimedOut);
        assert_eq!(waiters(&ring, 1), 0);
        assert_eq!(ring.table.lock().waited_for(), None);
        held(&ring).answer(second, PAGE);
        held(&ring).answer(first, PAGE);
        delivered(poller);
    });
    assert_eq!(inbox.cookies(), [1, 0]);
}

#[test]
fn refused_entries_are_given_back_and_their_waiters_woken() {
    let (ring, inbox) = (ring(), Inbox::default());
    held(&ring).limit(2);
    assert_eq!(ring.submit(5, |i| request(i as u64)), 2);
    assert_eq!(ring.reap(2, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert_eq!(ring.reap(1, &inbox, 0), Reap::TimedOut);
    assert!(inbox.cookies().is_empty());
}

/// The kernel may refuse it, and then no answer would end a wait there.
#[test]
fn nobody_waits_in_the_kernel_for_a_read_that_it_has_not_got_yet() {
    let (ring, inbox) = (ring(), Inbox::default());
    held(&ring).be_busy(true);
    // It takes the first one.
    held(&ring).limit(1);
    thread::scope(|scope| {
        let submitter = scope.spawn(|| ring.submit(2, |i| request(i as u64)));
        let _goes_on = softfault_oracle::Finally(|| held(&ring).be_busy(false));
        until(|| ring.table.lock().find(1).is_some());
        let sleeper = |cookie| {
            let (ring, inbox) = (&ring, &inbox);
            let thread = scope.spawn(move || ring.reap(cookie, inbox, FOREVER_NS));
            until(|| waiters(ring, cookie) == 1 || held(ring).has_poller());
            assert!(!held(ring).has_poller());
            thread
        };
        let (taken, refused) = (sleeper(0), sleeper(1));
        held(&ring).be_busy(false);
        delivered(refused);
        assert_eq!(submitter.join().expect("no panic"), 1);
        // The waiter of the other is called to poll.
        until(|| held(&ring).has_poller());
        let entry = held(&ring).next().expect("submitted");
        held(&ring).answer(entry, PAGE);
        delivered(taken);
    });
    assert_eq!(inbox.cookies(), [0]);
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
    assert!(
        look.1.load(Relaxed),
        "a caller that asks meanwhile must wait"
    );
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
        until(|| held(&ring).has_poller());
        loop {
            if let Some(entry) = held(&ring).next() {
                return entry;
            }
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 7);
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
        delivered(poller);
    });
    assert_eq!(*inbox.0.lock().expect("whole"), [(7, Ok(bytes))]);
}

/// A file of ours, on a disk: reads of it can do without waiting.
fn file_of(text: &[u8]) -> Descriptor {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    let path = std::env::current_exe().expect("a path");
    let path = path.with_extension(format!("ring-{}-{number}", std::process::id()));
    std::fs::write(&path, text).expect("write");
    let file = std::fs::File::open(&path).expect("open");
    std::fs::remove_file(&path).expect("remove");
    Descriptor::own(file.into(), false).expect("a file of ours")
}

/// Starts reads of it through the page cache, with these cookies.
fn start_cached<const N: usize>(
    ring: &Ring,
    file: &Descriptor,
    pages: &mut [u8],
    cookies: [u64; N],
) -> [RingEntry; N] {
    let buffer = pages.as_mut_ptr();
    let started = ring.submit(N, |i| Request {
        source: Source::of(file),
        buffer: buffer.wrapping_add(i * PAGE_SIZE),
        how: ReadPath::Keep,
        ..request(cookies[i])
    });
    assert_eq!(started, N);
    std::array::from_fn(|_| held(ring).next().expect("submitted"))
}

const NOT_THERE: i64 = -(libc::EAGAIN as i64);

/// A queue that is full, or a call that is denied, says nothing of the file.
#[test]
fn only_a_file_that_cannot_do_without_waiting_is_read_with_it() {
    let (ring, file) = (ring(), file_of(b"nowait"));
    let waits = || {
        // SAFETY: the file lives.
        unsafe { Source::of(&file).waits() }
    };
    let mut page = vec![0u8; PAGE_SIZE];
    for errno in (1..4096).filter(|&errno| errno != libc::EOPNOTSUPP) {
        held(&ring).refuse(errno);
        start_cached(&ring, &file, &mut page, [u64::from(errno.unsigned_abs())]);
        ring.table.lock().give_back(0);
        assert!(!waits(), "errno {errno}");
    }
    held(&ring).refuse(libc::EOPNOTSUPP);
    start_cached(&ring, &file, &mut page, [1]);
    assert!(waits());
    ring.table.lock().give_back(0);
}

#[test]
fn missing_pages_are_read_by_the_thread_that_needs_them() {
    let (ring, inbox, file) = (ring(), Inbox::default(), file_of(b"parked"));
    let mut pages = vec![0u8; 3 * PAGE_SIZE];
    let [first, second, third] = start_cached(&ring, &file, &mut pages, [1, 2, 3]);
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 1);
        let sleeper = waiter(scope, &ring, &inbox, 2);
        // Of a sleeper: it is woken, and reads itself. The poller goes on.
        held(&ring).answer(second, NOT_THERE);
        delivered(sleeper);
        assert!(!poller.is_finished());
        // The poller reads itself, and a waiter is called to poll.
        let next = waiter(scope, &ring, &inbox, 3);
        held(&ring).answer(first, NOT_THERE);
        delivered(poller);
        held(&ring).answer(third, PAGE);
        delivered(next);
    });
    let expected = [(2, Ok(6)), (1, Ok(6)), (3, Ok(PAGE_SIZE))];
    assert_eq!(*inbox.0.lock().expect("whole"), expected);
    assert_eq!(
        (&pages[..6], &pages[PAGE_SIZE..][..6]),
        (&b"parked"[..], &b"parked"[..])
    );
    assert!(ring.table.lock().is_empty());
}

#[test]
fn a_poll_finishes_reads_that_have_arrived() {
    let text = vec![7; 4 * PAGE_SIZE];
    let (ring, inbox, file) = (ring(), Inbox::default(), file_of(&text));
    let mut pages = vec![0u8; 40 * PAGE_SIZE];
    let entries: [_; 40] =
        start_cached(&ring, &file, &mut pages, std::array::from_fn(|i| i as u64));
    (entries.iter()).for_each(|&entry| held(&ring).answer(entry, NOT_THERE));
    // The bytes that were just written are there.
    assert_eq!(ring.reap(u64::MAX, &inbox, 0), Reap::NotInFlight);
    assert_eq!(inbox.cookies(), (0..40).collect::<Vec<u64>>());
    assert!(pages.iter().all(|&byte| byte == 7));
    assert!(!ring.reads_from(Source::of(&file)));
}

#[test]
fn many_wait_for_parked_reads_and_one_reads_each() {
    const READS: usize = 16;
    let (ring, inbox, file) = (ring(), Inbox::default(), file_of(&[9; PAGE_SIZE]));
    for _ in 0..50 {
        let mut pages = vec![0u8; READS * PAGE_SIZE];
        let cookies: [u64; READS] = std::array::from_fn(|i| i as u64);
        let entries = start_cached(&ring, &file, &mut pages, cookies);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (ring, inbox) = (&ring, &inbox);
                scope.spawn(move || {
                    for cookie in 0..READS as u64 {
                        let reaped = ring.reap((cookie + thread) % READS as u64, inbox, FOREVER_NS);
                        assert_eq!(reaped, Reap::NotInFlight, "its wake-up was lost");
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(ring.reap(u64::MAX, &inbox, 0), Reap::NotInFlight);
                }
            });
            (entries.iter()).for_each(|&entry| held(&ring).answer(entry, NOT_THERE));
        });
        let mut cookies = inbox.cookies();
        inbox.0.lock().expect("whole").clear();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..READS as u64).collect::<Vec<_>>());
        assert!(pages.iter().all(|&byte| byte == 9));
    }
}

#[test]
fn the_reaper_reads_finally_refused_reads() {
    let mut page = vec![0u8; PAGE_SIZE];
    let file = file_of(b"by hand");
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

/// Failed before: the thread that polled read it itself, and for as long as that took nobody collected the reads of others.
#[test]
fn a_poller_reads_nothing_that_it_does_not_need() {
    let (ring, inbox, file) = (ring(), Inbox::default(), file_of(b"later"));
    let mut page = vec![0u8; PAGE_SIZE];
    let (source, buffer) = (Source::of(&file), page.as_mut_ptr());
    let others = |_| Request {
        source,
        buffer,
        ..request(2)
    };
    assert_eq!(ring.submit(1, others), 1);
    let refused = held(&ring).next().expect("submitted");
    let [mine] = start(&ring, [1]);
    // Nothing can be submitted again.
    held(&ring).limit(0);
    thread::scope(|scope| {
        let poller = waiter(scope, &ring, &inbox, 1);
        held(&ring).answer(refused, NOT_THERE);
        held(&ring).answer(mine, PAGE);
        delivered(poller);
    });
    assert_eq!(inbox.cookies(), [1]);
    assert!(ring.reads_from(source));
    assert_eq!(ring.reap(2, &inbox, FOREVER_NS), Reap::NotInFlight);
    assert_eq!(inbox.cookies(), [1, 2]);
    assert_eq!(&page[..6], b"later\0");
}
