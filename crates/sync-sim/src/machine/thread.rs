//! Threads of a machine: fibers with a clock.

use core::cell::UnsafeCell;
use core::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::kernel::{self, At, Machine};
use super::trace::Operation;
use super::{events, is_running};

/// Bytes of a thread's stack. Only its used part is memory.
const STACK: usize = 1 << 20;

/// The state of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// On a CPU, or about to be.
    Running,
    /// In a CPU's queue.
    Ready,
    /// On a word, with the value it had.
    Waits {
        word: usize,
        expected: u32,
        bucket: usize,
        until: Option<u64>,
    },
    /// Until a moment.
    Sleeps { until: u64 },
    /// Until another thread has ended.
    Joins { thread: u32 },
    /// No more.
    Ended,
}

/// A thread.
pub struct Thread {
    pub name: String,
    pub nice: i8,
    pub state: State,
    /// Since when, in picoseconds.
    pub since: u64,
    /// Where it waits, or was seen last.
    pub at: At,
    /// When it last did something that others can see.
    pub progress: u64,
    /// Its CPU, or its last one.
    pub cpu: Option<u16>,
    /// Picoseconds on CPUs, before `since`.
    pub cpu_time: u64,
    /// The number and moment of the event at which it runs on.
    pub event: u64,
    pub event_time: u64,
    /// The number of the event that ends its wait.
    pub timer: u64,
    /// True while it only lets time pass and may be interrupted.
    pub works: bool,
    /// The thread that waits for its end.
    pub joiners: Vec<u32>,
    pub yielder: *const Yielder<(), ()>,
    pub fiber: Option<Coroutine<(), (), ()>>,
}

/// Stacks of threads that have ended.
#[derive(Default)]
pub struct Stacks(Vec<DefaultStack>);

impl Stacks {
    fn take(&mut self) -> DefaultStack {
        let new = || DefaultStack::new(STACK).expect("the system has memory for another stack");
        self.0.pop().unwrap_or_else(new)
    }

    /// Keeps a stack for the next thread.
    pub fn keep(&mut self, stack: DefaultStack) {
        self.0.push(stack);
    }
}

/// A value on its way from a thread to the one that joins it.
struct Packet<T>(UnsafeCell<Option<T>>);

// SAFETY: written by the thread before it ends, taken by its only joiner after;
// both are fibers of one thread of the process, or the run is over.
unsafe impl<T> Send for Packet<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Packet<T> {}

/// A thread that can be waited for.
pub struct JoinHandle<T>(Handle<T>);

enum Handle<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated { thread: u32, packet: Arc<Packet<T>> },
}

impl<T> JoinHandle<T> {
    /// Of a real thread.
    pub(crate) fn of_real(handle: std::thread::JoinHandle<T>) -> Self {
        Self(Handle::Real(handle))
    }

    /// Waits until the thread has ended and returns its value. A panic
    /// of a simulated thread ends the run, so it is not reported here.
    ///
    /// # Panics
    /// Outside the machine whose thread it is, if the thread has not ended.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Handle::Real(handle) => handle.join(),
            Handle::Simulated { thread, packet } => {
                let machine = kernel::machine();
                if !machine.is_null() {
                    // SAFETY: this thread's machine; no borrow of it lives.
                    unsafe { Machine::join(machine, thread, Location::caller()) };
                }
                // SAFETY: the thread has ended, and the handle is the only one.
                let value = unsafe { (*packet.0.get()).take() };
                Ok(value.expect("a thread that has ended has left its value"))
            }
        }
    }

    /// True once the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Handle::Real(handle) => handle.is_finished(),
            Handle::Simulated { packet, .. } => {
                // Its end is in the order of time.
                super::work_ps(1);
                // SAFETY: no fiber is switched to meanwhile.
                unsafe { (*packet.0.get()).is_some() }
            }
        }
    }
}

impl<T> core::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// Starts a thread of this machine. Its name is for reports; threads without
/// one go by their number. `nice` is Linux's: lower is more urgent.
///
/// # Panics
/// Outside a machine.
#[track_caller]
pub fn spawn_named<T: 'static>(
    name: &str,
    nice: i8,
    f: impl FnOnce() -> T + 'static,
) -> JoinHandle<T> {
    assert!(is_running(), "a thread is started outside its machine");
    let packet = Arc::new(Packet(UnsafeCell::new(None)));
    let target = Arc::clone(&packet);
    let body = Box::new(move || {
        let value = f();
        // SAFETY: nobody looks before the thread's end.
        unsafe { *target.0.get() = Some(value) };
    });
    let machine = kernel::machine();
    let at = Location::caller();
    // SAFETY: this thread's machine; no borrow of it lives.
    let thread = unsafe {
        let cost = (*machine).scheduler.call + (*machine).scheduler.wake;
        Machine::step(machine, Operation::Spawn, at, |_| cost);
        let thread = (*machine).own(|machine| machine.add_thread(name, nice, at, body));
        (*machine).set_limit();
        thread
    };
    JoinHandle(Handle::Simulated { thread, packet })
}

