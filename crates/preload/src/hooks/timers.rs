//! timer_create(2), where faults are signals: a timer may call a function of the program's in a thread of its own (SIGEV_THREAD).
//!
//! glibc has a thread that starts these threads, with all signals blocked, and no hook sees it. The first touch of missing memory would
//! end the process there. So the function that such a timer calls is ours, which unblocks the signal and calls the program's.

use super::again::{Reads, again};
use super::next::hooks;
use super::readable::is_readable;
use super::receive::size;
use super::signals;
use crate::{inside, table};
use core::mem::MaybeUninit;
use core::ptr;
use libc::{c_int, c_void, clockid_t, sigevent};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a timer calls, with the value of its `sigevent`. It may end its thread (pthread_exit(3)).
type Function = unsafe extern "C-unwind" fn(*const c_void);

/// The structure that the C library reads; `libc::sigevent` hides its fields.
#[derive(Clone, Copy)]
#[repr(C)]
struct Event {
    value: *const c_void,
    signal: c_int,
    notify: c_int,
    function: Option<Function>,
    attributes: *const c_void,
    rest: [usize; 4],
}

const _: () = assert!(size_of::<Event>() == size_of::<sigevent>());

/// The program's part of such a timer: immutable.
#[derive(Clone, Copy)]
struct Notification {
    function: Function,
    value: *const c_void,
}

// SAFETY: the pointer is the program's, and is only handed on.
unsafe impl Send for Notification {}
// SAFETY: as above; never changed.
unsafe impl Sync for Notification {}

/// One for each function and value, by their addresses. They stay: a thread may begin after its timer was deleted. Locked under the
/// table's lock, which a fork holds.
static NOTIFICATIONS: Mutex<BTreeMap<(usize, usize), &'static Notification>> =
    Mutex::new(BTreeMap::new());

/// In a new thread of the C library's.
///
/// # Safety
/// `of` is one of [`NOTIFICATIONS`].
unsafe extern "C-unwind" fn notify(of: *const c_void) {
    signals::unblock_in_new_thread();
    // SAFETY: the caller's promise: these are never dropped.
    let &Notification { function, value } = unsafe { &*of.cast() };
    // SAFETY: the program has named the function for this value.
    unsafe { function(value) };
}

/// The same event with our function, in `place`, if it has one of the program's that is to be called in a thread.
///
/// # Safety
/// As of timer_create(2).
unsafe fn with_ours(about: *const sigevent, place: &mut MaybeUninit<Event>) -> *const sigevent {
    let bytes = size_of::<sigevent>();
    if about.is_null() || !signals::are_signals() || !is_readable(about.cast(), bytes) {
        return about;
    }
    // SAFETY: it is there.
    let event = unsafe { about.cast::<Event>().read_unaligned() };
    let Some(function) = event
        .function
        .filter(|_| event.notify == libc::SIGEV_THREAD)
    else {
        return about;
    };
    let Some(_inside) = inside::enter() else {
        return about;
    };
    let _table = table::lock();
    let value = event.value;
    let mut all = NOTIFICATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = *(all.entry((function as usize, value as usize)))
        .or_insert_with(|| Box::leak(Box::new(Notification { function, value })));
    let event = place.write(Event {
        value: ptr::from_ref(ours).cast(),
        function: Some(notify),
        ..event
    });
    ptr::from_ref(event).cast()
}

hooks! {
    /// timer_create(2).
    fn timer_create(clock: clockid_t, about: *const sigevent, timer: *mut *mut c_void) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let about = with_ours(about, &mut place);
        let reads = [
            Reads::Bytes(about.cast(), size(about)),
            Reads::Into(timer.cast(), size_of::<c_int>()),
        ];
        again(&reads, || next(clock, about, timer))
    };
}
