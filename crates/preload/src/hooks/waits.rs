//! Objects that threads wait on, and stacks, in private memory that was taken, where faults are signals.
//!
//! The C library waits on a word of such an object by a system call that no hook is in front of, and ends the process where
//! the word is missing; the kernel pushes the frame of a signal on a stack, and ends it, too. So the pages of such an object are
//! handed over to the program when a thread is about to wait on it, and those of a stack when the program says that it is
//! one. They stay the kernel's.

use super::next::hooks;
use crate::{change, give, inside, marked, mode, table};
use core::ffi::c_void;
use libc::{
    FILE, addrinfo, aiocb, c_char, c_int, clockid_t, pthread_attr_t, pthread_barrier_t,
    pthread_cond_t, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t, sem_t, sigevent,
    size_t, stack_t, timespec,
};

/// Hands over the memory at an address, if it was taken.
#[inline]
fn hand_over(start: *const c_void, bytes: usize) {
    if mode::is_signals() && marked::may_be_taken(start as usize, bytes) {
        hand_over_pages(start as usize, bytes);
    }
}

#[cold]
fn hand_over_pages(start: usize, bytes: usize) {
    let skip = start % crate::decide::PAGE;
    let pages = change::pages((start - skip) as *const c_void, bytes.saturating_add(skip));
    if let (Some(_inside), Some(pages)) = (inside::enter(), pages) {
        // Memory that cannot be handed over stays as it was: the wait may fail.
        let mut table = table::lock();
        change::hand_back(&mut table, &pages);
        give::hand_over(&mut table, &pages);
    }
}

/// A request of aio(7): threads of the C library, which block all signals, look at it and at its bytes.
///
/// # Safety
/// It is null, or a request.
unsafe fn hand_over_request(what: *mut aiocb) {
    if mode::is_signals() && marked::is_any() && !what.is_null() {
        hand_over(what.cast(), size_of::<aiocb>());
        // SAFETY: the caller's promise.
        let (start, bytes) = unsafe { ((*what).aio_buf, (*what).aio_nbytes) };
        if marked::may_be_taken(start as usize, bytes) {
            hand_over_pages(start as usize, bytes);
        }
    }
}

/// The same of a list of them.
///
/// # Safety
/// It has so many, or null pointers.
unsafe fn hand_over_requests(all: *const *mut aiocb, count: c_int) {
    for at in 0..count.max(0) as usize {
        // SAFETY: the caller's promise.
        unsafe { hand_over_request(*all.add(at)) };
    }
}

/// A request of getaddrinfo_a(3).
#[repr(C)]
pub struct NameRequest {
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    _answer: [usize; 4],
}

/// Hands a string over.
///
/// # Safety
/// It is null, or a string.
unsafe fn hand_over_text(text: *const c_char) {
    if mode::is_signals() && marked::may_be_taken(text as usize, 1) {
        // SAFETY: the caller's promise; null is nowhere.
        let bytes = unsafe { core::ffi::CStr::from_ptr(text) }.count_bytes();
        hand_over(text.cast(), bytes + 1);
    }
}

/// A list of such requests: threads of the C library, which block all signals, look at them.
///
/// # Safety
/// It has so many, or null pointers.
unsafe fn hand_over_name_requests(all: *const *mut NameRequest, count: c_int) {
    if !mode::is_signals() || !marked::is_any() {
        return;
    }
    for at in 0..count.max(0) as usize {
        // SAFETY: the caller's promise.
        unsafe {
            let request = *all.add(at);
            hand_over(request.cast(), size_of::<NameRequest>());
            if let Some(request) = request.as_ref() {
                hand_over_text(request.name);
                hand_over_text(request.service);
                hand_over(request.hints.cast(), size_of::<addrinfo>());
            }
        }
    }
}

/// Hooks of calls on objects.
macro_rules! waiting {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty => $($object:ident),+;)*) => {
        hooks! {
            $($(#[$doc])*
            fn $name($($arg: $type),*) -> $answer = |next| {
                $(hand_over($object.cast(), size_of_val(&*$object));)+
                next($($arg),*)
            };)*
        }
    };
}

mod objects {
    use super::*;

    waiting! {
        /// pthread_cond_wait(3).
        fn pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int => cond, mutex;
        /// pthread_cond_timedwait(3).
        fn pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int => cond, mutex;
        /// pthread_cond_clockwait(3).
        fn pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int => cond, mutex;
        /// pthread_barrier_wait(3).
        fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int => barrier;
        /// pthread_rwlock_rdlock(3).
        fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int => lock;
        /// pthread_rwlock_wrlock(3).
        fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int => lock;
        /// pthread_rwlock_timedrdlock(3).
        fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int => lock;
        /// pthread_rwlock_timedwrlock(3).
        fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int => lock;
        /// pthread_rwlock_clockrdlock(3).
        fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int => lock;
        /// pthread_rwlock_clockwrlock(3).
        fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int => lock;
        /// pthread_mutex_timedlock(3).
        fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int => mutex;
        /// pthread_mutex_clocklock(3).
        fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int => mutex;
        /// cnd_wait(3).
        fn cnd_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int => cond, mutex;
        /// cnd_timedwait(3).
        fn cnd_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int => cond, mutex;
        /// mtx_timedlock(3).
        fn mtx_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int => mutex;
        /// sem_wait(3).
        fn sem_wait(count: *mut sem_t) -> c_int => count;
        /// sem_timedwait(3).
        fn sem_timedwait(count: *mut sem_t, until: *const timespec) -> c_int => count;
        /// sem_clockwait(3).
        fn sem_clockwait(count: *mut sem_t, clock: clockid_t, until: *const timespec) -> c_int => count;
    }

