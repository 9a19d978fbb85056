//! Taking private memory.

use super::{engine_of_private, lease};
use crate::count::{BLOCKS, Decline, TAKEN};
use crate::decide::Wanted;
use crate::marked;
use crate::private::{PrivateMapping, new_tables};
use crate::ranges::Ranges;
use crate::table::Table;
use softfault::{MmapMut, MmapOptions};
use std::io;

/// Takes anonymous memory; where it is, or why the kernel is to make it. In a thread that is inside.
pub fn take_anonymous(table: &mut Table, bytes: usize) -> Result<usize, Decline> {
    let engine = engine_of_private(table)?;
    table.private.has_room(&engine, bytes, new_tables(bytes))?;
    let map = MmapOptions::new().len(bytes).map_anon_in(&engine);
    enter(table, map, bytes, None)
}

/// The same for a block of malloc(3).
pub fn take_block(table: &mut Table, bytes: usize) -> Result<usize, Decline> {
    let start = take_anonymous(table, bytes)?;
    if let Some(mapping) = table.private.get_mut(start) {
        mapping.is_block = true;
    }
    BLOCKS.add(bytes);
    Ok(start)
}

/// Takes private memory that begins as a file; the file stays as it is from now on.
pub fn take_file(table: &mut Table, wanted: &Wanted) -> Result<usize, Decline> {
    let engine = engine_of_private(table)?;
    let tables = new_tables(wanted.bytes);
    table.private.has_room(&engine, wanted.bytes, tables)?;
    let leased = lease(table, wanted)?;
    let mut options = MmapOptions::new();
    options.offset(wanted.offset).len(wanted.bytes);
    if wanted.populate {
        options.populate();
    }
    // SAFETY: somebody vouches for the file, or the user does; and the program's own references are as they would be
    // with a mapping of the kernel's.
    let map = unsafe { options.map_copy_in(&engine, wanted.fd) };
    let rest = wanted.size.saturating_sub(wanted.offset);
    let rest = rest.next_multiple_of(crate::decide::PAGE as u64);
    let taken = enter(table, map, wanted.bytes, Some(rest as usize));
    match (&taken, leased) {
        (&Ok(start), leased) => {
            if let Some(mapping) = table.private.get_mut(start) {
                mapping.leased = leased;
            }
        }
        (Err(_), Some(file)) => table.leases.give(file),
        (Err(_), None) => {}
    }
    taken
}

fn enter(
    table: &mut Table,
    map: io::Result<MmapMut>,
    bytes: usize,
    file_bytes: Option<usize>,
) -> Result<usize, Decline> {
    let map = map.map_err(|why| table.failed(&why))?;
    let room = map.room().ok_or(Decline::Error)?;
    // Whole pages, from the window's first on.
    if room.len() != bytes || !marked::can_mark(&room) {
        return Err(Decline::Error);
    }
    TAKEN.add(bytes);
    table.private.add(PrivateMapping {
        live: Ranges::of(room.clone()),
        taken: Ranges::of(room.clone()),
        holes: Ranges::default(),
        reserved: Ranges::default(),
        protection: libc::PROT_READ | libc::PROT_WRITE,
        leased: None,
        is_file: file_bytes.is_some(),
        file_bytes: file_bytes.unwrap_or(usize::MAX),
        is_block: false,
        cut: false,
        childless: Ranges::default(),
        map,
        room: room.clone(),
    });
    Ok(room.start)
}
