//! Options that a workload has no use for.

use super::args::RunArgs;
use super::workload::Workload;
use crate::error::Error;
use crate::results::on::On;

impl Workload {
    /// Refuses arguments that only other workloads have a use for.
    pub fn refuse_strangers(self, args: &RunArgs) -> Result<(), Error> {
        let of = |all: &[Self]| all.contains(&self);
        let has_patterns = self.swaps()
            || of(&[
                Self::Sparse,
                Self::Many,
                Self::Orders,
                Self::Scan,
                Self::Write,
                Self::Pft,
                Self::Loops,
                Self::Hugetlb,
            ]);
        let wrong = [
            (
                args.touch.is_some() && !of(&[Self::Sparse]),
                "--touch is for sparse",
            ),
            (
                !args.files.is_empty() && !of(&[Self::Thrash]),
                "--files is for thrash",
            ),
            (
                !args.pattern.is_empty() && !has_patterns,
                "--pattern is for sparse, many, orders, scan, write, pft, loops, anon, swap-retry, snapshot and hugetlb",
            ),
            (
                args.theta.is_some() && !self.swaps() && !of(&[Self::Write]),
                "--theta is for write, anon, swap-retry and snapshot",
            ),
            (
                args.writes.is_some() && !self.swaps(),
                "--writes is for anon, swap-retry and snapshot",
            ),
            (
                args.flush_every.is_some() && !of(&[Self::Write]),
                "--flush-every is for write",
            ),
            (
                args.file.is_some() && of(&[Self::Write]),
                "--file is not for write: it writes over the one that it makes",
            ),
            (
                args.file.is_some() && self.swaps(),
                "--file is not for anon, swap-retry and snapshot: they touch anonymous memory",
            ),
            (
                args.file.is_some() && of(&[Self::Hugetlb]),
                "--file is not for hugetlb: it makes one of huge pages",
            ),
            (
                !args.read_ahead_kb.is_empty() && !self.reads_files(),
                "--read-ahead-kb is for sparse, random, many, orders, scan, write, thrash, warm-start and storm: they read files",
            ),
            (
                args.file.is_some() && of(&[Self::Thrash]),
                "--file is not for thrash: each thread has a file of its own",
            ),
            (
                args.file.is_some() && of(&[Self::WarmStart]),
                "--file is not for warm-start: it makes many",
            ),
            (
                args.file.is_some() && self.is_anonymous(),
                "--file is not for pft, spf and loops: they touch anonymous memory",
            ),
        ];
        match wrong.into_iter().find(|(is, _)| *is) {
            Some((_, why)) => Err(Error::input(why)),
            None => Ok(()),
        }
    }

    /// Refuses an engine that it makes no sense on.
    pub fn refuse_engine(self, on: On) -> Result<(), Error> {
        let name = self.name();
        let why = match on {
            On::Pread if self.is_anonymous() || matches!(self, Self::WarmStart | Self::Storm) => {
                "is about mapping, and pread maps nothing"
            }
            On::PreadCached if self != Self::Thrash => {
                "has no use for a cache of runs: that is for thrash"
            }
            On::Pread if self.swaps() => "writes too: see direct",
            On::Pread | On::Soft(_) if self == Self::Write => {
                "writes by stores to a map, as kernel and softfault do, or by direct reads and writes"
            }
            On::Direct if !matches!(self, Self::Anon | Self::Write) => {
                "is nothing to direct reads and writes: they are for anon and write"
            }
            On::Pread | On::KernelRandom(_) | On::KernelSequential(_) | On::KernelHugePage(_)
                if self == Self::Hugetlb =>
            {
                "maps huge pages: kernel, kernel-parked, softfault and soft do"
            }
            On::KernelParked if self != Self::Hugetlb => {
                "has no huge pages whose page tables a mapping could keep"
            }
            On::Soft(_) if self == Self::Snapshot => {
                "forks the process, and soft page tables are not its own"
            }
            On::KernelRandom(_) | On::KernelSequential(_) | On::KernelHugePage(_)
                if self.is_anonymous() || self.swaps() =>
            {
                "touches anonymous memory, for which no advice about reading means anything"
            }
            _ if on.read_ahead_kb().is_some() && !self.reads_files() => {
                "reads no file, and the read-ahead of a device is for files"
            }
            _ => return Ok(()),
        };
        Err(Error::input(format_args!("--on {on}: {name} {why}")))
    }
}
