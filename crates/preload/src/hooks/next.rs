//! The function that a hook is in front of: the C library's, or another library's that was loaded before it.

use crate::early;
use core::ffi::CStr;
use core::marker::PhantomData;
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

/// The next function of a name, looked up once.
pub struct Next<F> {
    name: &'static CStr,
    /// Where it is looked for.
    from: LookUp,
    /// The replacement as long as the function cannot be looked up.
    early: early::EarlyCall,
    /// The number of the thread that looks it up, which may call the hook meanwhile; 0: none. No thread-local value: there may be
    /// none yet. Of several threads that look it up, the last: the others may begin again, once for each. Relaxed: a thread asks
    /// only about its own number.
    looking: AtomicI32,
    /// Its address; 0 before it was looked up. Relaxed: every look-up finds the same.
    addr: AtomicUsize,
    kind: PhantomData<F>,
}

/// Where a function is looked for.
enum LookUp {
    /// In the libraries behind ours.
    Behind,
    /// In all.
    First,
}

impl<F: Copy> Next<F> {
    /// That of a name. `F` is the function's type.
    pub const fn new(name: &'static CStr) -> Self {
        Self::of(name, LookUp::Behind)
    }

    /// The one that the program calls: ours, or that of a library in front of ours.
    pub const fn first(name: &'static CStr) -> Self {
        Self::of(name, LookUp::First)
    }

    const fn of(name: &'static CStr, from: LookUp) -> Self {
        Self {
            name,
            from,
            early: early::EarlyCall::of(name),
            looking: AtomicI32::new(0),
            addr: AtomicUsize::new(0),
            kind: PhantomData,
        }
    }

    /// It. Where there is none, one that says so: a program may ask whether there is one, and finds ours.
    #[inline]
    pub fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let addr = self.get_addr();
        // SAFETY: the function of that name has this type, as its hook has.
        unsafe { transmute_copy(&addr) }
    }

    #[inline]
    fn get_addr(&self) -> usize {
        match self.addr.load(Relaxed) {
            0 => self.look_up(),
            addr => addr,
        }
    }

    #[cold]
    fn look_up(&self) -> usize {
        let replacement = || (self.early.function()).unwrap_or(missing as *const () as usize);
        if !early::can_look_up() {
            return replacement();
        }
        // SAFETY: only asks.
        let own = unsafe { softfault::system_call!(libc::SYS_gettid) } as i32;
        // The loader allocates while it looks a name up.
        if self.looking.load(Relaxed) == own {
            return replacement();
        }
        // Over another thread's number: a look-up waits for a lock that the other may have, and both find the same.
        self.looking.store(own, Relaxed);
        let from = match self.from {
            LookUp::Behind => libc::RTLD_NEXT,
            LookUp::First => libc::RTLD_DEFAULT,
        };
        // SAFETY: looks a name up.
        let mut addr = unsafe { libc::dlsym(from, self.name.as_ptr()) } as usize;
        let _ = self.looking.compare_exchange(own, 0, Relaxed, Relaxed);
        if addr == 0 {
            addr = missing as *const () as usize;
        }
        self.addr.store(addr, Relaxed);
        addr
    }

    /// True if this C library has not the function.
    pub fn is_missing(&self) -> bool {
        self.get_addr() == missing as *const () as usize
    }

    /// Looks it up, unless that was done.
    pub fn find(&self) {
        if self.addr.load(Relaxed) == 0 {
            self.look_up();
        }
    }
}

/// A function that this C library has not.
extern "C" fn missing() -> core::ffi::c_long {
    crate::call::set_errno(libc::ENOSYS);
    -1
}

/// Hooks, each with the function that it is in front of. In the body, `next` is that function.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? = |$next:ident| $body:expr;)*) => {
        #[allow(non_upper_case_globals)]
        mod nexts {
            use super::*;
            $(pub static $name: $crate::hooks::next::Next<unsafe extern "C-unwind" fn($($type),*) $(-> $answer)?> =
                $crate::hooks::next::Next::new(
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name"),
                    });)*
        }

        /// Looks all of them up.
        pub fn find() {
            $(nexts::$name.find();)*
        }

        $($(#[$doc])*
        ///
        /// # Safety
        /// As of the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $answer)? {
            let $next = nexts::$name.get();
            // SAFETY: the caller's promise.
            unsafe { $body }
        })*
    };
}
pub(super) use hooks;
