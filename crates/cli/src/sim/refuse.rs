//! Options that a workload has no use for.

use super::arguments::RunArgs;
use crate::error::Error;
use softfault_sim::Workload::{
    self, Anon, Hugetlb, Loops, Pft, Spf, Storm, SwapRetry, Thrash, WarmStart,
};

/// Refuses arguments that only other workloads have a use for.
pub fn refuse_strangers(workload: Workload, args: &RunArgs) -> Result<(), Error> {
    let given: [(bool, &str, &[Workload]); 12] = [
        (args.shared, "--shared", &[Pft]),
        (args.verb.is_some(), "--loop", &[Loops]),
        (args.contended, "--contended", &[Loops]),
        (args.region.is_some(), "--region", &[Pft, Spf, Loops]),
        (args.size.is_some(), "--size", &[SwapRetry, Anon, Hugetlb]),
        (args.theta.is_some(), "--theta", &[Anon]),
        (args.file_size.is_some(), "--file-size", &[Thrash, Storm]),
        (args.start.is_some(), "--start", &[Hugetlb]),
        (args.together, "--together", &[Hugetlb]),
        (args.no_forks, "--no-forks", &[WarmStart, SwapRetry]),
        (args.files.is_some(), "--files", &[WarmStart]),
        (args.mappers.is_some(), "--mappers", &[Storm]),
    ];
    let stranger = |(is, _, of): &&(bool, &str, &[Workload])| *is && !of.contains(&workload);
    match given.iter().find(stranger) {
        None => Ok(()),
        Some((_, option, of)) => {
            let of: Vec<&str> = of.iter().map(|workload| workload.name()).collect();
            Err(Error::input(format_args!(
                "{option} is for {}",
                of.join(", ")
            )))
        }
    }
}
