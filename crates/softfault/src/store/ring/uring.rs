//! A queue of `io_uring`.
//!
//! No registered buffers or files: an ordinary user may lock 8 MiB of memory
//! only. No kernel thread (SQPOLL): here it cost four times the processor time
//! of a read.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use softfault_engine::lock::Mutex;

use super::queue::{BATCH, Done, FileHandle, RingEntry, pause};
use crate::table::Working;

/// How often in a row the kernel may refuse pushed entries: about a second, as each refusal is followed
/// by a pause.
const MOST_REFUSALS: u32 = 1000;

const EXT_ARG: u32 = 1 << 3;
const GETEVENTS: u32 = 1 << 0;

/// `io_uring_getevents_arg` of `linux/io_uring.h`.
#[repr(C)]
struct Arguments<'a> {
    mask: u64,
    mask_bytes: u32,
    least_wait: u32,
    time: &'a Timespec,
}

pub(super) struct Uring {
    /// Its submission side is protected by `submitting`; its completion side
    /// by polling the ring.
    ring: ManuallyDrop<IoUring>,
    /// The ring's descriptor, which the program may close: a thread that enters asks for a number,
    /// or enters in the table of our own. The file to read is looked up in the entering thread's table.
    descriptor: ManuallyDrop<Working>,
    /// True once the kernel would not take the pushed entries.
    submitting: Mutex<bool>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("fd", &self.ring.as_raw_fd())
            .finish()
    }
}

/// Hands `count` reads over by as many calls of `enter` as it takes; returns how many the kernel did not take. Pushed
/// entries cannot be taken back: so a refusal for a moment (no memory) is tried again, but not for ever.
fn hand_over(count: usize, mut enter: impl FnMut(usize) -> Result<usize, i32>) -> usize {
    let (mut left, mut refused) = (count, 0);
    while left > 0 && refused < MOST_REFUSALS {
        match enter(left) {
            Ok(taken) if taken > 0 => (left, refused) = (left - taken, 0),
            Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => refused += 1,
            Err(_) => break,
        }
    }
    left
}

