//! A file of ours that stays open, even if the program closes or replaces descriptors.
//!
//! A file that must stay open is open in the table of descriptors that no close of the program
//! reaches ([`Guarded`]), and is opened and closed there: a close in the process's own
//! table would drop the program's POSIX locks on the file (fcntl(2)). Calls through that
//! table cost two changes of threads. So data is read by a number in the process's table,
//! which the program may close, and give to another file. The bytes of such a read
//! are believed only once the number has been checked afterwards: it must mean our own
//! open file ([`Mark`]), and nobody may have taken another number meanwhile. Otherwise the
//! bytes are discarded, and read by a new number or through the table.
//!
//! ```text
//!   number ─► pread ─► our mark, same number? ──yes──► believed
//!     ▲                   └─ no: forget it ─► once more ─► through the table
//!     └─ none: made at the first read, unless somebody has locks on the file,
//!        or it is an open file of the program's, which has no mark
//! ```
//!
//! Destructive calls (writing, fallocate, ftruncate, seeking) never go by a number
//! where there is a table.
//!
//! A number is closed only while `F_OFD_GETLK`, which sees the process's POSIX locks as
//! another's, finds none on the file; otherwise [`kept`](super::kept) looks again later.
//! Two losses are left: of a lock that is taken between that look and the close, and at
//! `exec`, which closes the number, of a lock that was taken after the number was, or was
//! there when a fork needed a number.
//!
//! One mistake is left: a program that copies our number, puts another file in its place
//! *and then the copy back*, while a read is under way.

mod source;
#[cfg(test)]
mod tests;

pub(crate) use source::Source;

use super::identity::{self, Alignment, Inode, Statx};
use super::kept;
use super::mark::{Mark, Wanted};
use super::read_path::{FileReadPath, ReadPath};
use crate::table::{self, Guarded, Identity};
use core::ffi::c_long;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use softfault_engine::lock::Mutex;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

const NONE: RawFd = -1;
/// Reads between two looks whether a number may be taken now.
const PATIENCE: u32 = 64;
/// Numbers that are taken so readily, and reads between two afterwards: of a program that
/// has many tables, each of which would be filled.
const MANY: u32 = 64;
const MORE_PATIENCE: u32 = 4096;

/// Of fadvise64(2), behind the descriptor: the engine reads ahead itself.
pub(super) const NO_READ_AHEAD: [usize; 5] = [0, 0, libc::POSIX_FADV_RANDOM as usize, 0, 0];

/// A file of ours.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// Null where there is no table: the number is all there is. Changed by a child of
    /// fork only, which has one thread then. Its target stays.
    guarded: AtomicPtr<InTable>,
    /// Immutable.
    inode: Inode,
    /// Immutable. The mark that proves our number.
    mark: Mark,
    /// Immutable. Its stat when it was opened.
    opened: libc::stat,
    /// Immutable. The alignment of direct I/O, where the file system tells.
    alignment: Option<Alignment>,
    /// Immutable. The program may have locks on it.
    locks: bool,
    /// A [`Number`].
    number: AtomicU64,
    /// Numbers that were taken. Changed under [`taking`](InTable::taking).
    taken: AtomicU32,
    /// Reads without a number since the last one.
    without: AtomicU32,
    /// Its file system does not know reads that never wait (RWF_NOWAIT).
    waits: AtomicBool,
    /// How it is read.
    pub(super) way: FileReadPath,
    /// The number that a child of the fork under way gets: `number` may change until then,
    /// and may mean nothing to the thread that forks (threads may have tables of their own).
    /// The next fork lends it once more if it still means the file there.
    lent: AtomicI32,
}

/// The file in the table. In a child of fork another one takes its place, with a lock that no thread of the parent holds.
#[derive(Debug)]
struct InTable {
    guarded: Guarded,
    /// Held while a number is taken.
    taking: Mutex<()>,
}

impl InTable {
    fn new(guarded: Guarded) -> *mut Self {
        let taking = Mutex::new(());
        Box::into_raw(Box::new(Self { guarded, taking }))
    }
}

/// A number of the process's table, and how many came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

