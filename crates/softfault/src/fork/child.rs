//! In the child, before anything else runs: the memory that it goes on with.

use super::AcrossFork;
use super::held::{ForkLocks, LockedSpace};
use super::memory::LentMemory;
use crate::faults;
use crate::files::FileWindow;
use crate::process::{self, Process};
use crate::uffd::close_window;
use core::ops::Range;
use softfault_engine::anon::Anonymous;
use softfault_engine::anon::PrivateFile;
use softfault_engine::budget::FLOOR;
use softfault_engine::mm::Backing;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Pages that a child's engine may take beyond its parent's, for a moment.
const MORE: u64 = 1024;

/// Makes the child's own state, and releases the held locks.
pub(super) fn begin(mut held: ForkLocks) {
    crate::exit_stats::forked();
    if let Some(lifeline) = held.lifeline.take() {
        lifeline.keep();
    }
    if let Some(space) = &held.space {
        // This must be first: it places mappings where the windows were.
        let starts = held.memory().map(|memory| memory.get().addresses().start);
        let lent: BTreeSet<_> = starts.collect();
        let is_lent = |start| lent.contains(&start);
        let freed = |window: &Range<usize>| {
            let is_before = |file: &FileWindow| file.addresses().start < window.start;
            let first = held.files.partition_point(is_before);
            let files = held.files[first..].iter();
            for file in files.take_while(|file| file.addresses().end <= window.end) {
                // SAFETY: there was a window of ours, and nothing else since.
                unsafe { file.map_in_child() };
            }
        };
        (space.process.mmu()).fork_child(&space.windows, is_lent, freed);
    }
    let parents: Vec<_> = held.engines.iter().map(|engine| engine.leave()).collect();
    for parent in parents.iter().flatten() {
        if let Some(rings) = parent.rings.get() {
            rings.forget_in_child();
        }
    }
    process::set(None);
    if let Some(space) = &held.space {
        let memory: Vec<_> = held.memory().collect();
        go_on(&held.engines, space, &memory);
    }
    held.end_in_child();
}

/// Takes the memory over. Memory that cannot be taken over is lost: a touch raises SIGSEGV.
fn go_on(engines: &[Arc<dyn AcrossFork>], space: &LockedSpace, memory: &[&Arc<LentMemory>]) {
    let locks = space.process.space().mmap_lock().locks();
    let process = match memory.is_empty() {
        true => None,
        // Threads that serve faults are the child's own.
        false => faults::make(locks, space.process.faults()).ok(),
    };
    let Some(process) = process else {
        for memory in memory {
            lose(memory, space);
        }
        return;
    };
    let needed = |engine: &&Arc<dyn AcrossFork>| memory.iter().any(|memory| pays(engine, memory));
    for engine in engines.iter().filter(needed) {
        // Its memory is lost if that fails.
        let _ = engine.begin_in_child(process);
    }
    // The parent's pages fit, although a limit may have been lowered below them.
    let budgets: Vec<_> = (engines.iter())
        .filter_map(|engine| Some((&engine.managed()?.node.budget, engine.parents()?)))
        .map(|(budget, parents)| (budget, budget.limit(), parents.node.budget.charged()))
        .collect();
    for (budget, limit, charged) in &budgets {
        budget.set_limit((*limit).max(charged + MORE));
    }
    let mut adopted = HashMap::new();
    for memory in memory {
        let parents = Arc::as_ptr(memory.get()) as usize;
        match adopt(engines, process, space, memory) {
            Some(anon) => {
                adopted.insert(parents, anon.clone());
                memory.hand_over(Some(anon));
            }
            None => lose(memory, space),
        }
    }
    for (budget, limit, _) in budgets {
        // Faults on files go on, also beside much private memory.
        budget.set_limit(limit.max(budget.charged() + FLOOR));
    }
    let frozen = space.frozen.iter();
    frozen.for_each(|frozen| {
        frozen.for_each(|range, mut attributes| {
            let shown = Anonymous::shown(&attributes.backing);
            let own = shown.and_then(|anon| adopted.get(&(Arc::as_ptr(anon) as usize)));
            // Of the parent's count, which nobody looks at any more.
            let parents = core::mem::take(&mut attributes.backing);
            core::mem::forget(parents);
            if let Some(anon) = own {
                attributes.backing = Backing::from(anon.clone());
                // The space has no memory for one VMA more.
                if process.space().mmap(range.clone(), attributes).is_err() {
                    process.mmu().close_part(&range);
                }
            }
        })
    });
    process::set(Some(process));
}

/// True if the memory was of this engine, in the parent.
fn pays(engine: &Arc<dyn AcrossFork>, memory: &LentMemory) -> bool {
    (engine.parents()).is_some_and(|parents| Arc::ptr_eq(&parents.node, memory.get().node()))
}

fn adopt(
    engines: &[Arc<dyn AcrossFork>],
    process: &'static Process,
    space: &LockedSpace,
    memory: &LentMemory,
) -> Option<Arc<Anonymous>> {
    let engine = engines.iter().find(|engine| pays(engine, memory))?;
    let node = &engine.managed()?.node;
    let parents = memory.get();
    let range = parents.addresses();
    let window = process.mmu().adopt(range.clone(), &space.windows).ok()?;
    let private_file = parents
        .private_file()
        .inspect(|private_file| private_file.store.after_fork());
    let private_file = private_file.map(|private_file| PrivateFile {
        store: private_file.store.clone(),
        offset: private_file.offset,
    });
    let on_truncate = parents.on_truncate();
    let adopted = Anonymous::adopt(node.clone(), parents, window, private_file, on_truncate);
    // If it was not, its window is gone from the lists, and its place as it was: `lose` closes that.
    let adopted = adopted.ok()?;
    process.mmu().was_adopted(&range, &space.windows);
    Some(adopted)
}

/// Nobody sees zeros where there was something.
fn lose(memory: &LentMemory, space: &LockedSpace) {
    let served = space.windows.given.served(&memory.get().addresses());
    served.iter().for_each(close_window);
    memory.hand_over(None);
}
