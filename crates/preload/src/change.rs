//! The program's calls on a place that was taken.
//!
//! The engine does the calls that it can do. For all others the kernel's own mapping is put in the place first, under threads that
//! read there, and the kernel does the call.

use crate::count::HANDED_BACK;
use crate::table::{Table, Taken, overlap};
use crate::{call, give, marked};
use core::ops::Range;
use libc::{c_int, c_void};
use softfault::{Advice, KernelMapping, Mmap};

/// Hands back all windows that overlap a range, and lets idle ones go. Also those of which the program has nothing there any more: the
/// engine has pages there, and goes on to map and unmap them. False if it cannot be: the place is as it was. In a thread that is inside.
pub fn hand_back(table: &mut Table, range: &Range<usize>) -> bool {
    free_idle(table, range);
    for window in table.windows_over(range) {
        let all = table.remove_window(&window);
        let mappings = all.iter().map(|taken| KernelMapping {
            addresses: taken.addresses.clone(),
            protection: libc::PROT_READ,
            sharing: taken.sharing,
        });
        let mappings: Vec<_> = mappings.collect();
        let files = all.iter().map(|taken| (taken.leased, taken.end_of_file));
        let files: Vec<_> = files.collect();
        let maps = all.into_iter().map(|taken| taken.map).collect();
        // SAFETY: all that is in the window; the program has addresses, and no maps.
        if let Err(refused) = unsafe { Mmap::hand_back(maps, &mappings) } {
            let places = mappings.iter().zip(files);
            for (map, (mapping, (leased, end_of_file))) in refused.maps.into_iter().zip(places) {
                table.add(Taken {
                    addresses: mapping.addresses.clone(),
                    end_of_file,
                    window: window.clone(),
                    sharing: mapping.sharing,
                    leased,
                    map,
                });
            }
            return false;
        }
        marked::mark(&window, false);
        let leased = files.into_iter().filter_map(|(leased, _)| leased);
        leased.for_each(|file| table.leases.give(file));
        for mapping in &mappings {
            HANDED_BACK.add(mapping.addresses.len());
        }
    }
    true
}

/// `munmap(2)`: the engine drops whole mappings, and the kernel unmaps the ranges between them. It is asked first, for it may
/// refuse, and what the engine has dropped is gone.
pub fn unmap(table: &mut Table, range: &Range<usize>) -> c_int {
    table.reservations.forget(range);
    let gaps = table.private.gaps(range);
    for gap in &gaps {
        if let Err(errno) = unmap_plain(table, gap) {
            return refuse(errno);
        }
    }
    if !give::unmap(table, range) {
        return refuse(libc::ENOMEM);
    }
    for gap in &gaps {
        drop_taken(table, gap);
    }
    0
}

/// Unmaps what is the kernel's in a range without private memory: so are windows of which a part stays. To the first error.
fn unmap_plain(table: &mut Table, range: &Range<usize>) -> Result<(), c_int> {
    let within = |taken: &Range<usize>| range.start <= taken.start && taken.end <= range.end;
    loop {
        let cut = table.over(range).find(|taken| !within(&taken.addresses));
        let cut = cut.map(|taken| taken.addresses.clone());
        match cut {
            Some(cut) if hand_back(table, &cut) => {}
            Some(_) => return Err(libc::ENOMEM),
            None => break,
        }
    }
    for part in table.outside_windows(range) {
        // SAFETY: the program's own call on its own memory.
        let done = unsafe { call::any(libc::SYS_munmap, [part.start, part.len(), 0, 0]) };
        if done != 0 {
            return Err(call::errno());
        }
    }
    Ok(())
}

/// Drops the mappings in a range that were taken and are not private: all are whole.
fn drop_taken(table: &mut Table, range: &Range<usize>) {
    let whole = table.over(range).map(|taken| taken.addresses.start);
    for start in whole.collect::<Vec<_>>() {
        if let Some(taken) = table.remove(start) {
            let (window, leased) = (taken.window.clone(), taken.leased);
            drop(taken);
            leased.into_iter().for_each(|file| table.leases.give(file));
            if table.is_free(&window) {
                keep_idle(table, window);
            }
        }
    }
}

