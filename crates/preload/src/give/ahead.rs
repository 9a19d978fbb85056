//! Large parts that are handed over: their pages come from swap, and that lasts. So most of it is done before the call that wants it,
//! a piece at a time, and others have the table in between.

use super::hand_over;
use crate::private::PrivateMapping;
use crate::table::{self, Table};
use core::ops::Range;
use std::time::Duration;

/// Bytes of a piece.
const PIECE: usize = 8 << 20;

/// The time between two pieces: one that waits for the table has it by then, mostly.
const PAUSE: Duration = Duration::from_millis(1);

/// Hands served parts of a range over until a piece is left: those of mappings of which `is_wanted` says that the call on this part
/// needs it. In a thread that is inside and has nothing locked.
pub fn hand_over_ahead(
    range: &Range<usize>,
    is_wanted: impl Fn(&PrivateMapping, &Range<usize>) -> bool,
) {
    if range.len() <= PIECE {
        return;
    }
    loop {
        let mut table = table::lock();
        match first_piece(&table, range, &is_wanted) {
            // The call itself finds the error again.
            Some(piece) if hand_over(&mut table, &piece) => {}
            _ => return,
        }
        drop(table);
        std::thread::sleep(PAUSE);
    }
}

/// The first piece, if there are more.
fn first_piece(
    table: &Table,
    range: &Range<usize>,
    is_wanted: impl Fn(&PrivateMapping, &Range<usize>) -> bool,
) -> Option<Range<usize>> {
    let mut live = Vec::new();
    for start in table.private.over(range) {
        let mapping = table.private.get(start)?;
        let within = mapping.room.start.max(range.start)..mapping.room.end.min(range.end);
        if is_wanted(mapping, &within) {
            live.extend(mapping.live.within(&within));
        }
    }
    let bytes: usize = live.iter().map(Range::len).sum();
    let first = live.first().filter(|_| bytes > PIECE)?;
    Some(first.start..first.end.min(first.start + PIECE))
}
