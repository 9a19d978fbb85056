//! Calls that write many bytes of memory, where faults are signals: the kernel stops at a page that is missing, and the rest is
//! written by another call.
//!
//! A call also stops short for reasons of its own: a handler has interrupted it, its time is over, the descriptor does not wait. That
//! is the program's to know. So the rest of what goes to a pipe, a terminal or a socket follows only where the kernel came to a page
//! of it that is missing, and where there is room for it at once: the kernel has looked for room before it came to the page. What
//! follows goes out piece by piece, each brought in before, and such a call may wait: where it stops short of its piece, no page has
//! stopped it.

use super::again::{COPIED, PAGE, Reads, touch};
use super::bounce::Temporary;
use super::readable::is_readable;
use super::served::Served;
use crate::call::{errno, set_errno};
use crate::{decide, marked, mode};
use core::ops::Range;
use core::ptr::null_mut;
use libc::{c_int, c_void, iovec, msghdr, ssize_t};

/// Times that a call is made again, before its bytes are copied.
const BEFORE_COPY: usize = 8;
/// Bytes that are brought in before a call is made again, and among which one may have been missing: no socket takes more at once.
const AHEAD: usize = 256 << 10;
/// Bytes that a pipe or a terminal copies at once: of those behind a missing page the kernel has come to none.
const COPIED_BY_PIPE: usize = PAGE;
/// Vectors of a call at a time, to write the rest of many.
const FEW: usize = 16;
const NO_VECTOR: iovec = iovec {
    iov_base: null_mut(),
    iov_len: 0,
};

/// Where a call writes to: a descriptor, and the flags of send(2).
#[derive(Clone, Copy)]
pub struct Destination {
    pub fd: c_int,
    pub flags: c_int,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file, or a disk: it tells its reasons again.
    File,
    /// A socket of bytes.
    Stream,
    /// A socket of messages, each of which is one call.
    Messages,
    /// A pipe, or a terminal.
    Pipe,
    /// Another device.
    Other,
}

impl Kind {
    /// Bytes among which a page may have stopped a call.
    fn copied_at_once(self) -> usize {
        match self {
            Self::Pipe => COPIED_BY_PIPE,
            _ => AHEAD,
        }
    }

    /// Bytes of the rest that are handed out at a time, and brought in before. To a device a call may be a message.
    fn piece(self) -> usize {
        match self {
            Self::Stream | Self::Pipe => AHEAD,
            _ => usize::MAX,
        }
    }
}

impl Destination {
    /// That of write(2).
    pub fn of(fd: c_int) -> Self {
        Self { fd, flags: 0 }
    }

    #[cold]
    fn kind(self) -> Kind {
        let before = errno();
        let mode = decide::look(self.fd).map_or(0, |about| about.st_mode);
        let (mut kind, mut bytes) = (0, size_of::<c_int>() as libc::socklen_t);
        let (level, name, to) = (libc::SOL_SOCKET, libc::SO_TYPE, &raw mut kind);
        // SAFETY: fills the number.
        unsafe {
            softfault::system_call!(libc::SYS_getsockopt, self.fd, level, name, to, &mut bytes)
        };
        let is_stream = kind == libc::SOCK_STREAM;
        set_errno(before);
        match mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFBLK => Kind::File,
            // The last byte of each call is marked.
            libc::S_IFSOCK if is_stream && self.flags & libc::MSG_OOB == 0 => Kind::Stream,
            libc::S_IFSOCK => Kind::Messages,
            libc::S_IFIFO => Kind::Pipe,
            _ if self.is_terminal() => Kind::Pipe,
            _ => Kind::Other,
        }
    }

    /// True for a terminal; errno stays.
    fn is_terminal(self) -> bool {
        let before = errno();
        // SAFETY: a structure of zeros is valid.
        let mut settings = unsafe { core::mem::zeroed::<libc::termios>() };
        let to: *mut libc::termios = &mut settings;
        // SAFETY: fills the structure, which has more room than the kernel's.
        let asked = unsafe { softfault::system_call!(libc::SYS_ioctl, self.fd, libc::TCGETS, to) };
        set_errno(before);
        asked == 0
    }

    /// True if a write of a byte would not wait.
    fn has_room(self) -> bool {
        let mut one = libc::pollfd {
            fd: self.fd,
            events: libc::POLLOUT,
            revents: 0,
        };
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (one, none): (*mut libc::pollfd, *const c_void) = (&mut one, core::ptr::null());
        // SAFETY: one descriptor is asked about; its answer is there.
        unsafe {
            softfault::system_call!(libc::SYS_ppoll, one, 1, &at_once, none, 0) == 1
                && (*one).revents & libc::POLLOUT != 0
        }
    }
}

