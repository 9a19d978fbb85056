//! Where pages come from, as a trait: a file, a simulated disk, a store whose
//! completions a test releases.

use crate::page::{FaultError, PAGE_SIZE};
use core::ops::Range;

/// A read or write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The system's answer, as its errno. The engine hands it on, and compares it
    /// with nothing: no answer of a store means anything but that it failed.
    Io(i32),
    /// The store has fewer bytes than were written to it.
    Short,
}

/// The cookie of no read: [`Store::reap`] then delivers completed reads, of this
/// store and of all that share its queues.
pub const NO_COOKIE: u64 = u64::MAX;

/// One asynchronous read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// Handed back with the completion.
    pub cookie: u64,
    /// Byte offset in the store, a multiple of the page size.
    pub offset: u64,
    /// Where the bytes go: a frame of the engine's pool, which nobody else
    /// touches until the completion.
    pub buffer: *mut u8,
    /// Bytes, a multiple of the page size.
    pub bytes: usize,
}

/// Takes the completions of asynchronous reads.
pub trait Complete {
    /// The read with this `cookie` is over: how many bytes arrived (fewer than
    /// asked: the store ends there), or why not.
    fn complete(&self, cookie: u64, result: Result<usize, StoreError>);
}

/// The asynchronous reads of all stores of a node.
pub trait ReadsUnderWay: Send + Sync {
    /// Delivers those that are over, without waiting. As for a [`Store`], nothing here may use the heap.
    fn poll(&self, complete: &dyn Complete);
}

/// How a wait for an asynchronous read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reap {
    /// The read is not in flight: delivered meanwhile or before, not submitted
    /// yet, or not to be had asynchronously. The folio says which.
    NotInFlight,
    /// It still is in flight.
    TimedOut,
}

/// The contents of a range of a store. Ranges begin and end on page boundaries (so
/// the last one may reach past the end of the store), and a page with any byte
/// of data is data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that have to be read.
    Data(Range<u64>),
    /// Zeros that were never written.
    Hole(Range<u64>),
}

/// A source of pages. Nothing here may use the heap or a lazily made
/// thread-local: it is called from the fault handler.
pub trait Store: Send + Sync {
    /// Bytes in the store, now.
    fn len(&self) -> Result<u64, StoreError>;

    /// True if the store holds no bytes.
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }

    /// An extent with byte `offset` in it, which is before the end. It may
    /// begin at the page of `offset` and be followed by another of its kind. Without holes, all of the store is one.
    fn extent(&self, _offset: u64) -> Result<Extent, StoreError> {
        let end = self.len()?.next_multiple_of(PAGE_SIZE as u64);
        Ok(Extent::Data(0..end))
    }

    /// Reads in the calling thread; returns how many bytes arrived, fewer than
    /// asked only at the end of the store. Offset, buffer and `bytes` are
    /// multiples of the page size. The caller zeroes the buffer past the bytes that
    /// arrived.
    ///
    /// # Safety
    /// `buffer` is writable for `bytes` and nobody else touches it meanwhile.
    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError>;

    /// As [`read`](Self::read), of bytes for which nobody has to be waited for. `None`: the thread would wait, and the store may have
    /// begun to read them. [`read_missing`](Self::read_missing) reads them then.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn read_at_hand(&self, _offset: u64, _buffer: *mut u8, _bytes: usize) -> Option<usize> {
        None
    }

    /// As [`read`](Self::read), after [`read_at_hand`](Self::read_at_hand) had nothing.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn read_missing(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        // SAFETY: the caller's promise.
        unsafe { self.read(offset, buffer, bytes) }
    }

    /// Starts reads and returns how many of them, from the front, were started
    /// (none where the store has no asynchronous way, or its queue is full).
    /// Their completions are delivered by [`reap`](Self::reap), by any thread;
    /// those without a waiter stay, with their frames, until a thread reaps.
    ///
    /// # Safety
    /// As for [`read`](Self::read), until each completion.
    unsafe fn submit(&self, _reads: &[Read]) -> usize {
        0
    }

    /// True if a read that a thread waits for is as good if it is submitted, before others, as by [`read`](Self::read).
    fn submits_demands(&self) -> bool {
        true
    }

    /// True if [`submit_apart`](Self::submit_apart) may take reads now.
    fn takes_apart(&self) -> bool {
        false
    }

    /// Starts reads whose completions [`reap`](Self::reap) does not deliver: they go to the thread that serves faults for others, and has
    /// given the cookies their meaning. Returns how many, from the front, were started; none where there is no such thread.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    unsafe fn submit_apart(&self, _reads: &[Read]) -> usize {
        0
    }

    /// Delivers completions of this store's (and its neighbours') reads while
    /// it waits, at most for `timeout_ns`, for the read with this `cookie` to be
    /// delivered, by this thread or by another that is reaping already.
    /// `timeout_ns` 0 only delivers completed reads, and so does a cookie that
    /// is not in flight.
    ///
    /// `complete` must not call `reap`. A caller that is told `NotInFlight`
    /// while its folio is still being read sleeps on the folio's own word; so
    /// the reader of the folio changes the word and wakes after `submit` has returned.
    ///
    /// A store that starts reads has a `reap` of its own.
    fn reap(&self, _cookie: u64, _complete: &dyn Complete, _timeout_ns: u64) -> Reap {
        Reap::NotInFlight
    }

    /// The process is about to fork, and its child will read from this.
    fn before_fork(&self) {}

    /// In the child, which has one thread, before anything is read.
    fn after_fork(&self) {}
}

/// One page to be written.
#[derive(Debug, Clone, Copy)]
pub struct PageWrite {
    /// Byte offset in the store, a multiple of the page size.
    pub offset: u64,
    /// Its bytes, a page of them.
    pub page: *const u8,
    /// Its result.
    pub result: Result<(), StoreError>,
}

// SAFETY: the address is only read from by `WriteBack::write`, whose caller promises that it is readable from the thread
// that calls.
unsafe impl Send for PageWrite {}

/// A store that pages go back to. As for all of [`Store`], nothing here may use the heap
/// or a lazily made thread-local.
pub trait WriteBack: Send + Sync {
    /// Writes pages, and returns when the store has them: reads of the store find
    /// the written bytes, but a crash may still lose them ([`sync`](Self::sync)). They are sorted by
    /// offset. The store never becomes longer. `end` is its length, as far as is known: bytes behind it are not written. If
    /// others have made it longer, bytes other than 0 behind `end` in its page were stored since, and are written. If others
    /// have made it shorter, pages of which it has nothing any more are [`Short`](StoreError::Short): they go nowhere.
    ///
    /// # Safety
    /// The pages are readable. If a thread writes to one meanwhile, the store may have any mixture
    /// of before and after.
    unsafe fn write(&self, pages: &mut [PageWrite], end: u64);

    /// Written bytes survive a crash from now on, and so does the length.
    fn sync(&self) -> Result<(), StoreError>;

    /// True if a page can be written for certain, even if other data fills the device.
    fn is_reserved(&self, offset: u64) -> bool;

    /// Sees to that. [`Short`](StoreError::Short) if others have made the store so short that it has no such page.
    fn reserve(&self, offset: u64) -> Result<(), StoreError>;
}

impl StoreError {
    /// The error of a page that was to be written: if the store has become shorter, it lies behind the end.
    pub(crate) fn of_write(self) -> FaultError {
        match self {
            Self::Short => FaultError::BeyondEnd,
            error => error.into(),
        }
    }
}

impl From<StoreError> for FaultError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io(errno) => Self::Io(errno),
            StoreError::Short => Self::Short,
        }
    }
}
