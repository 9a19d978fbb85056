//! Calls by which the kernel puts something into memory, where faults are signals: into private memory that was taken.
//!
//! Most may be made again, once the memory is there: those are in `again.rs` (`Reads::Into`). The calls
//! here consume something that is lost if there is no place for it: bytes of a pipe or a socket, a message, a signal, a
//! child's status, the old setting. So the kernel puts it into other memory, and it is copied from there by the
//! thread, whose faults are served.

use super::again::{Reads, again};
pub use super::bounce::BounceBuffer;
use super::bounce::SMALL;
use super::many::many_messages;
use super::next::hooks;
use super::put::put;
use super::readable::is_readable;
use super::reading::STEP;
use super::stream_lock::LockedStream;
use crate::{call, change, inside, marked, mode, table};
use core::ffi::c_void;
use core::ptr::null_mut;
use libc::{
    FILE, c_char, c_int, c_long, c_uint, c_ulong, id_t, idtype_t, iovec, itimerspec, itimerval,
    loff_t, mmsghdr, msghdr, off_t, pid_t, rusage, siginfo_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};

/// True if some of that many bytes is private memory that was taken, and may be written to.
#[inline]
pub fn is_taken(start: *const c_void, bytes: usize) -> bool {
    bytes > 0
        && mode::is_signals()
        && marked::may_be_taken(start as usize, bytes)
        && has_writable(start as usize, bytes)
}

/// The same of memory that may be taken. Other buffers go to the kernel as they are.
#[cold]
pub fn has_writable(start: usize, bytes: usize) -> bool {
    let Some(_inside) = inside::enter() else {
        return false;
    };
    let range = start..start.saturating_add(bytes);
    !table::lock().private.writable_parts(&range).is_empty()
}

/// Bytes of a call's answer.
pub(super) fn received(answer: ssize_t) -> usize {
    usize::try_from(answer).unwrap_or(0)
}

/// A call that receives bytes.
#[inline]
pub fn bytes_into(
    to: *mut c_void,
    bytes: usize,
    call: impl FnOnce(*mut c_void) -> ssize_t,
) -> ssize_t {
    bytes_over(to, bytes, 0, call)
}

/// True if a call with these flags may answer that it has received bytes, and leave the buffer as it was: of a TCP socket it drops them.
const fn may_write_nothing(flags: c_int) -> bool {
    flags & libc::MSG_TRUNC != 0
}

/// The same of a socket, with flags.
#[inline]
pub fn bytes_over(
    to: *mut c_void,
    bytes: usize,
    flags: c_int,
    call: impl FnOnce(*mut c_void) -> ssize_t,
) -> ssize_t {
    bytes_if_memory(to, bytes, flags, call)
        .unwrap_or_else(|| change::refuse(libc::ENOMEM) as ssize_t)
}

/// The same; `None` where there is no memory to receive into: then nothing is done.
#[inline]
pub(super) fn bytes_if_memory(
    to: *mut c_void,
    bytes: usize,
    flags: c_int,
    call: impl FnOnce(*mut c_void) -> ssize_t,
) -> Option<ssize_t> {
    let aside = BounceBuffer::of(to, bytes, may_write_nothing(flags));
    if aside.is_missing() {
        return None;
    }
    let answer = call(aside.place());
    // The answer may be more: the length of a packet that was cut off.
    let wanted = received(answer).min(bytes);
    Some(match aside.end(wanted) {
        has if has < wanted => some_of(has),
        _ => answer,
    })
}

/// Adds the answer of a call that was to get so many bytes to those that are `done`. Where no other call follows, the answer of all: so many
/// bytes, or the error of the first.
pub(super) fn ended(done: &mut usize, got: ssize_t, wanted: usize) -> Option<ssize_t> {
    if got < 0 && *done == 0 {
        return Some(got);
    }
    *done += received(got);
    (received(got) < wanted).then_some(*done as ssize_t)
}