/// The vectors that are left when some bytes are done: the first few, with so many bytes at most.
struct Rest {
    vectors: [iovec; FEW],
    count: usize,
}

impl Rest {
    /// # Safety
    /// The program hands so many to the kernel.
    unsafe fn of(vectors: *const iovec, count: usize, done: usize, most: usize) -> Self {
        let (mut left, mut few, mut room) = (done, 0, most);
        let mut some = [const { NO_VECTOR }; FEW];
        for at in 0..count {
            // SAFETY: the caller's promise.
            let vector = unsafe { *vectors.add(at) };
            let skip = left.min(vector.iov_len);
            left -= skip;
            let has = (vector.iov_len - skip).min(room);
            if has > 0 && few < FEW {
                some[few] = iovec {
                    iov_base: vector.iov_base.wrapping_byte_add(skip),
                    iov_len: has,
                };
                few += 1;
                room -= has;
            }
        }
        Self {
            vectors: some,
            count: few,
        }
    }

    fn bytes(&self) -> usize {
        let few = self.vectors[..self.count].iter();
        few.fold(0, |sum, vector| sum.saturating_add(vector.iov_len))
    }

    /// Their first bytes, so many at most, by the pages.
    fn any_page(&self, most: usize, mut act: impl FnMut(Range<usize>) -> bool) -> bool {
        let mut left = most;
        self.vectors[..self.count].iter().any(|vector| {
            let some = vector.iov_len.min(left);
            left -= some;
            let start = vector.iov_base as usize;
            let end = start.saturating_add(some);
            let mut page = start & !(PAGE - 1);
            let mut found = false;
            while page < end && !found {
                found = marked::may_be_taken(page, 1) && act(page..page + PAGE);
                page = page.saturating_add(PAGE);
            }
            found
        })
    }

    /// True if the first bytes may have been taken.
    fn may_be_taken(&self) -> bool {
        self.any_page(AHEAD, |_| true)
    }

    /// True if a page of the first bytes, so many, is not there.
    fn is_missing(&self, most: usize) -> bool {
        self.any_page(most, |page| {
            let mut there = 0_u8;
            // SAFETY: asks about a page.
            let asked = unsafe {
                let to: *mut u8 = &mut there;
                softfault::system_call!(libc::SYS_mincore, page.start, PAGE, to)
            };
            asked == 0 && there & 1 == 0
        })
    }

    /// Brings the first bytes in, as far as they are served.
    fn bring_in(&self) {
        let mut served = Served::default();
        self.any_page(AHEAD, |page| {
            let is_served = served.has(page.start);
            if is_served {
                // SAFETY: the program hands it to the kernel to be read, and it is there.
                unsafe { (page.start as *const u8).read_volatile() };
            }
            !is_served
        });
    }
}

/// A call that writes one range: made until it is done. `call` gets how many bytes are done, and where the rest is.
#[inline]
pub fn with_bytes(
    to: Destination,
    (start, bytes): (*const c_void, usize),
    more: &[Reads],
    mut call: impl FnMut(usize, *const c_void, usize) -> ssize_t,
) -> ssize_t {
    let before = errno();
    let answer = call(0, start, bytes);
    let is_done = answer == bytes as ssize_t || answer == 0 || !mode::is_signals();
    if is_done || answer < 0 && errno() != libc::EFAULT {
        return answer;
    }
    if !marked::is_any() {
        return answer;
    }
    let one = iovec {
        iov_base: start.cast_mut(),
        iov_len: bytes,
    };
    let mut call = |done: usize, vectors: *const iovec, _: usize| {
        // SAFETY: there is one, at least: this one, its rest, or a copy of it.
        let vector = unsafe { *vectors };
        call(done, vector.iov_base, vector.iov_len)
    };
    finish(to, (&one, 1), more, (answer, before), &mut call)
}

/// A call that writes the buffers of vectors: the same. `call` gets the number of bytes done, and the rest.
pub fn with_vectors(
    to: Destination,
    (vectors, count): (*const iovec, usize),
    more: &[Reads],
    mut call: impl FnMut(usize, *const iovec, usize) -> ssize_t,
) -> ssize_t {
    let before = errno();
    let answer = call(0, vectors, count);
    if answer == 0 || answer < 0 && errno() != libc::EFAULT {
        return answer;
    }
    if !mode::is_signals() || !marked::is_any() || !are_readable(vectors, count) {
        return answer;
    }
    finish(to, (vectors, count), more, (answer, before), &mut call)
}

