//! What a process has used so far: of itself by getrusage, of a child that is about to be killed by
//! /proc. Both count all threads.

use std::fs;

/// Totals since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that it caused to be read from storage; `None` where the kernel does not count them.
    pub bytes_read: Option<u64>,
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
            bytes_read: bytes_read("self"),
            cpu_us: us(usage.ru_utime) + us(usage.ru_stime),
            major_faults: usage.ru_majflt as u64,
            minor_faults: usage.ru_minflt as u64,
        }
    }

    /// A living child's; CPU time in clock ticks (10 ms).
    pub fn of_child(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut usage = parse_stat(&stat)?;
        usage.bytes_read = bytes_read(&pid.to_string());
        Some(usage)
    }

    /// What was used from `before` to `self`.
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes_read: self
                .bytes_read
                .zip(before.bytes_read)
                .map(|(now, then)| now.saturating_sub(then)),
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
        }
    }
}

fn bytes_read(process: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}

/// Fields of proc_pid_stat(5), counted from behind the command's name, which may hold anything.
fn parse_stat(stat: &str) -> Option<Usage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Some(Usage {
        bytes_read: None,
        cpu_us: (field(14)? + field(15)?) * 1_000_000 / ticks,
        major_faults: field(12)?,
        minor_faults: field(10)?,
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
    }
}
