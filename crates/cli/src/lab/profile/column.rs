//! The result of one kind of fault.

use super::kind::{Kind, ToldBy};
use serde::{Deserialize, Serialize};
use softfault::stage::Touched;
use softfault_engine::stage::Stage;

/// A kind of fault, told in one way. All times are nanoseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Column {
    /// The kind's name.
    pub kind: String,
    /// How the kernel told of it.
    pub told_by: String,
    /// Why there is nothing.
    pub not_run: Option<String>,
    /// Touches that were recorded: each is of the kind, or not.
    pub touches: u64,
    /// Of these, touches that went the way of the kind. The figures are theirs.
    pub of_kind: u64,
    /// Touches that were a fault and went another way.
    pub otherwise: u64,
    /// Touches that were no fault, where the kind is one.
    pub no_fault: u64,
    /// From before each touch to after it, in all.
    pub total_ns: u64,
    /// The parts of that by stage. They sum to it.
    pub stages: Vec<StageTime>,
    /// Of one touch.
    pub median_ns: u64,
    /// Of one touch that was not recorded, where all of them are of the kind.
    pub median_unrecorded_ns: Option<u64>,
}

/// A stage's share.
#[derive(Debug, Serialize, Deserialize)]
pub struct StageTime {
    /// Its name.
    pub stage: String,
    /// Time in it.
    pub ns: u64,
    /// How often it was begun.
    pub times: u64,
}

impl Column {
    /// Of touches, each as it was recorded, and of the times of others that were not.
    pub fn of(kind: Kind, told: ToldBy, recorded: &[Touched], unrecorded: &mut [u64]) -> Self {
        let mut of_kind: Vec<&Touched> = recorded.iter().filter(|one| kind.is(one)).collect();
        of_kind.sort_by_key(|one| one.total_ns());
        let faults = |one: &&Touched| one.entered[Stage::Handler as usize] > 0;
        let count = of_kind.len();
        let others = recorded.iter().filter(|one| !kind.is(one));
        let otherwise = others.filter(faults).count();
        let sum = |of: &dyn Fn(&Touched) -> u64| of_kind.iter().map(|one| of(one)).sum::<u64>();
        let stages = Stage::ALL.map(|stage| StageTime {
            stage: name(stage).into(),
            ns: sum(&|one| one.ns[stage as usize]),
            times: sum(&|one| one.entered[stage as usize].into()),
        });
        unrecorded.sort_unstable();
        let median = unrecorded.get(unrecorded.len() / 2);
        Self {
            kind: kind.name().into(),
            told_by: told.name().into(),
            not_run: None,
            touches: recorded.len() as u64,
            of_kind: count as u64,
            otherwise: otherwise as u64,
            no_fault: (recorded.len() - count - otherwise) as u64,
            total_ns: sum(&Touched::total_ns),
            stages: stages.into_iter().filter(|one| one.times > 0).collect(),
            median_ns: of_kind.get(count / 2).map_or(0, |one| one.total_ns()),
            // Which of those not recorded are of the kind, nobody knows.
            median_unrecorded_ns: median.copied().filter(|_| count * 8 >= recorded.len() * 7),
        }
    }

    /// Nothing, and why.
    pub fn not_run(kind: Kind, told: ToldBy, why: String) -> Self {
        Self {
            kind: kind.name().into(),
            told_by: told.name().into(),
            not_run: Some(why),
            ..Self::default()
        }
    }

    /// The time of a stage, a touch.
    pub fn mean_ns(&self, stage: &str) -> Option<f64> {
        let time = self.stages.iter().find(|one| one.stage == stage)?;
        Some(time.ns as f64 / self.of_kind as f64)
    }
}

/// A stage's name in tables and JSON.
pub fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Entry => "kernel, to us",
        Stage::Handler => "handler",
        Stage::Switch => "other thread",
        Stage::Serve => "rest of engine",
        Stage::VmaLock => "VMA lock",
        Stage::LookUp => "index",
        Stage::ReadAhead => "read-ahead",
        Stage::Extent => "hole or data",
        Stage::Frames => "folio, frames",
        Stage::Submit => "submit",
        Stage::Read => "read",
        Stage::FolioWait => "folio wait",
        Stage::Reclaim => "reclaim",
        Stage::Zap => "zap",
        Stage::WriteOut => "write out",
        Stage::Copy => "copy",
        Stage::Zero => "zeros",
        Stage::Move => "move",
        Stage::Protect => "protect",
        Stage::Unprotect => "unprotect",
        Stage::Wake => "wake",
        Stage::Return => "return",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(stages: &[(Stage, u64)]) -> Touched {
        let mut touched = Touched::default();
        for &(stage, ns) in stages {
            touched.ns[stage as usize] += ns;
            touched.entered[stage as usize] += 1;
        }
        touched
    }

    #[test]
    fn every_touch_is_counted_once_and_stages_sum_to_the_whole() {
        let fault = [(Stage::Entry, 5), (Stage::Handler, 1), (Stage::Serve, 3)];
        let read = |ns| touched(&[&fault[..], &[(Stage::Read, ns), (Stage::Return, 2)]].concat());
        let recorded = [
            read(10),
            touched(&fault),
            touched(&[(Stage::Entry, 1)]),
            read(30),
            read(20),
        ];
        let column = Column::of(Kind::Cold, ToldBy::Signals, &recorded, &mut [9, 7, 8]);
        let counts = (column.of_kind, column.otherwise, column.no_fault);
        assert_eq!((column.touches, counts), (5, (3, 1, 1)));
        assert_eq!(column.total_ns, 3 * 11 + 60);
        let stages: u64 = column.stages.iter().map(|one| one.ns).sum();
        assert_eq!(stages, column.total_ns);
        assert_eq!(column.median_ns, 31);
        assert_eq!(column.median_unrecorded_ns, None, "two of five are others");
        let column = Column::of(Kind::Cold, ToldBy::Signals, &[read(1)], &mut [9, 7, 8]);
        assert_eq!(column.median_unrecorded_ns, Some(8));
    }

    #[test]
    fn stages_have_names_of_their_own() {
        let mut names = Stage::ALL.map(name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Stage::ALL.len());
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
        }
        assert!(Stage::ALL.len() <= softfault::stage::STAGES);
    }
}
