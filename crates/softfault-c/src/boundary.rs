//! Where C calls: no panic goes out, nothing is cancelled within, and errno has the error.

use crate::error;
use crate::failure::Failure;
use crate::maps;
use core::cell::Cell;
use softfault::errno::{errno, set_errno};
use std::panic::{AssertUnwindSafe, catch_unwind};

std::thread_local! {
    /// Calls that this thread is within: a signal handler may call, within a call.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// True if this thread is within a call: that a signal handler has interrupted, or has left by a jump.
pub(crate) fn is_within_call() -> bool {
    DEPTH.get() > 0
}

/// The result of `call`, or `failed` and errno. Otherwise errno stays as it was.
pub(crate) fn answer<T>(failed: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    let before = errno();
    DEPTH.set(DEPTH.get() + 1);
    let answered = {
        // A cancellation would unwind through Rust.
        let _no_cancel = softfault::cancel_disabled();
        // State that a panic leaves half-done is behind locks that are taken again, poisoned or not, and each change
        // under them is whole or is not begun.
        let done = catch_unwind(AssertUnwindSafe(|| match maps::is_forking() {
            true => Err(Failure::forking()),
            false => call(),
        }));
        let done = done.unwrap_or_else(|panic| {
            // Its own drop may panic.
            core::mem::forget(panic);
            Err(Failure::bug())
        });
        done.map_err(error::keep)
    };
    DEPTH.set(DEPTH.get() - 1);
    match answered {
        Ok(answer) => {
            set_errno(before);
            answer
        }
        Err(why) => {
            set_errno(why);
            failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_that_of_the_failure_or_stays() {
        set_errno(77);
        assert_eq!(answer(-1, || Ok(5)), 5);
        assert_eq!(errno(), 77);
        assert_eq!(answer(-1, || Err(Failure::invalid("wrong"))), -1);
        assert_eq!(errno(), libc::EINVAL);
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(answer(-1, || panic!("for a test")), -1);
        assert_eq!(errno(), libc::ENOTRECOVERABLE);
        assert_eq!(answer(-1, || Ok(0)), 0, "and the next call is as any");
    }
}
