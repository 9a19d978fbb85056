//! The last failure of a thread.

use crate::failure::Failure;
use core::ffi::{c_char, c_int};
use std::cell::RefCell;
use std::ffi::CString;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text for [`softfault_error`]; answers errno.
pub(crate) fn keep(failure: Failure) -> c_int {
    let mut text = failure.text.into_owned();
    text.retain(|c| c != '\0');
    let text = CString::new(text).unwrap_or_default();
    // While the thread ends, nobody can ask for it any more.
    let _ = LAST.try_with(|last| last.replace(text));
    failure.errno
}

/// The reason why the calling thread's last softfault call failed, as a line of text.
///
/// The text explains errno: the wrong argument, or the remedy for a limit. It is in English,
/// has no newline at its end, and is empty before the first failure.
///
/// Never NULL. The text is valid until the calling thread's next softfault call that fails, or until the thread ends.
/// Any thread may call this at any time.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_error() -> *const c_char {
    let of = |last: &RefCell<CString>| last.borrow().as_ptr();
    LAST.try_with(of).unwrap_or(c"".as_ptr())
}
