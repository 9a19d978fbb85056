//! Parts of private memory that become the program's own, where they are, and the kernel's to serve.
//!
//! ```text
//!   of zeros   its pages are brought in, a chunk at a time, and the kernel is told to serve the chunk
//!   of a file  written pages are copied into the kernel's own private mapping of the file, which takes the place
//!   unmapped   nothing is there, and the addresses stay taken until the window goes
//! ```

use super::Private;
use crate::errno::errno;
use crate::managed::Managed;
use crate::process::{self, Process};
use crate::store::FileStore;
use crate::uffd::{GivenTo, UffdMmu, close};
use crate::{FaultError, error};
use core::ops::Range;
use core::slice::from_ref;
use libc::c_void;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, NotHandedOver};
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Mmu, MmuError, Reservation};
use std::io;
use sync::kernel_calls;

impl Private {
    /// Takes a part of the map away, whole pages. Its addresses stay taken until the map goes; a touch of them is a
    /// SIGSEGV. After an error it is as it was.
    ///
    /// # Safety
    /// Nobody looks at the part any more.
    pub(crate) unsafe fn unmap_part(
        &self,
        managed: &Managed,
        part: &Range<usize>,
    ) -> io::Result<()> {
        let _masked = self.access_path.masked();
        let process = process()?;
        // Before its bytes go.
        process.mmu().can_cut(part).map_err(error::mmu)?;
        let unmapped = managed.space.munmap(part.clone(), |_, _| {});
        unmapped.map_err(error::mm)?;
        // SAFETY: nothing of it is mapped any more.
        let given = unsafe { (process.mmu()).give_place(part, GivenTo::Nobody, || close(part)) };
        given.map_err(error::mmu)
    }

    /// Hands a part of the map over to the program, whole pages: the kernel serves it from then on, with the bytes that it
    /// has. Threads may read and write there meanwhile. After an error the address up to which it was done.
    ///
    /// # Safety
    /// The map is not asked for the part any more.
    pub(crate) unsafe fn hand_over(
        &self,
        managed: &Managed,
        part: &Range<usize>,
    ) -> Result<(), (usize, io::Error)> {
        let failed = |error: io::Error| (part.start, error);
        let process = process().map_err(failed)?;
        let _masked = self.access_path.masked();
        let space = &managed.space;
        let done = match &self.file {
            None => {
                let mut give = |chunk: Range<usize>, _: &[Range<usize>]| {
                    // SAFETY: no fault is in progress there, and none can begin; nothing is evicted.
                    unsafe { process.mmu().give(self.anon.reservation(), &chunk) }
                };
                fault::hand_over(space, part.clone(), false, &mut give)
            }
            Some(file) => {
                let aside = self.aside(file, part).map_err(failed)?;
                let mut give = |chunk: Range<usize>, own: &[Range<usize>]| {
                    let window = (&**process.mmu(), self.anon.reservation());
                    let replace = || aside.put(window, &chunk, own);
                    // SAFETY: as above; the mapping that replaces it has the pages that are to stay.
                    unsafe { (process.mmu()).give_place(&chunk, GivenTo::Program, replace) }
                };
                let done = fault::hand_over(space, part.clone(), true, &mut give);
                aside.drop_rest(done.err().map_or(part.end, |(at, _)| at));
                done
            }
        };
        done.map_err(|(at, why)| {
            self.release_remaining(managed, at..part.end);
            (at, io_error(why))
        })
    }

    /// Notes that a hole belongs to the program now: it has mapped something there.
    pub(crate) fn leave_hole(part: &Range<usize>) -> io::Result<()> {
        // SAFETY: nothing is replaced.
        let given = unsafe { (process()?.mmu()).give_place(part, GivenTo::Program, || Ok(())) };
        given.map_err(error::mmu)
    }

