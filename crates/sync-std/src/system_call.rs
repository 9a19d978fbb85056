//! System calls by the processor's own instruction.
//!
//! A library that is loaded before the C library (`LD_PRELOAD`), ours among them, may have taken over any function of
//! it, `syscall(2)` too. Softfault's calls must not be seen there as the program's. Nor is one of these a cancellation
//! point, and it needs no thread of the C library's.

use crate::errno::set_errno;
use libc::{c_int, c_long};

/// The kernel's answer: a number, or an errno below zero.
pub fn answered(answer: isize) -> Result<usize, i32> {
    match answer {
        -4095..0 => Err(-answer as i32),
        answer => Ok(answer as usize),
    }
}

/// A system call.
///
/// # Safety
/// The arguments are those that this call takes.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: c_long, args: &[usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel's convention; the caller vouches for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// A system call.
///
/// # Safety
/// The arguments are those that this call takes.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn call(number: c_long, args: &[usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel's convention; the caller vouches for the arguments.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => answer,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    answer
}

/// A system call, by libc: where this file knows no other way.
///
/// # Safety
/// The arguments are those that this call takes.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(number: c_long, args: &[usize; 6]) -> isize {
    let [a, b, c, d, e, f] = *args;
    // SAFETY: the caller vouches for the arguments; errno is there.
    unsafe {
        match libc::syscall(number, a, b, c, d, e, f) {
            -1 => -(*libc::__errno_location() as isize),
            answer => answer as isize,
        }
    }
}

/// A system call as the C library makes it: -1, and errno, where the kernel has an error.
///
/// # Safety
/// The arguments are those that this call takes, and the thread is one of the C library's.
#[inline(never)]
pub unsafe fn with_errno(number: c_long, args: &[usize; 6]) -> c_long {
    // SAFETY: the caller's promise.
    match answered(unsafe { call(number, args) }) {
        Ok(answer) => answer as c_long,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// An argument of a system call, as the kernel takes it: a word, with a number's sign.
pub trait Word {
    /// It.
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Word for $number {
            #[inline(always)]
            fn word(self) -> usize {
                self as usize
            }
        })*
    };
}
numbers!(usize, isize, c_int, u32, i64, u64);

impl<T> Word for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for &T {
    #[inline(always)]
    fn word(self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

impl<T> Word for &mut T {
    #[inline(always)]
    fn word(self) -> usize {
        core::ptr::from_mut(self) as usize
    }
}

/// `syscall(2)` past the C library: a call's number, and up to six arguments. The answer is -1, and errno, or the kernel's.
///
/// # Safety
/// As of [`with_errno`](crate::system_call::with_errno).
#[macro_export]
macro_rules! system_call {
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(,)?) => {{
        use $crate::system_call::{Word, with_errno};
        let args = [
            Word::word($a),
            Word::word($b),
            Word::word($c),
            Word::word($d),
            Word::word($e),
            Word::word($f),
        ];
        with_errno($number, &args)
    }};
    // Zeros behind the others.
    ($number:expr $(, $arg:expr)* $(,)?) => {
        $crate::system_call!($number $(, $arg)*, 0usize)
    };
}
