//! Shows that Linux shares the page tables of huge memory between processes: how many faults a process takes for
//! pages that another has mapped, and how much the system's page tables grow.
//!
//! `cargo run --release --example huge_sharing -- [GIBIBYTES] [PROCESSES]`, with a pool of as many pages
//! (`sysctl vm.nr_hugepages=512` for each gibibyte).

use softfault::{HugeBacking, HugeMemory};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const PAGE: usize = 2 << 20;
const SPAN: usize = 1 << 30;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| {
        args.next()
            .map_or(default, |arg| arg.parse().expect("a number"))
    };
    let (gibibytes, processes) = (number(1), number(16));
    let memory = HugeMemory::builder().backing(HugeBacking::Hugetlb);
    let memory = memory.create((gibibytes * SPAN) as u64)?;
    memory.map()?.populate(..)?;
    println!("{gibibytes} GiB of huge pages, {processes} processes");
    println!("                               faults a process   PageTables of the system");
    let one = report("mapped by softfault", processes, &|_| {
        let map = memory.map().expect("it was mapped a moment ago");
        let addr = map.as_ptr() as usize;
        core::mem::forget(map);
        addr..addr + gibibytes * SPAN
    });
    let two = report("plainly, not aligned alike", processes, &|number| {
        plainly(&memory, gibibytes * SPAN, number)
    });
    println!("shared: {}", if one * 8 < two { "yes" } else { "no" });
    Ok(())
}

/// Maps it at a place within a span that is this process's own: no table can be shared.
fn plainly(memory: &HugeMemory, bytes: usize, number: usize) -> core::ops::Range<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new mappings, the second in place of a part of the first.
    unsafe {
        let wide = libc::mmap(core::ptr::null_mut(), bytes + 2 * SPAN, 0, flags, -1, 0);
        assert_ne!(wide, libc::MAP_FAILED);
        let start = (wide as usize).next_multiple_of(SPAN) + (number + 1) % 512 * PAGE;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = memory.as_fd().as_raw_fd();
        let map = libc::mmap(start as *mut libc::c_void, bytes, all, flags, fd, 0);
        assert_ne!(map, libc::MAP_FAILED);
        start..start + bytes
    }
}

/// Lets each process map and touch all of it; all keep it mapped until the last has. The faults of the last.
fn report(what: &str, processes: usize, map: &dyn Fn(usize) -> core::ops::Range<usize>) -> i64 {
    let mut children = Vec::new();
    let mut faults = Vec::new();
    let mut before = 0;
    for number in 0..processes {
        let (told, hold) = (pipe(), pipe());
        // SAFETY: this process has one thread.
        if unsafe { libc::fork() } == 0 {
            let range = map(number);
            let before = minor_faults();
            for addr in range.step_by(PAGE) {
                // SAFETY: mapped above.
                unsafe { (addr as *mut u8).read_volatile() };
            }
            let faults = minor_faults() - before;
            // SAFETY: a number to the parent; then this waits until the parent closes the other pipe.
            unsafe {
                libc::write(told[1], (&raw const faults).cast(), 8);
                libc::close(hold[1]);
                libc::read(hold[0], [0u8].as_mut_ptr().cast(), 1);
                libc::_exit(0)
            }
        }
        let mut answer = 0i64;
        // SAFETY: a number from the child.
        unsafe {
            libc::read(told[0], (&raw mut answer).cast(), 8);
            [told[0], told[1], hold[0]].map(|fd| libc::close(fd));
        }
        faults.push(answer);
        children.push(hold[1]);
        if number == 0 {
            before = page_tables();
        }
    }
    let grown = page_tables() - before;
    println!(
        "{what:28} {:>6} and then {:>4}   + {grown} KiB for {} processes more",
        faults[0],
        faults[faults.len() - 1],
        processes - 1
    );
    for hold in children {
        // SAFETY: ours.
        unsafe {
            libc::close(hold);
        }
    }
    // SAFETY: waits for all children.
    while unsafe { libc::wait(core::ptr::null_mut()) } > 0 {}
    faults[faults.len() - 1]
}

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: fills both numbers.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

fn minor_faults() -> i64 {
    // SAFETY: a structure of zeros is valid, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt
    }
}

/// KiB of page tables in the whole system.
fn page_tables() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("Linux has one");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PageTables:"));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.and_then(|text| text.parse().ok()).unwrap_or(0)
}
