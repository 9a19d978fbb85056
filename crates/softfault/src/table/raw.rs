//! System calls without libc: a server has no thread of libc's, hence no errno.

pub(super) use sync::system_call::{answered, call};

/// Of a thread of this process that libc knows nothing of: a pthread would be counted,
/// and a program whose `main` ends by `pthread_exit` would never end.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;

/// Starts a thread that runs `entry(argument)`, for ever. It begins with the caller's
/// mask of signals, table of descriptors and thread-local storage. `id` holds its number
/// from its beginning to its end. The answer is the number, or an errno below zero.
///
/// # Safety
/// `stack` is the end of memory that nothing else uses, at a multiple of 16; `entry` and
/// all that it does use no thread-local storage; `id` is there as long as the thread.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn thread(
    stack: usize,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
    id: usize,
) -> isize {
    let answer: isize;
    // SAFETY: the new thread has a stack of its own and calls `entry` on it; the caller
    // goes on behind the call with all its registers.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") FLAGS as usize,
            in("rsi") stack,
            in("rdx") id,
            in("r10") id,
            in("r8") 0,
            in("r12") argument,
            in("r13") entry as usize,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// Starts a thread that runs `entry(argument)`, for ever. It begins with the caller's
/// mask of signals, table of descriptors and thread-local storage. `id` holds its number
/// from its beginning to its end. The answer is the number, or an errno below zero.
///
/// # Safety
/// `stack` is the end of memory that nothing else uses, at a multiple of 16; `entry` and
/// all that it does use no thread-local storage; `id` is there as long as the thread.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn thread(
    stack: usize,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
    id: usize,
) -> isize {
    let answer: isize;
    // SAFETY: the new thread has a stack of its own and calls `entry` on it; the caller
    // goes on behind the call with all its registers.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") FLAGS as isize => answer,
            in("x1") stack,
            in("x2") id,
            in("x3") 0,
            in("x4") id,
            in("x20") argument,
            in("x21") entry as usize,
        );
    }
    answer
}

/// There are none here.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) unsafe fn thread(
    _stack: usize,
    _entry: extern "C" fn(usize) -> !,
    _argument: usize,
    _id: usize,
) -> isize {
    -(libc::ENOSYS as isize)
}

/// Sleeps while the word holds `expected`; a caller a tenth of a second at most. Where a filter refuses that, for a while.
pub(super) fn wait(word: &core::sync::atomic::AtomicU32, expected: u32, limited: bool) {
    let tenth = millis(100);
    let until = match limited {
        true => core::ptr::from_ref(&tenth) as usize,
        false => 0,
    };
    let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let args = [
        word.as_ptr() as usize,
        how as usize,
        expected as usize,
        until,
        0,
        0,
    ];
    // SAFETY: the word and the time live through the call.
    let waited = answered(unsafe { call(libc::SYS_futex, &args) });
    let usual = [libc::EAGAIN, libc::EINTR, libc::ETIMEDOUT];
    if waited.is_err_and(|errno| !usual.contains(&errno)) {
        // Nobody can wake a server: it looks seldom. A caller waits for a call that is under way.
        pause(if limited { 1 } else { 100 });
    }
}

fn millis(count: libc::c_long) -> libc::timespec {
    libc::timespec {
        tv_sec: 0,
        tv_nsec: count * 1_000_000,
    }
}

/// Sleeps for so many milliseconds.
pub(super) fn pause(count: libc::c_long) {
    let pause = millis(count);
    let args = [(&raw const pause).addr(), 0, 0, 0, 0, 0];
    // SAFETY: the time lives through the call.
    unsafe { call(libc::SYS_nanosleep, &args) };
}

/// Wakes the thread that sleeps on the word. The error is an errno: of a filter (seccomp).
pub(super) fn wake(word: &core::sync::atomic::AtomicU32) -> Result<(), i32> {
    let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let args = [word.as_ptr() as usize, how as usize, 1, 0, 0, 0];
    // SAFETY: the address is a key only.
    answered(unsafe { call(libc::SYS_futex, &args) }).map(drop)
}

/// All signals are blocked while this lives, those of libc's own too.
pub(super) struct Blocked(u64);

impl Blocked {
    /// Nothing may be touched that could fault.
    pub(super) fn all() -> Self {
        let mut before = 0;
        change(&u64::MAX, Some(&mut before));
        Self(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        change(&self.0, None);
    }
}

/// True if the calling thread has this signal blocked.
#[cfg(test)]
pub(super) fn is_blocked(signal: i32) -> bool {
    let mut mask = 0_u64;
    let to = core::ptr::from_mut(&mut mask) as usize;
    // SAFETY: fills a mask of the kernel's size.
    unsafe { call(libc::SYS_rt_sigprocmask, &[0, 0, to, 8, 0, 0]) };
    mask & 1 << (signal - 1) != 0
}

fn change(mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(0, |before| core::ptr::from_mut(before) as usize);
    let mask = core::ptr::from_ref(mask) as usize;
    let how = libc::SIG_SETMASK as usize;
    // SAFETY: two masks of the kernel's size.
    unsafe { call(libc::SYS_rt_sigprocmask, &[how, mask, before, 8, 0, 0]) };
}
