//! poll(2) and its like on an array in private memory that was taken, where faults are signals. The kernel writes the answer when it has
//! waited: where a page was missing by then, it would be EFAULT, and the call would wait once more.

use super::bounce::BounceBuffer;
use super::receive::is_taken;
use crate::call;
use libc::{c_int, nfds_t, pollfd};

/// Calls `poll` with the array, or with a copy of it, whose answers are then put there.
#[inline]
pub fn polled(all: *mut pollfd, count: nfds_t, poll: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let bytes = (count as usize).saturating_mul(size_of::<pollfd>());
    if !is_taken(all.cast(), bytes) {
        return poll(all);
    }
    by_copy(all, count, bytes, poll)
}

#[cold]
fn by_copy(
    all: *mut pollfd,
    count: nfds_t,
    bytes: usize,
    poll: impl FnOnce(*mut pollfd) -> c_int,
) -> c_int {
    let copy = BounceBuffer::of(all.cast(), bytes, true);
    let place = copy.place().cast::<pollfd>();
    let answer = poll(place);
    let errno = call::errno();
    // The kernel writes them before it says that a signal came.
    if copy.is_aside() && (answer >= 0 || errno == libc::EINTR) {
        for at in 0..count as usize {
            // SAFETY: the program hands so many to the kernel to be written to. Only these words: another thread may set the others.
            unsafe { (&raw mut (*all.add(at)).revents).write((*place.add(at)).revents) };
        }
    }
    copy.end(0);
    call::set_errno(errno);
    answer
}
