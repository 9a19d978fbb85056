//! Bytes that several threads may access at a time. They cost a part of their
//! page's cost, and are moved whole at one moment: their lines
//! are not simulated.

use crate::machine;
use softfault_sync_std::bytes as real;

/// Copies `bytes` from shared memory at `source`.
///
/// # Safety
/// As in the std world.
#[inline]
#[track_caller]
pub unsafe fn load(source: *const u8, target: *mut u8, bytes: usize) {
    machine::copies(bytes);
    // SAFETY: the caller's promise.
    unsafe { real::load(source, target, bytes) };
}

/// Copies `bytes` to shared memory at `target`.
///
/// # Safety
/// As [`load`], with source and target exchanged.
#[inline]
#[track_caller]
pub unsafe fn store(source: *const u8, target: *mut u8, bytes: usize) {
    machine::copies(bytes);
    // SAFETY: the caller's promise.
    unsafe { real::store(source, target, bytes) };
}

/// Fills `bytes` at `target` with zeros.
///
/// # Safety
/// `target` is writable for `bytes`, by the caller alone.
#[inline]
#[track_caller]
pub unsafe fn clear(target: *mut u8, bytes: usize) {
    machine::clears(bytes);
    // SAFETY: the caller's promise.
    unsafe { real::clear(target, bytes) };
}

/// Copies `bytes`.
///
/// # Safety
/// `source` is readable for `bytes` and written by nobody; `target` is writable
/// for `bytes`, by the caller alone.
#[inline]
#[track_caller]
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    machine::copies(bytes);
    // SAFETY: the caller's promise.
    unsafe { real::copy(source, target, bytes) };
}
