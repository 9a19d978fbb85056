//! Copies in and out, with errors as values; system calls on memory that may not be resident.

use crate::access::{PAGE_SIZE, bytes};
use crate::boundary::answer;
use crate::failure::Failure;
use crate::maps::{NotMapped, Part};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ops::Range;
use libc::ssize_t;
use softfault::FaultError;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;

/// Bytes that are copied at a time.
const STEP: usize = 1 << 20;

/// Copies length bytes of a map to buffer. Errors are values here, not signals.
///
/// Returns the number of bytes copied, which is smaller only if the file has ended or an error came after some bytes; or
/// -1 with errno:
///   EFAULT  past the end of the file; or buffer is NULL, and length is not 0
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
///   or the error of a failed read.
///
/// Several threads may call this at the same time, also on the same range, with buffers of their own.
///
/// # Safety
/// `buffer` has `length` bytes, which can be written, nobody else uses, and are not of the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_copy_out(
    addr: *const c_void,
    buffer: *mut c_void,
    length: usize,
) -> ssize_t {
    answer(-1, || {
        let length = checked(buffer, length)?;
        each_part(addr, length, |part, done| {
            by_steps(part, |step, before| {
                let into = buffer.cast::<u8>();
                // SAFETY: the caller's: there are `length` bytes, and the parts have as many together.
                unsafe {
                    let into = into.add(done + before);
                    part.map.copy_out(step.start, (into, step.len()))
                }
            })
        })
    })
}

/// Copies length bytes from buffer to a map. Errors are values here, not signals: a full disk, the end of the file, no
/// memory.
///
/// Returns the number of bytes copied, which is smaller only if the file has ended or an error came after some bytes; or
/// -1 with errno:
///   EACCES  the map is read-only
///   EFAULT  past the end of the file; or buffer is NULL, and length is not 0
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
///   ENOSPC  the disk has no block for a hole of the file
///   or the error of a failed read.
///
/// Several threads may call this at the same time, on different ranges.
///
/// # Safety
/// `buffer` has `length` bytes, which can be read and are not of the range. Nobody uses the range meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_copy_in(
    addr: *mut c_void,
    buffer: *const c_void,
    length: usize,
) -> ssize_t {
    answer(-1, || {
        let length = checked(buffer, length)?;
        each_part(addr, length, |part, done| {
            may_write(part)?;
            by_steps(part, |step, before| {
                let from = buffer.cast::<u8>();
                // SAFETY: the caller's: there are `length` bytes, and the parts have as many together.
                unsafe {
                    let from = from.add(done + before);
                    part.map.copy_in(step.start, (from, step.len()))
                }
            })
        })
    })
}

/// Writes length bytes of a map to fd; write(2), for memory that need not be resident.
///
/// It goes on until all bytes are written; on a socket or a pipe it blocks, unless fd is non-blocking.
///
/// Returns the number of bytes written, which is smaller only if an error came after some bytes, or the mapped file has
/// ended; or -1 with errno:
///   EBADF   fd is no open file
///   EFAULT  past the end of the file
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
///   or an error of write(2) (EAGAIN, EPIPE, ...), or the error of a failed read. SIGPIPE is raised as by
///   write(2). The call never fails with EINTR.
///
/// Several threads may call this at the same time, also on the same range.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_write_to(fd: c_int, addr: *const c_void, length: usize) -> ssize_t {
    answer(-1, || {
        let mut file = lent(fd)?;
        each_part(addr, length, |part, _| {
            let mut counted = Counted(&mut *file, 0);
            // SAFETY: a file's, which hands the bytes to write(2).
            let written = unsafe { part.map.write_to(part.offsets(), &mut counted) };
            some(counted.1, written)
        })
    })
}

