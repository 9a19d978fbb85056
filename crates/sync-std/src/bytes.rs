//! Bytes that several threads may read and write at a time, as those of a
//! shared mapping: a race tears at 8 bytes, and is nothing worse.
//!
//! Everything shared is done in whole aligned words, by relaxed atomics:
//! accesses of different sizes must not race. They order nothing. [`clear`] and
//! [`copy`] are for memory that nobody else has yet.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Copies `bytes` from shared memory at `source`.
///
/// # Safety
/// `source` is readable for `bytes` and for the rest of the aligned words that
/// they touch, and whoever writes it meanwhile does so by [`store`]. `target`
/// is writable for `bytes`, by the caller alone.
#[inline]
pub unsafe fn load(source: *const u8, target: *mut u8, bytes: usize) {
    let skew = source as usize % WORD;
    let word = |at: usize| {
        // SAFETY: an aligned word that has a byte of the source.
        unsafe { AtomicU64::from_ptr(source.wrapping_sub(skew).add(at).cast_mut().cast()) }
    };
    let mut done = 0;
    while done < bytes {
        let at = skew + done;
        let part = (WORD - at % WORD).min(bytes - done);
        let value = word(at - at % WORD).load(Relaxed).to_ne_bytes();
        if part == WORD {
            // SAFETY: at least a word is left of the target.
            unsafe { target.add(done).cast::<[u8; WORD]>().write(value) };
        } else {
            let value = &value[at % WORD..at % WORD + part];
            // SAFETY: `part` bytes are left of the target.
            unsafe { core::ptr::copy_nonoverlapping(value.as_ptr(), target.add(done), part) };
        }
        done += part;
    }
}

/// Copies `bytes` to shared memory at `target`.
///
/// # Safety
/// As [`load`], with source and target exchanged.
#[inline]
pub unsafe fn store(source: *const u8, target: *mut u8, bytes: usize) {
    let skew = target as usize % WORD;
    let word = |at: usize| {
        // SAFETY: an aligned word that has a byte of the target.
        unsafe { AtomicU64::from_ptr(target.wrapping_sub(skew).add(at).cast()) }
    };
    let mut done = 0;
    while done < bytes {
        let at = skew + done;
        let part = (WORD - at % WORD).min(bytes - done);
        if part == WORD {
            // SAFETY: at least a word is left of the source.
            let value = unsafe { source.add(done).cast::<[u8; WORD]>().read() };
            word(at).store(u64::from_ne_bytes(value), Relaxed);
        } else {
            // The other bytes of the word may be changed by others meanwhile.
            let change = |value: u64| {
                let mut value = value.to_ne_bytes();
                let place = &mut value[at % WORD..at % WORD + part];
                // SAFETY: `part` bytes are left of the source.
                unsafe {
                    core::ptr::copy_nonoverlapping(source.add(done), place.as_mut_ptr(), part)
                };
                Some(u64::from_ne_bytes(value))
            };
            let _old = word(at - at % WORD).fetch_update(Relaxed, Relaxed, change);
        }
        done += part;
    }
}

/// Fills `bytes` at `target` with zeros.
///
/// # Safety
/// `target` is writable for `bytes`, by the caller alone.
#[inline]
pub unsafe fn clear(target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { target.write_bytes(0, bytes) };
}

/// Copies `bytes`.
///
/// # Safety
/// `source` is readable for `bytes` and written by nobody; `target` is writable
/// for `bytes`, by the caller alone.
#[inline]
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_offsets_and_lengths() {
        #[repr(align(8))]
        struct Shared([u8; 40]);
        for skew in 0..9 {
            for bytes in 0..28 {
                let mut shared = Shared([0xEE; 40]);
                let source: Vec<u8> = (1..=bytes as u8).collect();
                let mut target = vec![0; bytes];
                // SAFETY: all within the arrays, which nobody else has.
                unsafe {
                    let shared = shared.0.as_mut_ptr().add(skew);
                    store(source.as_ptr(), shared, bytes);
                    load(shared, target.as_mut_ptr(), bytes);
                }
                assert_eq!(source, target);
                let outside = shared.0[..skew].iter().chain(&shared.0[skew + bytes..]);
                assert!(outside.copied().all(|byte| byte == 0xEE));
            }
        }
    }
}
