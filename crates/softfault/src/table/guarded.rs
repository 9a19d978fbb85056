//! A descriptor in the table.

use super::identity::{self, Identity, close_if, identity_of};
use super::known::{self, PIDFD_THREAD};
use super::server::{DescriptorTable, ServerCall};
use super::{raw, sent};
use core::ffi::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A number in the table. No close of the program reaches it; dropping it closes it
/// there, which is not the process's close: its POSIX locks stay.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// Immutable.
    number: i32,
    /// Immutable. Which table.
    generation: u32,
}

/// Calls that are one request, at most.
const MOST_CALLS: usize = 5;

/// The least number that is taken in the program's table: the first three mean something (stdio(3)).
const LEAST: i32 = 3;

impl Guarded {
    /// Makes a descriptor by a system call in the table, with the rights of the calling
    /// thread. Not for a handler. The error is an errno.
    ///
    /// # Safety
    /// The call answers a new descriptor, and takes these arguments.
    pub(crate) unsafe fn open(number: c_long, args: [usize; 6]) -> Result<Self, i32> {
        let table = DescriptorTable::start()?;
        table.take_credentials();
        // SAFETY: the caller's promise.
        let made = unsafe { table.run(number, &args) }?;
        Ok(Self {
            number: made as i32,
            generation: table.generation(),
        })
    }

    /// The same, and at once its first calls: `then` are calls behind the
    /// descriptor, which do not close it. The second value is their answers.
    ///
    /// # Safety
    /// As of [`open`](Self::open) and, of the others, [`call`](Self::call).
    pub(crate) unsafe fn open_and<const N: usize>(
        (number, args): (c_long, [usize; 6]),
        then: [(c_long, [usize; 5]); N],
    ) -> Result<(Self, [Result<usize, i32>; N]), i32> {
        const { assert!(N < MOST_CALLS) };
        let table = DescriptorTable::start()?;
        table.take_credentials();
        let mut calls = [ServerCall::new(number, args); MOST_CALLS];
        for (call, then) in calls[1..].iter_mut().zip(then) {
            *call = ServerCall::behind_the_first(then);
        }
        // SAFETY: the caller's promise.
        unsafe { table.run_in_a_row(&mut calls[..=N]) }?;
        let made = Self {
            number: calls[0].answer()? as i32,
            generation: table.generation(),
        };
        Ok((made, core::array::from_fn(|then| calls[then + 1].answer())))
    }

    /// Another number, in the table, of a file that the caller has open. The caller may close
    /// its own. The error is an errno; `ENOSYS` or `EPERM` where the kernel refuses it.
    pub(crate) fn adopt(of: BorrowedFd<'_>) -> Result<Self, i32> {
        let table = DescriptorTable::start()?;
        // SAFETY: only ask.
        let (thread, process) = unsafe {
            (
                raw::call(libc::SYS_gettid, &[0; 6]) as usize,
                raw::call(libc::SYS_getpid, &[0; 6]) as usize,
            )
        };
        let open = |id, flags| {
            // SAFETY: makes a descriptor, of numbers.
            unsafe { Self::open(libc::SYS_pidfd_open, [id, flags, 0, 0, 0, 0]) }
        };
        // Before Linux 6.9 by the first thread, which has the same table but in programs
        // that took pains.
        let caller = open(thread, PIDFD_THREAD).or_else(|_| open(process, 0))?;
        let number = of.as_raw_fd() as usize;
        // SAFETY: makes a descriptor, of numbers.
        let made = unsafe { caller.call(libc::SYS_pidfd_getfd, [number, 0, 0, 0, 0]) }?;
        let made = Self {
            number: made as i32,
            generation: table.generation(),
        };
        match made.identity()? == identity_of(of.as_raw_fd())? {
            true => Ok(made),
            false => Err(libc::EBADF),
        }
    }

    /// A system call in the table, with this descriptor as its first argument. The error
    /// is an errno: EBADF in a child of fork, for its parent's descriptor.
    ///
    /// # Safety
    /// The call takes these arguments behind a descriptor, which it does not close; their
    /// targets live until it returns.
    pub(crate) unsafe fn call(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        let [a, b, c, d, e] = args;
        let args = [self.number as usize, a, b, c, d, e];
        // SAFETY: the caller's promise.
        unsafe { self.run(number, args) }
    }

    /// The same of several calls, which are one request. Each has its own answer.
    ///
    /// # Safety
    /// As of [`call`](Self::call), of each of them.
    pub(crate) unsafe fn call_each<const N: usize>(
        &self,
        calls: [(c_long, [usize; 5]); N],
    ) -> [Result<usize, i32>; N] {
        let mut calls = calls.map(|then| ServerCall::behind(self.number, then));
        let table = DescriptorTable::of(self.generation);
        // SAFETY: the caller's promise.
        match table.and_then(|table| unsafe { table.run_in_a_row(&mut calls) }) {
            Ok(()) => calls.map(|call| call.answer()),
            Err(no) => [Err(no); N],
        }
    }