impl Number {
    fn new(fd: RawFd, before: Number) -> Self {
        let count = (before.0 >> 32).wrapping_add(1);
        Self(count << 32 | u64::from(fd as u32))
    }

    /// May mean something else by now.
    pub(crate) fn fd(self) -> RawFd {
        self.0 as u32 as RawFd
    }
}

impl Descriptor {
    /// Opens a file in the table, on which the program may have locks, and sets its flags to
    /// these. The error is an errno.
    ///
    /// # Safety
    /// The call answers a new descriptor, and takes these arguments.
    pub(super) unsafe fn open(number: c_long, args: [usize; 6], flags: i32) -> Result<Self, i32> {
        let (mut told, wanted) = (Statx::new(), Wanted::new());
        let then = [
            (libc::SYS_statx, told.args()),
            (libc::SYS_lseek, wanted.first_args()),
            (
                libc::SYS_fcntl,
                [libc::F_SETFL as usize, flags as usize, 0, 0, 0],
            ),
            (libc::SYS_fadvise64, NO_READ_AHEAD),
        ];
        // SAFETY: the caller's promise; one fills the structure, the others no memory.
        let opened = unsafe { Guarded::open_and((number, args), then) };
        // Advice that is refused costs speed only.
        let (guarded, [told_it, marked, set, _]) = opened?;
        set?;
        let told = told_it.and_then(|_| told.read());
        let mut made = Self::make(Some(guarded), None, true, told.ok())?;
        made.mark = match wanted.is_first(marked) {
            Some(mark) => mark,
            None => Mark::put(&made, made.inode),
        };
        Ok(made)
    }

    /// Another descriptor of a file that the program has open.
    pub(super) fn adopt(of: BorrowedFd<'_>) -> Result<Self, i32> {
        Self::make(Some(Guarded::adopt(of)?), None, true, None)
    }

    /// An open file of ours alone by its number, where there is no table, or on which nobody
    /// but us has locks.
    pub(crate) fn own(fd: OwnedFd, locks: bool) -> Result<Self, i32> {
        Ok(Self::shared(fd, locks)?.marked())
    }

    /// The same of an open file whose flags and position are the program's too.
    pub(super) fn shared(fd: OwnedFd, locks: bool) -> Result<Self, i32> {
        let guarded = Guarded::adopt(fd.as_fd()).ok();
        Self::make(guarded, Some(fd), locks, None)
    }

    fn marked(mut self) -> Self {
        self.mark = Mark::put(&self, self.inode);
        self
    }

    /// `told` is its stat, if it is known already.
    fn make(
        guarded: Option<Guarded>,
        fd: Option<OwnedFd>,
        locks: bool,
        told: Option<(libc::stat, Option<Alignment>)>,
    ) -> Result<Self, i32> {
        let guarded = guarded.map(InTable::new);
        let first = fd.map_or(NONE, IntoRawFd::into_raw_fd);
        let mut made = Self {
            // SAFETY: numbers, of which zeros are valid ones.
            opened: unsafe { core::mem::zeroed() },
            guarded: AtomicPtr::new(guarded.unwrap_or(core::ptr::null_mut())),
            alignment: None,
            inode: Inode::default(),
            mark: Mark::Inode(Inode::default()),
            locks,
            number: AtomicU64::new(Number::new(first, Number(0)).0),
            taken: AtomicU32::new(0),
            without: AtomicU32::new(0),
            waits: AtomicBool::new(false),
            way: FileReadPath::always(ReadPath::Past),
            lent: AtomicI32::new(NONE),
        };
        (made.opened, made.alignment) = match told.or_else(|| made.first_statx(first)) {
            Some(told) => told,
            // Not there, or denied.
            None => {
                // SAFETY: fills the structure.
                let fstat = |args| unsafe { made.by_any(first, libc::SYS_fstat, args) };
                (table::stat_by(fstat)?, None)
            }
        };
        made.inode = Inode::of(&made.opened);
        made.mark = Mark::Inode(made.inode);
        Ok(made)
    }

