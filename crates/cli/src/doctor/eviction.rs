//! Kernel features that make eviction cheap: many ranges in a call, one flush for them, and page tables that go with their pages.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::PAGE;
use crate::figure::figure;
use softfault_sim::calibrate::memory::Memory;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// process_madvise(2) with MADV_DONTNEED on ourselves (Linux 6.13): many ranges in one call.
pub const SELF_MADVISE: Check = Check {
    name: "self-madvise",
    costs: "evicted pages are unmapped one range a call, each with a TLB shootdown of its own",
    run: |_| match unmap_two_ranges() {
        Ok(()) => Tried::ok("two ranges unmapped by one process_madvise on ourselves"),
        Err(e) => Tried::slower(format!("process_madvise: {e}"), mend_madvise(&e)),
    },
    whereabouts: Whereabouts::Child,
};

fn mend_madvise(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("pidfd_open and process_madvise")
        }
        _ => machine::newer_kernel(6, 13),
    }
}

/// Unmaps the first and the third of four pages, and sees that these are gone and the others are not.
fn unmap_two_ranges() -> io::Result<()> {
    // SAFETY: makes a file descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so it is nobody else's.
    let ourselves = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let memory = Memory::map(4 * PAGE, false)?;
    (0..4).for_each(|page| memory.write(page * PAGE, 1));
    let ranges = [0, 2 * PAGE].map(|offset| libc::iovec {
        iov_base: memory.at(offset).cast(),
        iov_len: PAGE,
    });
    // SAFETY: both ranges are of our mapping, whose bytes nobody has a reference to.
    let done = unsafe {
        let (fd, advice) = (ourselves.as_raw_fd(), libc::MADV_DONTNEED);
        libc::syscall(
            libc::SYS_process_madvise,
            fd,
            ranges.as_ptr(),
            ranges.len(),
            advice,
            0,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    match memory.present()? == [false, true, false, true] {
        true => Ok(()),
        false => Err(io::Error::other("it unmapped something else")),
    }
}

/// One TLB flush for all ranges of a process_madvise(2) (Linux 6.16). It shows in no answer of the
/// kernel, so this one check goes by the version.
pub const BATCHED_FLUSH: Check = Check {
    name: "batched-flush",
    costs: "a TLB flush for each evicted range instead of one for 128 or more",
    run: |_| {
        if let Err(e) = unmap_two_ranges() {
            return Tried::slower(
                format!("needs self-madvise, which fails: {e}"),
                "see the `self-madvise` check above",
            );
        }
        match machine::is_at_least(6, 16) {
            Some(true) => Tried::ok("known from the kernel's version only: it cannot be tried"),
            Some(false) => Tried::slower(
                "not in this version; it cannot be tried",
                machine::newer_kernel(6, 16),
            ),
            None => Tried::slower("the version cannot be read", machine::MOUNT_PROC),
        }
    },
    whereabouts: Whereabouts::Child,
};

/// Page tables that go when all of their pages are zapped (Linux 6.14 on x86-64): VmPTE is looked at
/// before and after.
pub const PAGE_TABLE_FREEING: Check = Check {
    name: "page-table-freeing",
    costs: "page tables of evicted pages stay until unmap, up to 2 MiB for each GiB of address space touched",
    run: |_| match zap_tables() {
        Ok((tables, 0)) => Tried::slower(
            format!("{tables} KiB of tables stayed when all they mapped was zapped"),
            mend_tables(),
        ),
        Ok((tables, gone)) => Tried::ok(format!(
            "{gone} of {tables} KiB of tables went with the pages that they mapped"
        )),
        Err(e) => Tried::slower(format!("could not be tried: {e}"), machine::MOUNT_PROC),
    },
    whereabouts: Whereabouts::Child,
};

fn mend_tables() -> String {
    match (machine::is_at_least(6, 14), std::env::consts::ARCH) {
        (Some(true), "x86_64") => "boot a kernel built with CONFIG_PT_RECLAIM=y".to_owned(),
        (_, "x86_64") => machine::newer_kernel(6, 14),
        _ => "boot a kernel that has CONFIG_PT_RECLAIM for this processor (x86-64 since 6.14)"
            .to_owned(),
    }
}

/// Bytes that one table maps.
const SPAN: usize = 2 << 20;
/// Tables tried.
const TABLES: usize = 16;

/// KiB of page tables that a touch of each span made, and the part of them that went when the spans were zapped.
fn zap_tables() -> io::Result<(u64, u64)> {
    let memory = Memory::map_with((TABLES + 1) * SPAN, libc::MAP_NORESERVE)?;
    let start = memory.aligned(SPAN);
    let before = tables()?;
    (0..TABLES).for_each(|table| memory.write(start + table * SPAN, 1));
    let touched = tables()?;
    for table in 0..TABLES {
        memory.advise(start + table * SPAN, SPAN, libc::MADV_DONTNEED)?;
    }
    let zapped = tables()?;
    Ok((
        touched.saturating_sub(before),
        touched.saturating_sub(zapped),
    ))
}

fn tables() -> io::Result<u64> {
    figure("/proc/self/status", "VmPTE:")
        .ok_or_else(|| io::Error::other("no VmPTE in /proc/self/status"))
}
