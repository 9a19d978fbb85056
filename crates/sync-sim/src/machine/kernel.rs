//! The machine's state, and how an operation finds its moment.
//!
//! There is one machine at most in a thread of the process; all its fibers run
//! there. Code that may switch to another fiber takes the machine by pointer: no
//! borrow of it lives over a switch.

use core::cell::Cell;
use core::panic::Location;
use std::any::Any;
use std::collections::HashMap;

use super::arena::Arena;
use super::cpu::Cpu;
use super::distance::{CpuSet, Distances};
use super::events::{Event as Moment, Events};
use super::futex::Bucket;
use super::hot::Hot;
use super::line::{Asker, Line, Wait};
use super::memory::Memory;
use super::random::Random;
use super::region;
use super::spare_pages::SparePages;
use super::stuck::Stuck;
use super::thread::{Stacks, Thread};
use super::trace::{Digest, Event, Operation};
use crate::topology::{SchedulerCosts, Topology};

/// A place in the source.
pub type At = &'static Location<'static>;

thread_local! {
    static MACHINE: Cell<*mut Machine> = const { Cell::new(core::ptr::null_mut()) };
}

/// The machine that runs in this thread; null if none does.
#[inline(always)]
pub fn machine() -> *mut Machine {
    MACHINE.get()
}

/// Says which machine runs in this thread.
pub fn set_machine(machine: *mut Machine) {
    MACHINE.set(machine);
}

/// Costs of an operation, in picoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub code: u64,
    pub hit: u64,
    pub rmw: u64,
    pub memory: u64,
    pub hold: u64,
    pub clear: u64,
    pub copy: u64,
    pub map: u64,
}

impl Costs {
    /// Those of a machine, on a core whose other hardware threads are idle.
    fn alone(topology: &Topology) -> Self {
        Self {
            code: topology.line.code,
            hit: topology.line.hit,
            rmw: topology.line.rmw,
            memory: topology.line.memory,
            hold: topology.line.hold,
            clear: topology.page.clear,
            copy: topology.page.copy,
            map: topology.page.map,
        }
    }

    /// Those of a core that another hardware thread works on too. A line from elsewhere takes as long as ever.
    fn shared(self, topology: &Topology) -> Self {
        let longer = |cost| longer(cost, topology.smt_extra);
        Self {
            code: longer(self.code),
            hit: longer(self.hit),
            rmw: longer(self.rmw),
            // So that what a core does between a load and its exchange still fits.
            hold: longer(self.hold),
            clear: longer(self.clear),
            copy: longer(self.copy),
            map: longer(self.map),
            ..self
        }
    }
}

/// Work that takes so many percent longer.
pub fn longer(time: u64, percent: u64) -> u64 {
    time.saturating_add((u128::from(time) * u128::from(percent) / 100) as u64)
}

/// A simulated machine.
pub struct Machine {
    /// The running thread's clock, in picoseconds.
    pub now: u64,
    /// When something else happens.
    pub next: u64,
    /// When the running thread has to look up: `next`, or its CPU's request.
    pub limit: u64,
    /// The running thread, its number, and its CPU.
    pub running: *mut Thread,
    pub thread: u32,
    pub cpu: u16,
    /// True while the machine works for itself: its memory is the system's.
    pub own_work: bool,
    /// The cost of the operation under way after its moment.
    pub after: u64,
    /// Of a core with one hardware thread that works, and of one with more.
    costs: [Costs; 2],
    /// By how many percent work takes longer on the latter.
    pub smt_extra: u64,
    pub operations: u64,
    digest: Digest,
    /// The region's begin, and that of its lines' states.
    base: usize,
    states: usize,
    run: u32,
    /// The last line that was seen for the first time.
    last_line: u32,

    pub events: Events,
    /// The next event, taken out of `events` already.
    pub due: Option<Moment>,
    pub cpus: Vec<Cpu>,
    pub idle: CpuSet,
    /// Threads in the queues of all CPUs.
    pub queued: usize,
    pub distances: Distances,
    pub memory: Memory,
    /// Single pages that were given back and are kept for the next caller, for each processor.
    pub spare_pages: Box<[SparePages]>,
    pub scheduler: SchedulerCosts,
    /// Boxed, for fibers run while more are made.
    #[allow(clippy::vec_box)]
    pub threads: Vec<Box<Thread>>,
    /// Threads that have not ended.
    pub live: usize,
    pub switches: u64,
    pub buckets: Vec<Bucket>,
    pub hot: Hot,
    /// Sleeps on words.
    pub sleeps: Hot,
    pub trace: Option<Vec<Event>>,
    pub arena: Arena,
    /// Lines of words that are not in the region, each alone.
    others: HashMap<usize, Box<Line>, foldhash::Plain>,
    pub stacks: Stacks,
    pub seed: u64,
    /// For delays.
    pub jitter: Random,
    /// For the workload.
    pub random: Random,
    pub patience: u64,
    /// The moment of the next look for threads that wait too long.
    pub look_at: u64,
    pub panic: Option<Box<dyn Any + Send>>,
    pub stuck: Option<Stuck>,
}

