//! The simulated machine.
//!
//! Threads are fibers, each with a clock. The one with the earliest moment is
//! resumed, always; so operations are executed in the order of virtual time,
//! and one seed gives one run, in any process and any build.
//!
//! Read in this order: `kernel` (how an operation finds its moment), `line`
//! (the cost of a cache line), `memory` (bandwidth), `cpu` (whose turn it is), `futex`, `run`.

mod arena;
mod cpu;
mod distance;
mod events;
mod futex;
mod heap;
mod hot;
mod kernel;
mod line;
mod memory;
pub(crate) mod operation;
mod random;
mod region;
mod run;
mod spare_pages;
mod stuck;
mod thread;
mod trace;

use core::cell::Cell;
use core::panic::Location;
use core::ptr::NonNull;

pub use heap::Heap;
pub use hot::{HotLine, HotSleep};
pub use random::{Random, mix};
pub use run::{Report, run};
pub use stuck::{Cause, Stuck, Unended};
pub use thread::{JoinHandle, spawn_named};
pub use trace::{Event, Operation};

pub(crate) use futex::{wait, wake};

use crate::PAGE;
use crate::topology::Topology;
use kernel::{Costs, Machine};
use thread::State;

/// A machine to run on.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its topology and options.
    pub topology: Topology,
    /// How many of its CPUs there are: the first ones in the order of placement.
    pub cores: usize,
    /// Draws the small delays of starts and wake-ups.
    pub seed: u64,
    /// Whether the report is to have all that happened.
    pub trace: bool,
    /// The longest that a thread may wait for a word or a CPU, or ask in vain,
    /// in virtual nanoseconds; longer is starvation. 0 for no limit.
    pub patience_ns: u64,
}

impl Config {
    /// The first `cores` CPUs of a machine, without a trace, and with a minute's
    /// patience.
    pub fn new(topology: Topology, cores: usize, seed: u64) -> Self {
        Self {
            topology,
            cores,
            seed,
            trace: false,
            patience_ns: 60_000_000_000,
        }
    }
}

/// Reserves the memory of all machines of this process, 16 TiB of addresses, which [`run`] needs. A limit of the process
/// (RLIMIT_AS) may refuse that.
pub fn reserve() -> std::io::Result<()> {
    region::reserve()
}

thread_local! {
    /// When the last machine of this thread ended.
    static LAST_NOW: Cell<u64> = const { Cell::new(0) };
}

/// Calls `f` with the running machine, if there is one.
#[inline]
fn with<R>(f: impl FnOnce(*mut Machine) -> R) -> Option<R> {
    let machine = kernel::machine();
    (!machine.is_null()).then(|| f(machine))
}

/// True inside a machine.
pub fn is_running() -> bool {
    !kernel::machine().is_null()
}

/// The calling thread's virtual clock, in nanoseconds since the machine's
/// start. Outside a machine: the end of the last one of this thread.
pub fn now_ns() -> u64 {
    // SAFETY: the machine of this thread; no borrow of it lives.
    let now = with(|machine| unsafe { (*machine).now });
    now.unwrap_or_else(|| LAST_NOW.get()) / 1000
}

/// Processor time that the calling thread has used, in virtual nanoseconds; 0
/// outside a machine.
pub fn cpu_ns() -> u64 {
    with(|machine| {
        // SAFETY: the machine of this thread; no borrow of it lives.
        unsafe {
            let running = &*(*machine).running;
            (running.cpu_time + (*machine).now - running.since) / 1000
        }
    })
    .unwrap_or(0)
}

/// Sleeps, off the processor, until the virtual clock is at `at` nanoseconds.
///
/// # Panics
/// Outside a machine.
#[track_caller]
pub fn sleep_until_ns(at: u64) {
    let place = Location::caller();
    let slept = with(|machine| {
        let until = at.saturating_mul(1000);
        // SAFETY: the machine of this thread; no borrow of it lives.
        unsafe {
            (*machine).now += (*machine).scheduler.call;
            Machine::begin(machine);
            if (*machine).now < until {
                Machine::block(machine, State::Sleeps { until }, place);
            }
        }
    });
    slept.expect("virtual time passes inside a machine only");
}

/// A number drawn by the seed.
///
/// # Panics
/// Outside a machine.
pub fn random() -> u64 {
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe { (*machine).random.next() }).expect("numbers are drawn inside a machine")
}

/// Interrupts every other processor on which a thread runs, and takes `ns` of
/// its time. Returns how many; the caller's own work has the cost of sending.
pub fn interrupt_others(ns: u64) -> usize {
    with(|machine| {
        // SAFETY: the machine of this thread; no borrow of it lives.
        unsafe {
            Machine::begin(machine);
            (*machine).interrupt_others(ns.saturating_mul(1000))
        }
    })
    .unwrap_or(0)
}

