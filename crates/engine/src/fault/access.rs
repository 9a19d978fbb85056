//! Accesses to a space whose page tables are soft: the counterpart of load and store
//! on hardware.
//!
//! ```text
//!   read_at ── the core's translation buffer ── hit ─────────────► copied
//!      │                                          no lock at all
//!      └─ miss: serve, under the VMA lock
//!            protection ── walk the tables ── there ─────────────► copied, buffered
//!                             └─ missing: once ── Mapped ─► walk ► copied, buffered
//!                                           └─── Retry ──► wait, and come back
//! ```
//!
//! A miss takes the VMA lock once, and copies under it. It copies to or
//! from the core's own buffer: the caller's memory may be missing, and is
//! touched with nothing in hand.

use super::{Fault, FaultAddress, FaultError, FaultFlags, Interrupt, Outcome, once, serve};
use crate::PAGE_SIZE;
use crate::mm::backing::SoftPage;
use crate::mm::{AddressSpace, Attributes, VmaRead};
use crate::mmu::Core;
use crate::mmu::soft::Direction;
use crate::mmu::soft::tlb::TlbKey;
use crate::page::Protection;

/// An access that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Bytes that were copied.
    pub done: usize,
    /// Why there are no more.
    pub why: Stop,
}

/// The reason why an access ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Something else wants the thread; go on afterwards.
    Interrupted,
    /// The next byte cannot be served.
    Error(FaultError),
}

/// Reads the bytes at `addr`, over as many pages and VMAs as they are in.
///
/// Others may write them meanwhile: aligned words of 8 bytes are read whole.
pub fn read_at(
    core: &mut Core,
    space: &AddressSpace,
    addr: usize,
    bytes: &mut [u8],
    interrupt: &dyn Interrupt,
) -> Result<(), Stopped> {
    let mut done = 0;
    while done < bytes.len() {
        let (addr, part) = in_page(addr, done, bytes.len())?;
        let served = page(core, space, addr, part, Direction::Load, interrupt);
        served.map_err(|why| Stopped { done, why })?;
        bytes[done..done + part].copy_from_slice(core.buffer(part));
        done += part;
    }
    Ok(())
}

/// Writes the bytes at `addr`, over as many pages and VMAs as they are in.
///
/// Others may read them meanwhile: aligned words of 8 bytes are written whole.
pub fn write_at(
    core: &mut Core,
    space: &AddressSpace,
    addr: usize,
    bytes: &[u8],
    interrupt: &dyn Interrupt,
) -> Result<(), Stopped> {
    let mut done = 0;
    while done < bytes.len() {
        let (addr, part) = in_page(addr, done, bytes.len())?;
        core.buffer(part).copy_from_slice(&bytes[done..done + part]);
        let served = page(core, space, addr, part, Direction::Store, interrupt);
        served.map_err(|why| Stopped { done, why })?;
        done += part;
    }
    Ok(())
}

/// Reads one byte.
pub fn touch(
    core: &mut Core,
    space: &AddressSpace,
    addr: usize,
    interrupt: &dyn Interrupt,
) -> Result<u8, Stopped> {
    let mut byte = [0];
    read_at(core, space, addr, &mut byte, interrupt)?;
    Ok(byte[0])
}

/// The address of the next byte, and how many there are in its page.
fn in_page(addr: usize, done: usize, bytes: usize) -> Result<(usize, usize), Stopped> {
    let why = Stop::Error(FaultError::NotMapped);
    let addr = addr.checked_add(done).ok_or(Stopped { done, why })?;
    Ok((addr, (PAGE_SIZE - addr % PAGE_SIZE).min(bytes - done)))
}

/// Accesses bytes of one page.
#[inline]
fn page(
    core: &mut Core,
    space: &AddressSpace,
    addr: usize,
    bytes: usize,
    way: Direction,
    interrupt: &dyn Interrupt,
) -> Result<(), Stop> {
    let access = PageAccess {
        place: TlbKey {
            space: space.id(),
            addr,
        },
        bytes,
        way,
    };
    if core.hit(access.place, bytes, way) {
        return Ok(());
    }
    miss(core, space, access, interrupt)
}

/// An access to bytes of one page.
#[derive(Clone, Copy)]
struct PageAccess {
    place: TlbKey,
    bytes: usize,
    way: Direction,
}

fn miss(
    core: &mut Core,
    space: &AddressSpace,
    access: PageAccess,
    interrupt: &dyn Interrupt,
) -> Result<(), Stop> {
    let flags = FaultFlags {
        write: access.way == Direction::Store,
        ..FaultFlags::default()
    };
    let mut done = false;
    while !done {
        let addr = FaultAddress::new(access.place.addr);
        let outcome = serve(space, addr, flags, interrupt, |vma, flags| {
            attempt(core, vma, access, flags, &mut done)
        });
        match outcome {
            Outcome::Mapped => {}
            Outcome::Interrupted => return Err(Stop::Interrupted),
            Outcome::Error(error) => return Err(Stop::Error(error)),
        }
    }
    Ok(())
}

/// One attempt, under the VMA lock. Mapped, but not `done`: the page was evicted before the
/// copy. That is another fault.
#[inline]
fn attempt(
    core: &mut Core,
    vma: &VmaRead<'_>,
    access: PageAccess,
    flags: FaultFlags,
    done: &mut bool,
) -> Fault {
    let addr = access.place.addr;
    let start = vma.vma().start();
    let shown = match vma.with(|attributes| shown(attributes, addr - start, access.way)) {
        Ok(shown) => shown,
        Err(error) => return Fault::Error(error),
    };
    let mut walk = || {
        let (place, bytes, way) = (access.place, access.bytes, access.way);
        *done = match shown.page {
            SoftPage::Window { addr, .. } => core.miss(place, bytes, way, addr, shown.may_write),
            SoftPage::Own => vma.with(|attributes| walk_own(core, attributes, start, access)),
        };
        *done
    };
    let is_missing = matches!(
        shown.page,
        SoftPage::Window {
            is_missing: true,
            ..
        }
    );
    if !is_missing && walk() {
        return Fault::Mapped;
    }
    let fault = once(vma, FaultAddress::new(addr), flags);
    if matches!(fault, Fault::Mapped) {
        walk();
    }
    fault
}

/// The place of a page in the tables, and the allowed access.
struct Translation {
    page: SoftPage,
    may_write: bool,
}

/// An access to a backing with page tables of its own, if the page is there.
fn walk_own(core: &mut Core, attributes: &Attributes, start: usize, access: PageAccess) -> bool {
    let Some(ops) = attributes.backing.ops() else {
        return false;
    };
    let page = attributes.page_at(access.place.addr - start);
    let may_write = attributes.protection == Protection::ReadWrite;
    let (place, bytes, way) = (access.place, access.bytes, access.way);
    let frame = || ops.frame(page);
    core.miss_huge(place, bytes, way, may_write, frame)
}

/// The page that a VMA with these attributes shows, so many bytes after its start.
fn shown(
    attributes: &Attributes,
    distance: usize,
    way: Direction,
) -> Result<Translation, FaultError> {
    let ops = attributes.backing.ops().ok_or(FaultError::NotMapped)?;
    let page = ops.soft_page(attributes.pgoff, distance);
    let may_write = match (attributes.protection, way) {
        (Protection::ReadWrite, _) => true,
        (Protection::Read, Direction::Load) => false,
        (Protection::Read, Direction::Store) | (Protection::None, _) => {
            return Err(FaultError::Protection);
        }
    };
    Ok(Translation { page, may_write })
}
