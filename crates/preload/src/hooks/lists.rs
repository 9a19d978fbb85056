//! execl(3) and its like, whose arguments are a list of the call's own: they become those of execv(3) and its like, which have
//! hooks (`programs.rs`).
//!
//! The first of the list are in registers, and the others on the stack, one after the other: where the registers are put in front
//! of these, there is the array that execv(3) takes.

use super::programs::executed::{execv, execve, execvp};
use libc::{c_char, c_int};

type Texts = *const *const c_char;

unsafe extern "C-unwind" fn list(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execv(path, arguments) }
}

unsafe extern "C-unwind" fn list_in_path(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvp(path, arguments) }
}

/// The environment is behind the null pointer that ends the list.
unsafe extern "C-unwind" fn list_and_environment(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        let environment = *end.add(1);
        execve(path, arguments, environment.cast())
    }
}

macro_rules! lists {
    ($($(#[$doc:meta])* fn $name:ident = $act:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the C library's. It has more arguments than these: the list.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char) -> c_int {
            core::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {act}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                act = sym $act,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As of the C library's. It has more arguments than these: the list.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char) -> c_int {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {act}",
                "ldp x29, x30, [sp], #80",
                "ret",
                act = sym $act,
            )
        }
    )*};
}

lists! {
    /// execl(3).
    fn execl = list;
    /// execlp(3).
    fn execlp = list_in_path;
    /// execle(3).
    fn execle = list_and_environment;
}
