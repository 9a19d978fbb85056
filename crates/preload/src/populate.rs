//! `madvise(2)` POPULATE_READ and POPULATE_WRITE, which wait for the disk for as long as a range is large. Nothing is locked meanwhile: other
//! threads map, and a writer of another file gets its lease. The table says again for each piece which server it has.

use crate::table::{self, Table};
use crate::{call, change, give, inside};
use core::ops::Range;
use libc::c_int;
use softfault::{Engine, FaultError};

/// Bytes that are brought in between two looks. Signals are delivered at each.
const PIECE: usize = 64 << 20;

/// Looks at a part that the engine does not have any more, although the table says so.
const LOOKS: usize = 16;

/// The server of a part, or the kernel's error for it.
enum Server {
    Engine(Engine),
    Kernel,
    Error(c_int),
}

/// The whole call, in a thread that is not inside.
pub fn populate(range: &Range<usize>, advice: c_int) -> c_int {
    let (mut rest, mut looks) = (range.clone(), 0);
    while !rest.is_empty() {
        match piece(&rest, advice) {
            Ok(end) if end > rest.start => (rest.start, looks) = (end, 0),
            Ok(_) if looks < LOOKS => looks += 1,
            Ok(_) => return change::refuse(libc::ENOMEM),
            Err(errno) => return change::refuse(errno),
        }
    }
    0
}

/// The first piece of a range: up to where it is in memory.
fn piece(rest: &Range<usize>, advice: c_int) -> Result<usize, c_int> {
    let _inside = inside::enter();
    if !give::leave_stack() {
        return Err(libc::ENOMEM);
    }
    let (part, server) = look(&mut table::lock(), rest, advice);
    match server {
        Server::Error(errno) => Err(errno),
        Server::Kernel => {
            let args = [part.start, part.len(), advice as usize, 0];
            // SAFETY: changes no byte.
            match unsafe { call::any(libc::SYS_madvise, args) } {
                0 => Ok(part.end),
                _ => Err(call::errno()),
            }
        }
        Server::Engine(engine) => {
            match engine.populate(part.clone(), advice == libc::MADV_POPULATE_WRITE) {
                Ok(()) => Ok(part.end),
                // It was unmapped or handed over meanwhile.
                Err(FaultError::OutOfRange) => Ok(part.start),
                Err(FaultError::NoMemory) => Err(libc::ENOMEM),
                Err(FaultError::ReadOnly) => Err(libc::EINVAL),
                // The kernel says so of the end of a file and of a failed read.
                Err(_) => Err(libc::EFAULT),
            }
        }
    }
}

/// The first piece of a range that has one server.
fn look(table: &mut Table, rest: &Range<usize>, advice: c_int) -> (Range<usize>, Server) {
    change::free_idle(table, rest);
    table.advise_reserved(rest, advice);
    let most = rest.start..rest.end.min(rest.start.saturating_add(PIECE));
    let mut end = most.end;
    for (part, server) in parts(table, &most, advice == libc::MADV_POPULATE_WRITE) {
        if part.start <= most.start {
            return (most.start..part.end, server);
        }
        end = end.min(part.start);
    }
    (most.start..end, Server::Kernel)
}

/// The parts of a range that are not the kernel's.
fn parts(table: &Table, range: &Range<usize>, write: bool) -> Vec<(Range<usize>, Server)> {
    let mut parts = Vec::new();
    for start in table.private.over(range) {
        let Some(mapping) = table.private.get(start) else {
            continue;
        };
        let engine = || Server::Engine(mapping.map.engine().clone());
        let live = mapping.live.within(range).into_iter();
        parts.extend(live.map(|part| (part, engine())));
        let holes = mapping.holes.within(range).into_iter();
        parts.extend(holes.map(|part| (part, Server::Error(libc::ENOMEM))));
    }
    for taken in table.over(range) {
        let part = taken.addresses.start.max(range.start)..taken.addresses.end.min(range.end);
        let server = match write {
            true => Server::Error(libc::EINVAL),
            false => Server::Engine(taken.map.engine().clone()),
        };
        parts.push((part, server));
    }
    // Where nothing of a window is mapped.
    for window in table.windows_over(range) {
        let part = window.start.max(range.start)..window.end.min(range.end);
        parts.push((part, Server::Error(libc::ENOMEM)));
    }
    parts
}