    /// Its stat while it is being made.
    fn first_statx(&self, first: RawFd) -> Option<(libc::stat, Option<Alignment>)> {
        let mut told = Statx::new();
        // SAFETY: an empty path means the descriptor; fills the structure.
        unsafe { self.by_any(first, libc::SYS_statx, told.args()) }.ok()?;
        told.read().ok()
    }

    /// A system call while it is being made: in the table, or by the first number.
    ///
    /// # Safety
    /// As of [`call`](Self::call).
    unsafe fn by_any(&self, first: RawFd, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.guarded() {
                Some(guarded) => guarded.call(number, args),
                None => plain(first, number, args),
            }
        }
    }

    /// True of an open file that only we have: it carries a mark.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.mark, Mark::Position(_))
    }

    pub(super) fn guarded(&self) -> Option<&Guarded> {
        Some(&self.in_table()?.guarded)
    }

    fn in_table(&self) -> Option<&InTable> {
        // Acquire pairs with the Release in `after_fork`.
        // SAFETY: null, or stays until this is dropped.
        unsafe { self.guarded.load(Ordering::Acquire).as_ref() }
    }

    /// A system call with this descriptor as its first argument, in the table. Where
    /// there is none, by the number, which is looked at before. The error is an errno.
    ///
    /// # Safety
    /// The call takes these arguments behind a descriptor, which it does not close.
    pub(crate) unsafe fn call(&self, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
        if let Some(guarded) = self.guarded() {
            // SAFETY: the caller's promise.
            return unsafe { guarded.call(number, args) };
        }
        let fd = self.known().filter(|&fd| self.is(fd)).ok_or(libc::EBADF)?;
        // SAFETY: the caller's promise.
        unsafe { plain(fd, number, args) }
    }

    /// A system call in which this descriptor is elsewhere than in the first argument: `args` gets its number.
    ///
    /// # Safety
    /// The call takes these arguments, and does not close the descriptor.
    pub(crate) unsafe fn run(
        &self,
        number: c_long,
        args: impl FnOnce(RawFd) -> [usize; 6],
    ) -> Result<usize, i32> {
        if let Some(guarded) = self.guarded() {
            // SAFETY: the caller's promise.
            return unsafe { guarded.run(number, args(guarded.number())) };
        }
        let fd = self.known().filter(|&fd| self.is(fd)).ok_or(libc::EBADF)?;
        // SAFETY: the caller's promise.
        unsafe { table::call(number, &args(fd)) }
    }

    /// The same of several calls, which in the table are one request. Each has its own answer.
    ///
    /// # Safety
    /// As of [`call`](Self::call), of each of them.
    pub(super) unsafe fn call_each<const N: usize>(
        &self,
        calls: [(c_long, [usize; 5]); N],
    ) -> [Result<usize, i32>; N] {
        if let Some(guarded) = self.guarded() {
            // SAFETY: the caller's promise.
            return unsafe { guarded.call_each(calls) };
        }
        // SAFETY: the caller's promise.
        calls.map(|(number, args)| unsafe { self.call(number, args) })
    }

    /// The stat of the file.
    pub(crate) fn stat(&self) -> Result<libc::stat, i32> {
        // It proves itself.
        if let Some(Ok(stat)) = self.known().map(identity::stat_of)
            && Inode::of(&stat) == self.inode
        {
            return Ok(stat);
        }
        table::stat_by(|args| {
            // SAFETY: fills the structure.
            unsafe { self.call(libc::SYS_fstat, args) }
        })
    }

    /// True of a file of tmpfs, ramfs or hugetlbfs, or of an overlay, whose files may be those of one. Unsure: true.
    pub(super) fn is_in_memory(&self) -> bool {
        const IN_MEMORY: [u64; 4] = [0x0102_1994, 0x8584_58F6, 0x9584_58F6, 0x794C_7630];
        self.file_system()
            .is_none_or(|magic| IN_MEMORY.contains(&magic))
    }

    /// True of a file of FUSE. Unsure: true.
    pub(super) fn is_fuse(&self) -> bool {
        self.file_system().is_none_or(|magic| magic == 0x6573_5546)
    }

    /// The magic number of the file system; statfs(2).
    pub(crate) fn file_system(&self) -> Option<u64> {
        let mut about = MaybeUninit::<libc::statfs>::zeroed();
        let to = about.as_mut_ptr() as usize;
        // SAFETY: fills the structure.
        let known = unsafe { self.call(libc::SYS_fstatfs, [to, 0, 0, 0, 0]) };
        // SAFETY: zeros are valid, and so are the kernel's values.
        let magic = unsafe { about.assume_init() }.f_type as u64;
        known.ok().map(|_| magic)
    }

    /// The stat of the file when it was opened.
    pub(super) fn opened(&self) -> &libc::stat {
        &self.opened
    }

    /// The file system's alignment of direct I/O, if it tells.
    pub(crate) fn alignment(&self) -> Option<Alignment> {
        self.alignment
    }

    /// True if it is the one that this was said of.
    pub(super) fn is_file(&self, stat: &libc::stat) -> bool {
        Inode::of(stat) == self.inode
    }

    /// A number to read by. The bytes are to be believed if it
    /// [`is_still`](Self::is_still) the one. `None`: through the table only.
    pub(crate) fn number(&self) -> Option<Number> {
        // Without a mark it is not known which file was read; so only where there is no other way.
        if matches!(self.mark, Mark::Inode(_)) && self.guarded().is_some() {
            return None;
        }
        let number = Number(self.number.load(Ordering::Acquire));
        match number.fd() {
            NONE => self.take(false),
            _ => Some(number),
        }
    }

    /// True if this number has meant our open file all the time, and does.
    pub(crate) fn is_still(&self, number: Number) -> bool {
        self.is(number.fd()) && self.number.load(Ordering::Acquire) == number.0
    }

    /// A number for reads that a queue of the kernel's makes, which must not wait. Such a read
    /// takes bytes even out of a pipe, so it is looked at before as well.
    pub(super) fn number_for_queue(&self) -> Option<Number> {
        if self.waits() {
            return None;
        }
        let number = self.number()?;
        if self.is_still(number) {
            return Some(number);
        }
        self.forget(number);
        None
    }

    /// True if a queue has refused to read this file without waiting.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// A queue has refused to read this file without waiting.
    fn must_wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    pub(super) fn forget(&self, number: Number) {
        let none = Number::new(NONE, number).0;
        // AcqRel pairs with itself: numbers are counted one after the other.
        let (set, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = (self.number).compare_exchange(number.0, none, set, failed);
    }

    /// The number as it is known, if there is one.
    fn known(&self) -> Option<RawFd> {
        let fd = Number(self.number.load(Ordering::Acquire)).fd();
        (fd != NONE).then_some(fd)
    }

    fn is(&self, fd: RawFd) -> bool {
        self.mark.is(fd)
    }

    #[cold]
    fn take(&self, forced: bool) -> Option<Number> {
        let InTable { guarded, taking } = self.in_table()?;
        // A child has only what its parent lent it, and a thread of the parent's may have held the lock.
        if !guarded.is_here() {
            return None;
        }
        // Asking costs as much as a read through the table.
        let without = self.without.fetch_add(1, Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let (patience, first) = match taken < MANY {
            true => (PATIENCE, 0),
            false => (MORE_PATIENCE, MORE_PATIENCE - 1),
        };
        let _taking = match forced {
            true => taking.lock(),
            false if without % patience == first => taking.try_lock()?,
            false => return None,
        };
        let before = Number(self.number.load(Ordering::Acquire));
        if before.fd() != NONE {
            return Some(before);
        }
        if self.locks && !forced && self.is_locked() {
            return None;
        }
        let is = Identity::of(&self.opened);
        let fd = match guarded.borrow_number_of(is) {
            // Without one a child of fork would have no way to the file.
            Err(_) if forced => guarded.sent_number_of(is),
            taken => taken,
        };
        let fd = fd.ok()?;
        self.taken.store(taken.saturating_add(1), Ordering::Relaxed);
        self.without.store(0, Ordering::Relaxed);
        let number = Number::new(fd, before);
        self.number.store(number.0, Ordering::Release);
        Some(number)
    }

    /// True if anybody has locks on the file, as our open file sees it: the process's
    /// POSIX locks are another's to it. Others' may hide them, and count.
    fn is_locked(&self) -> bool {
        let mut lock = kept::any_lock();
        let asked = [libc::F_OFD_GETLK as usize, &raw mut lock as usize, 0, 0, 0];
        // SAFETY: fills the structure.
        let answer = unsafe { self.call(libc::SYS_fcntl, asked) };
        answer.is_ok() && lock.l_type != libc::F_UNLCK as i16
    }

    /// The process is about to fork: its child will have the number.
    pub(crate) fn before_fork(&self) {
        // Another thread may have taken one meanwhile, in another table.
        for _ in 0..4 {
            if self.allow_inherit() {
                break;
            }
            self.forget(Number(self.number.load(Ordering::Acquire)));
            self.take(true);
        }
    }

    /// The same if there is a number already; false if not.
    pub(super) fn allow_inherit(&self) -> bool {
        let known = self.known().filter(|&fd| self.is(fd));
        let here = known.or_else(|| self.lent());
        self.lent.store(here.unwrap_or(NONE), Ordering::Relaxed);
        here.is_some()
    }

    /// The number that was lent last, if it means the file here: in a child of fork, or for another one.
    pub(super) fn lent(&self) -> Option<RawFd> {
        let fd = self.lent.load(Ordering::Relaxed);
        (fd != NONE && self.is(fd)).then_some(fd)
    }

    /// In a child of fork, which has one thread: of the parent's state only the number
    /// is the child's. It goes to the child's table.
    pub(crate) fn after_fork(&self) {
        let Some(fd) = self.lent() else { return };
        let before = Number(self.number.load(Ordering::Relaxed));
        (self.number).store(Number::new(fd, before).0, Ordering::Release);
        // SAFETY: it was just looked at; the child's own has its identity in any case.
        let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Ok(guarded) = Guarded::adopt(inherited) {
            // The parent's stays where it is. Release pairs with the Acquire in `in_table`.
            self.guarded.store(InTable::new(guarded), Ordering::Release);
        }
    }
}

/// A system call by a number of the calling thread's table, past the C library, as all reads are.
///
/// # Safety
/// The call takes these arguments behind a descriptor.
unsafe fn plain(fd: RawFd, number: c_long, args: [usize; 5]) -> Result<usize, i32> {
    let [a, b, c, d, e] = args;
    // SAFETY: the caller's promise.
    unsafe { table::call(number, &[fd as usize, a, b, c, d, e]) }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let known = self.known().filter(|&fd| self.is(fd));
        // Of a file without a mark it may be the program's own by now.
        let lent = self.lent().filter(|_| self.is_ours());
        let lent = lent.filter(|&fd| Some(fd) != known);
        for fd in known.into_iter().chain(lent) {
            match self.locks {
                true => kept::close_or_keep(fd, self.mark),
                false => kept::close(fd),
            }
        }
        let guarded = *self.guarded.get_mut();
        if !guarded.is_null() {
            // SAFETY: made by `InTable::new`, and not used again.
            drop(unsafe { Box::from_raw(guarded) });
        }
    }
}

#[cfg(test)]
impl Descriptor {
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }
}

/// A descriptor's number, for calls that only advise.
impl Descriptor {
    /// Drops the pages that a buffered read left in the page cache. Only advice: pages that others have
    /// mapped or changed stay.
    pub(crate) fn drop_behind(&self, offset: u64, bytes: usize) {
        self.advise(offset, bytes, libc::POSIX_FADV_DONTNEED);
    }

    /// posix_fadvise(2).
    pub(super) fn advise(&self, offset: u64, bytes: usize, advice: i32) {
        let (Some(fd), Ok(offset), Ok(bytes)) =
            (self.known(), i64::try_from(offset), i64::try_from(bytes))
        else {
            return;
        };
        // SAFETY: no memory involved.
        unsafe { libc::posix_fadvise(fd, offset, bytes, advice) };
    }

    /// The number for tests that fill the file before it is in use.
    #[cfg(test)]
    pub(crate) fn raw(&self) -> RawFd {
        self.known().expect("it has one")
    }
}
