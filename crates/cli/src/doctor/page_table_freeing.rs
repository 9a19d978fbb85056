//! Page tables that go when all of what they map is zapped (Linux 6.14 on x86-64): VmPTE is looked at
//! before and after.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::memory::Memory;
use std::io;

pub const CHECK: Check = Check {
    name: "page-table-freeing",
    costs: "page tables of what was evicted stay until unmap, up to 2 MiB for each GiB of address space touched",
    run: |_| match try_it() {
        Ok((tables, 0)) => Tried::slower(
            format!("{tables} KiB of tables stayed when all they mapped was zapped"),
            mend(),
        ),
        Ok((tables, gone)) => Tried::ok(format!(
            "{gone} of {tables} KiB of tables went with what they mapped"
        )),
        Err(e) => Tried::slower(
            format!("could not be tried: {e}"),
            "mount -t proc proc /proc",
        ),
    },
    whereabouts: Whereabouts::Child,
};

fn mend() -> String {
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

/// KiB of page tables that a touch of each span made, and of these what went when the spans were zapped.
fn try_it() -> io::Result<(u64, u64)> {
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
    machine::figure("/proc/self/status", "VmPTE")
        .ok_or_else(|| io::Error::other("no VmPTE in /proc/self/status"))
}