    /// Takes away the program's own memory in a window of ours: the addresses stay taken.
    ///
    /// # Safety
    /// The program gives it up.
    pub(crate) unsafe fn close_hole(part: &Range<usize>) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let given = unsafe { (process()?.mmu()).give_place(part, GivenTo::Nobody, || close(part)) };
        given.map_err(error::mmu)
    }

    /// The kernel's own mapping, elsewhere, of the file's bytes of a part.
    fn aside(&self, file: &FileStore, part: &Range<usize>) -> io::Result<Replacement> {
        let private_file = self.anon.private_file().ok_or(io::ErrorKind::Unsupported)?;
        let table = file.in_table().ok_or(io::ErrorKind::Unsupported)?;
        let offset = private_file.offset + (part.start - self.anon.addresses().start) as u64;
        let args = [
            0,
            part.len(),
            (libc::PROT_READ | libc::PROT_WRITE) as usize,
            (libc::MAP_PRIVATE | libc::MAP_NORESERVE) as usize,
            table.number() as usize,
            offset as usize,
        ];
        // SAFETY: a new mapping.
        let start = unsafe { table.run(libc::SYS_mmap, args) };
        let start = start.map_err(io::Error::from_raw_os_error)?;
        Ok(Replacement {
            place: start..start + part.len(),
            of: part.start,
            read_only: self.protection == Protection::Read,
        })
    }
}

/// A mapping that is to take the place of a part, chunk by chunk.
struct Replacement {
    place: Range<usize>,
    /// Where the part begins.
    of: usize,
    read_only: bool,
}

impl Replacement {
    /// Where a byte of the part is in it.
    fn at(&self, addr: usize) -> usize {
        self.place.start + (addr - self.of)
    }

    /// Puts it in the place of a chunk, with the bytes that are the chunk's own.
    fn put(
        &self,
        window: (&UffdMmu, &Reservation),
        chunk: &Range<usize>,
        own: &[Range<usize>],
    ) -> Result<(), MmuError> {
        for pages in own {
            copy(window, pages, self.at(pages.start))?;
        }
        let start = self.at(chunk.start) as *mut c_void;
        if self.read_only {
            // SAFETY: a mapping of ours, of which nobody knows.
            let done = unsafe { kernel_calls::mprotect(start, chunk.len(), libc::PROT_READ) };
            if done < 0 {
                return Err(MmuError::System(errno()));
            }
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let to = chunk.start as *mut c_void;
        // SAFETY: the same, to a place that is given away.
        let moved = unsafe { kernel_calls::mremap(start, chunk.len(), chunk.len(), flags, to) };
        match moved {
            libc::MAP_FAILED => Err(MmuError::System(errno())),
            _ => Ok(()),
        }
    }

    /// Drops the rest of it, from that of an address of the part on.
    fn drop_rest(&self, from: usize) {
        let rest = self.at(from)..self.place.end;
        if !rest.is_empty() {
            // SAFETY: a mapping of ours, of which nobody knows.
            unsafe { kernel_calls::munmap(rest.start as *mut c_void, rest.len()) };
        }
    }
}

/// Copies pages of a window. A page of a file that cannot be read is an error, and no signal; nor does it wait for a page that is
/// missing all the same: a fault there could not be served now.
fn copy(
    (mmu, window): (&UffdMmu, &Reservation),
    pages: &Range<usize>,
    to: usize,
) -> Result<(), MmuError> {
    // SAFETY: a mapping of ours, of which nobody knows.
    let copied = unsafe { mmu.copy_out_all(window, from_ref(pages), to as *mut u8) };
    for at in (copied * PAGE_SIZE..pages.len()).step_by(PAGE_SIZE) {
        // SAFETY: as above.
        match unsafe { mmu.copy_out(window, pages.start + at, (to + at) as *mut u8) } {
            // Missing, for the program has thrown it away: the mapping shows the file's bytes there, as it should.
            Ok(_) => {}
            Err(errno) => return Err(MmuError::System(errno)),
        }
    }
    Ok(())
}

fn process() -> io::Result<&'static Process> {
    process::get().ok_or_else(|| FaultError::Forked.into())
}

fn io_error(why: NotHandedOver) -> io::Error {
    match why {
        NotHandedOver::Fault(error) => FaultError::from(error).into(),
        NotHandedOver::Mappings(error) => error::mm(error),
        NotHandedOver::Mmu(error) => error::mmu(error),
        NotHandedOver::Changed => error::no_memory("others have changed it again and again"),
    }
}
