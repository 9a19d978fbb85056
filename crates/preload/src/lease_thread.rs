//! The thread that is signalled when somebody wants to write to a file of which mappings are taken.
//!
//! ```text
//!   open for writing, truncate(2), by anybody ──► waits in the kernel
//!          a signal to our thread alone ──► it locks the table, hands the file's mappings back, gives the lease up
//!                                                                      ──► the opener goes on
//! ```

use crate::count::HANDED_BACK;
use crate::leases::{SIGNAL, Written};
use crate::table::Table;
use crate::{change, declined, give, inside, table};
use core::ptr::null;
use core::sync::atomic::{AtomicI32, Ordering};
use libc::c_int;
use std::io;
use std::time::Duration;

/// Looks at the leases although no signal came: it is lost where the user has too many queued.
const LOOKS: Duration = Duration::from_secs(1);
const STACK: usize = 256 << 10;

/// Hands back all mappings of files that somebody wants to write to.
fn give_way(table: &mut Table) {
    for file in table.leases.wanted() {
        let path = table.leases.path(file);
        let (_, before) = HANDED_BACK.get();
        // A mapping that cannot be handed back does not show the writes of others: the lease goes all the same, as it
        // would by itself after a while, and the mapping has none from then on.
        while let Some(addresses) = table.of_file(file) {
            change::hand_back(table, &addresses);
            table.end_lease(&addresses);
        }
        give::hand_over_file(table, file);
        table.private.end_leases(file);
        let (_, after) = HANDED_BACK.get();
        if after > before && !table.tells_of_writer {
            table.tells_of_writer = true;
            let bytes = after - before;
            table.written = Some(Written { path, bytes });
        }
        table.leases.give_up(file);
    }
}

/// Starts the thread; its number. All signals are masked in it, as they are in the caller.
pub fn start() -> io::Result<c_int> {
    let number: &'static AtomicI32 = Box::leak(Box::new(AtomicI32::new(0)));
    let started = softfault::start_thread(c"softfault-lease", STACK, || {
        // Its calls are softfault's. The C library has unblocked the signal in a new thread, and it would end the process: so this
        // is before anybody knows the number.
        let _inside = inside::enter();
        // SAFETY: only asks.
        let here = unsafe { softfault::system_call!(libc::SYS_gettid) } as c_int;
        // Release pairs with the Acquire below.
        number.store(here, Ordering::Release);
        watch_leases();
    });
    drop(started?);
    loop {
        match number.load(Ordering::Acquire) {
            0 => std::thread::yield_now(),
            number => return Ok(number),
        }
    }
}

/// The loop of the thread, which is inside and has the signal masked.
fn watch_leases() {
    // The kernel's set: the C library's functions leave its own signals out.
    let signals = 1_u64 << (SIGNAL - 1);
    let timeout = libc::timespec {
        tv_sec: LOOKS.as_secs() as libc::time_t,
        tv_nsec: 0,
    };
    loop {
        // SAFETY: the set and the time are there.
        unsafe {
            softfault::system_call!(
                libc::SYS_rt_sigtimedwait,
                &raw const signals,
                null::<libc::siginfo_t>(),
                &raw const timeout,
                size_of::<u64>(),
            )
        };
        let mut table = table::lock();
        give_way(&mut table);
        let written = table.written.take();
        // Those who have the standard error may be the ones that want the file, or the table.
        drop(table);
        declined::tell_of_writer(written);
    }
}
