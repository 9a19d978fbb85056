//! Pages for system calls.

use crate::access::bytes;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Brings a range into memory and keeps it there until softfault_unpin: system calls may use it.
///
/// addr and length may have any values, within one map. If the map is writable, system
/// calls may write to the range too. Pins nest: a softfault_unpin of the same range ends one pin, and
/// softfault_munmap of any page of the range ends it too. Up to half of an engine's budget can be locked or pinned. A pin
/// of a file is charged for its pages, 32 more pages, and one page per 2 MiB. A child of fork inherits no pin.
///
/// Returns 0, or -1 with errno:
///   EFAULT  some of the range is past the end of the file
///   EINVAL  length is 0, the range does not fit in the address space, or is not within one map
///   ENOMEM  some of the range is not mapped by softfault, or it is more than may be pinned
///   or the error of a failed read.
///
/// Several threads may call this at the same time, also on the same range.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_pin(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        if length == 0 {
            return Err(Failure::invalid("the length is 0"));
        }
        maps::pin(&bytes(addr, length)?)?;
        Ok(0)
    })
}

/// Ends a softfault_pin of the same range: its pages may be evicted again, unless another pin or lock keeps them.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range is not pinned: no pin has the same addr and length, or all such pins were ended already
///   ENOMEM  addr is not mapped by softfault
///
/// Several threads may call this at the same time. It need not be the thread that pinned the range.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_unpin(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::unpin(&bytes(addr, length)?)?;
        Ok(0)
    })
}
