//! Tables of a fixed size: made once, as large as a budget needs.

/// A table of `count` entries. `None` where the heap has no room for it: a caller may
/// ask for any budget, and gets an error for one that is beyond the machine.
pub(crate) fn table<T>(count: usize, make: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(count).ok()?;
    entries.extend(core::iter::repeat_with(make).take(count));
    Some(entries.into_boxed_slice())
}