/// How long work of `ns` takes where the caller runs: longer beside another thread of its core.
pub fn work_time_ns(ns: u64) -> u64 {
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe { (*machine).work_time(ns) }).unwrap_or(ns)
}

/// The caller waits for `ns` and keeps its processor. Nothing happens outside a machine.
pub fn spin_ns(ns: u64) {
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe { Machine::spend(machine, ns.saturating_mul(1000)) });
}

/// Processor time of the caller, in picoseconds.
#[inline]
pub(crate) fn work_ps(time: u64) {
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe { Machine::work(machine, time) });
}

/// The processor of the caller.
#[inline]
pub(crate) fn current_cpu() -> Option<usize> {
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| usize::from(unsafe { (*machine).cpu }))
}

/// A pause of a thread that polls. False outside a machine.
#[inline]
#[track_caller]
pub(crate) fn pause(time: u64) -> bool {
    let at = Location::caller();
    with(|machine| {
        // SAFETY: the machine of this thread; no borrow of it lives.
        unsafe {
            (*machine).now += time;
            Machine::begin(machine);
            if (*machine).asks_in_vain(at) {
                Machine::leave(machine);
            }
        }
    })
    .is_some()
}

/// Lets the next in the queue run. False outside a machine.
#[track_caller]
pub(crate) fn yield_now() -> bool {
    let at = Location::caller();
    with(|machine| {
        // SAFETY: the machine of this thread; no borrow of it lives.
        unsafe {
            // Never nothing: a thread that polls for ever has to come to its patience's end.
            let call = (*machine).scheduler.call.max(1000);
            Machine::step(machine, Operation::Yield, at, |_| call);
            if (*machine).asks_in_vain(at) {
                Machine::leave(machine);
            }
            if (*machine).now >= (*machine).limit {
                Machine::in_order(machine);
            }
            Machine::pass(machine);
        }
    })
    .is_some()
}

/// Costs of a page, for a part of it.
fn pro_rata(page: u64, bytes: usize) -> u64 {
    page * bytes as u64 / PAGE as u64
}

/// Bytes are copied: read from memory, and written to it.
#[inline]
#[track_caller]
pub(crate) fn copies(bytes: usize) {
    moves(2 * bytes, |costs| pro_rata(costs.copy, bytes));
}

/// Bytes are cleared: written to memory. Nothing happens outside a machine.
#[inline]
#[track_caller]
pub fn clears(bytes: usize) {
    moves(bytes, |costs| pro_rata(costs.clear, bytes));
}

/// Bytes go from memory or to it, in the time that the CPU needs or longer.
#[inline]
#[track_caller]
fn moves(bytes: usize, cost: impl FnOnce(&Costs) -> u64) {
    let at = Location::caller();
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe {
        Machine::step(machine, Operation::Bytes, at, |machine| {
            let cost = cost(machine.costs());
            machine.transfer(bytes as u64, cost)
        });
    });
}

/// A byte is loaded from the memory of a NUMA node, by way of no cache. Nodes are numbered from 0. Nothing happens
/// outside a machine.
#[inline]
#[track_caller]
pub fn loads_from(node: usize) {
    let at = Location::caller();
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe {
        Machine::step(machine, Operation::Bytes, at, |machine| {
            machine.load(node, region::LINE as u64)
        });
    });
}

/// Maps pages from the machine's memory. `None` outside a machine.
#[track_caller]
pub(crate) fn map_pages(bytes: usize) -> Option<Option<NonNull<u8>>> {
    let at = Location::caller();
    // SAFETY: the machine of this thread; no borrow of it lives.
    with(|machine| unsafe {
        if !Machine::takes_spare_page(machine, bytes, at) {
            Machine::step(machine, Operation::Map, at, |machine| machine.costs().map);
        }
        let bytes = bytes.next_multiple_of(PAGE);
        (*machine).own(|machine| machine.arena.alloc(bytes, true))
    })
}

/// Gives pages back. False if they are not a machine's.
///
/// # Safety
/// They came from one `map_pages`, if from a machine, and nobody uses them.
#[track_caller]
pub(crate) unsafe fn unmap_pages(addr: NonNull<u8>, bytes: usize) -> bool {
    let at = Location::caller();
    let Some(place) = region::place(region::base(), addr.addr().get()) else {
        return false;
    };
    // SAFETY: as in `map_pages`, and the caller's promise.
    unsafe {
        let is_kept = with(|machine| Machine::keeps_spare_page(machine, bytes, at));
        match is_kept {
            Some(true) => clears(PAGE),
            Some(false) => {
                with(|machine| {
                    Machine::step(machine, Operation::Map, at, |machine| machine.costs().map)
                });
            }
            None => {}
        }
        heap::free(addr.as_ptr(), place, bytes.next_multiple_of(PAGE));
    }
    true
}
