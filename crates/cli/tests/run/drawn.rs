//! Programs that nobody wrote: a seed draws the calls of `drawn.c`.

use crate::{compile, directory, same_each_way};
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that says what property tests draw, too.
const SEED: &str = "PROPTEST_RNG_SEED";
/// Programs that are drawn in a run of the tests.
const PROGRAMS: u64 = 6;
/// Calls of each.
const CALLS: &str = "250";

fn seed() -> u64 {
    let said = std::env::var(SEED).ok();
    said.map_or_else(
        || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.expect("after 1970").as_nanos() as u64 % 1_000_000_007
        },
        |text| text.parse().expect("a number"),
    )
}

#[test]
fn a_program_of_drawn_calls_is_answered_as_by_the_kernel() {
    let directory = directory("drawn");
    let Some(program) = compile("drawn.c", &directory.join("program"), &[]) else {
        return;
    };
    let swap = format!("{}:256M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    let first = seed();
    for seed in first..first + PROGRAMS {
        println!("{SEED}={seed}");
        let seed = seed.to_string();
        let command = [
            program.as_ref(),
            directory.as_ref(),
            seed.as_ref(),
            CALLS.as_ref(),
        ];
        same_each_way(&directory, &command, &options, |stats, how| {
            assert!(stats[0].taken() > 0, "{how}");
        });
    }
}
