//! A descriptor that is used by a number of the program's table, for that is fast, and
//! is what it was whatever the program does with the number.

use super::Guarded;
use super::guarded::own;
use super::identity::{Identity, identity_of};
use super::raw::{self, Blocked};
use core::ffi::c_long;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use softfault_engine::lock::Mutex;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

const NONE: i32 = -1;
/// Numbers that are remembered: threads may have tables of their own (`unshare`), in each
/// of which it is another.
const NUMBERS: usize = 4;
/// Numbers that are taken at most. A program with more tables than we remember would
/// fill them.
const MOST: u32 = 1024;

/// What works by a number, and does not depend on it.
#[derive(Debug)]
pub(crate) struct Working {
    /// Immutable. `None` where there is no table: the number is all there is.
    guarded: Option<Guarded>,
    /// Immutable.
    identity: Identity,
    /// In the program's table, or [`NONE`]. The first is tried first. Each may mean
    /// something else by now: a number that does is never closed.
    numbers: [AtomicI32; NUMBERS],
    /// Numbers that have been taken. Whoever takes one.
    taken: Mutex<u32>,
    /// Where the next number goes.
    next: AtomicU32,
}

impl Working {
    /// Makes a descriptor by a system call. The error is an errno.
    ///
    /// # Safety
    /// The call answers a new descriptor, and takes these arguments.
    pub(crate) unsafe fn open(number: c_long, args: [usize; 6]) -> Result<Self, i32> {
        // SAFETY: the caller's promise.
        let guarded = unsafe { Guarded::open(number, args) };
        if let Ok(guarded) = guarded {
            if let Ok(fd) = guarded.borrow_number() {
                return Self::of(Some(guarded), Some(fd));
            }
            // The server can take where nobody can take from it. (Before Linux 6.9)
            // SAFETY: the caller's promise.
            let own = unsafe { own(number, args) };
            return match own.map(Self::adopt) {
                Ok(Ok(working)) if working.guarded.is_some() => Ok(working),
                _ => Self::of(Some(guarded), None),
            };
        }
        // SAFETY: the caller's promise.
        Self::of(None, Some(unsafe { own(number, args) }?))
    }

    /// What has a number already.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Self, i32> {
        Self::of(Guarded::adopt(fd.as_fd()).ok(), Some(fd))
    }

    fn of(guarded: Option<Guarded>, fd: Option<OwnedFd>) -> Result<Self, i32> {
        let identity = match (&guarded, &fd) {
            (Some(guarded), _) => guarded.identity()?,
            (None, fd) => identity_of(fd.as_ref().map_or(NONE, AsRawFd::as_raw_fd))?,
        };
        let numbers = [const { AtomicI32::new(NONE) }; NUMBERS];
        numbers[0].store(fd.map_or(NONE, IntoRawFd::into_raw_fd), Ordering::Relaxed);
        Ok(Self {
            guarded,
            identity,
            numbers,
            taken: Mutex::new(0),
            next: AtomicU32::new(1),
        })
    }

    /// A system call with this descriptor as its first argument. It may reach another
    /// file by mistake, in whose place ours has been: only for calls that no other file
    /// knows, or that do no harm there. The error is an errno.
    ///
    /// # Safety
    /// The call takes these arguments behind a descriptor, which it does not close.
    pub(crate) unsafe fn call(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        for (place, slot) in self.numbers.iter().enumerate() {
            let fd = slot.load(Ordering::Relaxed);
            if fd == NONE {
                continue;
            }
            // SAFETY: the caller's promise.
            match unsafe { plain(number, fd, &args) } {
                Err(errno) if says_nothing(errno) && !self.is(fd) => {}
                answer => {
                    self.prefer(place, fd);
                    return answer;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_anew(number, args) }
    }

    /// The same for all calls: the file is looked at before. It may change between, if
    /// the program closes it at that moment.
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    pub(crate) unsafe fn call_known(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        if let Some(fd) = self.number() {
            // SAFETY: the caller's promise.
            return unsafe { plain(number, fd, &args) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_anew(number, args) }
    }

    /// The same where no mistake may be: in the table, if there is one.
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    pub(crate) unsafe fn call_guarded(
        &self,
        number: c_long,
        args: [usize; 5],
    ) -> Result<usize, i32> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.guarded {
                Some(guarded) => guarded.call(number, args),
                None => self.call_known(number, args),
            }
        }
    }

    /// A number that means it now.
    pub(crate) fn number(&self) -> Option<i32> {
        let numbers = self.numbers.iter().enumerate();
        let mut numbers = numbers.map(|(place, slot)| (place, slot.load(Ordering::Relaxed)));
        let (place, fd) = numbers.find(|&(_, fd)| fd != NONE && self.is(fd))?;
        self.prefer(place, fd);
        Some(fd)
    }

    /// True if no close of the program takes it away.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.is_some()
    }

    fn is(&self, fd: i32) -> bool {
        identity_of(fd) == Ok(self.identity)
    }

    /// Lets a number be tried first. Two at a time may lose one, which is then taken
    /// anew.
    fn prefer(&self, place: usize, fd: i32) {
        if place > 0 {
            let first = self.numbers[0].swap(fd, Ordering::Relaxed);
            self.numbers[place].store(first, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// As of [`call`](Self::call).
    #[cold]
    unsafe fn call_anew(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        let guarded = self.guarded.as_ref().ok_or(libc::EBADF)?;
        if let Some(fd) = self.take(guarded) {
            // SAFETY: the caller's promise.
            match unsafe { plain(number, fd, &args) } {
                Err(errno) if says_nothing(errno) && !self.is(fd) => {}
                answer => return answer,
            }
        }
        // SAFETY: the caller's promise.
        unsafe { guarded.call(number, args) }
    }

    fn take(&self, guarded: &Guarded) -> Option<i32> {
        let _blocked = Blocked::all();
        let mut taken = self.taken.lock();
        // Somebody may have been faster.
        if let Some(fd) = self.number() {
            return Some(fd);
        }
        if *taken == MOST {
            return None;
        }
        let fd = guarded.borrow_number().ok()?.into_raw_fd();
        *taken += 1;
        let next = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        // Those remembered longest are forgotten.
        let place = next % NUMBERS;
        self.numbers[place].store(fd, Ordering::Relaxed);
        self.prefer(place, fd);
        Some(fd)
    }

    /// Closes the numbers that still mean it. In a child of fork they mean the parent's,
    /// and nothing else may be done with them.
    pub(crate) fn close(&self) {
        for slot in &self.numbers {
            let fd = slot.swap(NONE, Ordering::Relaxed);
            if fd != NONE && self.is(fd) {
                // SAFETY: ours, and not used again.
                unsafe { raw::call(libc::SYS_close, &[fd as usize, 0, 0, 0, 0, 0]) };
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.close();
    }
}

/// True if another file might have answered this: all but what says that the call was
/// understood.
fn says_nothing(errno: i32) -> bool {
    ![libc::EAGAIN, libc::EEXIST, libc::EINTR].contains(&errno)
}

/// # Safety
/// The call takes these arguments.
unsafe fn plain(number: c_long, fd: i32, args: &[usize; 5]) -> Result<usize, i32> {
    let [a, b, c, d, e] = *args;
    // SAFETY: the caller's promise.
    raw::answered(unsafe { raw::call(number, &[fd as usize, a, b, c, d, e]) })
}
