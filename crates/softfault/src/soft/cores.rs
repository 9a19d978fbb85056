//! A core for each thread that reaches an engine's bytes.

use super::SoftInner;
use softfault_engine::mmu::{Core, SoftMmu};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Engines whose cores a thread keeps.
const KEPT: usize = 4;

thread_local! {
    /// The last used is the last. Ordinary code: nothing here runs in a
    /// handler.
    static CORES: RefCell<Vec<(Weak<SoftInner>, Core)>> = const { RefCell::new(Vec::new()) };
}

/// A core for threads that get none of their own: there are so many.
pub(super) struct SpareCore(Mutex<Core>);

impl SpareCore {
    pub(super) fn new(mmu: &Arc<SoftMmu>) -> Option<Self> {
        Some(Self(Mutex::new(mmu.core()?)))
    }
}

/// Calls `access` with the thread's core for this engine.
pub(super) fn with<R>(engine: &Arc<SoftInner>, access: impl FnOnce(&mut Core) -> R) -> R {
    CORES.with_borrow_mut(|cores| {
        let is_ours = |(of, _): &(Weak<SoftInner>, Core)| of.as_ptr() == Arc::as_ptr(engine);
        if !cores.last().is_some_and(is_ours) {
            match cores.iter().position(is_ours) {
                Some(place) => {
                    let core = cores.remove(place);
                    cores.push(core);
                }
                None => {
                    // Those of engines that are gone keep their memory.
                    cores.retain(|(of, _)| of.strong_count() > 0);
                    if cores.len() == KEPT {
                        cores.remove(0);
                    }
                    let Some(core) = engine.mmu.core() else {
                        let spare = engine.spare.0.lock();
                        return access(&mut spare.unwrap_or_else(PoisonError::into_inner));
                    };
                    cores.push((Arc::downgrade(engine), core));
                }
            }
        }
        let (_, core) = cores.last_mut().expect("just made");
        access(core)
    })
}
