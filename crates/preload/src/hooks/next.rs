//! The function that a hook is in front of: the C library's, or another library's that was loaded before it.

use crate::early;
use core::ffi::CStr;
use core::marker::PhantomData;
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The next function of a name, looked up once.
pub struct Next<F> {
    name: &'static CStr,
    /// Where it is looked for.
    from: LookUp,
    /// The replacement as long as the function cannot be looked up.
    early: early::EarlyCall,
    /// It is being looked up: when the library is loaded, by one thread, where no thread-local value can be looked at yet.
    /// Relaxed: of one thread.
    looking: AtomicBool,
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
            looking: AtomicBool::new(false),
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
        // The loader allocates while it looks a name up.
        if !early::can_look_up() || self.looking.swap(true, Relaxed) {
            return (self.early.function()).unwrap_or(missing as *const () as usize);
        }
        let from = match self.from {
            LookUp::Behind => libc::RTLD_NEXT,
            LookUp::First => libc::RTLD_DEFAULT,
        };
        // SAFETY: looks a name up.
        let mut addr = unsafe { libc::dlsym(from, self.name.as_ptr()) } as usize;
        self.looking.store(false, Relaxed);
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