/// Bytes that are received piece by piece, by way of the thread's stack: that needs no memory. `call` gets where to, and how many.
#[cold]
pub(super) fn pieces_into(
    to: *mut c_void,
    bytes: usize,
    mut call: impl FnMut(*mut c_void, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    while done < bytes {
        let some = SMALL.min(bytes - done);
        let place = to.wrapping_byte_add(done);
        let got = bytes_into(place, some, |place| call(place, some));
        if let Some(answer) = ended(&mut done, got, some) {
            return answer;
        }
    }
    done as ssize_t
}

/// The answer of a call that has put so many bytes into memory, of more: none of them is an error.
#[cold]
pub fn some_of(bytes: usize) -> ssize_t {
    if bytes == 0 {
        call::set_errno(libc::EFAULT);
        return -1;
    }
    bytes as ssize_t
}

/// Vectors that a call may have at most.
pub const MOST: usize = 1024;

/// True if one of some vectors names memory that was taken.
///
/// # Safety
/// The program hands so many to the kernel.
unsafe fn any_is_taken(vectors: *const iovec, count: usize) -> bool {
    mode::is_signals()
        && marked::is_any()
        && is_readable(vectors.cast(), count * size_of::<iovec>())
        && (0..count).any(|at| {
            // SAFETY: the caller's promise.
            let vector = unsafe { vectors.add(at).read() };
            is_taken(vector.iov_base, vector.iov_len)
        })
}

/// A call that receives into vectors: into one piece of other memory, which is then divided.
///
/// # Safety
/// As of readv(2).
pub unsafe fn vectors_into(
    vectors: *const iovec,
    count: usize,
    call: impl FnMut(*const iovec, usize) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { vectors_over(vectors, count, 0, call) }
}

/// The same of a socket, with flags.
///
/// # Safety
/// As of recvmsg(2).
unsafe fn vectors_over(
    vectors: *const iovec,
    count: usize,
    flags: c_int,
    mut call: impl FnMut(*const iovec, usize) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if count > MOST || !any_is_taken(vectors, count) {
            return call(vectors, count);
        }
        let each = || (0..count).map(|at| vectors.add(at).read());
        let Some(bytes) = each().try_fold(0_usize, |sum, each| sum.checked_add(each.iov_len))
        else {
            return call(vectors, count);
        };
        let mut all = BounceBuffer::none(null_mut(), bytes);
        all.begin(false);
        if all.is_refused() {
            return -1;
        }
        if !all.is_aside() {
            return call(vectors, count);
        }
        if may_write_nothing(flags) {
            let mut to = all.place();
            for vector in each() {
                if !is_readable(vector.iov_base, vector.iov_len) {
                    return call(vectors, count);
                }
                to.copy_from_nonoverlapping(vector.iov_base, vector.iov_len);
                to = to.wrapping_byte_add(vector.iov_len);
            }
        }
        let one = iovec {
            iov_base: all.place(),
            iov_len: bytes,
        };
        let answer = call(&one, 1);
        let mut left = received(answer).min(bytes);
        let mut from = all.place();
        for vector in each() {
            let some = left.min(vector.iov_len);
            let has = put(vector.iov_base, from, some);
            if has < some {
                let before = received(answer).min(bytes) - left;
                all.end(0);
                return some_of(before + has);
            }
            from = from.wrapping_byte_add(some);
            left -= some;
        }
        all.end(0);
        answer
    }
}

/// A call that receives a message: its bytes, its sender and its control data.
///
/// # Safety
/// As of recvmsg(2).
pub unsafe fn message_into(
    message: *mut msghdr,
    flags: c_int,
    mut call: impl FnMut(*mut msghdr) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise; null has no bytes.
    unsafe {
        if !mode::is_signals() || !marked::is_any() {
            return call(message);
        }
        if !is_readable(message.cast(), size_of::<msghdr>()) {
            return call(message);
        }
        let about = message.read();
        let name = BounceBuffer::of(about.msg_name, about.msg_namelen as usize, false);
        let control = BounceBuffer::of(about.msg_control, about.msg_controllen, false);
        if name.is_refused() || control.is_refused() {
            return -1;
        }
        let mut own = about;
        own.msg_name = name.place();
        own.msg_control = control.place();
        let (vectors, count) = (about.msg_iov, about.msg_iovlen);
        let answer = vectors_over(vectors, count, flags, |vectors, count| {
            own.msg_iov = vectors.cast_mut();
            own.msg_iovlen = count;
            call(&mut own)
        });
        name.end(if answer < 0 {
            0
        } else {
            own.msg_namelen as usize
        });
        control.end(if answer < 0 { 0 } else { own.msg_controllen });
        if answer >= 0 {
            (*message).msg_namelen = own.msg_namelen;
            (*message).msg_controllen = own.msg_controllen;
            (*message).msg_flags = own.msg_flags;
        }
        answer
    }
}