    /// A system call in the table. Elsewhere than in the first argument, this descriptor
    /// is [`number`](Self::number).
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    pub(crate) unsafe fn run(&self, number: c_long, args: [usize; 6]) -> Result<usize, i32> {
        // SAFETY: the caller's promise.
        unsafe { DescriptorTable::of(self.generation)?.run(number, &args) }
    }

    /// True in the process that has it.
    pub(crate) fn is_here(&self) -> bool {
        DescriptorTable::of(self.generation).is_ok()
    }

    /// Its number in the table.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    /// A number of it in the calling thread's own table, closed by exec. It is the
    /// program's as much as ours: any close may reach it. The error is an errno, where the
    /// kernel refuses (before Linux 6.9), or there is no number left.
    pub(crate) fn borrow_number(&self) -> Result<i32, i32> {
        self.borrow_number_of(self.identity()?)
    }

    /// The same of a file that this is known to be.
    pub(crate) fn borrow_number_of(&self, identity: Identity) -> Result<i32, i32> {
        let table = self.table_of_this_process()?;
        let _blocked = raw::Blocked::all();
        let _borrowing = table.borrowing.lock();
        let thread = table.server();
        let server = match known::server(self.generation, thread) {
            Some(server) => server,
            // It was closed, or is the parent's or one that has ended, or the number is another file's.
            None => {
                let id = [thread as usize, PIDFD_THREAD, 0, 0, 0, 0];
                // SAFETY: makes a descriptor, of numbers.
                let fresh = unsafe { own(libc::SYS_pidfd_open, id) }?;
                let fresh = above(fresh, identity_of(fresh)?)?;
                known::set_server(self.generation, thread, fresh)
            }
        };
        let from = [server as usize, self.number as usize, 0, 0, 0, 0];
        let take = || {
            // SAFETY: makes a descriptor, of numbers.
            unsafe { own(libc::SYS_pidfd_getfd, from) }
        };
        if_it_is(above_the_first(server, take)?, identity)
    }

    /// The same where it cannot be taken: the server sends it. Not for a handler.
    // Not inlined: its buffers would be on the stack of the handler, which reads without it.
    #[cold]
    #[inline(never)]
    pub(crate) fn sent_number_of(&self, identity: Identity) -> Result<i32, i32> {
        self.table_of_this_process()?;
        if_it_is(sent::number_of(self)?, identity)
    }

    /// The table that it is in; an error in a child that shares memory only: its number would be taken for the parent's.
    fn table_of_this_process(&self) -> Result<&'static DescriptorTable, i32> {
        let table = DescriptorTable::of(self.generation)?;
        let is_here = table.is_of_this_process();
        is_here.then_some(table).ok_or(libc::EBADF)
    }

    /// Which file it is.
    pub(super) fn identity(&self) -> Result<Identity, i32> {
        identity::by(|args| {
            // SAFETY: fills the structure.
            unsafe { self.call(libc::SYS_fstat, args) }
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: nobody uses the number any more. In a child it means nothing.
        let _ = unsafe { self.call(libc::SYS_close, [0; 5]) };
    }
}

/// A call that makes a descriptor in the calling thread's table. It is a bare number: an
/// `OwnedFd` ends the process if the program has closed it.
///
/// # Safety
/// The call answers a new descriptor, and takes these arguments.
pub(super) unsafe fn own(number: c_long, args: [usize; 6]) -> Result<i32, i32> {
    // SAFETY: the caller's promise.
    raw::answered(unsafe { raw::call(number, &args) }).map(|made| made as i32)
}

/// This number, if it still means that file. It may have been closed at once, and be another file's: then it stays.
fn if_it_is(fd: i32, identity: Identity) -> Result<i32, i32> {
    match identity_of(fd) == Ok(identity) {
        true => Ok(fd),
        false => Err(libc::EBADF),
    }
}

/// Another number of this descriptor, from `least` on. The error is an errno.
fn another(fd: i32, least: i32) -> Result<i32, i32> {
    let how = [libc::F_DUPFD_CLOEXEC as usize, least as usize];
    // SAFETY: makes a descriptor, of numbers.
    unsafe { own(libc::SYS_fcntl, [fd as usize, how[0], how[1], 0, 0, 0]) }
}

/// True if a number of the calling thread's table means no file. No file system is asked: standard output may be on one that hangs.
fn is_free(number: usize) -> bool {
    let args = [number, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: only asks.
    unsafe { raw::call(libc::SYS_fcntl, &args) < 0 }
}

/// A new descriptor by a number that is none of the first three. Not of a file that the program may have locks on: one of its numbers is
/// closed.
fn above(fd: i32, identity: Identity) -> Result<i32, i32> {
    if fd >= LEAST {
        return Ok(fd);
    }
    let high = another(fd, LEAST);
    close_if(fd, identity);
    high
}

/// What `take` makes of any file gets none of the first three numbers: those that are free are taken meanwhile by `of`, a socket or pidfd.
/// To close one of the file's own would drop the program's POSIX locks on it.
pub(super) fn above_the_first<T>(of: i32, take: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
    let identity = identity_of(of)?;
    let fillers = [0, 1, 2].map(|number| is_free(number).then(|| another(of, 0)));
    let taken = take();
    let fillers = fillers.into_iter().flatten().flatten();
    fillers.for_each(|number| close_if(number, identity));
    taken
}
