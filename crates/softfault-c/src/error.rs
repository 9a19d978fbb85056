//! What failed last in a thread.

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

/// Says in a line of text why the calling thread's last softfault call failed.
///
/// It is the text that belongs to errno: which argument was wrong, or what to do about a limit. It is in English,
/// ends in no newline, and is empty before the first failure.
///
/// Never NULL. The text is valid until the calling thread's next softfault call that fails, or its end. Any thread
/// may call this at any time; it is about the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_error() -> *const c_char {
    let of = |last: &RefCell<CString>| last.borrow().as_ptr();
    LAST.try_with(of).unwrap_or(c"".as_ptr())
}