impl Machine {
    /// A machine on which nothing runs.
    pub fn new(config: &super::Config, run: u32) -> Self {
        let topology = &config.topology;
        let distances = Distances::new(topology, config.cores);
        let alone = Costs::alone(topology);
        let arena = Arena::new(run);
        let mut idle = CpuSet::NONE;
        (0..config.cores).for_each(|cpu| idle.add(cpu as u16));
        let patience = match config.patience_ns {
            0 => u64::MAX,
            ns => ns.saturating_mul(1000),
        };
        Self {
            now: 0,
            next: 0,
            limit: 0,
            running: core::ptr::null_mut(),
            thread: 0,
            cpu: 0,
            own_work: true,
            after: 0,
            costs: [alone, alone.shared(topology)],
            smt_extra: topology.smt_extra,
            operations: 0,
            digest: Digest::new(),
            base: region::base(),
            states: region::states(),
            run,
            last_line: super::futex::BUCKETS as u32,
            events: Events::new(),
            due: None,
            cpus: vec![Cpu::default(); config.cores],
            idle,
            queued: 0,
            distances,
            memory: Memory::new(&topology.memory, topology.memory_nodes()),
            spare_pages: vec![SparePages::default(); config.cores].into(),
            scheduler: topology.scheduler.clone(),
            threads: Vec::new(),
            live: 0,
            switches: 0,
            buckets: super::futex::buckets(run),
            hot: Hot::new(),
            sleeps: Hot::new(),
            trace: config.trace.then(Vec::new),
            arena,
            others: HashMap::default(),
            stacks: Stacks::default(),
            seed: config.seed,
            jitter: Random::new(config.seed),
            random: Random::new(!config.seed),
            patience,
            look_at: patience,
            panic: None,
            stuck: None,
        }
    }

    /// The costs of the running thread's operations at this moment.
    #[inline]
    pub fn costs(&self) -> &Costs {
        &self.costs[usize::from(self.shares_core())]
    }

