//! Files of windows that nobody maps are let go of, though the process does nothing more.
//!
//! | a file | its window goes |
//! |---|---|
//! | was written to | with its last map, or as soon as its pages are written |
//! | lost its last name while it was mapped | with its last map |
//! | lost it later | within two looks: 2 s |
//! | has a name, or never had one | after [`MOST_LOOKS`] looks: 30 s |
//! | any | by [`Files::close_idle`] |
//!
//! A thread looks once a second while there are idle windows, and sleeps while there are
//! none. Where the system has no thread for us, files go as their windows are emptied, or
//! by the call.

use super::table::{FileWindow, IdleWindow, WindowTable};
use super::{Files, lock};
use crate::thread::{self, Thread};
use softfault_engine::cache::PageCache;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two looks at idle windows.
const LOOK: Duration = Duration::from_secs(1);
/// Looks that an idle window stays for.
const MOST_LOOKS: u64 = 30;
/// Between two tries to take a window that a fault still looks at.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest time in which `close_idle` tries to close all files: a flush to a device that hangs may keep a window.
const CLOSE_IDLE_LIMIT: Duration = Duration::from_secs(10);
/// The same for a map that needs their memory.
const MAKE_ROOM_LIMIT: Duration = Duration::from_secs(1);

/// The state that the thread and the maps share.
pub(super) struct SharedTable {
    table: Mutex<WindowTable>,
    /// Held while files of idle windows are looked at, and so kept open. Before `table`.
    looking: Mutex<()>,
    state: Mutex<IdleThreadState>,
    changed: Condvar,
}

/// The state of the thread. Locked before the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleThreadState {
    /// Nothing: there are no idle windows.
    Asleep,
    /// Looks again and again.
    Awake,
    /// Is to end.
    Over,
}

/// The thread, from the first idle window on.
#[derive(Default)]
pub(super) struct IdleThread(Mutex<Option<Thread>>);