#[cold]
fn are_readable(vectors: *const iovec, count: usize) -> bool {
    is_readable(vectors.cast(), count.saturating_mul(size_of::<iovec>()))
}

/// The rest of a call whose first answer is here, with the errno before it: a success leaves that alone.
#[cold]
fn finish(
    to: Destination,
    vectors: (*const iovec, usize),
    more: &[Reads],
    (first, before): (ssize_t, c_int),
    call: &mut dyn FnMut(usize, *const iovec, usize) -> ssize_t,
) -> ssize_t {
    let answer = go_on(to, vectors, more, first, call);
    if answer >= 0 {
        set_errno(before);
    }
    answer
}

fn go_on(
    to: Destination,
    (vectors, count): (*const iovec, usize),
    more: &[Reads],
    first: ssize_t,
    call: &mut dyn FnMut(usize, *const iovec, usize) -> ssize_t,
) -> ssize_t {
    let (mut done, mut tries) = (0, 0);
    let (mut answer, mut wanted) = (first, usize::MAX);
    // The next bytes go out only if that does not wait.
    let (mut at_once, mut was_at_once) = (false, false);
    let own = to.kind();
    // SAFETY: the program has handed so many to the kernel.
    let mut rest = unsafe { Rest::of(vectors, count, 0, own.piece()) };
    // SAFETY: as above.
    let all = unsafe { bytes_of(vectors, count) };
    loop {
        if answer < 0 {
            let others = super::again::may_be_missing(more);
            let is_missing =
                errno() == libc::EFAULT && (others || rest.may_be_taken() || own == Kind::Messages);
            if !is_missing || tries > BEFORE_COPY {
                return if done > 0 { done as ssize_t } else { answer };
            }
            tries += 1;
            touch(more);
            match own {
                Kind::Messages => _ = touch(&[Reads::Vectors(vectors, count)]),
                _ => rest.bring_in(),
            }
        } else {
            done += answer as usize;
            // SAFETY: as above.
            rest = unsafe { Rest::of(vectors, count, done, own.piece()) };
            if answer == 0 || rest.count == 0 || own == Kind::Messages {
                return done as ssize_t;
            }
            // All that it was given, or at once, and so it was not for want of room that the call before was short.
            let goes_on = answer as usize == wanted || was_at_once;
            if !goes_on {
                // What is behind a piece was not brought in, and the call has not come to it.
                let near = own
                    .copied_at_once()
                    .min(wanted.saturating_sub(answer as usize));
                match own {
                    Kind::File if rest.may_be_taken() => {}
                    Kind::Stream if rest.is_missing(near) => at_once = true,
                    Kind::Pipe | Kind::Other if rest.is_missing(near) && to.has_room() => {}
                    _ => return done as ssize_t,
                }
            }
            if own.piece() == AHEAD {
                rest.bring_in();
            }
            if tries <= BEFORE_COPY {
                tries = 0;
            }
        }
        was_at_once = at_once;
        wanted = rest.bytes();
        let mut act = |vectors: *const iovec, count: usize| match at_once {
            // SAFETY: vectors that were read before.
            true => unsafe { super::memory::send_at_once(to, vectors, count) },
            false => call(done, vectors, count),
        };
        let is_whole = || match own {
            Kind::Messages => are_there((vectors, count), usize::MAX),
            _ => are_there((rest.vectors.as_ptr(), rest.count), COPIED),
        };
        if tries > BEFORE_COPY && !is_whole() {
            set_errno(libc::EFAULT);
            return if done > 0 { done as ssize_t } else { -1 };
        }
        answer = match (tries > BEFORE_COPY, own) {
            (true, Kind::Messages) => with_copies((vectors, count), usize::MAX, act).0,
            (true, _) => {
                let (answer, copied) =
                    with_copies((rest.vectors.as_ptr(), rest.count), COPIED, act);
                wanted = copied;
                answer
            }
            // As the program has made it: to a pipe what is short goes whole.
            (false, _) if done == 0 && all <= own.piece() => {
                wanted = all;
                act(vectors, count)
            }
            (false, _) => act(rest.vectors.as_ptr(), rest.count),
        };
        at_once &= answer < 0;
    }
}

/// Bytes of some vectors.
///
/// # Safety
/// The program hands so many to the kernel.
unsafe fn bytes_of(vectors: *const iovec, count: usize) -> usize {
    // SAFETY: the caller's promise.
    let each = (0..count).map(|at| unsafe { (*vectors.add(at)).iov_len });
    each.fold(0, usize::saturating_add)
}

