//! The program's calls on private memory.

use crate::decide::PAGE;
use crate::give::{hand_over, unmap};
use crate::private::{PrivateMapping, new_tables};
use crate::ranges::Ranges;
use crate::table::Table;
use crate::{call, change};
use core::ops::Range;
use libc::{c_int, c_long};
use softfault::{Advice, RemapOptions, UncheckedAdvice};

/// Advice of Linux 5.18, 6.1 and 6.13.
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;
const GUARD_INSTALL: c_int = 102;
const GUARD_REMOVE: c_int = 103;

/// An errno, of a call that failed.
type Answer = Result<(), c_int>;

/// The owner of a part of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartOwner {
    /// Of the mapping that begins there.
    Engine(usize),
    Program,
    Nobody,
    /// It is between the mappings.
    Others,
}

/// The parts of a range, by address.
fn parts_of(table: &Table, range: &Range<usize>) -> Vec<(PartOwner, Range<usize>)> {
    let gaps = table.private.gaps(range).into_iter();
    let mut parts: Vec<_> = gaps.map(|gap| (PartOwner::Others, gap)).collect();
    for start in table.private.over(range) {
        let Some(mapping) = table.private.get(start) else {
            continue;
        };
        let whose = [
            (PartOwner::Engine(start), mapping.live.within(range)),
            (PartOwner::Program, mapping.handed_over(range)),
            (PartOwner::Nobody, mapping.holes.within(range)),
        ];
        for (whose, own) in whose {
            parts.extend(own.into_iter().map(|part| (whose, part)));
        }
    }
    parts.sort_unstable_by_key(|(_, part)| part.start);
    parts
}

/// Addresses where no program has anything: a call there fails as one where nothing is mapped, or by its other arguments.
const NOWHERE: Range<usize> = usize::MAX - 2 * PAGE + 1..usize::MAX - PAGE + 1;

/// A call on a range that overlaps private memory: `ours` does it to parts that the engine serves, and `kernel` to the
/// program's own parts, where nothing of the table's is; `others` to the parts between the mappings. As the kernel does, it ends at
/// the first error; one that `goes_on` leaves the rest to be done, and is the answer.
fn each(
    table: &mut Table,
    range: &Range<usize>,
    goes_on: impl Fn(c_int) -> bool,
    mut ours: impl FnMut(&mut Table, usize, &Range<usize>) -> Answer,
    kernel: impl Fn(&Range<usize>) -> Answer,
    mut others: impl FnMut(&mut Table, &Range<usize>) -> Answer,
) -> c_int {
    let mut answer = Ok(());
    for (whose, part) in parts_of(table, range) {
        let done = match whose {
            PartOwner::Engine(start) => ours(table, start, &part),
            PartOwner::Program => kernel(&part),
            PartOwner::Nobody => kernel(&NOWHERE).and(Err(libc::ENOMEM)),
            PartOwner::Others => others(table, &part),
        };
        if let Err(errno) = done
            && !goes_on(errno)
        {
            return change::refuse(errno);
        }
        answer = answer.and(done);
    }
    match answer {
        Ok(()) => 0,
        Err(errno) => change::refuse(errno),
    }
}

/// A call of the kernel's on a range of the program's own.
fn kernel_call(number: c_long, range: &Range<usize>, argument: usize) -> Answer {
    // SAFETY: the program's own arguments, for its own memory.
    match unsafe { call::any(number, [range.start, range.len(), argument, 0]) } {
        0 => Ok(()),
        _ => Err(call::errno()),
    }
}

/// Hands a part over, for the kernel to do the call.
fn handed_over(table: &mut Table, part: &Range<usize>) -> Answer {
    match hand_over(table, part) {
        true => Ok(()),
        false => Err(libc::ENOMEM),
    }
}

/// A call that the kernel is to do, on mappings of its own: `mlock(2)` and others.
pub fn by_kernel(
    table: &mut Table,
    range: &Range<usize>,
    number: c_long,
    argument: usize,
) -> c_int {
    let kernel = |part: &Range<usize>| kernel_call(number, part, argument);
    each(
        table,
        range,
        |_| false,
        |table, _, part| handed_over(table, part).and_then(|()| kernel(part)),
        kernel,
        |table, gap| match change::hand_back(table, gap) {
            true => kernel(gap),
            false => Err(libc::ENOMEM),
        },
    )
}

