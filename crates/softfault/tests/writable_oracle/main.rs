//! Random operations on a file that is mapped over an engine, and on its twin, which the kernel maps: each byte of maps and
//! files is the same, as the contract (`docs/contract.md`) allows.
//!
//! ```text
//!   SOFTFAULT_ORACLE_OPERATIONS=1_000_000   so many operations, shared out to processes with seeds of their own
//!   SOFTFAULT_ORACLE_SEED=4711              the first of the seeds
//! ```
//!
//! | file | has |
//! |---|---|
//! | `ops` | the drawn operations: all that there are, or fsx's mix with its way to draw where and how much |
//! | `sides` | both files and their maps, and the effect of an operation on them |
//! | `at_once` | threads, and processes, at the same time |

mod at_once;
#[path = "../child/mod.rs"]
mod child;
mod ops;
mod sides;
#[path = "../write_scene/mod.rs"]
mod write_scene;

use ops::Mix;
use sides::Sides;
use softfault_engine::policy::Policies;

/// Operations between two looks at all bytes.
const LIST: usize = 2_000;
/// Processes at a time, at most.
const PROCESSES: usize = 4;

/// Of the processes, in turn.
const POLICIES: [&str; 4] = [
    "lock=refcount+retry=vma-lock+pin=yes",
    "lock=biased+retry=vma-lock+pin=no",
    "lock=rwsem+retry=mmap-lock+pin=no",
    "lock=refcount+retry=held+pin=yes",
];

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.replace('_', "").parse().unwrap())
}

/// Runs a mix in processes of their own: each forks, and would inherit other tests' threads' locks and descriptors.
fn run(test: &str, mix: Mix, by_default: usize, most: impl Fn(u64) -> usize) {
    let operations = number("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or(by_default);
    let first = number("SOFTFAULT_ORACLE_SEED").unwrap_or(1);
    let processes = operations.div_ceil(LIST).clamp(1, PROCESSES);
    let Some(scenario) = child::scenario() else {
        return std::thread::scope(|scope| {
            for number in 0..processes {
                scope.spawn(move || child::succeeds(test, &number.to_string()));
            }
        });
    };
    let number: usize = scenario.parse().unwrap();
    let seed = (first + number) as u64;
    let policies: Policies = POLICIES[number % POLICIES.len()].parse().unwrap();
    let mut sides = Sides::new(mix, seed, most(seed), policies);
    let mut left = operations.div_ceil(processes);
    println!("seed {seed}: {left} operations, {policies}");
    while left > 0 {
        let list = left.min(LIST);
        sides.play(list);
        left -= list;
    }
}

/// A file of more than two budgets.
#[test]
fn maps_of_the_engine_agree_with_the_kernels() {
    const TEST: &str = "maps_of_the_engine_agree_with_the_kernels";
    run(TEST, Mix::All, 800, |_| (20 << 20) + 4_321);
}

/// Of the length that fsx has by default, or longer than the budget.
#[test]
fn the_mix_of_fsx_agrees_with_the_kernels_map() {
    const TEST: &str = "the_mix_of_fsx_agrees_with_the_kernels_map";
    run(TEST, Mix::Fsx, 800, |seed| match seed % 2 {
        0 => 12 << 20,
        _ => 256 << 10,
    });
}