impl Uring {
    pub(super) fn new(entries: usize) -> Result<Self, i32> {
        let mut builder: io_uring::Builder<squeue::Entry, cqueue::Entry> = IoUring::builder();
        // A child's touch of the queues would act on the parent's.
        let ring: IoUring = (builder.dontfork())
            .build(entries as u32)
            .map_err(|no| no.raw_os_error().unwrap_or(libc::EIO))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(libc::EOPNOTSUPP);
        }
        let params = ring.params();
        // One answer for each read in flight: it cannot overflow.
        assert!(params.sq_entries() >= entries as u32 && params.cq_entries() >= entries as u32);
        // SAFETY: the ring's number, which the ring does not close: see `close`.
        let number = unsafe { OwnedFd::from_raw_fd(ring.as_raw_fd()) };
        let ring = ManuallyDrop::new(ring);
        // After an error the number is closed, or another file's, which the ring would close: its queues stay mapped.
        Ok(Self {
            descriptor: ManuallyDrop::new(Working::adopt(number)?),
            ring,
            submitting: Mutex::new(false),
        })
    }

    pub(super) fn submit(
        &self,
        through: FileHandle<'_>,
        count: usize,
        entry: impl Fn(usize) -> RingEntry,
    ) -> usize {
        let mut broken = self.submitting.lock();
        if *broken || self.descriptor.here().is_none() {
            return 0;
        }
        // A ring that the kernel would not let into the table is entered here, where the
        // file's number in the table is another file's.
        if matches!(through, FileHandle::Table(..)) && !self.descriptor.is_guarded() {
            return 0;
        }
        {
            // SAFETY: the only one, for we hold `submitting`.
            let mut queue = unsafe { self.ring.submission_shared() };
            for i in 0..count {
                let RingEntry {
                    slot,
                    offset,
                    buffer,
                    bytes,
                } = entry(i);
                let read = opcode::Read::new(Fd(through.fd()), buffer, bytes as u32)
                    .offset(offset)
                    .rw_flags(through.flags())
                    .build()
                    .user_data(u64::from(slot));
                // SAFETY: the buffer is the read's until its completion.
                unsafe { queue.push(&read) }.expect("the kernel has emptied it each time");
            }
        }
        let left = hand_over(count, |left| {
            let taken = match through {
                FileHandle::Number(..) => self.enter(left as u32, None),
                // SAFETY: numbers only.
                FileHandle::Table(..) => unsafe {
                    let args = |ring| [ring as usize, left, 0, 0, 0, 0];
                    self.descriptor.run(libc::SYS_io_uring_enter, args)
                },
            };
            if let Err(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) = taken {
                pause(u64::MAX);
            }
            taken
        });
        *broken = left > 0;
        count - left
    }

    /// Collects answers, waiting up to `wait_ns` for the first; how many there were.
    ///
    /// # Safety
    /// No other thread collects meanwhile.
    pub(super) unsafe fn collect(&self, done: &mut [Done; BATCH], wait_ns: u64) -> usize {
        // SAFETY: the caller's promise.
        let arrived = unsafe { self.pop(done) };
        if arrived > 0 || wait_ns == 0 {
            return arrived;
        }
        match self.wait(wait_ns) {
            Ok(_) | Err(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
            Err(_) => pause(wait_ns),
        }
        // SAFETY: the caller's promise.
        unsafe { self.pop(done) }
    }

    /// Takes answers out that are there.
    ///
    /// # Safety
    /// No other thread does that meanwhile.
    unsafe fn pop(&self, done: &mut [Done; BATCH]) -> usize {
        // SAFETY: the only one, as the caller says.
        let mut queue = unsafe { self.ring.completion_shared() };
        let mut arrived = 0;
        for (done, answer) in done.iter_mut().zip(&mut queue) {
            *done = Done {
                slot: answer.user_data() as u16,
                answer: i64::from(answer.result()),
            };
            arrived += 1;
        }
        arrived
    }

    /// Waits for an answer.
    fn wait(&self, wait_ns: u64) -> Result<usize, i32> {
        let time = Timespec::from(std::time::Duration::from_nanos(wait_ns));
        let arguments = Arguments {
            mask: 0,
            mask_bytes: 0,
            least_wait: 0,
            time: &time,
        };
        self.enter(0, Some(&arguments))
    }

    /// Has so many entries taken. With arguments, waits for an answer.
    // Inlined: a frame less on the handler's stack.
    #[inline(always)]
    fn enter(&self, submit: u32, waits: Option<&Arguments<'_>>) -> Result<usize, i32> {
        let fd = self.descriptor.here().ok_or(libc::EBADF)?;
        let (answers, flags, arguments, bytes) = match waits {
            Some(arguments) => {
                let flags = GETEVENTS | EXT_ARG;
                (1, flags, &raw const *arguments, size_of_val(arguments))
            }
            None => (0, 0, core::ptr::null(), 0),
        };
        // SAFETY: with EXT_ARG the arguments are the structure that the kernel expects, which is borrowed, as its time is; without
        // there are none.
        let entered = unsafe {
            let call = libc::SYS_io_uring_enter;
            sync::system_call!(call, fd, submit, answers, flags, arguments, bytes)
        };
        match entered {
            0.. => Ok(entered as usize),
            _ => Err(crate::errno::errno()),
        }
    }

    pub(super) fn close_in_child(&self) {
        // The queues themselves were not inherited. Closing is all: dropping
        // would unmap the child's mappings at their place.
        self.descriptor.close();
    }

    /// # Safety
    /// Nothing is in flight, and the queue is not used any more.
    pub(super) unsafe fn close(&mut self) {
        let number = self.ring.as_raw_fd();
        let is_ours = self.descriptor.is(number);
        if is_ours {
            self.descriptor.forget(number);
            // SAFETY: the caller's promise. It closes its number.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
        // Else the number is another file's by now, or nobody's, and the ring would close it:
        // its queues stay mapped.
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut self.descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Guarded;

    /// Without pidfd_getfd(2) a file may be opened in the table, and a ring is not in it.
    /// Failed before: the ring read the file that the number means in the process.
    #[test]
    fn a_number_of_the_table_is_not_read_from_here() {
        let Ok(mut ring) = Uring::new(8) else {
            return softfault_skip::skipped("kernel", "there is no io_uring");
        };
        let name = c"file".as_ptr() as usize;
        // SAFETY: a string that ends in zero; the descriptor is new.
        let file = unsafe { Guarded::open(libc::SYS_memfd_create, [name, 0, 0, 0, 0, 0]) };
        let file = file.expect("a table");
        let mut page = vec![0u8; 4096];
        let entry = RingEntry {
            slot: 0,
            offset: 0,
            buffer: page.as_mut_ptr(),
            bytes: page.len(),
        };
        let submit = |ring: &Uring| ring.submit(FileHandle::Table(&file, 0), 1, |_| entry);
        let collect = |ring: &Uring| {
            // SAFETY: the test's thread alone has the ring.
            unsafe { ring.collect(&mut [Done::NONE; BATCH], 20_000_000_000) }
        };
        assert_eq!((submit(&ring), collect(&ring)), (1, 1));
        let number = Working::unguarded(ring.ring.as_raw_fd()).expect("a ring");
        ring.descriptor = ManuallyDrop::new(number);
        assert_eq!(submit(&ring), 0);
        // SAFETY: all was answered.
        unsafe { ring.close() };
    }

    #[test]
    fn handing_over_ends_for_every_answer_of_the_kernel() {
        for errno in 0..4096 {
            let mut calls = 0;
            let refused = |_| {
                calls += 1;
                assert!(calls <= 2000, "{errno}: no end");
                if errno == 0 { Ok(0) } else { Err(errno) }
            };
            assert_eq!(hand_over(5, refused), 5);
            // A part, then nothing more.
            let partly = |left| match left {
                5 => Ok(3),
                _ => Err(errno),
            };
            assert_eq!(hand_over(5, partly), 2);
        }
        let mut late = 0;
        let slowly = |_| {
            late += 1;
            if late % 900 == 0 {
                Ok(1)
            } else {
                Err(libc::EAGAIN)
            }
        };
        assert_eq!(hand_over(3, slowly), 0);
    }
}