    /// Looks all of them up.
    pub fn find_all() {
        find();
    }
}

hooks! {
    /// pthread_mutex_init(3): with attributes the kernel may have to look at it, when its owner dies or has another's priority.
    fn pthread_mutex_init(mutex: *mut pthread_mutex_t, with: *const pthread_mutexattr_t) -> c_int = |next| {
        if !with.is_null() {
            hand_over(mutex.cast(), size_of::<pthread_mutex_t>());
        }
        next(mutex, with)
    };

    /// setvbuf(3), by its other name: the C library reads into a buffer of the program's, and writes from it.
    fn _IO_setvbuf(of: *mut FILE, buffer: *mut c_char, how: c_int, bytes: size_t) -> c_int = |next| {
        hand_over(buffer.cast(), bytes);
        next(of, buffer, how, bytes)
    };

    /// setbuffer(3).
    fn setbuffer(of: *mut FILE, buffer: *mut c_char, bytes: size_t) = |next| {
        hand_over(buffer.cast(), bytes);
        next(of, buffer, bytes)
    };

    /// setbuffer(3), by its other name.
    fn _IO_setbuffer(of: *mut FILE, buffer: *mut c_char, bytes: size_t) = |next| {
        hand_over(buffer.cast(), bytes);
        next(of, buffer, bytes)
    };

    /// aio_read(3).
    fn aio_read(what: *mut aiocb) -> c_int = |next| {
        hand_over_request(what);
        next(what)
    };

    /// aio_read(3).
    fn aio_read64(what: *mut aiocb) -> c_int = |next| {
        hand_over_request(what);
        next(what)
    };

    /// aio_write(3).
    fn aio_write(what: *mut aiocb) -> c_int = |next| {
        hand_over_request(what);
        next(what)
    };

    /// aio_write(3).
    fn aio_write64(what: *mut aiocb) -> c_int = |next| {
        hand_over_request(what);
        next(what)
    };

    /// aio_fsync(3).
    fn aio_fsync(how: c_int, what: *mut aiocb) -> c_int = |next| {
        hand_over(what.cast(), size_of::<aiocb>());
        next(how, what)
    };

    /// aio_fsync(3).
    fn aio_fsync64(how: c_int, what: *mut aiocb) -> c_int = |next| {
        hand_over(what.cast(), size_of::<aiocb>());
        next(how, what)
    };

    /// lio_listio(3).
    fn lio_listio(how: c_int, all: *const *mut aiocb, count: c_int, told: *mut sigevent) -> c_int = |next| {
        hand_over_requests(all, count);
        next(how, all, count, told)
    };

    /// lio_listio(3).
    fn lio_listio64(how: c_int, all: *const *mut aiocb, count: c_int, told: *mut sigevent) -> c_int = |next| {
        hand_over_requests(all, count);
        next(how, all, count, told)
    };

    /// getaddrinfo_a(3).
    fn getaddrinfo_a(mode: c_int, all: *const *mut NameRequest, count: c_int, told: *mut sigevent) -> c_int = |next| {
        hand_over_name_requests(all, count);
        next(mode, all, count, told)
    };

    /// pthread_attr_setstack(3).
    fn pthread_attr_setstack(of: *mut pthread_attr_t, stack: *mut c_void, bytes: size_t) -> c_int = |next| {
        hand_over(stack, bytes);
        next(of, stack, bytes)
    };

    /// sigaltstack(2).
    fn sigaltstack(stack: *const stack_t, before: *mut stack_t) -> c_int = |next| {
        if mode::is_signals() && super::readable::is_readable(stack.cast(), size_of::<stack_t>()) {
            hand_over((*stack).ss_sp, (*stack).ss_size);
        }
        let aside = super::receive::BounceBuffer::of(before.cast(), if before.is_null() { 0 } else { size_of::<stack_t>() }, true);
        let from = super::again::Reads::Bytes(stack.cast(), if stack.is_null() { 0 } else { size_of::<stack_t>() });
        let answer = super::again::again(&[from], || next(stack, aside.place().cast()));
        aside.end(size_of::<stack_t>());
        answer
    };

    /// swapcontext(3): to a stack that makecontext(3) was told of.
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> c_int = |next| {
        hand_over((*to).uc_stack.ss_sp, (*to).uc_stack.ss_size);
        next(from, to)
    };

    /// setcontext(3), the same.
    fn setcontext(to: *const libc::ucontext_t) -> c_int = |next| {
        hand_over((*to).uc_stack.ss_sp, (*to).uc_stack.ss_size);
        next(to)
    };
}

/// Looks all of them up.
pub fn find_all() {
    find();
    objects::find_all();
}
