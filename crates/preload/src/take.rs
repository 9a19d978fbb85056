//! Taking a mapping: the engine maps the file, and the program gets the addresses.

mod private;

pub use private::{take_anonymous, take_block};

use crate::assurance::Assurance;
use crate::count::{Decline, TAKEN};
use crate::decide::Wanted;
use crate::leases::{FileKey, NoLease};
use crate::options::{self, Mode};
use crate::table::{Table, Taken};
use crate::tree::{self, Share};
use crate::{fork, lease_thread, marked, mode, program, reports, swap_failed};
use softfault::{Engine, Faults, MmapOptions};
use std::io;

/// Takes a mapping; where it is, or why the kernel is to make it. In a thread that is inside.
pub fn take(table: &mut Table, wanted: &Wanted) -> Result<usize, Decline> {
    if wanted.writes {
        return private::take_file(table, wanted);
    }
    let engine = engine(table)?;
    let leased = lease(table, wanted)?;
    let mut taken = match map(table, &engine, wanted) {
        Ok(taken) => taken,
        Err(why) => {
            leased.into_iter().for_each(|file| table.leases.give(file));
            return Err(table.failed(&why));
        }
    };
    taken.leased = leased;
    taken
        .map
        .allow_inherit_as_private(taken.sharing == libc::MAP_PRIVATE);
    let start = taken.addresses.start;
    marked::mark(&taken.addresses, true);
    TAKEN.add(taken.addresses.len());
    table.add(taken);
    Ok(start)
}

/// Has a lease on the file, if that is how it is known that it stays as it is: before the engine looks at it.
fn lease(table: &mut Table, wanted: &Wanted) -> Result<Option<FileKey>, Decline> {
    let leased = (wanted.assurance == Assurance::Lease).then_some(wanted.file);
    if let Some(file) = leased {
        if table.leases.thread.is_none() {
            let started = lease_thread::start();
            table.leases.thread = Some(started.map_err(|why| table.failed(&why))?);
        }
        let taken = table.leases.take(file, wanted.fd);
        taken.map_err(|no| match no {
            NoLease::Declined(why) => why,
            NoLease::Failed(why) => table.failed(&why),
        })?;
    }
    Ok(leased)
}

/// The engine of private memory: in a child of fork that of its inherited memory, if it has any.
pub fn engine_of_private(table: &mut Table) -> Result<Engine, Decline> {
    check_process()?;
    match &table.inherited {
        Some(engine) => Ok(engine.clone()),
        None => engine(table),
    }
}

fn map(table: &Table, engine: &Engine, wanted: &Wanted) -> io::Result<Taken> {
    let end = wanted.offset.checked_add(wanted.bytes as u64);
    let end = end.ok_or(io::ErrorKind::InvalidInput)?;
    // The file's part of the mapping: its last page has the file's bytes to the last one, and zeros.
    let rest = wanted.size.saturating_sub(wanted.offset);
    let within = rest.next_multiple_of(crate::decide::PAGE as u64) >= wanted.bytes as u64;
    if within {
        let len = (wanted.bytes as u64).min(rest) as usize;
        let taken = map_part(engine, wanted, len, None)?;
        let is_other = |other: &Taken| other.sharing != taken.sharing;
        let apart = table.over(&taken.window).any(is_other);
        if table.over(&taken.addresses).next().is_none() && !apart {
            return Ok(taken);
        }
    }
    // Two mappings have two places, private ones are not shared in children of fork, and one that reaches past the end of the file has room for that.
    map_part(engine, wanted, wanted.bytes, Some(end))
}

fn map_part(
    engine: &Engine,
    wanted: &Wanted,
    len: usize,
    separate_window: Option<u64>,
) -> io::Result<Taken> {
    let mut options = MmapOptions::new();
    options.offset(wanted.offset).len(len);
    if wanted.populate {
        options.populate();
    }
    if let Some(bytes) = separate_window {
        options.separate_window(bytes);
    }
    // SAFETY: somebody vouches for the file, or the user does; and the program's own references are as they would be
    // with a mapping of the kernel's.
    let map = unsafe { options.map_in(engine, wanted.fd) }?;
    let (start, window) = (map.as_ptr() as usize, map.window());
    // One that is to be the kernel's own, for any reason, is not taken.
    let window = window.ok_or(io::ErrorKind::Unsupported)?;
    let addresses = start..start + wanted.bytes;
    if addresses.end > window.end || !marked::can_mark(&window) || !map.can_be_handed_back() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let rest = wanted.size.saturating_sub(wanted.offset);
    let rest = rest.next_multiple_of(crate::decide::PAGE as u64);
    Ok(Taken {
        end_of_file: start + rest.min(wanted.bytes as u64) as usize,
        addresses,
        window,
        sharing: wanted.sharing,
        leased: None,
        map,
    })
}