/// Hooks of calls that put structures into memory: of each the present bytes are handed over, and those are put back that the call has
/// changed. Behind them what else the kernel reads, or writes to where a structure could not be handed over.
macro_rules! receiving {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty
        => $($to:ident[$bytes:expr]),+ $(; $($kind:ident($($part:expr),*)),+)?;)*) => {
        hooks! {
            $($(#[$doc])*
            fn $name($($arg: $type),*) -> $answer = |next| {
                // In the order of the arguments.
                let asides = [$(BounceBuffer::of($to.cast(), $bytes, true)),+];
                if asides.iter().any(BounceBuffer::is_refused) {
                    return -1;
                }
                let mut places = asides.iter().map(BounceBuffer::place);
                $(let $to = places.next().unwrap_or(null_mut()).cast();)+
                let reads: &[Reads] = &[$($(Reads::$kind($($part),*)),+)?];
                let answer = again(reads, || next($($arg),*));
                BounceBuffer::end_each(&asides);
                answer
            };)*
        }
    };
}

/// The length of a buffer that may be taken, as it is at another address; 0 of any other, whose length may be nowhere: the kernel
/// does not look at it where there is no buffer.
pub fn length(of: *const c_void, at: *const socklen_t) -> usize {
    if of.is_null() || !mode::is_signals() || !marked::may_be_taken(of as usize, 1) {
        return 0;
    }
    if !is_readable(at.cast(), size_of::<socklen_t>()) {
        return 0;
    }
    // SAFETY: it is there.
    unsafe { *at as usize }
}

/// Bytes of something, of nothing none.
pub fn size<T>(at: *const T) -> usize {
    if at.is_null() { 0 } else { size_of::<T>() }
}

