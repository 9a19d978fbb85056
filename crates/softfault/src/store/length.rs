//! The length of a file that is written back. It stays as it is from a look at it until the write that goes by that is over: a
//! write past the end would make the file longer. Other processes are not kept out.

use softfault_engine::lock::RawRwSem;

/// A lock of the length.
pub(super) struct Length(RawRwSem<1>);

/// The length does not change while this lives.
#[must_use]
pub(super) struct KeptLength<'a>(&'a Length);

/// Nobody writes while this lives: its owner may change the length. Signals are masked, and no page of the program is touched.
#[must_use]
pub(crate) struct StoppedWrites<'a>(&'a Length);

impl Default for Length {
    fn default() -> Self {
        Self(RawRwSem::new())
    }
}

impl core::fmt::Debug for Length {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Length").field(&self.0.has_writer()).finish()
    }
}

impl Length {
    /// Waits until nobody changes it. The caller may hold batches and folios: who changes it waits for neither.
    pub(super) fn keep(&self) -> KeptLength<'_> {
        if let Some(waiter) = self.0.read_or_queue() {
            waiter.wait();
        }
        KeptLength(self)
    }

    /// Waits until nobody writes.
    pub(super) fn stop(&self) -> StoppedWrites<'_> {
        if let Some(waiter) = self.0.write_or_queue() {
            waiter.wait();
        }
        StoppedWrites(self)
    }
}

impl Drop for KeptLength<'_> {
    fn drop(&mut self) {
        self.0.0.leave_read();
    }
}

impl Drop for StoppedWrites<'_> {
    fn drop(&mut self) {
        self.0.0.leave_write();
    }
}