impl SharedTable {
    pub(super) fn new(table: WindowTable) -> Self {
        Self {
            table: Mutex::new(table),
            looking: Mutex::default(),
            state: Mutex::new(IdleThreadState::Asleep),
            changed: Condvar::new(),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, WindowTable> {
        lock(&self.table)
    }

    /// A window, if it is there still. With the table locked, a window that is about to go has no user but the table. The
    /// caller drops it soon: it does not go meanwhile.
    pub(super) fn upgrade(&self, window: &Weak<PageCache>) -> Option<Arc<PageCache>> {
        let _table = self.table();
        window.upgrade()
    }

    fn serve(&self) {
        loop {
            let state = lock(&self.state);
            let asleep = |state: &mut IdleThreadState| *state == IdleThreadState::Asleep;
            let state = self.changed.wait_while(state, asleep);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            let on = |state: &mut IdleThreadState| *state != IdleThreadState::Over;
            let slept = self.changed.wait_timeout_while(state, LOOK, on);
            if *slept.unwrap_or_else(PoisonError::into_inner).0 == IdleThreadState::Over {
                return;
            }
            self.look();
            // Files of private maps too: somebody has to look at them.
            let kept = crate::store::look_at_kept();
            let mut state = lock(&self.state);
            if *state == IdleThreadState::Awake && !kept && self.table().stop_looking() {
                // The first idle window wakes it.
                *state = IdleThreadState::Asleep;
            }
        }
    }

    fn look(&self) {
        let _looking = lock(&self.looking);
        let mut gone = Vec::new();
        let named = self.table().look(MOST_LOOKS, &mut gone);
        drop(gone);
        let nameless: Vec<_> = named
            .into_iter()
            .filter(IdleWindow::has_lost_its_name)
            .collect();
        for idle in nameless {
            self.forget(idle);
        }
    }

    fn forget(&self, IdleWindow { since, named, .. }: IdleWindow) {
        let mut gone = Vec::new();
        self.table().forget(since, &mut gone);
        // With nothing locked: it unmaps.
        drop(gone);
        drop(named);
    }

    /// There is an idle window.
    fn wake(&self) {
        let mut state = lock(&self.state);
        if *state == IdleThreadState::Asleep {
            *state = IdleThreadState::Awake;
            self.changed.notify_one();
        }
    }
}

impl IdleWindow {
    fn has_lost_its_name(&self) -> bool {
        self.named.as_ref().is_some_and(|file| !file.has_name())
    }
}

impl Files {
    /// A window has become idle.
    pub(super) fn became_idle(&self, idle: IdleWindow) {
        // Each time: there may have been too many threads the last time.
        self.idle_thread.start(&self.shared);
        if idle.first {
            self.shared.wake();
        }
        if idle.written || idle.has_lost_its_name() {
            let _looking = lock(&self.shared.looking);
            self.shared.forget(idle);
        }
    }

    /// Lets go of all files that nobody maps. Waits a while for faults, reads and flushes that are under way in
    /// their windows; not for forks of a soft engine, which may have windows as long as they
    /// live.
    pub(crate) fn close_idle(&self) {
        self.close_idle_within(CLOSE_IDLE_LIMIT);
    }

    /// The same for their memory.
    pub(super) fn make_room(&self) {
        self.close_idle_within(MAKE_ROOM_LIMIT);
    }

    fn close_idle_within(&self, longest: Duration) {
        if self.generation.is_parents() {
            return;
        }
        let began = Instant::now();
        let until = self.shared.table().closed();
        loop {
            let left = {
                // Given up between two tries: the unmap of another file may need it.
                let _looking = lock(&self.shared.looking);
                let mut gone: Vec<FileWindow> = Vec::new();
                let left = self.shared.table().forget_until(until, &mut gone);
                drop(gone);
                left
            };
            if left == 0 || self.forks.load(Ordering::Relaxed) > 0 || began.elapsed() >= longest {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl IdleThread {
    fn start(&self, shared: &Arc<SharedTable>) {
        let mut thread = lock(&self.0);
        if thread.is_none() {
            let shared = shared.clone();
            let look = move || shared.serve();
            *thread = thread::start(c"softfault-idle", thread::STACK, look).ok();
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self, shared: &SharedTable) {
        let thread = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            *lock(&shared.state) = IdleThreadState::Over;
            shared.changed.notify_one();
            thread.join();
        }
    }

    /// In a child of fork: it is the parent's.
    pub(super) fn leave(&mut self) {
        let thread = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        core::mem::forget(thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::scratch::Scratch;
    use crate::{Engine, signal};

    /// Without the half minute.
    #[test]
    fn a_file_with_a_name_is_closed_after_so_many_looks() {
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(16 << 20)
            .build()
            .unwrap();
        let scratch = Scratch::new(&[1; 4096]);
        // SAFETY: nobody writes to it.
        let map = unsafe { engine.map(&scratch.to_read()) }.unwrap();
        // An empty window would go at once.
        assert_eq!(map[0], 1);
        drop(map);
        let look = || {
            let _masked = signal::masked();
            engine.inner.files.shared.look();
        };
        // The thread may have looked, too.
        (0..MOST_LOOKS - 10).for_each(|_| look());
        assert_eq!(engine.stats().idle_windows, 1);
        (0..20).for_each(|_| look());
        assert_eq!(engine.stats().idle_windows, 0);
    }

    /// A flush that was not awaited has the window of a map that is gone, and its device hangs. Failed before: a map for which there
    /// was no memory waited for it, and so did the unmaps of all files without a name.
    #[test]
    fn a_flush_that_hangs_holds_up_no_other_file() {
        let builder = Engine::builder().allow_kernel_maps(false);
        let engine = builder.memory(16 << 20).build().unwrap();
        // SAFETY: nobody looks at the bytes.
        let map = |file: &Scratch| unsafe { engine.map(&file.to_write()) }.unwrap();
        let hanging = Scratch::new(&[0; 4096]);
        let flushed = map(&hanging);
        // Has no name any more.
        let other = map(&Scratch::new(&[0; 4096]));
        // As the thread that flushes has it.
        let window = flushed.file().unwrap().cache().clone();
        drop(flushed);
        let (ended, ends) = std::sync::mpsc::channel();
        let (room, unmap) = (ended.clone(), ended);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _masked = signal::masked();
                engine.inner.files.make_room();
                room.send("a map without memory").unwrap();
            });
            scope.spawn(|| {
                // The other one has begun to wait, most likely.
                std::thread::sleep(Duration::from_millis(50));
                drop(other);
                unmap.send("an unmap").unwrap();
            });
            // Longer than any of them takes, on a busy machine too.
            let both = [0, 1].map(|_| ends.recv_timeout(Duration::from_secs(30)));
            // They go on, whatever happens here.
            drop(window);
            assert!(both.iter().all(Result::is_ok), "{both:?}");
        });
    }
}