    /// Calls `work` while the machine's memory is the system's.
    pub fn own<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let before = core::mem::replace(&mut self.own_work, true);
        let result = work(self);
        self.own_work = before;
        result
    }

    /// Begins an operation on the line of an address, to write or to read it.
    /// Returns the line's number at the moment when it is to be executed.
    ///
    /// # Safety
    /// This thread's machine, called from its running fiber; no borrow lives.
    #[inline]
    pub unsafe fn access(this: *mut Self, addr: usize, exclusive: bool, rmw: bool, at: At) -> u32 {
        // SAFETY: the caller's promise; the line stays where it is.
        unsafe {
            Self::begin(this);
            let line = (*this).line(addr);
            Self::fetch(this, line, exclusive, at);
            (*this).after = if rmw {
                (*this).costs().rmw
            } else {
                (*this).after
            };
            (*line).id
        }
    }

    /// Moves the clock to the next operation, and waits for its turn.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    #[inline]
    pub unsafe fn begin(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            (*this).operations += 1;
            (*this).now += (*this).costs().code;
            if (*this).now >= (*this).limit {
                Self::in_order(this);
            }
        }
    }

    /// Waits until a line is here.
    ///
    /// # Safety
    /// As [`access`](Self::access); the line stays where it is.
    #[inline]
    pub unsafe fn fetch(this: *mut Self, line: *mut Line, exclusive: bool, at: At) {
        // SAFETY: the caller's promise.
        unsafe {
            let machine = &mut *this;
            let costs = *machine.costs();
            let cpu = machine.cpu;
            // Nobody gets the line before the operation itself is over.
            let hold = costs.hold.max(costs.rmw);
            let asker = Asker {
                cpu,
                now: machine.now,
                hold,
                memory: costs.memory,
                distances: &machine.distances,
                held: &mut machine.cpus[usize::from(cpu)].held,
            };
            let wait = (*line).request(exclusive, asker);
            match wait {
                Wait::Hit => machine.after = costs.hit,
                Wait::Miss {
                    arrives,
                    queued,
                    transfer,
                } => {
                    machine.after = 0;
                    machine.now = arrives;
                    if machine.hot.count(at, queued, transfer) {
                        machine.own(|machine| machine.hot.grow());
                    }
                    if arrives >= machine.next {
                        Self::hand_over(this);
                    }
                }
            }
        }
    }

    /// An operation that has no line, and costs what `cost` says at its moment.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    #[inline]
    pub unsafe fn step(
        this: *mut Self,
        operation: Operation,
        at: At,
        cost: impl FnOnce(&mut Self) -> u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::begin(this);
            (*this).after = cost(&mut *this);
            (*this).note(operation, 0, false, at);
        }
    }

    /// Ends an operation: it has been executed now.
    #[inline]
    pub fn note(&mut self, operation: Operation, line: u32, zero: bool, at: At) {
        self.digest.add(self.now);
        let what = (operation as u64) << 1 | u64::from(zero);
        self.digest
            .add(u64::from(line) << 32 | u64::from(self.thread) << 8 | what);
        if self.trace.is_some() {
            self.record(operation, line, zero, at);
        }
        self.now += self.after;
        self.after = 0;
    }

    #[cold]
    fn record(&mut self, operation: Operation, line: u32, zero: bool, at: At) {
        let event = Event {
            time_ps: self.now,
            thread: self.thread,
            cpu: self.cpu,
            operation,
            line,
            zero,
            at,
        };
        self.own(|machine| machine.trace.get_or_insert_default().push(event));
    }

    /// The digest until now.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// The running thread got something done.
    #[inline]
    pub fn progress(&mut self) {
        // SAFETY: threads stay where they are, and only this one is borrowed.
        unsafe { (*self.running).progress = self.now };
    }

    /// The line of an address.
    #[inline]
    pub fn line(&mut self, addr: usize) -> *mut Line {
        let Some(place) = region::place(self.base, addr) else {
            return self.other_line(addr);
        };
        let state = self.states + (place & !(region::LINE - 1));
        let line = core::ptr::with_exposed_provenance_mut::<Line>(state);
        // SAFETY: within the reservation of states, zeroed at first.
        unsafe {
            if !(*line).is_of(self.run) {
                self.last_line += 1;
                line.write(Line::new(self.run, self.last_line));
            }
        }
        line
    }

    #[cold]
    fn other_line(&mut self, addr: usize) -> *mut Line {
        self.own(|machine| {
            let line = machine.others.entry(addr).or_insert_with(|| {
                machine.last_line += 1;
                Box::new(Line::new(machine.run, machine.last_line))
            });
            core::ptr::from_mut(&mut **line)
        })
    }

    /// Lets everything happen that comes before the running thread's clock, and
    /// the events that its CPU waits for.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    #[inline(never)]
    pub unsafe fn in_order(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            while (*this).now >= (*this).limit {
                let machine = &mut *this;
                if machine.now >= machine.cpus[usize::from(machine.cpu)].look_at {
                    Self::look(this);
                }
                if (*this).now >= (*this).next {
                    Self::hand_over(this);
                    // Resumed, it is the first of its moment: others of
                    // the same one come after.
                    if (*this).now < (&(*this).cpus)[usize::from((*this).cpu)].look_at {
                        return;
                    }
                }
            }
        }
    }

    /// Lets others run until the running thread's clock.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    #[inline]
    pub unsafe fn hand_over(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let machine = &mut *this;
            let running = &mut *machine.running;
            if machine.events.next_time() <= machine.now {
                let (due, number) = machine.events.replace(machine.now, machine.thread);
                running.event = number;
                machine.due = Some(due);
            } else {
                running.event = machine.events.push(machine.now, machine.thread);
            }
            running.event_time = machine.now;
            Self::leave(this);
        }
    }

    /// Leaves the running fiber, until an event of its thread is due.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    #[inline]
    pub unsafe fn leave(this: *mut Self) {
        // SAFETY: the fiber's own way back, as long as it lives.
        unsafe { (*(*(*this).running).yielder).suspend(()) };
    }

    /// Says when the running thread has to look up; after each change of events
    /// and of its CPU.
    #[inline]
    pub fn set_limit(&mut self) {
        self.next = self.events.next_time().min(self.look_at);
        self.limit = self.next.min(self.cpus[usize::from(self.cpu)].look_at);
    }
}

/// A hash for addresses: the table is never read in its own order.
mod foldhash {
    use core::hash::{BuildHasherDefault, Hasher};

    pub type Plain = BuildHasherDefault<Address>;

    #[derive(Default)]
    pub struct Address(u64);

    impl Hasher for Address {
        fn finish(&self) -> u64 {
            self.0
        }

        fn write(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                self.write_usize(usize::from(byte));
            }
        }

        fn write_usize(&mut self, word: usize) {
            let product = (self.0 ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.0 = product ^ product >> 32;
        }
    }
}
