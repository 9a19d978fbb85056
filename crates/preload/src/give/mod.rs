//! Private memory that goes, or is handed over to the program, with its entries in the table.

mod ahead;
mod stack;

pub use ahead::hand_over_ahead;
pub use stack::leave_stack;

use crate::leases::FileKey;
use crate::marked;
use crate::table::Table;
use core::ops::Range;

/// Drops a mapping of which nothing is served any more. The parts that belong to the program stay.
pub fn end_if_dead(table: &mut Table, start: usize) {
    if let Some(mapping) = table.private.remove_dead(start) {
        let leased = mapping.leased;
        let room = mapping.room.clone();
        let is_block = mapping.is_block;
        let reserved = mapping.reserved_parts();
        drop(mapping);
        // A block stays marked until it is freed, and so does a room of which some is reserved: others look at the marks.
        if reserved.is_empty() && !is_block {
            marked::mark(&room, false);
        }
        for (part, is_childless) in reserved {
            table.reservations.remember(&part, is_childless);
        }
        leased.into_iter().for_each(|file| table.leases.give(file));
    }
}

/// Unmaps the parts of a range; false if it cannot.
pub fn unmap(table: &mut Table, range: &Range<usize>) -> bool {
    let mut done = true;
    for start in table.private.over(range) {
        done &= table.private.unmap_part(start, range);
        end_if_dead(table, start);
    }
    done
}

/// Hands the served parts of a range over to the program; false if it cannot be: the other parts stay as they were.
pub fn hand_over(table: &mut Table, range: &Range<usize>) -> bool {
    let mut done = true;
    for start in table.private.over(range) {
        done &= table.private.hand_over_part(start, range);
        end_if_dead(table, start);
    }
    done
}

/// Hands all that begins as a file over; false if it cannot be.
pub fn hand_over_file(table: &mut Table, file: FileKey) -> bool {
    let all = table.private.iter_mut();
    let of_file = all.filter(|mapping| mapping.leased == Some(file));
    let rooms: Vec<_> = of_file.map(|mapping| mapping.room.clone()).collect();
    let mut done = true;
    for room in &rooms {
        done &= hand_over(table, room);
    }
    done
}

/// The program maps something else there: the old pages go, and the place is the program's. False if that cannot be.
pub fn before_fixed(table: &mut Table, range: &Range<usize>) -> bool {
    let mut done = true;
    for start in table.private.over(range) {
        let live = table.private.get(start);
        let live = live.map_or_else(Vec::new, |mapping| mapping.live.within(range));
        for part in &live {
            done &= table.private.unmap_part(start, part);
        }
        // Nobody else comes to be there meanwhile: nothing is there, and the addresses are taken.
        done &= table.private.leave_holes(start, range);
        end_if_dead(table, start);
    }
    done
}

/// The kernel is about to replace what is there by a mapping of its own: served parts are handed over, for it may refuse, and places
/// where there was nothing are the program's. False if that cannot be; and these places.
pub fn before_replaced(table: &mut Table, range: &Range<usize>) -> (bool, Vec<Range<usize>>) {
    let (mut done, mut holes) = (true, Vec::new());
    for start in table.private.over(range) {
        let mapping = table.private.get(start);
        holes.extend(mapping.map_or_else(Vec::new, |mapping| mapping.holes.within(range)));
        done &= table.private.hand_over_part(start, range);
        // The addresses are taken until the kernel puts its mapping there.
        done &= table.private.leave_holes(start, range);
        end_if_dead(table, start);
    }
    (done, holes)
}

/// The kernel has refused: there is nothing again where there was nothing.
pub fn not_replaced(table: &mut Table, holes: &[Range<usize>]) {
    for hole in holes {
        unmap(table, hole);
    }
}

/// In a child of fork: its memory goes on. Leases are the parent's, and the child would not learn of writes of others:
/// the kernel serves mappings of such files.
pub fn forked(table: &mut Table) {
    table.reservations.forked();
    table.private.close_childless();
    let mut leased = Vec::new();
    for mapping in table.private.iter_mut() {
        if mapping.leased.take().is_some() {
            leased.push(mapping.room.clone());
        }
    }
    for room in leased {
        hand_over(table, &room);
    }
}
