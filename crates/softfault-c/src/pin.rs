//! Pages for system calls.

use crate::access::bytes;
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps;
use core::ffi::{c_int, c_void};

/// Brings a range into memory and keeps it there until softfault_unpin: system calls may use it.
///
/// addr and length need be no multiples of anything. The range is of one map. Where the map may be written to, system
/// calls may write to the range too. Pins nest: each is ended by a softfault_unpin of the same range, or by
/// softfault_munmap of any page of it. Up to half of an engine's budget can be locked or pinned; a pin of a file counts
/// for its pages, 32 more, and one for each 2 MiB. A child of fork inherits no pin.
///
/// Returns 0, or -1 with errno:
///   EFAULT  some of the range is behind the end of the file
///   EINVAL  length is 0, the range is longer than addresses go, or is of several maps
///   ENOMEM  some of the range is not mapped by softfault, or it is more than may be pinned
///   and the error of a read that has failed.
///
/// Any threads may call this at the same time, on the same range too.
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

/// Ends a softfault_pin of the same range: its pages may be evicted again, if nothing else keeps them.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the range is not pinned: no pin had the same addr and length, or each was ended already
///   ENOMEM  addr is not mapped by softfault
///
/// Any threads may call this at the same time, another one than has pinned it too.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_unpin(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        maps::unpin(&bytes(addr, length)?)?;
        Ok(0)
    })
}
