//! CPUs: whose turn it is on each.
//!
//! A woken thread goes to its last CPU if that is idle, else to the nearest
//! idle one, else to the shortest queue. Queues are first in, first out, with
//! time slices while somebody waits, longer ones for a lower nice value. A
//! woken thread of a lower nice value goes to the front and preempts. An idle
//! CPU takes the first of the longest queue.

use std::collections::VecDeque;

use super::kernel::{Machine, longer};
use super::line::Held;
use super::thread::State;

/// Of all events and looks: none.
pub const NEVER: u64 = u64::MAX;

/// A CPU.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// Lines it was granted.
    pub held: Held,
    /// When its thread has to look up: slice over, preempted, interrupted.
    pub look_at: u64,
    /// Whose turn it is.
    pub running: Option<u32>,
    /// The thread that ran last.
    last: Option<u32>,
    /// The threads that wait for it.
    pub queue: VecDeque<u32>,
    slice_end: u64,
    preempted: bool,
    /// Whether another hardware thread of its core works.
    shares_core: bool,
    /// Time that interrupts took and its thread has still to account for.
    stolen: u64,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            held: Held::NONE,
            look_at: NEVER,
            running: None,
            last: None,
            queue: VecDeque::with_capacity(8),
            slice_end: 0,
            preempted: false,
            shares_core: false,
            stolen: 0,
        }
    }
}

impl Cpu {
    fn set_look(&mut self) {
        self.preempted &= !self.queue.is_empty();
        self.look_at = if self.stolen > 0 || self.preempted {
            0
        } else if self.queue.is_empty() {
            NEVER
        } else {
            self.slice_end
        };
    }
}

impl Machine {
    /// Makes a thread able to run: after a wake-up, or its start.
    pub fn make_ready(&mut self, thread: u32, latency: u64) {
        let last = self.threads[thread as usize].cpu;
        let idle = match last {
            Some(last) => self.distances.nearest_cpu(last, &self.idle),
            None => self.distances.first_cpu(&self.idle),
        };
        if let Some(cpu) = idle {
            self.set_idle(cpu, false);
            self.start(cpu, thread, self.now + latency);
            return;
        }
        let shortest = (0..self.cpus.len()).min_by_key(|&cpu| {
            let near = last.map_or(0, |last| match cpu as u16 == last {
                true => 0,
                false => self.distances.cost(last, cpu as u16).max(1),
            });
            (self.cpus[cpu].queue.len(), near)
        });
        let cpu = shortest.expect("a machine has a CPU") as u16;
        let nice = |thread: u32| self.threads[thread as usize].nice;
        let running = self.cpus[usize::from(cpu)].running;
        let preempts = running.is_some_and(|running| nice(thread) < nice(running));
        self.enqueue(cpu, thread, preempts);
    }

    /// Puts a thread into a CPU's queue.
    fn enqueue(&mut self, cpu: u16, thread: u32, preempts: bool) {
        let now = self.now;
        let waiter = &mut self.threads[thread as usize];
        waiter.state = State::Ready;
        waiter.since = now;
        waiter.cpu = Some(cpu);
        let place = &mut self.cpus[usize::from(cpu)];
        if preempts {
            place.queue.push_front(thread);
            place.preempted = true;
        } else {
            place.queue.push_back(thread);
        }
        self.queued += 1;
        place.set_look();
        let look = now.max(place.look_at);
        if let Some(running) = place.running {
            self.interrupt(running, look);
        }
    }

    /// A thread that does nothing but work looks up at a moment.
    fn interrupt(&mut self, thread: u32, at: u64) {
        let running = &mut self.threads[thread as usize];
        if running.works && at < running.event_time {
            running.event = self.events.push(at, thread);
            running.event_time = at;
        }
    }

    /// Gives an idle CPU to a thread.
    fn start(&mut self, cpu: u16, thread: u32, at: u64) {
        let place = &mut self.cpus[usize::from(cpu)];
        let switch = if place.last == Some(thread) {
            0
        } else {
            self.scheduler.switch
        };
        let at = at + switch;
        let starter = &mut self.threads[thread as usize];
        starter.state = State::Running;
        starter.since = at;
        starter.progress = at;
        starter.cpu = Some(cpu);
        starter.event = self.events.push(at, thread);
        starter.event_time = at;
        place.running = Some(thread);
        place.last = Some(thread);
        place.preempted = false;
        // Weights halve every three steps of nice, about as Linux's do.
        let steps = i32::from(-starter.nice) / 3;
        let slice = self.scheduler.slice;
        let slice = if steps >= 0 {
            slice << steps
        } else {
            slice >> -steps
        };
        place.slice_end = at + slice;
        place.set_look();
    }

