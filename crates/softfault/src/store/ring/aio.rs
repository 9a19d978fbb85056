//! A queue of `io_submit(2)`, Linux's older asynchronous reads.
//!
//! For direct reads it costs the same as `io_uring`, and the completion runs
//! in the interrupt, not in the context of the thread that submitted.

use crate::generation::Owner;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use softfault_engine::lock::Mutex;

use super::super::errno;
use super::super::refusals::Refusals;
use super::deadline::timespec;
use super::idle;
use super::queue::{BATCH, Done, FileHandle, RingEntry, Taken, pause};

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;

/// `struct iocb` of <linux/aio_abi.h>.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    /// `aio_key` and `aio_rw_flags`, whose order depends on the byte order.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event` of <linux/aio_abi.h>.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// `struct aio_ring` of the kernel's fs/aio.c, which libaio reads too: a queue's name is where it lies.
#[repr(C)]
struct Header {
    id: u32,
    entries: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    length: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// The request of a submission; the kernel copies it in the call.
#[derive(Debug)]
struct RequestBuffer {
    entries: Box<[Iocb]>,
    /// Points at the entries of one submission, in order.
    list: Box<[*mut Iocb]>,
}

// SAFETY: the pointers are of the requests' own entries, and written anew each time.
unsafe impl Send for RequestBuffer {}

#[derive(Debug)]
pub(super) struct Aio {
    /// Immutable. The kernel's name for the queue.
    context: libc::c_ulong,
    /// Immutable. Whose the queue is.
    owner: Owner,
    /// Immutable. `IOCB_CMD_`: the operation of all of its requests.
    opcode: u16,
    submitting: Mutex<RequestBuffer>,
}

impl Aio {
    /// A queue of reads.
    pub(super) fn new(entries: usize) -> Result<Self, i32> {
        Self::make(entries, IOCB_CMD_PREAD)
    }

    /// A queue of writes.
    pub(super) fn for_writes(entries: usize) -> Result<Self, i32> {
        Self::make(entries, IOCB_CMD_PWRITE)
    }

    fn make(entries: usize, opcode: u16) -> Result<Self, i32> {
        let context = match idle::take(entries) {
            Some(context) => context,
            None => set_up(entries)?,
        };
        let requests = RequestBuffer {
            entries: vec![Iocb::default(); entries].into_boxed_slice(),
            list: vec![std::ptr::null_mut(); entries].into_boxed_slice(),
        };
        Ok(Self {
            context,
            owner: Owner::here(),
            opcode,
            submitting: Mutex::new(requests),
        })
    }

    pub(super) fn submit(
        &self,
        through: FileHandle<'_>,
        count: usize,
        entry: impl Fn(usize) -> RingEntry,
    ) -> Taken {
        let mut requests = self.submitting.lock();
        for i in 0..count {
            let RingEntry {
                slot,
                offset,
                buffer,
                bytes,
            } = entry(i);
            requests.entries[i] = Iocb {
                data: u64::from(slot),
                key_and_flags: key_and_flags(through.flags() as u32),
                opcode: self.opcode,
                fd: through.fd() as u32,
                buffer: buffer.expose_provenance() as u64,
                bytes: bytes as u64,
                offset: offset as i64,
                ..Iocb::default()
            };
        }
        let first = requests.entries.as_mut_ptr();
        for (i, pointer) in requests.list[..count].iter_mut().enumerate() {
            *pointer = first.wrapping_add(i);
        }
        let (mut taken, mut refusals) = (Taken::from(0), Refusals::default());
        while taken.count < count {
            let list = requests.list[taken.count..].as_mut_ptr();
            let (context, left) = (self.context, count - taken.count);
            // SAFETY: the list's pointers are of entries just written, whose buffers are the
            // reads' until their completion.
            let answer = unsafe {
                match through {
                    FileHandle::Number(..) => {
                        let answer = sync::system_call!(libc::SYS_io_submit, context, left, list);
                        errno::check_long(answer).map(|taken| taken as usize)
                    }
                    FileHandle::Table(guarded, _) => {
                        let args = [context as usize, left, list as usize, 0, 0, 0];
                        guarded.run(libc::SYS_io_submit, args)
                    }
                }
            };
            match answer {
                Ok(0) => break,
                Ok(more) => taken.count += more,
                Err(libc::EINTR) if refusals.again(libc::EINTR).is_ok() => {}
                // Fewer, then: nothing of the rest was started.
                Err(refusal) => {
                    taken.refusal = refusal;
                    break;
                }
            }
        }
        taken
    }