/// A child that shares its parent's memory (CLONE_VM) has the table, and is another process: threads that it started would serve the
/// parent's mappings, end with the child or keep it from ending, and leave the parent without. The parent itself goes on to take mappings.
fn check_process() -> Result<(), Decline> {
    match fork::is_in_parents_memory() {
        true => Err(Decline::NoEngine),
        false => Ok(()),
    }
}

/// The process's engine, made now if there is none.
fn engine(table: &mut Table) -> Result<Engine, Decline> {
    check_process()?;
    if let Some(engine) = &table.engine {
        return Ok(engine.clone());
    }
    if table.refused.is_some() {
        return Err(Decline::NoEngine);
    }
    // Before anything is opened: the program has the few that there are.
    let descriptors = mode::limit(libc::RLIMIT_NOFILE);
    if descriptors < mode::LEAST_DESCRIPTORS {
        table.refused = Some(format!(
            "RLIMIT_NOFILE is {descriptors}, and {} are needed: raise it with `ulimit -n`",
            mode::LEAST_DESCRIPTORS
        ));
        return Err(Decline::NoEngine);
    }
    // Before the engine registers its handlers: ours hold the heap and the table around them.
    fork::watch();
    let mut builder = Engine::builder()
        .faults(match mode::get() {
            Mode::Messages => Faults::Messages,
            Mode::Signals => Faults::Signals,
        })
        .allow_kernel_maps(false)
        .small_maps(0);
    if mode::has_private_memory()
        && let Some(swap) = &options::get().swap
    {
        builder = builder.swap(swap.clone());
        swap_failed::prepare();
    }
    softfault::keep_no_spare_windows();
    softfault::set_sigbus_calls_intercepted();
    if mode::get() == Mode::Signals && program::makes_calls_itself() {
        table.refused =
            Some("a Go program makes system calls itself, which needs faults by messages; here they are signals".into());
        return Err(Decline::NoEngine);
    }
    if let Some(obstacle) = program::obstacle() {
        table.refused = Some(obstacle.into());
        return Err(Decline::NoEngine);
    }
    // Before there is an engine, which would keep its share of the tree's budget.
    if !marked::make() {
        table.refused =
            Some("softfault cannot reserve address space for its table of mappings: raise RLIMIT_AS (`ulimit -v`)".into());
        return Err(Decline::NoEngine);
    }
    let share = match &table.inherited {
        None => tree::join(),
        // All of a process is in one budget: that of the memory which a child of fork goes on with.
        Some(inherited) => {
            builder = builder.within(inherited);
            Share::Own
        }
    };
    let (memory, tree) = match share {
        Share::Own => (options::get().memory, None),
        Share::Of(tree, bytes) => (Some(bytes), Some(tree)),
        Share::Least => (Some(softfault::MIN_MEMORY), None),
    };
    if let Some(bytes) = memory {
        builder = builder.memory(bytes);
    }
    let built = builder.on_reclaim(tree::begins_to_evict).build();
    if let Some(tree) = &tree {
        tree.serve(built.as_ref().ok());
    }
    if tree.is_some() {
        table.tree = tree.filter(|_| built.is_ok());
    }
    match built {
        Ok(engine) => {
            table.engine = Some(engine.clone());
            reports::begin_if_wanted();
            Ok(engine)
        }
        Err(error) => {
            table.refused = Some(match mode::has_few_descriptors() {
                true => format!("{error}: RLIMIT_NOFILE is low, `ulimit -n 64` is enough"),
                false => error.to_string(),
            });
            Err(Decline::NoEngine)
        }
    }
}
