//! Shows that Linux shares the page tables of huge memory between processes: how many faults a process takes for
//! pages that others have mapped, and how much the system's page tables grow by that.
//!
//! `cargo run --release --example huge_sharing -- [GIBIBYTES] [PROCESSES]`, with 8 huge pages for each gibibyte
//! in the pool (`sysctl vm.nr_hugepages=512` for the default of 64): of each gibibyte 8 pages are touched.

use softfault::{HugeBacking, HugeMapOptions, HugeMemory};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

const PAGE: usize = 2 << 20;
const SPAN: usize = 1 << 30;
/// Pages of a span that are touched.
const TOUCHED: usize = 8;

fn main() -> io::Result<()> {
    let args: Vec<usize> = (std::env::args().skip(1))
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    let spans = args.first().copied().unwrap_or(64);
    let processes = args.get(1).copied().unwrap_or(64);
    let memory = HugeMemory::builder().backing(HugeBacking::Hugetlb);
    let memory = memory.create((spans * SPAN) as u64)?;
    let map = HugeMapOptions::new().no_reserve(true).map(&memory)?;
    for page in pages(0..spans * SPAN) {
        map.populate(page..page + 1)?;
    }
    drop(map);
    println!("{processes} processes map {spans} GiB, and touch {TOUCHED} huge pages of each");
    let one = report("by softfault", processes, &|_| {
        let map = HugeMapOptions::new().no_reserve(true).map(&memory);
        let map = map.expect("it was mapped a moment ago");
        let start = map.as_ptr() as usize;
        core::mem::forget(map);
        start..start + spans * SPAN
    });
    let two = report("where none can be shared", processes, &|number| {
        plainly(&memory, spans * SPAN, number)
    });
    println!("shared: {}", if one * 2 < two { "yes" } else { "no" });
    Ok(())
}

/// The touched part of some addresses, or bytes.
fn pages(range: Range<usize>) -> impl Iterator<Item = usize> {
    range
        .step_by(SPAN)
        .flat_map(|span| (0..TOUCHED).map(move |page| span + page * PAGE))
}

/// Maps it at a place within a span that is this process's own: no table can be shared.
fn plainly(memory: &HugeMemory, bytes: usize, number: usize) -> Range<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let none = libc::PROT_NONE;
    // SAFETY: new mappings, the second in place of a part of the first.
    unsafe {
        let wide = libc::mmap(core::ptr::null_mut(), bytes + 2 * SPAN, none, flags, -1, 0);
        assert_ne!(wide, libc::MAP_FAILED);
        let start = (wide as usize).next_multiple_of(SPAN) + (number + 1) % 500 * PAGE;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let fd = memory.as_fd().as_raw_fd();
        let map = libc::mmap(start as *mut libc::c_void, bytes, all, flags, fd, 0);
        assert_ne!(map, libc::MAP_FAILED);
        start..start + bytes
    }
}

/// Lets each process map it, and then each touch it; all keep it until the last has. The faults of the last.
fn report(what: &str, processes: usize, map: &dyn Fn(usize) -> Range<usize>) -> i64 {
    let children: Vec<_> = (0..processes)
        .map(|number| Child::fork(number, map))
        .collect();
    children.iter().for_each(|child| {
        child.answer();
    });
    let before = page_tables();
    let faults: Vec<i64> = (children.iter())
        .map(|child| {
            child.go();
            child.answer()
        })
        .collect();
    let grown = page_tables() - before;
    let (first, last) = (faults[0], faults[processes - 1]);
    println!(
        "{what:25} faults of the first {first:5}, of the last {last:5}; the system's page tables: {grown:+} KiB"
    );
    children.iter().for_each(Child::go);
    // SAFETY: waits for all children.
    while unsafe { libc::wait(core::ptr::null_mut()) } > 0 {}
    last
}

/// A process, and the pipes to and from it.
struct Child {
    go: [i32; 2],
    answers: [i32; 2],
}

impl Child {
    fn fork(number: usize, map: &dyn Fn(usize) -> Range<usize>) -> Self {
        let child = Self {
            go: pipe(),
            answers: pipe(),
        };
        // SAFETY: this process has one thread.
        if unsafe { libc::fork() } == 0 {
            let range = map(number);
            child.tell(0);
            child.wait();
            let before = minor_faults();
            for addr in pages(range) {
                // SAFETY: mapped above.
                unsafe { (addr as *mut u8).read_volatile() };
            }
            child.tell(minor_faults() - before);
            child.wait();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child
    }

    fn tell(&self, number: i64) {
        // SAFETY: a number to the parent.
        unsafe { libc::write(self.answers[1], (&raw const number).cast(), 8) };
    }

    fn answer(&self) -> i64 {
        let mut number = 0i64;
        // SAFETY: a number from the child.
        unsafe { libc::read(self.answers[0], (&raw mut number).cast(), 8) };
        number
    }

    fn go(&self) {
        // SAFETY: a byte to the child.
        unsafe { libc::write(self.go[1], [0u8].as_ptr().cast(), 1) };
    }

    fn wait(&self) {
        // SAFETY: a byte from the parent.
        unsafe { libc::read(self.go[0], [0u8].as_mut_ptr().cast(), 1) };
    }
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