hooks! {
    /// recv(2).
    fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t = |next| {
        bytes_over(to, bytes, flags, |to| next(fd, to, bytes, flags))
    };

    /// recvfrom(2).
    fn recvfrom(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = |next| {
        bytes_from((to, bytes), flags, (from, len), |to, from, len| next(fd, to, bytes, flags, from, len))
    };

    /// recvmsg(2).
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = |next| {
        message_into(message, flags, |message| next(fd, message, flags))
    };

    /// recvmmsg(2): where memory was taken, one message after the other.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int = |next| {
        if !mode::is_signals() || !marked::is_any() {
            return next(fd, messages, count, flags, time);
        }
        many_messages((messages, count), flags, time, |message, flags| recvmsg(fd, message, flags))
    };

    /// process_vm_readv(2): its source is another process's.
    fn process_vm_readv(process: pid_t, to: *const iovec, count: c_ulong, from: *const iovec, from_count: c_ulong, flags: c_ulong) -> ssize_t = |next| {
        vectors_into(to, count as usize, |to, count| next(process, to, count as c_ulong, from, from_count, flags))
    };

    /// mq_receive(3).
    fn mq_receive(queue: c_int, to: *mut c_char, bytes: size_t, priority: *mut c_uint) -> ssize_t = |next| {
        let rank = BounceBuffer::of(priority.cast(), size(priority), true);
        let answer = bytes_into(to.cast(), bytes, |to| next(queue, to.cast(), bytes, rank.place().cast()));
        rank.end(size(priority));
        answer
    };

    /// mq_timedreceive(3).
    fn mq_timedreceive(queue: c_int, to: *mut c_char, bytes: size_t, priority: *mut c_uint, until: *const timespec) -> ssize_t = |next| {
        let rank = BounceBuffer::of(priority.cast(), size(priority), true);
        let answer = bytes_into(to.cast(), bytes, |to| {
            again(&[Reads::Bytes(until.cast(), size(until))], || next(queue, to.cast(), bytes, rank.place().cast(), until))
        });
        rank.end(size(priority));
        answer
    };

    /// msgrcv(2): a number is in front of the message.
    fn msgrcv(queue: c_int, to: *mut c_void, bytes: size_t, kind: c_long, flags: c_int) -> ssize_t = |next| {
        let aside = BounceBuffer::of(to, bytes.saturating_add(size_of::<c_long>()), true);
        if aside.is_refused() {
            return -1;
        }
        let answer = next(queue, aside.place(), bytes, kind, flags);
        aside.end(if answer < 0 { 0 } else { received(answer) + size_of::<c_long>() });
        answer
    };

    /// getdirentries(3).
    fn getdirentries(fd: c_int, to: *mut c_char, bytes: size_t, at: *mut off_t) -> ssize_t = |next| {
        bytes_into(to.cast(), bytes, |to| next(fd, to.cast(), bytes, at))
    };

    /// getdirentries(3).
    fn getdirentries64(fd: c_int, to: *mut c_char, bytes: size_t, at: *mut off_t) -> ssize_t = |next| {
        bytes_into(to.cast(), bytes, |to| next(fd, to.cast(), bytes, at))
    };

    /// getdents64(2).
    fn getdents64(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t = |next| {
        bytes_into(to, bytes, |to| next(fd, to, bytes))
    };

    /// getcwd(3), which makes memory itself where there is none.
    fn getcwd(to: *mut c_char, bytes: size_t) -> *mut c_char = |next| {
        text_into(to, bytes, |to| next(to, bytes))
    };

    /// getwd(3).
    fn getwd(to: *mut c_char) -> *mut c_char = |next| {
        text_into(to, libc::PATH_MAX as usize, |to| next(to))
    };

    /// eventfd_read(3).
    fn eventfd_read(fd: c_int, to: *mut u64) -> c_int = |next| {
        let aside = BounceBuffer::of(to.cast(), size(to), true);
        let answer = next(fd, aside.place().cast());
        aside.end_all();
        answer
    };

    /// fread(3): the C library has large parts from the kernel without a hook in between.
    fn fread(to: *mut c_void, each: size_t, count: size_t, from: *mut FILE) -> size_t = |next| {
        items_into(to, (each, count), Some(from), || next(to, each, count, from), |to, bytes| next(to, 1, bytes, from))
    };

    /// fread(3), without a lock.
    fn fread_unlocked(to: *mut c_void, each: size_t, count: size_t, from: *mut FILE) -> size_t = |next| {
        items_into(to, (each, count), None, || next(to, each, count, from), |to, bytes| next(to, 1, bytes, from))
    };

    /// setvbuf(3): a buffer that was taken is not used, and the C library makes one.
    fn setvbuf(of: *mut FILE, buffer: *mut c_char, how: c_int, bytes: size_t) -> c_int = |next| {
        match is_taken(buffer.cast(), bytes) {
            true => next(of, null_mut(), how, bytes),
            false => next(of, buffer, how, bytes),
        }
    };

    /// setbuf(3), the same.
    fn setbuf(of: *mut FILE, buffer: *mut c_char) = |next| {
        if !is_taken(buffer.cast(), libc::BUFSIZ as usize) {
            next(of, buffer)
        }
    };
}

/// A call that receives bytes, and the name of their sender.
///
/// # Safety
/// As of recvfrom(2).
pub unsafe fn bytes_from(
    (to, bytes): (*mut c_void, usize),
    flags: c_int,
    (from, len): (*mut sockaddr, *mut socklen_t),
    call: impl FnOnce(*mut c_void, *mut sockaddr, *mut socklen_t) -> ssize_t,
) -> ssize_t {
    let name = BounceBuffer::of(from.cast(), length(from.cast(), len), false);
    let about = BounceBuffer::of(len.cast(), size(len), true);
    if name.is_refused() {
        return -1;
    }
    let answer = bytes_over(to, bytes, flags, |to| {
        call(to, name.place().cast(), about.place().cast())
    });
    if answer >= 0 {
        about.end(size(len));
        name.end(length(from.cast(), len));
    }
    answer
}

/// A call that receives a string, and answers where it is.
///
/// # Safety
/// As of getcwd(3).
pub unsafe fn text_into(
    to: *mut c_char,
    bytes: usize,
    call: impl FnOnce(*mut c_char) -> *mut c_char,
) -> *mut c_char {
    let aside = BounceBuffer::of(to.cast(), bytes, false);
    if aside.is_refused() {
        return null_mut();
    }
    let place = aside.place().cast::<c_char>();
    let answer = call(place);
    let is_there = !answer.is_null() && answer == place;
    let len = match is_there {
        // SAFETY: the call says that it has put a string there.
        true => unsafe { core::ffi::CStr::from_ptr(place) }.count_bytes() + 1,
        false => 0,
    };
    aside.end(len);
    if is_there { to } else { answer }
}

/// Items that are read by way of other memory, where their place is in taken memory; returns how many are whole. `locks`: the stream,
/// of which no other thread reads some in between.
pub fn items_into(
    to: *mut c_void,
    (each, count): (usize, usize),
    locks: Option<*mut FILE>,
    read: impl FnOnce() -> usize,
    mut read_bytes: impl FnMut(*mut c_void, usize) -> usize,
) -> usize {
    let bytes = each.saturating_mul(count);
    if !is_taken(to, bytes) {
        return read();
    }
    let _locked = LockedStream::of(locks);
    let mut done = 0;
    while done < bytes {
        let some = STEP.min(bytes - done);
        let place = to.wrapping_byte_add(done);
        let got = bytes_if_memory(place, some, 0, |place| read_bytes(place, some) as ssize_t);
        let Some(got) = got else {
            let read = |place, some| read_bytes(place, some) as ssize_t;
            done += received(pieces_into(place, bytes - done, read));
            break;
        };
        done += received(got);
        if received(got) < some {
            break;
        }
    }
    done / each
}

pub mod structures {
    use super::*;

    receiving! {
        /// accept(2).
        fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int => from[length(from.cast(), len)], len[size(len)];
        /// accept4(2).
        fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int => from[length(from.cast(), len)], len[size(len)];
        /// getsockopt(2): an error that is asked for is gone.
        fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, len: *mut socklen_t) -> c_int => to[length(to, len)], len[size(len)];
        /// wait(2).
        fn wait(status: *mut c_int) -> pid_t => status[size(status)];
        /// waitpid(2).
        fn waitpid(child: pid_t, status: *mut c_int, flags: c_int) -> pid_t => status[size(status)];
        /// wait3(2).
        fn wait3(status: *mut c_int, flags: c_int, used: *mut rusage) -> pid_t => status[size(status)], used[size(used)];
        /// wait4(2).
        fn wait4(child: pid_t, status: *mut c_int, flags: c_int, used: *mut rusage) -> pid_t => status[size(status)], used[size(used)];
        /// waitid(2).
        fn waitid(kind: idtype_t, child: id_t, about: *mut siginfo_t, flags: c_int) -> c_int => about[size(about)];
        /// sigtimedwait(2).
        fn sigtimedwait(set: *const sigset_t, about: *mut siginfo_t, until: *const timespec) -> c_int => about[size(about)]; Bytes(set.cast(), size(set)), Bytes(until.cast(), size(until));
        /// sigwaitinfo(2).
        fn sigwaitinfo(set: *const sigset_t, about: *mut siginfo_t) -> c_int => about[size(about)]; Bytes(set.cast(), size(set));
        /// select(2): the sets are those that it asks about, and the answers. The kernel looks at no more of them than the process
        /// has a table of descriptors for: what is behind may be anything, or nothing.
        fn select(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, until: *mut libc::timeval) -> c_int
            => read[set_bytes(read, count)], write[set_bytes(write, count)], other[set_bytes(other, count)], until[size(until)];
            Into(read, set_bytes(read, count)), Into(write, set_bytes(write, count)), Into(other, set_bytes(other, count));
        /// setitimer(2).
        fn setitimer(which: c_int, to: *const itimerval, before: *mut itimerval) -> c_int => before[size(before)]; Bytes(to.cast(), size(to));
        /// timerfd_settime(2).
        fn timerfd_settime(fd: c_int, flags: c_int, to: *const itimerspec, before: *mut itimerspec) -> c_int => before[size(before)]; Bytes(to.cast(), size(to));
        /// timer_settime(2).
        fn timer_settime(timer: *mut c_void, flags: c_int, to: *const itimerspec, before: *mut itimerspec) -> c_int => before[size(before)]; Bytes(to.cast(), size(to));
        /// nanosleep(2).
        fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int => left[size(left)]; Bytes(time.cast(), size(time));
        /// sendfile(2).
        fn sendfile(to: c_int, from: c_int, at: *mut off_t, bytes: size_t) -> ssize_t => at[size(at)];
        /// sendfile(2), by its other name.
        fn sendfile64(to: c_int, from: c_int, at: *mut off_t, bytes: size_t) -> ssize_t => at[size(at)];
        /// splice(2).
        fn splice(from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t => from_at[size(from_at)], to_at[size(to_at)];
        /// copy_file_range(2).
        fn copy_file_range(from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t => from_at[size(from_at)], to_at[size(to_at)];
    }

    /// Looks all of them up.
    pub fn find_all() {
        find();
    }
}

/// Bytes of a set of select(2), at most.
pub fn set_bytes(set: *const c_void, count: c_int) -> usize {
    let words = (count.max(0) as usize).div_ceil(64);
    if set.is_null() { 0 } else { words * 8 }
}

/// Looks all of them up.
pub fn find_all() {
    find();
    structures::find_all();
}
