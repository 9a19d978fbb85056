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
    let mut access = Some(access);
    let done = CORES.try_with(|cores| {
        let access = access.take().expect("called once");
        match of_thread(&mut cores.borrow_mut(), engine) {
            Some(core) => access(core),
            None => by_spare(engine, access),
        }
    });
    // The thread's are gone where a destructor of another thread-local, or a handler of atexit(3), reaches the bytes.
    done.unwrap_or_else(|_| by_spare(engine, access.take().expect("it was not called")))
}

fn by_spare<R>(engine: &SoftInner, access: impl FnOnce(&mut Core) -> R) -> R {
    let spare = engine.spare.0.lock();
    access(&mut spare.unwrap_or_else(PoisonError::into_inner))
}

/// The thread's core for this engine, made where there is none yet.
fn of_thread<'a>(
    cores: &'a mut Vec<(Weak<SoftInner>, Core)>,
    engine: &Arc<SoftInner>,
) -> Option<&'a mut Core> {
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
                cores.push((Arc::downgrade(engine), engine.mmu.core()?));
            }
        }
    }
    cores.last_mut().map(|(_, core)| core)
}
