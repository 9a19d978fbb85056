//! Calls that hand memory to the kernel to be read, where faults are signals: the kernel raises none for its own
//! accesses, and answers EFAULT, or a count that is too short.
//!
//! Of the calls by which the kernel writes into memory, only those are here that consume nothing when they fail
//! (`receive.rs` has the others). The memory is touched then, in the program's thread, and the call is made again. Nothing is allocated: a hook
//! may be called where the program must not allocate.

use super::bounce::Temporary;
use super::readable::is_readable;
use super::served::Served;
use crate::call::{errno, set_errno};
use crate::{marked, mode};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use libc::{c_char, c_int, c_void, iovec, mmsghdr, msghdr, ssize_t};

pub const PAGE: usize = crate::decide::PAGE;
/// Times that a call is made again.
const AGAIN: usize = 64;
/// Bytes that are copied at a time, where that is not all.
pub const COPIED: usize = 64 << 10;

/// Bytes that are copied to the thread's stack: a mapping for each line of a text would cost far more than the call.
const SMALL: usize = 1 << 10;

/// Memory that a call reads.
#[derive(Clone, Copy)]
pub enum Reads {
    /// Bytes.
    Bytes(*const c_void, usize),
    /// A string, up to its zero.
    Text(*const c_char),
    /// Strings, up to a null pointer.
    Texts(*const *const c_char),
    /// The buffers of vectors, and the vectors themselves.
    Vectors(*const iovec, usize),
    Message(*const msghdr),
    Messages(*const mmsghdr, usize),
    /// Bytes that the call writes to, and that is nothing lost by if it fails and is made again.
    Into(*mut c_void, usize),
}

/// The answer of a call.
pub trait Answer: Copy {
    /// True if it failed, and says why in errno.
    fn failed(self) -> bool;
}

