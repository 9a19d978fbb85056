//! Atomics: each access is a scheduling point, and all are in one order.
//!
//! They are not shuttle's own types, because the engine makes words of zeroed
//! memory and counts on their size, as on the real machine. Beneath are the core
//! ones, which nobody accesses at the same time.

use crate::point::point;
use core::sync::atomic::Ordering::SeqCst;

pub use core::sync::atomic::Ordering;

/// A fence: all accesses are in one order here anyway.
pub fn fence(_order: Ordering) {
    point();
}

macro_rules! atomic {
    ($name:ident $(<$generic:ident>)?, $value:ty) => {
        /// The core atomic of this name, with a scheduling point before each
        /// access.
        #[repr(transparent)]
        pub struct $name $(<$generic>)? (core::sync::atomic::$name $(<$generic>)?);

        impl $(<$generic>)? core::fmt::Debug for $name $(<$generic>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $(<$generic>)? Default for $name $(<$generic>)? {
            fn default() -> Self {
                Self(Default::default())
            }
        }

        #[allow(missing_docs)] // As the core ones.
        impl $(<$generic>)? $name $(<$generic>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }

            /// The value, to somebody who has the word alone: no access.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            pub fn load(&self, _order: Ordering) -> $value {
                point();
                self.0.load(SeqCst)
            }

            pub fn store(&self, value: $value, _order: Ordering) {
                point();
                self.0.store(value, SeqCst);
            }

            pub fn swap(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.swap(value, SeqCst)
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }

            /// Never fails for no reason.
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(fetch_order);
                while let Some(next) = f(now) {
                    match self.compare_exchange(now, next, set_order, fetch_order) {
                        Ok(before) => return Ok(before),
                        Err(changed) => now = changed,
                    }
                }
                Err(now)
            }

            /// The value without a scheduling point, for uses that are one step with
            /// the access before.
            #[allow(dead_code)]
            pub(crate) fn peek(&self) -> $value {
                self.0.load(SeqCst)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        #[allow(missing_docs)] // As the core ones.
        impl $name {
            pub fn fetch_add(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, SeqCst)
            }

            pub fn fetch_sub(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_sub(value, SeqCst)
            }

            pub fn fetch_and(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_and(value, SeqCst)
            }

            pub fn fetch_or(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, SeqCst)
            }

            pub fn fetch_xor(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_xor(value, SeqCst)
            }

            pub fn fetch_max(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_max(value, SeqCst)
            }

            pub fn fetch_min(&self, value: $value, _order: Ordering) -> $value {
                point();
                self.0.fetch_min(value, SeqCst)
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
number!(AtomicU8, u8);
number!(AtomicU16, u16);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

#[allow(missing_docs)] // As the core ones.
impl AtomicBool {
    pub fn fetch_or(&self, value: bool, _order: Ordering) -> bool {
        point();
        self.0.fetch_or(value, SeqCst)
    }

    pub fn fetch_and(&self, value: bool, _order: Ordering) -> bool {
        point();
        self.0.fetch_and(value, SeqCst)
    }
}
