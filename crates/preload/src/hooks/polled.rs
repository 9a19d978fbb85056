//! poll(2) and its like on an array in private memory that was taken, where faults are signals. The kernel writes the answer when it has
//! waited: where a page was missing by then, it would be EFAULT, and the call would wait once more.

use super::again::PAGE;
use super::bounce::BounceBuffer;
use super::put::may_be_put;
use super::receive::is_taken;
use crate::{call, change};
use libc::{c_int, c_short, nfds_t, pollfd};

/// Calls `poll` with the array, or with a copy of it, whose answers are then put there.
///
/// # Safety
/// As of poll(2): the program hands so many to the kernel to be read, and to be written to where that can be.
#[inline]
pub unsafe fn polled(
    all: *mut pollfd,
    count: nfds_t,
    poll: impl FnOnce(*mut pollfd) -> c_int,
) -> c_int {
    let bytes = (count as usize).saturating_mul(size_of::<pollfd>());
    if !is_taken(all.cast(), bytes) {
        return poll(all);
    }
    // SAFETY: the caller's promise.
    unsafe { by_copy(all, count, bytes, poll) }
}

/// The same by a copy.
///
/// # Safety
/// As of [`polled`].
#[cold]
unsafe fn by_copy(
    all: *mut pollfd,
    count: nfds_t,
    bytes: usize,
    poll: impl FnOnce(*mut pollfd) -> c_int,
) -> c_int {
    let copy = BounceBuffer::of(all.cast(), bytes, true);
    if copy.is_refused() {
        return -1;
    }
    let place = copy.place().cast::<pollfd>();
    let answer = poll(place);
    let errno = call::errno();
    // The kernel writes them before it says that a signal came.
    let has_answers = copy.is_aside() && (answer >= 0 || errno == libc::EINTR);
    // SAFETY: the caller's promise; the copy has as many.
    let has_room = !has_answers || unsafe { put_answers(all, place, count as usize) };
    copy.end(0);
    call::set_errno(errno);
    match has_room {
        true => answer,
        false => change::refuse(libc::EFAULT),
    }
}

/// Puts the answers there, up to a page that may not be written to; false if there is one. Only these words: another thread may set
/// the others.
///
/// # Safety
/// So many are at `from`, and the program lets the kernel write to as many at `all`.
unsafe fn put_answers(all: *mut pollfd, from: *const pollfd, count: usize) -> bool {
    // SAFETY: nothing is read.
    let place = |at: usize| unsafe { &raw mut (*all.wrapping_add(at)).revents };
    let mut done = 0;
    while done < count {
        // Those that begin in one page.
        let first = place(done) as usize;
        let rest = (first & !(PAGE - 1)) + PAGE - first;
        let some = rest.div_ceil(size_of::<pollfd>()).min(count - done);
        let last = place(done + some - 1) as usize;
        if !may_be_put(first..last + size_of::<c_short>()) {
            return false;
        }
        for at in done..done + some {
            // SAFETY: the caller's promise; it may be written to.
            unsafe { place(at).write_unaligned((*from.add(at)).revents) };
        }
        done += some;
    }
    true
}
