//! Calls that say whether something is mapped: msync(2), munlock(2) and mincore(2). The kernel has windows also where the program has
//! unmapped what was there.

use super::again::{Reads, again};
use super::mapping;
use super::next::hooks;
use crate::decide::PAGE;
use crate::{change, give, inside, marked, table};
use libc::{c_int, c_uchar, c_void, size_t};

/// The first address of a range where the program has nothing, although the kernel has.
#[inline]
fn first_hole(start: *const c_void, bytes: size_t) -> Option<usize> {
    match marked::may_be_taken(start as usize, bytes) {
        true => look(start, bytes),
        false => None,
    }
}

#[cold]
fn look(start: *const c_void, bytes: size_t) -> Option<usize> {
    let range = change::pages(start, bytes)?;
    let _inside = inside::enter()?;
    if !give::leave_stack() {
        // The kernel's answer is right but for such places.
        return None;
    }
    let mut table = table::lock();
    change::free_idle(&mut table, &range);
    table.first_hole(&range)
}

hooks! {
    /// msync(2), which goes on behind a place where nothing is.
    fn msync(start: *mut c_void, bytes: size_t, flags: c_int) -> c_int = |next| {
        let hole = first_hole(start, bytes);
        match next(start, bytes, flags) {
            0 if hole.is_some() => change::refuse(libc::ENOMEM),
            answer => answer,
        }
    };

    /// munlock(2), of a range that need not begin with a page. It ends at such a place; what the kernel has behind is not locked.
    fn munlock(start: *const c_void, bytes: size_t) -> c_int = |next| {
        let (first, all) = mapping::whole_pages(start, bytes);
        let hole = first_hole(first, all);
        match next(start, bytes) {
            0 if hole.is_some() => change::refuse(libc::ENOMEM),
            answer => answer,
        }
    };

    /// mincore(2), which ends at such a place.
    fn mincore(start: *mut c_void, bytes: size_t, to: *mut c_uchar) -> c_int = |next| {
        let hole = first_hole(start, bytes);
        let before = hole.map_or(bytes, |hole| hole - start as usize);
        let to_write = [Reads::Into(to.cast(), before.div_ceil(PAGE))];
        match again(&to_write, || next(start, before, to)) {
            0 if hole.is_some() => change::refuse(libc::ENOMEM),
            answer => answer,
        }
    };
}
