//! Bytes that several threads may access at a time. Loom runs one thread at a
//! time and switches only at its own operations, so plain copies do.

/// Copies `bytes` from shared memory at `source`.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes`.
pub unsafe fn load(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
}

/// Copies `bytes` to shared memory at `target`.
///
/// # Safety
/// As [`load`].
pub unsafe fn store(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
}