impl Machine {
    /// Makes a thread and lets it run.
    pub fn add_thread(&mut self, name: &str, nice: i8, at: At, body: Box<dyn FnOnce()>) -> u32 {
        let number = self.threads.len();
        assert!(number < events::MOST_THREADS, "too many threads");
        let stack = self.stacks.take();
        let fiber = Coroutine::with_stack(stack, move |yielder, ()| run(yielder, body));
        let name = match name {
            "" => format!("thread {number}"),
            name => name.to_owned(),
        };
        self.threads.push(Box::new(Thread {
            name,
            nice,
            state: State::Ready,
            since: self.now,
            at,
            progress: self.now,
            cpu: None,
            cpu_time: 0,
            event: 0,
            event_time: 0,
            timer: 0,
            works: false,
            joiners: Vec::new(),
            yielder: core::ptr::null(),
            fiber: Some(fiber),
        }));
        self.live += 1;
        let latency = self.scheduler.wake_latency;
        let jitter = self.jitter.below(latency);
        self.make_ready(number as u32, latency + jitter);
        number as u32
    }

    /// Ends a thread's wait. Seeds differ in how long that takes.
    pub fn wake_thread(&mut self, thread: u32) {
        let waiter = &mut self.threads[thread as usize];
        waiter.timer = 0;
        if let State::Waits { .. } = waiter.state {
            let (at, slept) = (waiter.at, self.now.saturating_sub(waiter.since));
            if self.sleeps.count(at, slept, 0) {
                self.own(|machine| machine.sleeps.grow());
            }
        }
        let latency = self.scheduler.wake_latency;
        let jitter = self.jitter.below(latency / 8);
        self.own(|machine| machine.make_ready(thread, latency + jitter));
    }

    /// Takes the running thread off its CPU until it is woken. Nothing that
    /// comes before is left to happen, so that the next thread is chosen in time.
    ///
    /// # Safety
    /// As `access`.
    pub unsafe fn block(this: *mut Self, state: State, at: At) {
        // SAFETY: the caller's promise.
        unsafe {
            let machine = &mut *this;
            let until = match state {
                State::Waits { until, .. } => until,
                State::Sleeps { until } => Some(until),
                _ => None,
            };
            let thread = &mut *machine.running;
            thread.timer = until.map_or(0, |until| machine.events.push(until, machine.thread));
            machine.vacate();
            thread.state = state;
            thread.at = at;
            Self::leave(this);
            (*this).note(Operation::Run, 0, false, at);
        }
    }

    /// Waits for a thread's end.
    unsafe fn join(this: *mut Self, thread: u32, at: At) {
        // SAFETY: as in `block`.
        unsafe {
            (*this).now += (*this).scheduler.call;
            Self::begin(this);
            let machine = &mut *this;
            if machine.threads[thread as usize].state != State::Ended {
                let joiner = machine.thread;
                machine.own(|machine| machine.threads[thread as usize].joiners.push(joiner));
                Self::block(this, State::Joins { thread }, at);
            }
        }
    }

    /// The running thread's end.
    unsafe fn end(this: *mut Self) {
        // SAFETY: as in `block`.
        unsafe {
            Self::step(this, Operation::End, Location::caller(), |_| 0);
            let machine = &mut *this;
            let joiners = core::mem::take(&mut (*machine.running).joiners);
            machine.live -= 1;
            joiners
                .iter()
                .for_each(|&joiner| machine.wake_thread(joiner));
            machine.own(|_| drop(joiners));
            machine.vacate();
            (*machine.running).state = State::Ended;
        }
    }
}

/// The code of a fiber.
fn run(yielder: &Yielder<(), ()>, body: Box<dyn FnOnce()>) {
    let machine = kernel::machine();
    // SAFETY: the machine that resumed this fiber; no borrow of it lives.
    unsafe {
        (*(*machine).running).yielder = yielder;
        let result = catch_unwind(AssertUnwindSafe(body));
        if let Err(panic) = result {
            (*machine).panic.get_or_insert(panic);
        }
        Machine::end(machine);
    }
}
