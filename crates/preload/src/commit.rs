//! The program takes reserved memory into use: by mmap(2) with MAP_FIXED, or by mprotect(2).

use crate::count::Decline;
use crate::decide::{LEAST, PAGE};
use crate::private::PrivateMapping;
use crate::ranges::Ranges;
use crate::table::Table;
use crate::{give, take};
use core::ops::Range;
use libc::c_int;
use softfault::MmapMut;

const BOTH: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// `mmap(2)` with MAP_FIXED of anonymous memory that is to be read and written: zeros of the engine's, as far as it is in a
/// reservation or in a mapping that was taken, and otherwise the kernel's. `None`: none of it is, or it is in several.
pub fn renew(
    table: &mut Table,
    range: &Range<usize>,
    by_kernel: impl Fn(&Range<usize>) -> bool,
) -> Option<Result<(), Decline>> {
    let start = match place(table, range)? {
        Ok(start) => start,
        Err(why) => return Some(Err(why)),
    };
    let room = table.private.get(start)?.room.clone();
    let within = range.start.max(room.start)..range.end.min(room.end);
    let mut renewed = Ok(());
    for outside in [range.start..within.start, within.end..range.end] {
        if !outside.is_empty() {
            table.reservations.forget(&outside);
            if !by_kernel(&outside) {
                renewed = Err(Decline::Error);
            }
        }
    }
    let renewed = renewed.and_then(|()| table.private.zero_part(start, &within));
    if renewed.is_ok() {
        // Of a new mapping nothing was advised; after mprotect it is as it was.
        table.private.let_children_have(&within);
    }
    give::end_if_dead(table, start);
    Some(renewed)
}

/// `mprotect(2)`, before it is done: reserved parts of the range that are to be read and written come to be the engine's, or
/// are no reservation any more. The caller counts declined ones.
pub fn before_protect(
    table: &mut Table,
    range: &Range<usize>,
    protection: c_int,
) -> Result<(), Decline> {
    let mut done = Ok(());
    match protection {
        libc::PROT_NONE => return done,
        BOTH => {
            for reserved in table.reservations.over(range) {
                if let Some(Err(why)) = adopt_for(table, reserved, range) {
                    done = Err(why);
                }
            }
            for start in table.private.over(range) {
                let taken = open_parts(table, start, range);
                done = done.and(taken);
                give::end_if_dead(table, start);
            }
        }
        _ => {}
    }
    table.forget_reserved(range);
    done
}

/// Takes the reserved parts of a range in a mapping.
fn open_parts(table: &mut Table, start: usize, range: &Range<usize>) -> Result<(), Decline> {
    let reserved = table.private.get(start);
    let reserved = reserved.map_or_else(Vec::new, |mapping| mapping.reserved.within(range));
    for part in reserved {
        // The kernel's call keeps bytes: of calls past the hooks nothing is known.
        if !is_empty(&part) {
            return Err(Decline::Error);
        }
        table.private.zero_part(start, &part)?;
    }
    Ok(())
}

/// The taken mapping that has some of a range, and can have parts renewed: made now over a reservation, if it is one. `None`: there
/// is none.
fn place(table: &mut Table, range: &Range<usize>) -> Option<Result<usize, Decline>> {
    match table.private.over(range)[..] {
        [] => match &table.reservations.over(range)[..] {
            [reserved] => adopt_for(table, reserved.clone(), range),
            _ => None,
        },
        [start] => table.private.can_renew(start).then_some(Ok(start)),
        _ => None,
    }
}

/// Makes a window over a reservation for the sake of a range, which has enough of it.
fn adopt_for(
    table: &mut Table,
    reserved: Range<usize>,
    range: &Range<usize>,
) -> Option<Result<usize, Decline>> {
    let (from, to) = (reserved.start.max(range.start), reserved.end.min(range.end));
    (from + LEAST <= to).then(|| adopt(table, reserved))
}

/// Makes a window over a reservation.
fn adopt(table: &mut Table, reserved: Range<usize>) -> Result<usize, Decline> {
    let engine = take::engine_of_private(table)?;
    // SAFETY: the program's own, and only its calls, which all come by here, make use of it.
    let map = unsafe { MmapMut::over_reserved(&engine, &reserved) };
    let map = map.map_err(|why| table.failed(&why))?;
    let start = reserved.start;
    let childless = match table.reservations.take(start) {
        true => Ranges::of(reserved.clone()),
        false => Ranges::default(),
    };
    table.private.add(PrivateMapping {
        live: Ranges::default(),
        taken: Ranges::default(),
        holes: Ranges::default(),
        reserved: Ranges::of(reserved.clone()),
        protection: BOTH,
        leased: None,
        is_file: false,
        file_bytes: usize::MAX,
        is_block: false,
        cut: true,
        childless,
        map,
        room: reserved,
    });
    Ok(start)
}

/// True if none of the pages of a range is in memory, and all of them are mapped.
fn is_empty(range: &Range<usize>) -> bool {
    /// Pages that are looked at by a call.
    const PAGES: usize = 4096;
    let mut there = [0_u8; PAGES];
    range.clone().step_by(PAGES * PAGE).all(|start| {
        let bytes = (range.end - start).min(PAGES * PAGE);
        // SAFETY: fills as many bytes as there are pages.
        let looked = unsafe {
            crate::call::any(
                libc::SYS_mincore,
                [start, bytes, there.as_mut_ptr() as usize, 0],
            )
        };
        looked == 0 && there[..bytes / PAGE].iter().all(|&page| page & 1 == 0)
    })
}
