//! The page tables by themselves: protecting, zeros, moving, and their state in a child of
//! fork. Faults are served by a handler of the tests' own.

mod fork;
mod in_place;
mod moving;
mod pins;
mod present;
mod protect;
mod rows;
mod served;
mod spare;
mod zaps;
mod zeros;

use super::UffdMmu;
use super::abi::{self, Offers};
use super::pagemap::Pagemap;
use crate::Faults;
use core::sync::atomic::{AtomicU64, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, MmuError, Reservation};

/// Page tables of the machine's own kernel.
fn real() -> UffdMmu {
    UffdMmu::new(Faults::Signals).unwrap()
}

/// Page tables as an older kernel gives them.
fn without(less: impl FnOnce(&mut Offers), scan: bool) -> UffdMmu {
    let mut offers = abi::ask(Faults::Signals).unwrap();
    less(&mut offers);
    let pagemap = match scan {
        true => Pagemap::new(),
        false => Pagemap::unopened(),
    };
    UffdMmu::with(offers, Faults::Signals, pagemap).unwrap()
}

fn reserve(mmu: &UffdMmu, pages: usize) -> Reservation {
    mmu.reserve(pages * PAGE_SIZE, Protection::ReadWrite)
        .unwrap()
}

fn page(window: &Reservation, page: usize) -> usize {
    window.addr + page * PAGE_SIZE
}

fn copy(
    mmu: &UffdMmu,
    window: &Reservation,
    at: usize,
    byte: u8,
    access: Access,
) -> Result<(), MmuError> {
    let bytes = [byte; PAGE_SIZE];
    // SAFETY: a page to copy from, and the test keeps to the window.
    unsafe { mmu.copy((window, page(window, at)), &raw const bytes, access) }
}

/// The first word of a page, as threads use it.
fn word(window: &Reservation, at: usize) -> &AtomicU64 {
    // SAFETY: memory of a window, or a fault that the test serves.
    unsafe { AtomicU64::from_ptr(page(window, at) as *mut u64) }
}

fn write(window: &Reservation, at: usize, value: u64) {
    word(window, at).store(value, Ordering::Relaxed);
}

fn read(window: &Reservation, at: usize) -> u64 {
    word(window, at).load(Ordering::Relaxed)
}

/// A word of pages of this byte.
fn of(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Which pages of a window are present.
fn present(window: &Reservation) -> Vec<bool> {
    let mut pages = vec![0_u8; window.bytes / PAGE_SIZE];
    // SAFETY: a mapping, and a byte for each of its pages.
    let answer = unsafe { libc::mincore(window.addr as *mut _, window.bytes, pages.as_mut_ptr()) };
    assert_eq!(answer, 0, "errno {}", crate::errno::errno());
    pages.into_iter().map(|page| page & 1 != 0).collect()
}

/// What the kernel says of a window's mapping, in the line of smaps that begins so.
fn said_of(window: &Reservation, name: &str) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let head = format!("{:x}-", window.addr);
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&head));
    let said = lines.find_map(|line| line.strip_prefix(name)).unwrap();
    said.trim().to_owned()
}

/// Kilobytes of memory that a window takes.
fn resident_kb(window: &Reservation) -> usize {
    let rss = said_of(window, "Rss:");
    rss.trim_end_matches(" kB").parse().unwrap()
}