/// Windows that may be idle at a time.
const MOST_IDLE: usize = 256;

/// The engine keeps a window of which nothing is mapped any more for a while. For the program there is nothing: where it
/// maps something else there, the window has to go before. It stays marked.
fn keep_idle(table: &mut Table, window: Range<usize>) {
    if table.idle.len() == MOST_IDLE {
        free_idle(table, &window);
    }
    table.idle.push(window);
}

/// Lets idle windows go, if one of them has addresses of a range.
pub fn free_idle(table: &mut Table, range: &Range<usize>) {
    let is_over = |window: &Range<usize>| overlap(window, range);
    if !table.idle.iter().any(is_over) && table.idle.len() < MOST_IDLE {
        return;
    }
    if let Some(engine) = &table.engine {
        engine.close_idle();
    }
    table.forget_idle();
}

/// `mprotect(2)`: true if nothing has to be done.
pub fn is_protected(table: &Table, range: &Range<usize>, protection: c_int) -> bool {
    protection == libc::PROT_READ && covers(table, range)
}

/// True if all of a range was taken.
fn covers(table: &Table, range: &Range<usize>) -> bool {
    let mut end = range.end;
    for taken in table.over(range) {
        if taken.addresses.end < end {
            return false;
        }
        end = taken.addresses.start;
    }
    end <= range.start
}

/// `madvise(2)`, but for what `populate.rs` does; `None`: the kernel is to do it.
pub fn advise(table: &mut Table, range: &Range<usize>, advice: c_int) -> Option<c_int> {
    let ours = match advice {
        libc::MADV_NORMAL => Advice::Normal,
        libc::MADV_RANDOM => Advice::Random,
        libc::MADV_SEQUENTIAL => Advice::Sequential,
        libc::MADV_WILLNEED => Advice::WillNeed,
        libc::MADV_DONTNEED => {
            if !covers(table, range) {
                return by_kernel(table, range);
            }
            for (taken, part) in parts(table, range) {
                let _ = taken.invalidate(part);
            }
            return Some(0);
        }
        // The kernel's work on a window is right, and does not concern the engine.
        libc::MADV_COLD
        | libc::MADV_PAGEOUT
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP => return None,
        _ => return by_kernel(table, range),
    };
    if !covers(table, range) {
        // The kernel has an errno for the ranges between.
        let gaps =
            parts(table, range).map(|(map, part)| map.advise_range(ours, part.start, part.len()));
        let _ = gaps.count();
        return None;
    }
    for (map, part) in parts(table, range) {
        let _ = map.advise_range(ours, part.start, part.len());
    }
    Some(0)
}

/// The kernel does the call, on mappings of its own; an error if they cannot be handed back: on a window it would do
/// something else.
fn by_kernel(table: &mut Table, range: &Range<usize>) -> Option<c_int> {
    (!hand_back(table, range)).then(|| refuse(libc::ENOMEM))
}

/// The maps that overlap a range, and by their offsets which part of each.
fn parts<'a>(
    table: &'a Table,
    range: &Range<usize>,
) -> impl Iterator<Item = (&'a Mmap, Range<usize>)> {
    let range = range.clone();
    table
        .over(&range)
        .collect::<Vec<_>>()
        .into_iter()
        .map(move |taken| {
            let base = taken.addresses.start;
            let part = range.start.max(base) - base..range.end.min(taken.addresses.end) - base;
            // The last page has bytes that are no file's.
            let len = taken.map.len();
            (&taken.map, part.start.min(len)..part.end.min(len))
        })
}

/// An answer of a system call that failed.
pub fn refuse(errno: c_int) -> c_int {
    call::set_errno(errno);
    -1
}

/// The pages of a call's range; `None` where the kernel has an error for it.
pub fn pages(start: *const c_void, bytes: usize) -> Option<Range<usize>> {
    let start = start as usize;
    let end = start
        .checked_add(bytes)?
        .checked_next_multiple_of(crate::decide::PAGE)?;
    (start.is_multiple_of(crate::decide::PAGE) && start < end).then_some(start..end)
}
