//! A bell: one thread waits for it, any may ring it, a fault handler too.

use sync::atomic::Ordering::{Acquire, Release};
use sync::wait::WaitWord;

/// Nobody rang, or somebody did.
const SILENT: u32 = 0;
const RUNG: u32 = 1;

/// Silent at first.
#[derive(Debug, Default)]
pub struct Bell(WaitWord);

impl Bell {
    /// Wakes the thread that waits, or lets it not wait.
    pub fn ring(&self) {
        // Release pairs with the Acquire in `wait`.
        if self.0.swap(RUNG, Release) == SILENT {
            self.0.wake(1);
        }
    }

    /// Waits until it rings, or so long; or, now and then, for less.
    pub fn wait(&self, timeout_ns: Option<u64>) {
        if self.0.swap(SILENT, Acquire) == SILENT {
            self.0.wait(SILENT, timeout_ns);
            self.0.swap(SILENT, Acquire);
        }
    }
}