    /// The running thread is off its CPU; somebody else's turn.
    pub fn vacate(&mut self) {
        let cpu = self.cpu;
        let running = &mut self.threads[self.thread as usize];
        running.cpu_time += self.now - running.since;
        running.since = self.now;
        let place = &mut self.cpus[usize::from(cpu)];
        place.running = None;
        let next = place.queue.pop_front().or_else(|| self.steal(cpu));
        match next {
            Some(next) => {
                self.queued -= 1;
                self.start(cpu, next, self.now);
            }
            None => {
                self.cpus[usize::from(cpu)].look_at = NEVER;
                self.set_idle(cpu, true);
            }
        }
    }

    /// Notes that a CPU has nothing to do, or has again.
    fn set_idle(&mut self, cpu: u16, idle: bool) {
        match idle {
            true => self.idle.add(cpu),
            false => self.idle.remove(cpu),
        }
        if self.distances.siblings(cpu).is_empty() {
            return;
        }
        for sibling in self.distances.siblings(cpu).iter() {
            let others = self.distances.siblings(sibling);
            self.cpus[usize::from(sibling)].shares_core = !others.is_within(&self.idle);
        }
    }

    /// Whether another hardware thread of the running thread's core works.
    #[inline]
    pub fn shares_core(&self) -> bool {
        self.cpus[usize::from(self.cpu)].shares_core
    }

    /// The first of the longest queue; of equal ones, of the nearest.
    fn steal(&mut self, cpu: u16) -> Option<u32> {
        if self.queued == 0 {
            return None;
        }
        let longest = (0..self.cpus.len())
            .filter(|&other| !self.cpus[other].queue.is_empty())
            .min_by_key(|&other| {
                let length = self.cpus[other].queue.len();
                (
                    core::cmp::Reverse(length),
                    self.distances.cost(cpu, other as u16),
                )
            })?;
        let place = &mut self.cpus[longest];
        let thread = place.queue.pop_front();
        place.set_look();
        thread
    }

    /// The running thread's CPU wants something: accounts for interrupts, and
    /// gives the CPU to others if they are due.
    ///
    /// # Safety
    /// As `access`.
    pub unsafe fn look(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let machine = &mut *this;
            let place = &mut machine.cpus[usize::from(machine.cpu)];
            machine.now += core::mem::take(&mut place.stolen);
            let over = place.preempted || machine.now >= place.slice_end;
            place.set_look();
            let over = over && !place.queue.is_empty();
            machine.set_limit();
            if over {
                // In the order of time: others may come first.
                if machine.now >= machine.next {
                    Self::hand_over(this);
                }
                Self::pass(this);
            }
        }
    }

    /// Gives the CPU to the next in its queue, and goes to its end.
    ///
    /// # Safety
    /// As `access`; the queue may be empty.
    pub unsafe fn pass(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let machine = &mut *this;
            let cpu = machine.cpu;
            if machine.cpus[usize::from(cpu)].queue.is_empty() {
                return;
            }
            machine.vacate();
            machine.enqueue(cpu, machine.thread, false);
            Self::leave(this);
        }
    }

    /// Takes time from every other CPU on which a thread runs. Returns how many.
    pub fn interrupt_others(&mut self, time: u64) -> usize {
        let mut others = 0;
        for cpu in 0..self.cpus.len() {
            let place = &mut self.cpus[cpu];
            if cpu == usize::from(self.cpu) || place.running.is_none() {
                continue;
            }
            place.stolen += time;
            place.set_look();
            others += 1;
        }
        others
    }

    /// How long work of this length takes on the CPU of the running thread.
    pub fn work_time(&self, time: u64) -> u64 {
        match self.shares_core() {
            true => longer(time, self.smt_extra),
            false => time,
        }
    }

    /// The running thread works for so long, or longer beside another thread of its core.
    ///
    /// # Safety
    /// As `access`.
    pub unsafe fn work(this: *mut Self, time: u64) {
        // SAFETY: the caller's promise.
        unsafe { Self::spend(this, (*this).work_time(time)) };
    }

    /// The running thread keeps its processor for so long.
    ///
    /// # Safety
    /// As `access`.
    pub unsafe fn spend(this: *mut Self, time: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut left = time;
            while left > 0 {
                if (*this).now >= (*this).limit {
                    Self::in_order(this);
                }
                let machine = &mut *this;
                let begin = machine.now;
                let look = machine.cpus[usize::from(machine.cpu)].look_at;
                let end = begin.saturating_add(left).min(look.max(begin));
                if end < machine.next {
                    machine.now = end;
                } else {
                    (*machine.running).works = true;
                    machine.now = end;
                    Self::hand_over(this);
                    (*(*this).running).works = false;
                }
                left = left.saturating_sub((*this).now - begin);
            }
            (*this).progress();
        }
    }
}