/// True if a part is all of a mapping.
fn is_whole(mapping: &PrivateMapping, part: &Range<usize>) -> bool {
    !mapping.cut && mapping.live.is(part)
}

/// True if `mprotect(2)` of a part of a mapping is the kernel's to do.
pub fn is_protected_by_kernel(
    mapping: &PrivateMapping,
    part: &Range<usize>,
    protection: c_int,
) -> bool {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let is_ours = protection == libc::PROT_READ || protection == both;
    protection != mapping.protection && !(is_ours && is_whole(mapping, part))
}

/// `mprotect(2)`.
pub fn protect(table: &mut Table, range: &Range<usize>, protection: c_int) -> c_int {
    let kernel = |part: &Range<usize>| kernel_call(libc::SYS_mprotect, part, protection as usize);
    let ours = |table: &mut Table, start: usize, part: &Range<usize>| {
        let mapping = table.private.get_mut(start).ok_or(libc::ENOMEM)?;
        if protection == mapping.protection {
            return Ok(());
        }
        let writable = match protection {
            libc::PROT_READ => Some(false),
            both if both == libc::PROT_READ | libc::PROT_WRITE => Some(true),
            _ => None,
        };
        if let Some(writable) = writable
            && is_whole(mapping, part)
            && mapping.map.set_writable(writable).is_ok()
        {
            mapping.protection = protection;
            return Ok(());
        }
        handed_over(table, part).and_then(|()| kernel(part))
    };
    each(
        table,
        range,
        |_| false,
        ours,
        kernel,
        |table, gap| match change::is_protected(table, gap, protection)
            || change::hand_back(table, gap)
        {
            true if change::is_protected(table, gap, protection) => Ok(()),
            true => kernel(gap),
            false => Err(libc::ENOMEM),
        },
    )
}

/// `madvise(2)`, but for what `populate.rs` does.
pub fn advise(table: &mut Table, range: &Range<usize>, advice: c_int) -> c_int {
    let kernel = |part: &Range<usize>| kernel_call(libc::SYS_madvise, part, advice as usize);
    let ours = |table: &mut Table, start: usize, part: &Range<usize>| match advise_part(
        table, start, part, advice,
    ) {
        Some(answer) => answer,
        // Not ENOMEM, which says that nothing is mapped there.
        None => handed_over(table, part)
            .map_err(|_| libc::EAGAIN)
            .and_then(|()| kernel(part)),
    };
    let answer = each(
        table,
        range,
        // Nothing is mapped there.
        |errno| errno == libc::ENOMEM,
        ours,
        kernel,
        |table, gap| match change::advise(table, gap, advice) {
            Some(0) => Ok(()),
            Some(_) => Err(call::errno()),
            None => kernel(gap),
        },
    );
    if advice == libc::MADV_DOFORK {
        table.private.let_children_have(range);
    }
    answer
}

/// True of advice that is the kernel's to follow, on mappings of its own.
pub fn is_advised_by_kernel(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_DONTFORK
            | libc::MADV_WIPEONFORK
            | libc::MADV_HWPOISON
            | libc::MADV_SOFT_OFFLINE
            | GUARD_INSTALL
            | GUARD_REMOVE
    )
}

