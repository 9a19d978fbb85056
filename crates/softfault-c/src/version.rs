//! Versions.

use core::ffi::{CStr, c_char, c_int};

/// The version of the binary interface. It is also part of the library's soname (libsoftfault.so.0). A program
/// runs with every later release that has the same version of the interface.
pub const SOFTFAULT_ABI_VERSION: c_int = 0;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!(),
    };

/// The version of the library that is loaded, as text: "0.1.0".
///
/// Never NULL and never freed. Any thread may call this at any time, in signal handlers too.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_version() -> *const c_char {
    VERSION.as_ptr()
}

/// SOFTFAULT_ABI_VERSION as the library that is loaded was compiled with it.
///
/// Any thread may call this at any time, in signal handlers too.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_abi_version() -> c_int {
    SOFTFAULT_ABI_VERSION
}
