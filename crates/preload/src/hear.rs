//! The thread that hears when somebody wants to write to a file of which mappings are taken.
//!
//! ```text
//!   open for writing, truncate(2), by anybody ──► waits in the kernel
//!          a signal to our thread alone ──► it locks the table, hands the file's mappings back, gives the lease up
//!                                                                      ──► the opener goes on
//! ```

use crate::leases::SIGNAL;
use crate::table::Table;
use crate::{change, give, inside, table};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, Ordering};
use libc::c_int;
use std::io;
use std::time::Duration;

/// `si_code` of a signal that says that a lease is wanted.
const POLL_MSG: c_int = 3;
/// Looks at the leases although no signal came: it may be lost where the program ignores the signal, or the user has too
/// many queued.
const LOOKS: Duration = Duration::from_secs(1);
/// A signal of that number that is not ours goes back, and its thread gets so much time.
const FOREIGN: Duration = Duration::from_millis(10);
const STACK: usize = 256 << 10;

/// Hands back all mappings of files that somebody wants to write to.
fn give_way(table: &mut Table) {
    for file in table.leases.wanted() {
        // A mapping that cannot be handed back does not show the writes of others: the lease goes all the same, as it
        // would by itself after a while.
        while let Some(addresses) = table.of_file(file) {
            if !change::hand_back(table, &addresses) {
                break;
            }
        }
        give::hand_over_file(table, file);
        table.leases.give_up(file);
    }
}

/// Starts the thread; its number. All signals are masked in it, as they are in the caller.
pub fn start() -> io::Result<c_int> {
    let number: &'static AtomicI32 = Box::leak(Box::new(AtomicI32::new(0)));
    let started = softfault::start_thread(c"softfault-lease", STACK, || {
        // SAFETY: only asks.
        let here = unsafe { softfault::system_call!(libc::SYS_gettid) } as c_int;
        // Release pairs with the Acquire below.
        number.store(here, Ordering::Release);
        hear();
    });
    drop(started?);
    loop {
        match number.load(Ordering::Acquire) {
            0 => std::thread::yield_now(),
            number => return Ok(number),
        }
    }
}

/// The loop of the thread.
fn hear() {
    // Its calls are softfault's.
    let _inside = inside::enter();
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is filled.
    let signals = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), SIGNAL);
        signals.assume_init()
    };
    loop {
        let timeout = libc::timespec {
            tv_sec: LOOKS.as_secs() as libc::time_t,
            tv_nsec: 0,
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set and the time are there, and the call fills the structure.
        let (signal, code) = unsafe {
            let signal = libc::sigtimedwait(&signals, info.as_mut_ptr(), &timeout);
            (signal, info.assume_init_ref().si_code)
        };
        if signal > 0 && code != POLL_MSG {
            put_back(signal, &mut info);
            std::thread::sleep(FOREIGN);
        }
        give_way(&mut table::lock());
    }
}

/// A signal that was sent to the process, and is not for us.
fn put_back(signal: c_int, info: &mut MaybeUninit<libc::siginfo_t>) {
    let process = std::process::id();
    // SAFETY: values that the kernel has filled in, to this process.
    unsafe {
        softfault::system_call!(
            libc::SYS_rt_sigqueueinfo,
            process,
            signal,
            info.as_mut_ptr(),
        )
    };
}
