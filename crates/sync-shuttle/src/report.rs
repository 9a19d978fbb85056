//! Saying which schedule failed, at its first panic: one in a destructor that
//! follows may end the process.

use crate::explore::lock;
use crate::schedule::Shared;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, Once};

thread_local! {
    /// The scenario that runs on this real thread, until something has failed.
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

struct Running {
    name: &'static str,
    test: String,
    shared: Arc<Mutex<Shared>>,
}

/// The schedules of a scenario begin.
pub(crate) fn begin(name: &'static str, shared: &Arc<Mutex<Shared>>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            say_failed();
        }));
    });
    let running = Running {
        name,
        test: std::thread::current().name().unwrap_or(name).to_owned(),
        shared: shared.clone(),
    };
    RUNNING.set(Some(running));
}

/// They have ended.
pub(crate) fn end() {
    RUNNING.take();
}

fn say_failed() {
    let Some(Running { name, test, shared }) = RUNNING.take() else {
        return;
    };
    let shared = lock(&shared);
    let Shared {
        seed,
        way,
        explored,
    } = &*shared;
    let file = std::env::current_exe().unwrap_or_default();
    let file = file.file_stem().unwrap_or_default().to_string_lossy();
    let file = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    let schedule = explored.schedules + 1;
    eprintln!(
        "{name} failed in schedule {schedule} with seed {seed} ({way}). To run it again:\n  \
         SOFTFAULT_SHUTTLE_SEED={seed} cargo test -p softfault-engine-shuttle --test {file} -- \
         --exact {test}",
    );
}
