//! The resources a process has used so far: of itself by getrusage, of a child that is about to be killed by
//! /proc. Both count all threads.

use crate::figure::figure;
use std::fs;

/// Totals since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that it caused to be read from storage; `None` where the kernel does not count them.
    pub bytes_read: Option<u64>,
    /// Bytes that it caused to be written, the kernel's swapping left out; `None` likewise.
    pub bytes_written: Option<u64>,
    /// Bytes that the machine wrote to the kernel's swap, for whomever; `None` where it does not tell.
    pub swapped_out: Option<u64>,
    /// The most bytes that it had resident, ever.
    pub peak_rss: Option<u64>,
    /// User and system time in microseconds.
    pub cpu_us: u64,
    /// Faults that needed I/O.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
}

impl Usage {
    /// This process's.
    pub fn own() -> Self {
        // SAFETY: all zeros is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is live.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        Self {
            bytes_read: bytes("self", "read_bytes:"),
            bytes_written: bytes("self", "write_bytes:"),
            swapped_out: swapped_out(),
            peak_rss: peak_rss("self"),
            cpu_us: us(usage.ru_utime) + us(usage.ru_stime),
            major_faults: usage.ru_majflt as u64,
            minor_faults: usage.ru_minflt as u64,
        }
    }

    /// A living child's; CPU time in clock ticks (10 ms).
    pub fn of_child(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut usage = parse_stat(&stat)?;
        let pid = &pid.to_string();
        usage.bytes_read = bytes(pid, "read_bytes:");
        usage.bytes_written = bytes(pid, "write_bytes:");
        usage.swapped_out = swapped_out();
        usage.peak_rss = peak_rss(pid);
        Some(usage)
    }

    /// The resources used from `before` to `self`; a peak is the whole life's.
    pub fn since(self, before: Self) -> Self {
        let grown = |of: fn(&Self) -> Option<u64>| {
            let both = of(&self).zip(of(&before));
            both.map(|(now, then)| now.saturating_sub(then))
        };
        Self {
            bytes_read: grown(|usage| usage.bytes_read),
            bytes_written: grown(|usage| usage.bytes_written),
            swapped_out: grown(|usage| usage.swapped_out),
            peak_rss: self.peak_rss,
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
        }
    }
}

/// The most bytes that a process had resident, ever.
pub fn peak_rss(process: &str) -> Option<u64> {
    figure(&format!("/proc/{process}/status"), "VmHWM:").map(|kib| kib << 10)
}

fn bytes(process: &str, what: &str) -> Option<u64> {
    figure(&format!("/proc/{process}/io"), what)
}

fn swapped_out() -> Option<u64> {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    figure("/proc/vmstat", "pswpout ").map(|pages| pages * page)
}

/// Fields of proc_pid_stat(5), counted from behind the command's name, which may hold anything.
fn parse_stat(stat: &str) -> Option<Usage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Some(Usage {
        cpu_us: (field(14)? + field(15)?) * 1_000_000 / ticks,
        major_faults: field(12)?,
        minor_faults: field(10)?,
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_an_odd_command_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 700 0 5 0 300 100 0 0 20 0 1 0 9";
        let usage = parse_stat(stat).unwrap();
        assert_eq!((usage.minor_faults, usage.major_faults), (700, 5));
        assert!(usage.cpu_us >= 400 * 1000);
    }

    #[test]
    fn own_usage_grows() {
        let before = Usage::own();
        let pages = vec![1u8; 4 << 20];
        assert_eq!(std::hint::black_box(&pages)[1 << 20], 1);
        assert!(Usage::own().since(before).minor_faults > 0);
        assert!(Usage::own().peak_rss > Some(1 << 20));
    }
}