impl Answer for c_int {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Answer for ssize_t {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Answer for i64 {
    fn failed(self) -> bool {
        self == -1
    }
}

impl<T> Answer for *mut T {
    fn failed(self) -> bool {
        self.is_null()
    }
}

impl Reads {
    /// Calls `act` with each part, until it says true; whether it did.
    ///
    /// # Safety
    /// The program hands the memory to the kernel to be read.
    unsafe fn any(self, act: &mut dyn FnMut(Range<usize>) -> bool) -> bool {
        // SAFETY: the caller's promise, here and below: the bytes looked at are those that the call reads.
        unsafe {
            match self {
                Self::Bytes(start, bytes) => bytes > 0 && act(range(start, bytes)),
                Self::Into(start, bytes) => {
                    bytes > 0 && !start.is_null() && act(range(start, bytes))
                }
                Self::Text(text) => {
                    let start = text as usize;
                    // A range that begins elsewhere is elsewhere.
                    if !marked::may_be_taken(start, 1) {
                        return false;
                    }
                    act(start..start + text_bytes(text))
                }
                Self::Texts(texts) => {
                    const EACH: usize = size_of::<*const c_char>();
                    let is_end = |&at: &usize| {
                        let text = texts.wrapping_add(at);
                        // One on a page that the one before was not on.
                        let is_first = at == 0 || text as usize % PAGE < EACH;
                        is_first && !is_readable(text.cast(), EACH) || (*text).is_null()
                    };
                    // Null is none.
                    let count = (0..).find(is_end).unwrap_or(0);
                    if !is_readable(texts.wrapping_add(count).cast(), EACH) {
                        return false;
                    }
                    act(range(
                        texts.cast(),
                        (count + 1) * size_of::<*const c_char>(),
                    )) || (0..count).any(|at| Self::Text(*texts.add(at)).any(act))
                }
                Self::Vectors(vectors, count) => {
                    let bytes = count.saturating_mul(size_of::<iovec>());
                    if !is_readable(vectors.cast(), bytes) {
                        return false;
                    }
                    act(range(vectors.cast(), bytes))
                        || (0..count).any(|at| {
                            let vector = *vectors.add(at);
                            act(range(vector.iov_base, vector.iov_len))
                        })
                }
                Self::Message(message) if !is_readable(message.cast(), size_of::<msghdr>()) => {
                    false
                }
                Self::Message(message) => {
                    let about = &*message;
                    act(range(message.cast(), size_of::<msghdr>()))
                        || Self::Vectors(about.msg_iov, about.msg_iovlen).any(act)
                        || act(range(about.msg_name, about.msg_namelen as usize))
                        || act(range(about.msg_control, about.msg_controllen))
                }
                Self::Messages(messages, count) => (0..count).any(|at| {
                    Self::Message(&raw const (*messages.wrapping_add(at)).msg_hdr).any(act)
                }),
            }
        }
    }
}

fn range(start: *const c_void, bytes: usize) -> Range<usize> {
    start as usize..(start as usize).saturating_add(bytes)
}

/// Bytes of a string with its zero, or up to where nothing is.
///
/// # Safety
/// The program hands it to the kernel to be read.
unsafe fn text_bytes(text: *const c_char) -> usize {
    let start = text as usize;
    let mut served = Served::default();
    let mut end = start;
    while served.is_there(end) {
        let next = (end & !(PAGE - 1)) + PAGE;
        // SAFETY: the page is there.
        let rest = unsafe { core::slice::from_raw_parts(end as *const u8, next - end) };
        if let Some(zero) = rest.iter().position(|&byte| byte == 0) {
            return end + zero + 1 - start;
        }
        end = next;
    }
    end - start
}

/// True if some of the memory may be missing.
#[cold]
pub fn may_be_missing(reads: &[Reads]) -> bool {
    let mut is_taken = |part: Range<usize>| marked::may_be_taken(part.start, part.len());
    // SAFETY: memory that a call of the program's reads.
    reads.iter().any(|read| unsafe { read.any(&mut is_taken) })
}

/// Touches all pages that the engine serves, of each part those in front of a page that is not there; true if there were any.
#[cold]
pub fn touch(reads: &[Reads]) -> bool {
    let mut served = Served::default();
    let mut touched = false;
    for read in reads {
        let mut touch = |part: Range<usize>| {
            let mut page = part.start;
            while page < part.end && served.is_there(page) {
                if served.has(page) {
                    // SAFETY: the program hands it to the kernel to be read, and it is there.
                    unsafe { (page as *const u8).read_volatile() };
                    touched = true;
                }
                page = (page & !(PAGE - 1)).saturating_add(PAGE);
            }
            false
        };
        match *read {
            Reads::Into(start, bytes) => touched |= touch_to_write(range(start, bytes)),
            // SAFETY: memory that a call of the program's reads.
            read => unsafe {
                read.any(&mut touch);
            },
        }
    }
    touched
}

/// The same of memory that a call writes to, where it is private memory that may be written to; its bytes stay as they are.
fn touch_to_write(part: Range<usize>) -> bool {
    let mut touched = false;
    let mut page = part.start;
    while page < part.end {
        if marked::may_be_taken(page, 1) && super::receive::has_writable(page, 1) {
            // SAFETY: the program lets it be written to, and it is there; others see the byte that it has.
            let byte = unsafe { AtomicU8::from_ptr(page as *mut u8) };
            let is = byte.load(Relaxed);
            // An operation that changes nothing for sure would be compiled to a load.
            let _ = byte.compare_exchange(is, is, Relaxed, Relaxed);
            touched = true;
        }
        page = (page & !(PAGE - 1)).saturating_add(PAGE);
    }
    touched
}

/// A call that reads memory, and sets errno.
#[inline]
pub fn again<T: Answer>(reads: &[Reads], call: impl FnMut() -> T) -> T {
    let is_missing = |answer: T| answer.failed() && errno() == libc::EFAULT;
    while_missing(reads, is_missing, call)
}

/// The same of a call that answers an error, and leaves errno alone.
pub fn again_by_error(reads: &[Reads], call: impl FnMut() -> c_int) -> c_int {
    while_missing(reads, |answer| answer == libc::EFAULT, call)
}

/// A call that is made again as long as something is missing. Where nothing is served any more it is made once more: the memory
/// may be the kernel's by now. Each repeat finds the errno that the first call has found: one that succeeds leaves it alone, and
/// so does pathconf(3) where it has no value to answer.
#[inline]
fn while_missing<T: Copy>(
    reads: &[Reads],
    is_missing: impl Fn(T) -> bool,
    mut call: impl FnMut() -> T,
) -> T {
    let before = errno();
    let mut answer = call();
    for _ in 0..AGAIN {
        if !is_missing(answer) || !mode::is_signals() || !may_be_missing(reads) {
            break;
        }
        let touched = touch(reads);
        set_errno(before);
        answer = call();
        if !touched {
            break;
        }
    }
    answer
}

/// A call on a copy of some bytes, in memory of the kernel's.
///
/// # Safety
/// So many bytes may be read there: a touch brings in what is missing.
pub unsafe fn with_copy<T: Answer>(
    start: *const c_void,
    bytes: usize,
    call: impl FnOnce(*const c_void) -> T,
) -> T {
    if bytes <= SMALL {
        let mut small = MaybeUninit::<[u64; SMALL / 8]>::uninit();
        let copy: *mut u8 = small.as_mut_ptr().cast();
        // SAFETY: there is room for so many; the caller's promise.
        unsafe { copy.copy_from_nonoverlapping(start.cast(), bytes) };
        return call(copy.cast_const().cast());
    }
    let Some(copy) = Temporary::new(bytes) else {
        return call(start);
    };
    // SAFETY: there is room for so many; the caller's promise.
    unsafe { copy.start().copy_from_nonoverlapping(start, bytes) };
    call(copy.start())
}

/// The same of bytes that may have been taken: for calls that read them where no hook is.
///
/// # Safety
/// As of [`with_copy`].
pub unsafe fn with_bytes_copied<T: Answer>(
    start: *const c_void,
    bytes: usize,
    call: impl FnOnce(*const c_void) -> T,
) -> T {
    match mode::is_signals() && marked::may_be_taken(start as usize, bytes) {
        // SAFETY: the caller's promise.
        true => unsafe { with_copy(start, bytes, call) },
        false => call(start),
    }
}

/// The same of a string.
///
/// # Safety
/// It may be read up to its zero.
pub unsafe fn with_text<T: Answer>(
    text: *const c_char,
    call: impl FnOnce(*const c_char) -> T,
) -> T {
    match mode::is_signals() {
        // SAFETY: the caller's promise.
        true => unsafe { with_text_copied(text, call) },
        false => call(text),
    }
}

/// The same however faults are served: for a call that has a lock of the C library's meanwhile which a fork waits for.
///
/// # Safety
/// As of [`with_text`].
pub unsafe fn with_text_copied<T: Answer>(
    text: *const c_char,
    call: impl FnOnce(*const c_char) -> T,
) -> T {
    if !marked::may_be_taken(text as usize, 1) {
        return call(text);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = core::ffi::CStr::from_ptr(text).count_bytes() + 1;
        with_copy(text.cast(), bytes, |copy| call(copy.cast()))
    }
}

/// Hooks that are in front of a call which reads memory: the memory follows its type.
macro_rules! reading {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty
        => $($kind:ident($($part:expr),*)),+;)*) => {
        $crate::hooks::next::hooks! {
            $($(#[$doc])*
            fn $name($($arg: $type),*) -> $answer = |next| {
                let reads = [$($crate::hooks::again::Reads::$kind($($part),*)),+];
                $crate::hooks::again::again(&reads, || next($($arg),*))
            };)*
        }
    };
}
pub(super) use reading;