/// The engine's answer to an advice; `None`: the part is to be handed over.
fn advise_part(table: &Table, start: usize, part: &Range<usize>, advice: c_int) -> Option<Answer> {
    let mapping = table.private.get(start)?;
    let (offset, len) = (mapping.offset(part.start), part.len());
    let unchecked = |advice| {
        // SAFETY: the program gives its bytes up.
        let done = unsafe { mapping.map.unchecked_advise_range(advice, offset, len) };
        done.map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    };
    // A hint that cannot be followed is no error.
    let hint = |advice| {
        let _ = mapping.map.advise_range(advice, offset, len);
        Ok(())
    };
    let kernel = |advice: c_int| kernel_call(libc::SYS_madvise, part, advice as usize);
    Some(match advice {
        libc::MADV_NORMAL => hint(Advice::Normal),
        libc::MADV_RANDOM => hint(Advice::Random),
        libc::MADV_SEQUENTIAL => hint(Advice::Sequential),
        libc::MADV_WILLNEED => hint(Advice::WillNeed),
        libc::MADV_COLD => hint(Advice::Cold),
        libc::MADV_PAGEOUT => hint(Advice::PageOut),
        libc::MADV_DONTNEED | DONTNEED_LOCKED => unchecked(UncheckedAdvice::DontNeed),
        libc::MADV_FREE if mapping.is_file => Err(libc::EINVAL),
        libc::MADV_REMOVE if mapping.is_file => Err(libc::EACCES),
        libc::MADV_FREE => unchecked(UncheckedAdvice::Free),
        // A window has neither huge pages nor merged ones; the kernel knows whether there are any at all.
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => kernel(libc::MADV_NOHUGEPAGE),
        libc::MADV_MERGEABLE | libc::MADV_UNMERGEABLE => kernel(libc::MADV_UNMERGEABLE),
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => kernel(advice),
        // As it is.
        libc::MADV_DOFORK | libc::MADV_KEEPONFORK => Ok(()),
        COLLAPSE => Err(libc::EINVAL),
        advice if is_advised_by_kernel(advice) => return None,
        // The kernel has an error for it.
        _ => kernel(advice),
    })
}

/// `mremap(2)` of private memory, by the engine: where it is then, or an errno. `None`: the kernel is to do it.
pub fn move_to(
    table: &mut Table,
    old: &Range<usize>,
    new: usize,
    flags: c_int,
) -> Option<Result<usize, c_int>> {
    if flags & !libc::MREMAP_MAYMOVE != 0 || new == 0 {
        return None;
    }
    let starts = table.private.over(old);
    let [start] = starts[..] else {
        return None;
    };
    let mapping = table.private.get(start)?;
    if mapping.live.within(old) != [old.clone()] {
        return None;
    }
    if new <= old.len() {
        let tail = old.start + new..old.end;
        return Some(match tail.is_empty() || unmap(table, &tail) {
            true => Ok(old.start),
            false => Err(libc::ENOMEM),
        });
    }
    // A larger block may have to move, and then all of the mapping moves.
    if mapping.cut || !mapping.live.is(old) {
        return None;
    }
    grow(
        table,
        start,
        (old.len(), new),
        flags & libc::MREMAP_MAYMOVE != 0,
    )
    .map(Ok)
}

/// Lets a mapping be longer; where it is then.
fn grow(
    table: &mut Table,
    start: usize,
    (old, new): (usize, usize),
    may_move: bool,
) -> Option<usize> {
    let mapping = table.private.get(start)?;
    let more = new - old;
    let tables = new_tables(more);
    let room = (table.private).has_room(mapping.map.engine(), more, tables);
    room.ok()?;
    let mut mapping = table.private.remove(start)?;
    let before = mapping.room.clone();
    let options = RemapOptions::new().may_move(may_move);
    // SAFETY: the program has addresses, and takes the new ones.
    let grown = unsafe { mapping.map.remap(new, options) };
    // It may have moved and failed afterwards: it is longer, and for the kernel it may be written to although the program wants it
    // to be read only. The program has to learn where its bytes are: nothing is at the old addresses.
    let room = (mapping.map.room()).filter(|room| grown.is_ok() || *room != before);
    let is_longer = room.is_some();
    if let Some(room) = room {
        // The marks of what stays are never cleared in between: others look at them meanwhile.
        crate::marked::mark(&room, true);
        let mut left = Ranges::of(before.clone());
        left.remove(&room);
        for part in left.within(&before) {
            crate::marked::mark(&part, false);
        }
        // The memory behind it is taken with it.
        mapping.room = room.clone();
        let live = room.start..room.start + new;
        let behind = live.end..room.end;
        mapping.taken = Ranges::of(live.clone());
        mapping.live = Ranges::of(live);
        mapping.holes = Ranges::default();
        if !behind.is_empty() {
            mapping.holes.add(&behind);
        }
    }
    let start = mapping.room.start;
    table.private.add(mapping);
    is_longer.then_some(start)
}
