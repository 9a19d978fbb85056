//! Other memory in the place of taken memory, for the kernel to write into.

use super::put::{put, put_changed};
use super::readable::is_readable;
use super::receive::is_taken;
use crate::call;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

/// Bytes of a [`BounceBuffer`] on the thread's stack: a mapping for each small item would cost far more than the call.
pub const SMALL: usize = 128;

/// Bytes that the kernel transfers by a call at most (`MAX_RW_COUNT`). A longer length may be one that nobody looks at.
const MOST: usize = 0x7FFF_F000;

/// Memory of the kernel's own mapping in the place of taken memory, as long as a call lasts: the kernel writes into it, and its bytes are copied.
///
/// Where the kernel reads the bytes, too, it may write to some of them or to none. Others may store there meanwhile: a handler that
/// interrupts the call, another thread. So what the kernel was handed is kept, and only bytes that differ from it are copied.
pub struct BounceBuffer {
    to: *mut c_void,
    place: BouncePlace,
    bytes: usize,
    /// True if what the kernel was handed is behind the place, in its second half.
    is_read: bool,
    small: UnsafeCell<MaybeUninit<[u64; 2 * SMALL / 8]>>,
}

/// Where the call has its memory.
enum BouncePlace {
    /// In the program's own.
    Own,
    /// On the stack.
    Small,
    /// In a mapping.
    Mapped(Temporary),
    /// There is no memory for it.
    Missing,
}

impl BounceBuffer {
    /// Memory of the program's own.
    pub const fn none(to: *mut c_void, bytes: usize) -> Self {
        Self {
            to,
            place: BouncePlace::Own,
            bytes,
            is_read: false,
            small: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// With the present bytes, if the kernel reads them, too.
    #[inline]
    pub fn of(to: *mut c_void, bytes: usize, is_read: bool) -> Self {
        let mut aside = Self::none(to, bytes);
        if is_taken(to, bytes) {
            aside.begin(is_read);
        }
        aside
    }

    /// Memory elsewhere, from now on, if there is any.
    #[cold]
    pub fn begin(&mut self, is_read: bool) {
        // The kernel says EFAULT of what cannot be read.
        if is_read && !is_readable(self.to, self.bytes) {
            return;
        }
        let room = if is_read { 2 } else { 1 };
        self.place = match self.bytes <= SMALL {
            true => BouncePlace::Small,
            false => match Temporary::new(self.bytes.saturating_mul(room)) {
                Some(made) => BouncePlace::Mapped(made),
                None if self.bytes <= MOST => BouncePlace::Missing,
                None => BouncePlace::Own,
            },
        };
        if is_read && self.is_aside() {
            self.is_read = true;
            // SAFETY: the program hands so many bytes to the kernel; the place has room for them, twice. The second is of the first:
            // another thread may store to the program's meanwhile.
            unsafe {
                (self.place()).copy_from_nonoverlapping(self.to, self.bytes);
                (self.before()).copy_from_nonoverlapping(self.place(), self.bytes);
            }
        }
    }

    /// True if the call has memory elsewhere.
    pub fn is_aside(&self) -> bool {
        matches!(self.place, BouncePlace::Small | BouncePlace::Mapped(_))
    }

    /// True if there is no memory for the call. It is not made: in the program's own memory it might find pages missing when it has
    /// consumed what it receives.
    #[inline]
    pub fn is_missing(&self) -> bool {
        matches!(self.place, BouncePlace::Missing)
    }

    /// The same, and errno says so.
    #[inline]
    pub fn is_refused(&self) -> bool {
        if self.is_missing() {
            call::set_errno(libc::ENOMEM);
        }
        self.is_missing()
    }

    /// The address for the call: it does not move until the call is over.
    pub fn place(&self) -> *mut c_void {
        match &self.place {
            BouncePlace::Own | BouncePlace::Missing => self.to,
            BouncePlace::Small => self.small.get().cast(),
            BouncePlace::Mapped(made) => made.start(),
        }
    }

    /// What the kernel was handed.
    fn before(&self) -> *mut c_void {
        self.place().wrapping_byte_add(self.bytes)
    }

    /// After the call: so many bytes are the program's. How many it has got: fewer where a part of its memory is protected.
    #[inline]
    pub fn end(self, bytes: usize) -> usize {
        match self.is_aside() {
            true => self.give(bytes),
            false => bytes,
        }
    }

    /// After the call: all of it is the program's.
    #[inline]
    pub fn end_all(self) {
        let bytes = self.bytes;
        self.end(bytes);
    }

    /// The same of the arguments of a call, in their order. Of some that are one object the kernel writes the last answer over the
    /// others.
    #[inline]
    pub fn end_each(all: &[Self]) {
        for (at, one) in all.iter().enumerate() {
            let is_same = |other: &Self| (other.to, other.bytes) == (one.to, one.bytes);
            if one.is_aside() && !all[at + 1..].iter().any(is_same) {
                one.give(one.bytes);
            }
        }
    }

    #[cold]
    fn give(&self, bytes: usize) -> usize {
        let bytes = bytes.min(self.bytes);
        // SAFETY: the program lets the kernel write to so many bytes.
        unsafe {
            match self.is_read {
                true => put_changed(self.to, self.place(), self.before(), bytes),
                false => put(self.to, self.place(), bytes),
            }
        }
    }
}

/// A new mapping of the kernel's, for as long as a call lasts. It also goes where the call does not come back, because the
/// thread is cancelled in it.
pub struct Temporary {
    start: *mut c_void,
    bytes: usize,
}

impl Temporary {
    /// Of so many bytes, at least one; `None` if there is no room. errno stays.
    pub fn new(bytes: usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (errno, bytes) = (call::errno(), bytes.max(1));
        // SAFETY: new memory.
        let start = unsafe { call::mmap(null_mut(), bytes, protection, flags, -1, 0) };
        call::set_errno(errno);
        (start != libc::MAP_FAILED).then_some(Self { start, bytes })
    }

    /// Where it is.
    pub fn start(&self) -> *mut c_void {
        self.start
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let errno = call::errno();
        // SAFETY: mapped above, and nobody's.
        unsafe { call::any(libc::SYS_munmap, [self.start as usize, self.bytes, 0, 0]) };
        call::set_errno(errno);
    }
}