/// True if the first bytes of some vectors can be read.
fn are_there((vectors, count): (*const iovec, usize), most: usize) -> bool {
    let mut served = Served::default();
    let mut left = most;
    (0..count).all(|at| {
        // SAFETY: the program hands so many to the kernel.
        let vector = unsafe { vectors.add(at).read() };
        let some = vector.iov_len.min(left);
        left -= some;
        served.bytes_there(vector.iov_base as usize, some) == some
    })
}

/// A call on a copy of the first bytes of some vectors, in memory of the kernel's; how many were copied.
fn with_copies(
    (vectors, count): (*const iovec, usize),
    most: usize,
    call: impl FnOnce(*const iovec, usize) -> ssize_t,
) -> (ssize_t, usize) {
    // SAFETY: the program hands so many to the kernel; here and below.
    let each = || (0..count).map(|at| unsafe { vectors.add(at).read() });
    let all = each().fold(0_usize, |sum, vector| sum.saturating_add(vector.iov_len));
    let bytes = all.min(most);
    let Some(copy) = Temporary::new(bytes) else {
        return (call(vectors, count), all);
    };
    let mut done = 0;
    for vector in each() {
        let some = vector.iov_len.min(bytes - done);
        let to = copy.start().wrapping_byte_add(done);
        // SAFETY: there is room for so many; the program hands them to the kernel to be read.
        unsafe { to.copy_from_nonoverlapping(vector.iov_base, some) };
        done += some;
    }
    let one = iovec {
        iov_base: copy.start(),
        iov_len: bytes,
    };
    (call(&one, 1), bytes)
}

/// process_vm_writev(2): from some vectors to others, of any process. The kernel stops at a page of the first that is missing,
/// and the rest follows. Where it stops for the others' sake, it does so again.
///
/// # Safety
/// As of process_vm_writev(2).
pub unsafe fn with_two_vectors(
    (from, count): (*const iovec, usize),
    (to, to_count): (*const iovec, usize),
    mut call: impl FnMut(*const iovec, usize, *const iovec, usize) -> ssize_t,
) -> ssize_t {
    let reads = [Reads::Vectors(from, count)];
    let first = super::again::again(&reads, || call(from, count, to, to_count));
    if first <= 0 || !mode::is_signals() || !marked::is_any() {
        return first;
    }
    let before = errno();
    let (mut done, mut tries) = (first as usize, 0);
    loop {
        // SAFETY: the caller's promise: the kernel has looked at them.
        let (rest, place) = unsafe {
            let all = usize::MAX;
            (
                Rest::of(from, count, done, all),
                Rest::of(to, to_count, done, all),
            )
        };
        if place.count == 0 || !rest.may_be_taken() {
            break;
        }
        rest.bring_in();
        let (to, to_count) = (place.vectors.as_ptr(), place.count);
        match call(rest.vectors.as_ptr(), rest.count, to, to_count) {
            some @ 1.. => (done, tries) = (done + some as usize, 0),
            // A page went again before the call came to it, or the others have none.
            -1 if errno() == libc::EFAULT && tries < BEFORE_COPY => tries += 1,
            _ => break,
        }
    }
    set_errno(before);
    done as ssize_t
}

/// sendmsg(2), and its like: the name and the control data go with the first bytes only.
///
/// # Safety
/// As of sendmsg(2).
pub unsafe fn with_message(
    to: Destination,
    message: *const msghdr,
    mut call: impl FnMut(*const msghdr) -> ssize_t,
) -> ssize_t {
    let before = errno();
    let answer = call(message);
    if answer == 0 || answer < 0 && errno() != libc::EFAULT {
        return answer;
    }
    if !mode::is_signals() || !marked::is_any() {
        return answer;
    }
    if !is_readable(message.cast(), size_of::<msghdr>()) {
        return answer;
    }
    // SAFETY: the caller's promise.
    let about = unsafe { message.read() };
    if !are_readable(about.msg_iov, about.msg_iovlen) {
        return answer;
    }
    let more = [
        Reads::Bytes(message.cast(), size_of::<msghdr>()),
        Reads::Bytes(about.msg_name, about.msg_namelen as usize),
        Reads::Bytes(about.msg_control, about.msg_controllen),
    ];
    let mut call = |done: usize, vectors: *const iovec, count: usize| {
        let mut own = about;
        own.msg_iov = vectors.cast_mut();
        own.msg_iovlen = count;
        if done > 0 {
            (own.msg_name, own.msg_namelen) = (null_mut(), 0);
            (own.msg_control, own.msg_controllen) = (null_mut(), 0);
        }
        call(&own)
    };
    let vectors = (about.msg_iov.cast_const(), about.msg_iovlen);
    finish(to, vectors, &more, (answer, before), &mut call)
}
