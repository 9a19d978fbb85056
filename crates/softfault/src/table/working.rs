//! A descriptor that is used by a number of the program's table, for that is fast, and
//! that stays right when the program closes or replaces the number.

use super::Guarded;
use super::guarded::own;
use super::identity::{Identity, close_if, identity_of};
use super::raw::{self, Blocked};
use core::ffi::{CStr, c_long};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use softfault_engine::lock::Mutex;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};

const NONE: i32 = -1;
/// Numbers that are remembered: threads may have tables of their own (`unshare`), in each
/// of which it is another.
const NUMBERS: usize = 4;
/// Numbers that are taken at most. A program with more tables than we remember would
/// fill them.
const MOST: u32 = 1024;

/// A descriptor that works by a number, and does not depend on it.
#[derive(Debug)]
pub(crate) struct Working {
    /// Immutable. `None` where there is no table: the number is all there is.
    guarded: Option<Guarded>,
    /// Immutable.
    identity: Identity,
    /// In the program's table, or [`NONE`]. The first is tried first. Each may mean
    /// something else by now: a number that does is never closed.
    numbers: [AtomicI32; NUMBERS],
    /// Numbers that have been taken. Held while one is taken.
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
                return Self::of(Some(guarded), fd);
            }
            // The server can take where nobody can take from it. (Before Linux 6.9)
            // SAFETY: the caller's promise.
            let own = unsafe { own(number, args) };
            return match own.and_then(Self::of_number) {
                Ok(working) if working.guarded.is_some() => Ok(working),
                // A descriptor made for nothing is closed.
                _ => Self::of(Some(guarded), NONE),
            };
        }
        // SAFETY: the caller's promise.
        Self::of(None, unsafe { own(number, args) }?)
    }

    /// Opens a file to be read, by its name.
    pub(crate) fn open_to_read(path: &CStr) -> Result<Self, i32> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let path = path.as_ptr() as usize;
        let args = [libc::AT_FDCWD as usize, path, flags, 0, 0, 0];
        // SAFETY: opens a file by a valid name.
        unsafe { Self::open(libc::SYS_openat, args) }
    }

    /// The same for a descriptor that is seldom used: it has no number in the program's table, if there
    /// is a table of our own.
    ///
    /// # Safety
    /// As of [`open`](Self::open).
    pub(crate) unsafe fn open_apart(number: c_long, args: [usize; 6]) -> Result<Self, i32> {
        // SAFETY: the caller's promise.
        unsafe {
            match Guarded::open(number, args) {
                Ok(guarded) => Self::of(Some(guarded), NONE),
                Err(_) => Self::of(None, own(number, args)?),
            }
        }
    }

    /// A file that has a number already.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Self, i32> {
        Self::of_number(fd.into_raw_fd())
    }

    fn of_number(fd: i32) -> Result<Self, i32> {
        // SAFETY: made a moment ago; where it was closed since, that is an error.
        let guarded = Guarded::adopt(unsafe { BorrowedFd::borrow_raw(fd) });
        Self::of(guarded.ok(), fd)
    }

    fn of(guarded: Option<Guarded>, fd: i32) -> Result<Self, i32> {
        let asked = match &guarded {
            Some(guarded) => guarded.identity(),
            None => identity_of(fd),
        };
        let identity = asked.inspect_err(|_| discard(fd))?;
        let numbers = [const { AtomicI32::new(NONE) }; NUMBERS];
        numbers[0].store(fd, Ordering::Relaxed);
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
        self.refuse_in_children()?;
        for (place, slot) in self.numbers.iter().enumerate() {
            let fd = slot.load(Ordering::Relaxed);
            if fd == NONE {
                continue;
            }
            // SAFETY: the caller's promise.
            let answer = unsafe { plain(number, fd, &args) };
            if is_understood(&answer) {
                self.prefer(place, fd);
                return answer;
            }
            if self.is(fd) {
                // It may have become so a moment ago, and another file has answered.
                return match &self.guarded {
                    // SAFETY: the caller's promise.
                    Some(guarded) => unsafe { guarded.call(number, args) },
                    None => answer,
                };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_with_new_number(number, args) }
    }

    /// The same for all calls: the file is looked at before. It may change between, if
    /// the program closes it at that moment.
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    pub(crate) unsafe fn call_checked(
        &self,
        number: c_long,
        args: [usize; 5],
    ) -> Result<usize, i32> {
        self.refuse_in_children()?;
        if let Some(fd) = self.number() {
            // SAFETY: the caller's promise.
            return unsafe { plain(number, fd, &args) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_with_new_number(number, args) }
    }

    /// The same for a read that is too frequent for the table, and whose bytes have to be this file's. Before the read the number is
    /// checked to be this file's, so that no other file is read; and after it, since another thread may have taken the number in
    /// between: then the answer is dropped, and the read is made in the table.
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    pub(crate) unsafe fn call_checked_twice(
        &self,
        number: c_long,
        args: [usize; 5],
    ) -> Result<usize, i32> {
        if let Some(fd) = self.here() {
            // SAFETY: the caller's promise.
            let answer = unsafe { plain(number, fd, &args) };
            if self.is(fd) {
                return answer;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_guarded(number, args) }
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
                None => self.call_checked(number, args),
            }
        }
    }

    /// A system call in which this descriptor is elsewhere than in the first argument: in the
    /// table, if there is one. `args` gets its number.
    ///
    /// # Safety
    /// The call takes these arguments, and does not close the descriptor.
    pub(crate) unsafe fn run(
        &self,
        number: c_long,
        args: impl FnOnce(i32) -> [usize; 6],
    ) -> Result<usize, i32> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.guarded {
                Some(guarded) => guarded.run(number, args(guarded.number())),
                None => {
                    let fd = self.number().ok_or(libc::EBADF)?;
                    raw::answered(raw::call(number, &args(fd)))
                }
            }
        }
    }

    /// A number that means it now in the calling thread's table, taken anew if need be;
    /// `None` if none is to be had.
    pub(crate) fn here(&self) -> Option<i32> {
        self.refuse_in_children().ok()?;
        self.number().or_else(|| self.take(self.guarded.as_ref()?))
    }

    /// The number that meant it last. It may mean another file by now.
    pub(crate) fn last_number(&self) -> Option<i32> {
        let fd = self.numbers[0].load(Ordering::Relaxed);
        (fd != NONE).then_some(fd)
    }

    /// This number is closed by somebody else.
    pub(crate) fn forget(&self, fd: i32) {
        for slot in &self.numbers {
            // Relaxed: the closing thread is alone.
            let _ = slot.compare_exchange(fd, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A number that means it now.
    pub(super) fn number(&self) -> Option<i32> {
        let numbers = self.numbers.iter().enumerate();
        let mut numbers = numbers.map(|(place, slot)| (place, slot.load(Ordering::Relaxed)));
        let (place, fd) = numbers.find(|&(_, fd)| fd != NONE && self.is(fd))?;
        self.prefer(place, fd);
        Some(fd)
    }

    /// True if no close of the program takes it away: it is in the table.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.is_some()
    }

    /// The file of a number that the kernel would not let into the table.
    #[cfg(test)]
    pub(crate) fn unguarded(fd: i32) -> Result<Self, i32> {
        Self::of(None, fd)
    }

    /// In a child, whichever way it was made, an inherited number acts on the parent.
    fn refuse_in_children(&self) -> Result<(), i32> {
        match &self.guarded {
            Some(guarded) if !guarded.is_here() => Err(libc::EBADF),
            _ => Ok(()),
        }
    }

    /// True if the number means it, now and here.
    pub(crate) fn is(&self, fd: i32) -> bool {
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
    unsafe fn call_with_new_number(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        let guarded = self.guarded.as_ref().ok_or(libc::EBADF)?;
        if let Some(fd) = self.take(guarded) {
            // SAFETY: the caller's promise.
            let answer = unsafe { plain(number, fd, &args) };
            if is_understood(&answer) {
                return answer;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { guarded.call(number, args) }
    }

    fn take(&self, guarded: &Guarded) -> Option<i32> {
        // A child does not have it, and its lock may be held for ever.
        if !guarded.is_here() {
            return None;
        }
        let _blocked = Blocked::all();
        let mut taken = self.taken.lock();
        // Somebody may have been faster.
        if let Some(fd) = self.number() {
            return Some(fd);
        }
        if *taken == MOST {
            return None;
        }
        let fd = guarded.borrow_number().ok()?;
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
            close_if(slot.swap(NONE, Ordering::Relaxed), self.identity);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.close();
    }
}

/// Closes a number that was made a moment ago, and whose file nobody tells: the servers have ended, or a filter refuses fstat(2).
fn discard(fd: i32) {
    // One that was closed meanwhile may be another file's at once.
    if fd != NONE && identity_of(fd) != Err(libc::EBADF) {
        // SAFETY: ours, and nobody else knows it.
        unsafe { raw::call(libc::SYS_close, &[fd as usize, 0, 0, 0, 0, 0]) };
    }
}

/// True if it is an answer to the call. By another file at our number, a call may be
/// refused in any way; an answer that is believed here does no harm: the call is repeated, or done in
/// another way.
fn is_understood(answer: &Result<usize, i32>) -> bool {
    const REPEATED: [i32; 4] = [libc::EAGAIN, libc::EEXIST, libc::EINTR, libc::EBUSY];
    (answer.as_ref()).map_or_else(|errno| REPEATED.contains(errno), |_| true)
}

/// # Safety
/// The call takes these arguments.
unsafe fn plain(number: c_long, fd: i32, args: &[usize; 5]) -> Result<usize, i32> {
    let [a, b, c, d, e] = *args;
    // SAFETY: the caller's promise.
    raw::answered(unsafe { raw::call(number, &[fd as usize, a, b, c, d, e]) })
}
