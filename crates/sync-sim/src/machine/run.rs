//! A run, from its first thread to the end of its last.

use core::panic::Location;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::hot::{HotLine, HotSleep};
use super::kernel::{self, Machine};
use super::stuck::{Cause, Stuck};
use super::thread::State;
use super::trace::Event;
use super::{Config, LAST_NOW};

/// The statistics of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Virtual nanoseconds from the start to the end of the last thread.
    pub elapsed_ns: u64,
    /// Operations of the façade.
    pub operations: u64,
    /// How often another fiber was resumed.
    pub switches: u64,
    /// A number for all that happened, in its order: equal runs have equal ones.
    pub digest: u64,
    /// Where lines were waited for, most first.
    pub hot: Vec<HotLine>,
    /// Where threads slept on words, most first.
    pub sleeps: Vec<HotSleep>,
    /// All that happened, if asked for.
    pub trace: Option<Vec<Event>>,
}

/// Runs `main` as the first thread of a machine, until all its threads have
/// ended.
///
/// If the run cannot go on, or a thread panics (the panic goes on in the caller
/// then), threads that have not ended are left as they are: their stacks, and
/// the values on them, are never freed. To unwind them would run their drops, and
/// those may wait for each other without a machine to do so on.
///
/// # Panics
/// If a thread does, or if it is called inside a machine.
pub fn run<R>(config: Config, main: impl FnOnce() -> R) -> Result<(R, Report), Stuck> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    assert!(kernel::machine().is_null(), "a machine inside a machine");
    // Nought is no run: untouched states of lines have it.
    let number = RUNS.fetch_add(1, Relaxed) + 1;
    let mut machine = Box::new(Machine::new(&config, number));
    let mut result = None;
    let target = &raw mut result;
    let body: Box<dyn FnOnce() + '_> = Box::new(move || {
        let value = main();
        // SAFETY: `result` lives as long as the run, and only this writes it.
        unsafe { *target = Some(value) };
    });
    // SAFETY: the body is called during this run or never: a fiber that has not
    // ended is forgotten.
    let body = unsafe { core::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(body) };
    machine.add_thread("main", 0, Location::caller(), body);
    let machine = Box::into_raw(machine);
    kernel::set_machine(machine);
    // SAFETY: the machine of this thread from here on.
    unsafe { Machine::turn(machine) };
    kernel::set_machine(core::ptr::null_mut());
    // SAFETY: made above.
    let mut machine = unsafe { Box::from_raw(machine) };
    LAST_NOW.set(machine.now);
    for thread in &mut machine.threads {
        core::mem::forget(thread.fiber.take());
    }
    if let Some(panic) = machine.panic.take() {
        drop(machine);
        std::panic::resume_unwind(panic);
    }
    if let Some(stuck) = machine.stuck.take() {
        return Err(stuck);
    }
    let report = Report {
        elapsed_ns: machine.now / 1000,
        operations: machine.operations,
        switches: machine.switches,
        digest: machine.digest(),
        hot: machine.hot.lines(),
        sleeps: machine.sleeps.sleeps(),
        trace: machine.trace.take(),
    };
    drop(machine);
    Ok((result.expect("the first thread has ended"), report))
}

impl Machine {
    /// Lets everything happen, in order, until nothing is left or the run
    /// cannot go on.
    unsafe fn turn(this: *mut Self) {
        loop {
            // SAFETY: no fiber runs here, and each borrow ends before one does.
            let machine = unsafe { &mut *this };
            machine.own_work = true;
            let Some(event) = machine.due.take().or_else(|| machine.events.pop()) else {
                if machine.live > 0 {
                    machine.stuck = Some(machine.stuck(Cause::Deadlock));
                }
                return;
            };
            let number = event.thread();
            let thread = &mut *machine.threads[number as usize];
            let timer = event.number() == thread.timer;
            if !timer && event.number() != thread.event {
                continue;
            }
            machine.now = event.time();
            if machine.now >= machine.look_at {
                machine.look_for_starved();
                if machine.stuck.is_some() {
                    return;
                }
            }
            if timer {
                machine.time_out(number);
                continue;
            }
            // Nought is no event.
            let thread = &mut *machine.threads[number as usize];
            thread.event = 0;
            let cpu = thread.cpu.expect("a thread that runs has a CPU");
            machine.running = thread;
            machine.thread = number;
            machine.cpu = cpu;
            machine.set_limit();
            machine.switches += 1;
            machine.own_work = false;
            // SAFETY: the fiber is its thread's, which stays where it is.
            let ended = unsafe {
                let fiber = (*(*this).running).fiber.as_mut();
                let fiber = fiber.expect("a thread that runs has its fiber");
                fiber.resume(()).as_return().is_some()
            };
            // SAFETY: as above.
            let machine = unsafe { &mut *this };
            if ended {
                machine.own_work = true;
                let thread = &mut machine.threads[number as usize];
                debug_assert_eq!(thread.state, State::Ended);
                let fiber = thread.fiber.take().expect("it has just run");
                machine.stacks.keep(fiber.into_stack());
                if machine.panic.is_some() {
                    return;
                }
            }
            if machine.stuck.is_some() {
                return;
            }
        }
    }
}
