use core::fmt;
use core::sync::atomic as real;
pub use core::sync::atomic::Ordering;

use crate::machine::operation::{self, Operation::*};

/// A fence: costs as much as a read-modify-write, and waits for no thread.
#[inline]
#[track_caller]
pub fn fence(order: Ordering) {
    operation::fence();
    real::fence(order);
}

/// The methods of every atomic. `$zero` says whether a value is of the class of zero.
macro_rules! atomic {
    ($(#[$meta:meta])* $name:ident $(<$generic:ident>)?, $real:ty, $value:ty, $zero:expr) => {
        $(#[$meta])*
        #[repr(transparent)]
        pub struct $name $(<$generic>)? ($real);

        #[allow(clippy::redundant_closure_call)]
        impl $(<$generic>)? $name $(<$generic>)? {
            /// An atomic that holds `value`.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(<$real>::new(value))
            }

            /// The value, by the only owner of the atomic.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// The value.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            #[inline]
            fn addr(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }

            /// Reads.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                operation::shared(self.addr(), || {
                    let value = self.0.load(order);
                    (value, $zero(value))
                })
            }

            /// Writes.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                operation::exclusive(Store, self.addr(), || {
                    self.0.store(value, order);
                    ((), $zero(value))
                });
            }

            /// Writes, and returns the old value.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                operation::exclusive(Change, self.addr(), || {
                    let old = self.0.swap(value, order);
                    (old, $zero(old))
                })
            }

            /// Writes `new` if `current` is there. The line is taken either way.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                operation::exclusive(Exchange, self.addr(), || {
                    let result = self.0.compare_exchange(current, new, success, failure);
                    (result, result.is_err())
                })
            }

            /// The same: it does not fail for no reason here.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Changes the value by `change` until that succeeds or gives up.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(fetch_order);
                while let Some(new) = change(now) {
                    match self.compare_exchange_weak(now, new, set_order, fetch_order) {
                        Ok(old) => return Ok(old),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }
        }

        impl $(<$generic>)? fmt::Debug for $name $(<$generic>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $(<$generic>)? From<$value> for $name $(<$generic>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

/// A read-modify-write that always writes.
macro_rules! changes {
    ($name:ident, $value:ty, $($(#[$meta:meta])* $change:ident),+) => {
        impl $name {
            $($(#[$meta])*
            #[inline]
            #[track_caller]
            pub fn $change(&self, value: $value, order: Ordering) -> $value {
                operation::exclusive(Change, self.addr(), || {
                    let old = self.0.$change(value, order);
                    (old, old == <$value>::default())
                })
            })+
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }
    };
}

macro_rules! integer {
    ($($name:ident, $value:ty);+ $(;)?) => {$(
        atomic!(
            /// An integer whose line is simulated.
            $name, real::$name, $value, |value: $value| value == 0
        );
        changes!($name, $value,
            /// Adds, and returns the old value.
            fetch_add,
            /// Subtracts, and returns the old value.
            fetch_sub,
            /// And, and returns the old value.
            fetch_and,
            /// Or, and returns the old value.
            fetch_or,
            /// Exclusive or, and returns the old value.
            fetch_xor,
            /// The greater, and returns the old value.
            fetch_max,
            /// The lesser, and returns the old value.
            fetch_min);
    )+};
}

integer! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
    AtomicUsize, usize;
}

atomic!(
    /// A truth value whose line is simulated.
    AtomicBool, real::AtomicBool, bool, |value: bool| !value
);
changes!(AtomicBool, bool,
    /// And, and returns the old value.
    fetch_and,
    /// Or, and returns the old value.
    fetch_or,
    /// Exclusive or, and returns the old value.
    fetch_xor);

atomic!(
    /// A pointer whose line is simulated.
    AtomicPtr<T>, real::AtomicPtr<T>, *mut T, |value: *mut T| value.is_null()
);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

impl AtomicU32 {
    /// The real one, for the futex.
    pub(crate) fn inner(&self) -> &real::AtomicU32 {
        &self.0
    }
}