/// Fills length bytes of a map from fd; read(2), into memory that need not be resident.
///
/// It goes on until all bytes are filled or fd has ended; on a socket or a pipe it blocks, unless fd is non-blocking.
///
/// Returns the number of bytes read, which is smaller only at the end of fd, or if an error came after some bytes; or
/// -1 with errno:
///   EACCES  the map is read-only
///   EBADF   fd is no open file
///   EFAULT  past the end of the file that is mapped
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
///   or an error of read(2) (EAGAIN, ...). The call never fails with EINTR.
///
/// Several threads may call this at the same time, on different ranges.
///
/// # Safety
/// Nobody uses the range meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_read_from(
    fd: c_int,
    addr: *mut c_void,
    length: usize,
) -> ssize_t {
    answer(-1, || {
        let mut file = lent(fd)?;
        each_part(addr, length, |part, _| {
            may_write(part)?;
            // Bytes that were read, and that the map could not take, are not counted.
            let mut stored = 0;
            // SAFETY: the caller's: nobody uses the range.
            let read = unsafe { (part.map).fill_from(part.offsets(), &mut *file, &mut stored) };
            some(stored as usize, read)
        })
    })
}

/// The length of a buffer that the caller has.
fn checked(buffer: *const c_void, length: usize) -> Result<usize, Failure> {
    match buffer.is_null() && length > 0 {
        true => Err(Failure::new(libc::EFAULT, "the buffer is NULL")),
        false => Ok(length),
    }
}

fn may_write(part: &Part) -> Result<(), Failure> {
    match part.access.writable {
        true => Ok(()),
        false => Err(Failure::new(libc::EACCES, "the map is read-only")),
    }
}

/// Goes over the maps of a range; each says how many bytes it has done, of which it is told how many there were before.
/// Stops at the first that has not done all.
fn each_part(
    addr: *const c_void,
    length: usize,
    mut work: impl FnMut(&Part, usize) -> Result<usize, Failure>,
) -> Result<ssize_t, Failure> {
    let range = bytes(addr, length)?;
    let parts = Part::of(&range).map_err(|NotMapped| Failure::not_mapped())?;
    let mut done = 0;
    for part in &parts {
        match work(part, done) {
            Ok(count) => done += count,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
        if done < part.range.end - range.start {
            break;
        }
    }
    Ok(done as ssize_t)
}

/// Copies a part: `copy` is told of offsets in the map, with the bytes before them. First all of it, since a call is what read-ahead
/// goes by; if that fails, in steps, and a step that fails page by page, so that the bytes before the error count. An error if
/// there are none.
fn by_steps(
    part: &Part,
    mut copy: impl FnMut(Range<usize>, usize) -> Result<usize, FaultError>,
) -> Result<usize, Failure> {
    let offsets = part.offsets();
    let start = part.map.as_ptr() as usize;
    if let Ok(count) = copy(offsets.clone(), 0) {
        return Ok(count);
    }
    let (mut at, mut by_pages_until) = (offsets.start, offsets.start);
    while at < offsets.end {
        let by_pages = at < by_pages_until;
        let size = if by_pages { PAGE_SIZE } else { STEP };
        let step = at..offsets.end.min(at + size - (start + at) % size);
        match copy(step.clone(), at - offsets.start) {
            Ok(count) if count < step.len() => return Ok(at + count - offsets.start),
            Ok(_) => at = step.end,
            Err(_) if !by_pages => by_pages_until = step.end,
            Err(error) if at == offsets.start => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(at - offsets.start)
}

/// The caller's descriptor, which stays open.
fn lent(fd: c_int) -> Result<ManuallyDrop<File>, Failure> {
    // SAFETY: only asks.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::not_open(fd));
    }
    // SAFETY: the caller's for as long as the call, and not closed by this.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

/// The bytes done before an error count, as with write(2).
fn some<T>(count: usize, done: io::Result<T>) -> Result<usize, Failure> {
    match done {
        Err(error) if count == 0 => Err(error.into()),
        _ => Ok(count),
    }
}

/// Counts the bytes that go through.
struct Counted<'a, T>(&'a mut T, usize);

impl<T: Write> Write for Counted<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.1 += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
