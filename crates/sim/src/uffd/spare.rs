//! Windows that were given back, kept for the next of their size: as the
//! product's (`crates/softfault/src/uffd/spare.rs`).

use softfault_engine::lock::Mutex;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::Reservation;

/// Spare windows at most.
const MOST: usize = 32;
/// The largest that are kept.
const LARGEST: usize = 64 << 20;

/// Spare windows, the last given back at the end.
pub struct Spare(Mutex<Vec<(Reservation, Protection)>>);

impl Spare {
    /// None yet.
    pub fn new() -> Self {
        Self(Mutex::new(Vec::with_capacity(MOST + 1)))
    }

    /// A window of so many bytes and this protection, if there is one.
    pub fn take(&self, bytes: usize, protection: Protection) -> Option<Reservation> {
        let mut windows = self.0.lock();
        let fits =
            |(window, its): &(Reservation, Protection)| window.bytes == bytes && *its == protection;
        let place = windows.iter().rposition(fits)?;
        Some(windows.remove(place).0)
    }

    /// Keeps a window that has no pages. Returns one that has to go instead.
    pub fn keep(&self, window: Reservation, protection: Protection) -> Option<Reservation> {
        if window.bytes > LARGEST {
            return Some(window);
        }
        let mut windows = self.0.lock();
        windows.push((window, protection));
        (windows.len() > MOST).then(|| windows.remove(0).0)
    }

    /// All of them.
    pub fn take_all(&self) -> Vec<Reservation> {
        let windows = core::mem::take(&mut *self.0.lock());
        windows.into_iter().map(|(window, _)| window).collect()
    }
}