    /// Collects answers, waiting up to `wait_ns` for the first; how many there were.
    ///
    /// # Safety
    /// No other thread collects meanwhile.
    pub(super) unsafe fn collect(&self, done: &mut [Done; BATCH], wait_ns: u64) -> usize {
        let mut events = [IoEvent::default(); BATCH];
        let mut time = timespec(wait_ns);
        // SAFETY: the events are written for at most their number.
        let answer = unsafe {
            sync::system_call!(
                libc::SYS_io_getevents,
                self.context,
                libc::c_long::from(wait_ns > 0),
                BATCH,
                events.as_mut_ptr(),
                &raw mut time,
            )
        };
        match errno::check_long(answer) {
            Ok(arrived) => {
                let arrived = arrived as usize;
                for (done, event) in done.iter_mut().zip(&events[..arrived]) {
                    *done = Done {
                        slot: event.data as u16,
                        answer: event.result,
                    };
                }
                arrived
            }
            Err(libc::EINTR) => 0,
            // Denied to us meanwhile (a filter): completed reads are in the queue all the same. In a child,
            // whose queue it is not, the kernel says EINVAL.
            Err(libc::EPERM | libc::ENOSYS | libc::EACCES) if self.owner == Owner::here() => {
                // SAFETY: the caller's promise.
                let arrived = unsafe { self.peek(done) };
                if arrived == 0 {
                    pause(wait_ns);
                }
                arrived
            }
            Err(_) => {
                pause(wait_ns);
                0
            }
        }
    }

    /// Takes answers out of the queue itself, as `io_getevents` does: the kernel shows it to the
    /// process, and lets it move the head.
    ///
    /// # Safety
    /// No other thread collects meanwhile. The queue is this process's.
    unsafe fn peek(&self, done: &mut [Done; BATCH]) -> usize {
        let header = self.context as *const Header;
        // SAFETY: the queue's own memory, mapped as long as the queue is.
        let header = unsafe { &*header };
        if header.magic != MAGIC || header.incompatible != 0 {
            return 0;
        }
        let events = (self.context as usize + header.length as usize) as *const IoEvent;
        let mut arrived = 0;
        // Relaxed: only the ring's poller moves it.
        let mut head = header.head.load(Relaxed);
        // Acquire: the kernel writes an event before it moves the tail.
        while arrived < BATCH && head != header.tail.load(Acquire) {
            // SAFETY: an event between head and tail, which the kernel does not touch.
            let event = unsafe { events.add(head as usize).read_volatile() };
            done[arrived] = Done {
                slot: event.data as u16,
                answer: event.result,
            };
            arrived += 1;
            head = (head + 1) % header.entries;
        }
        // Release: the events were read before the kernel may write there again.
        header.head.store(head, Release);
        arrived
    }

    pub(super) fn close(&mut self) {
        let entries = self.submitting.lock().entries.len();
        if !idle::keep(self.context, entries) {
            // SAFETY: no memory involved; waits for the reads in flight.
            unsafe { sync::system_call!(libc::SYS_io_destroy, self.context) };
        }
    }
}

/// `aio_key`, which the kernel writes, and `aio_rw_flags`.
fn key_and_flags(flags: u32) -> [u32; 2] {
    match cfg!(target_endian = "little") {
        true => [0, flags],
        false => [flags, 0],
    }
}

/// A new queue, by the kernel's name, or an errno.
fn set_up(entries: usize) -> Result<libc::c_ulong, i32> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the call stores the context, which is zero before.
    let answer = unsafe { sync::system_call!(libc::SYS_io_setup, entries, &raw mut context) };
    errno::check_long(answer)?;
    Ok(context)
}
