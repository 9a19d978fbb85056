//! Structures that grow from release to release: their first field is the size that the caller was compiled with.

use crate::failure::Failure;

/// A structure of the header whose first field is its `size`.
///
/// # Safety
/// `repr(C)`, its first field is the `usize` of its size, bytes of zero are a value of each field, and it has no padding.
pub(crate) unsafe trait Grows: Copy {
    /// The size that it had when it was released first.
    const FIRST: usize;
}

/// The caller's structure; fields that it does not know are zero, which is the default.
///
/// # Safety
/// `from` is null, or has as many bytes as its first field says, which can be read.
pub(crate) unsafe fn read<T: Grows>(from: *const T) -> Result<T, Failure> {
    // SAFETY: the caller's.
    let size = unsafe { checked_size(from) }?;
    let known = size_of::<T>();
    // SAFETY: the caller has `size` bytes there.
    let bytes = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.len() > known && bytes[known..].iter().any(|&byte| byte != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            "the structure has a field that is set and that this release does not know",
        ));
    }
    // SAFETY: zeros are a value.
    let mut value: T = unsafe { core::mem::zeroed() };
    // SAFETY: as many bytes as both have, of which each is a value of a field's.
    unsafe {
        (&raw mut value)
            .cast::<u8>()
            .copy_from(bytes.as_ptr(), size.min(known))
    };
    Ok(value)
}

/// Fills the caller's structure; fields that this release does not know become zero. Its `size` stays.
///
/// # Safety
/// `into` is null, or has as many bytes as its first field says, which can be written.
pub(crate) unsafe fn write<T: Grows>(into: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: the caller's.
    let size = unsafe { checked_size(into) }?;
    let bytes = size.min(size_of::<T>());
    let first = size_of::<usize>();
    let from = core::ptr::from_ref(value).cast::<u8>();
    let into = into.cast::<u8>();
    // SAFETY: the caller has `size` bytes there, the value has `bytes`; the first field is left.
    unsafe {
        into.add(bytes).write_bytes(0, size - bytes);
        into.add(first).copy_from(from.add(first), bytes - first);
    }
    Ok(())
}

/// The value of the first field.
///
/// # Safety
/// `of` is null, or its first field can be read.
unsafe fn checked_size<T: Grows>(of: *const T) -> Result<usize, Failure> {
    /// An impossible size: a structure of a later release is not so large.
    const MOST: usize = 4096;
    if of.is_null() {
        return Err(Failure::new(libc::EFAULT, "the structure is NULL"));
    }
    // SAFETY: not null, and so there.
    let size = unsafe { of.cast::<usize>().read() };
    match (T::FIRST..=MOST).contains(&size) {
        true => Ok(size),
        false => Err(Failure::invalid(
            "the structure's size is wrong: set it to sizeof of the structure",
        )),
    }
}
