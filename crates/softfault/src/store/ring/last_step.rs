//! The work that is left for the bytes of a read, before its completion.

use core::ptr::NonNull;
use softfault_engine::store::StoreError;

/// Turns the bytes of a read into the result for its reader. May be called in the fault
/// handler.
pub(crate) trait Finish: Sync {
    /// The read of this number is over, with so many bytes or an error; answers
    /// the same for the reader. Called once.
    fn finish(&self, number: u32, result: Result<usize, StoreError>) -> Result<usize, StoreError>;
}

/// The last step of one read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastStep {
    finish: NonNull<dyn Finish>,
    number: u32,
}

impl LastStep {
    /// `finish` has to live until the read is over.
    pub(crate) fn new(finish: &(impl Finish + 'static), number: u32) -> Self {
        let finish: &dyn Finish = finish;
        Self {
            finish: NonNull::from(finish),
            number,
        }
    }

    /// Which of its reads.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// # Safety
    /// The named waiter is still there.
    pub(super) unsafe fn finish(
        self,
        result: Result<usize, StoreError>,
    ) -> Result<usize, StoreError> {
        // SAFETY: the caller's promise.
        unsafe { self.finish.as_ref() }.finish(self.number, result)
    }
}
