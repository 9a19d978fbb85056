//! Which files a plan's runs are over.

use super::files::{self, LabFile};
use super::plan::{FileFrom, Files, Pattern, Plan, Workload};
use crate::error::Error;
use crate::interrupt::Interrupt;

/// Length of the file that a storm maps and unmaps: small, as the mappings that programs often map and unmap.
const STORM_BYTES: u64 = 64 << 10;

/// The caller's own file, if the plan names one.
pub fn given(plan: &Plan) -> Result<Option<LabFile>, Error> {
    match &plan.file {
        FileFrom::Path(path) => files::open(path).map(Some),
        FileFrom::Made(_) => Ok(None),
    }
}

/// The files that all runs of the plan share.
pub fn shared(
    plan: &Plan,
    given: Option<LabFile>,
    interrupt: &Interrupt,
) -> Result<Vec<LabFile>, Error> {
    let mut sizes = match (plan.workload, &plan.file) {
        _ if plan.patterns.iter().all(Pattern::appends) => Vec::new(),
        (Workload::Thrash | Workload::Pft | Workload::Spf | Workload::Hugetlb, _) => Vec::new(),
        (workload, _) if workload.swaps() => Vec::new(),
        (Workload::WarmStart, FileFrom::Made(bytes)) => files::mixed_sizes(*bytes, plan.seed),
        (_, FileFrom::Made(bytes)) => vec![*bytes],
        (_, FileFrom::Path(_)) => Vec::new(),
    };
    if plan.workload == Workload::Storm {
        sizes.push(STORM_BYTES);
    }
    let mut files: Vec<LabFile> = given.into_iter().collect();
    if !sizes.is_empty() {
        files.extend(files::make_data(&plan.dir, &sizes, plan.seed, interrupt)?);
    }
    Ok(files)
}

/// A thrash's files: of each pattern and number of threads its own. And the file that is appended to.
pub fn own(
    plan: &Plan,
    pattern: &Pattern,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Option<Vec<LabFile>>, Error> {
    let FileFrom::Made(bytes) = &plan.file else {
        return Ok(None);
    };
    if pattern.appends() {
        return files::make_holes(&plan.dir, 1, *bytes).map(Some);
    }
    let Some(kind) = pattern.files() else {
        return Ok(None);
    };
    match kind {
        Files::Data => files::make_data(&plan.dir, &vec![*bytes; threads], plan.seed, interrupt),
        Files::Holes => files::make_holes(&plan.dir, threads, *bytes),
    }
    .map(Some)
}
