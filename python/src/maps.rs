//! Which map has an address: how a buffer that somebody made of a map (an array, a view, a tensor) leads back to it.

use crate::held::Held;
use crate::memory::Memory;
use core::ops::Range;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maps by the first address of their window. No two windows have an address in common; maps of one file in one engine
/// have the same. Locked by a thread that has the interpreter's lock, over no wait.
static MAPS: Mutex<BTreeMap<usize, Vec<Weak<Memory>>>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<usize, Vec<Weak<Memory>>>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a map. Of those at the same addresses, one that may be written to is found before others: a buffer that may be written to
/// is such a one's.
pub(crate) fn enter(memory: &Arc<Memory>, may_write: bool) {
    let mut maps = lock();
    let window = maps.entry(memory.window().start).or_default();
    window.retain(|map| map.strong_count() > 0);
    debug_assert!(window.iter().all(|map| map.as_ptr() != Arc::as_ptr(memory)));
    let place = if may_write { 0 } else { window.len() };
    window.insert(place, Arc::downgrade(memory));
}

/// Takes a map out, which is about to go, or to be elsewhere.
pub(crate) fn leave(memory: &Arc<Memory>) {
    let mut maps = lock();
    let start = memory.window().start;
    let Some(window) = maps.get_mut(&start) else {
        return;
    };
    let gone = Arc::as_ptr(memory);
    window.retain(|map| map.as_ptr() != gone && map.strong_count() > 0);
    if window.is_empty() {
        maps.remove(&start);
    }
}

/// The memory of each open map, once each.
pub(crate) fn all() -> Vec<Arc<Memory>> {
    let maps = lock();
    maps.values().flatten().filter_map(Weak::upgrade).collect()
}

/// The map that has all of some addresses, and their offsets in it.
pub(crate) fn find(addresses: Range<usize>) -> Option<(Held, Range<usize>)> {
    let maps = lock();
    let (_, window) = maps.range(..=addresses.start).next_back()?;
    let mut live = window.iter().filter_map(Weak::upgrade);
    let has = |map: &Arc<Memory>| {
        map.start() <= addresses.start && addresses.end <= map.start() + map.len()
    };
    let map = live.find(has)?;
    let offsets = addresses.start - map.start()..addresses.end - map.start();
    Some((map.into(), offsets))
}

/// The map that has a buffer, and the buffer's offsets in it; `None` for memory of others, which is touched as any is. Its bytes are copied by
/// the map's own calls: a touch of a page that cannot be had would end the process.
pub(crate) fn of_buffer((start, len): (usize, usize)) -> PyResult<Option<(Held, Range<usize>)>> {
    let found = find(start..start + len);
    match found.is_none() && len > 0 && touches(&(start..start + len)) {
        true => Err(PyBufferError::new_err("the buffer is not within one map")),
        false => Ok(found),
    }
}

/// True if some of these addresses are a map's.
fn touches(addresses: &Range<usize>) -> bool {
    let maps = lock();
    let below = maps.range(..addresses.end).next_back();
    below.is_some_and(|(_, window)| {
        let mut live = window.iter().filter_map(Weak::upgrade);
        live.any(|map| map.start() < addresses.end && addresses.start < map.start() + map.len())
    })
}
