//! A mutex in memory that processes share, which the kernel lets go of when its owner ends, however it ends.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::time::Duration;
use libc::pthread_mutex_t;

/// The mutex. Bytes of zeros are one that was not made yet.
#[repr(C)]
pub struct Robust(UnsafeCell<pthread_mutex_t>);

// SAFETY: a mutex.
unsafe impl Sync for Robust {}

/// A mutex that this thread has locked.
pub struct Locked<'a>(&'a Robust);

impl Robust {
    /// Makes it: free.
    ///
    /// # Safety
    /// No living process uses it.
    pub unsafe fn make(&self) {
        let mut kind = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used; the mutex is the caller's.
        unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(self.0.get(), kind.as_ptr());
            libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
        }
    }

    /// Locks it, at the latest after so long; `None` if it is somebody's for longer.
    pub fn lock(&self, wait: Duration) -> Option<Locked<'_>> {
        let mut until = MaybeUninit::uninit();
        // SAFETY: the time is filled in; the mutex was made.
        let locked = unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, until.as_mut_ptr());
            let mut until = until.assume_init();
            let ns = until.tv_nsec as u64 + u64::from(wait.subsec_nanos());
            until.tv_sec += (wait.as_secs() + ns / 1_000_000_000) as libc::time_t;
            until.tv_nsec = (ns % 1_000_000_000) as _;
            libc::pthread_mutex_timedlock(self.0.get(), &until)
        };
        self.got(locked)
    }

    /// Locks it, if no living process has it locked.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        // SAFETY: the mutex was made.
        self.got(unsafe { libc::pthread_mutex_trylock(self.0.get()) })
    }

    fn got(&self, answer: libc::c_int) -> Option<Locked<'_>> {
        match answer {
            0 => Some(Locked(self)),
            libc::EOWNERDEAD => {
                // SAFETY: this thread has it. The guarded state is whole at any time.
                unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                Some(Locked(self))
            }
            _ => None,
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has it locked.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}
