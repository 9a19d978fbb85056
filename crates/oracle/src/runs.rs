//! How often a property is tried: on so many cases, seeds that failed once first; or
//! on as many operations as the environment says.

use proptest::prelude::ProptestConfig;
use proptest::strategy::Strategy;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

/// So many cases. Seeds that failed once are kept in the file `kept`, beside the
/// sources, and tried first.
pub fn cases(kept: &'static str, cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..ProptestConfig::default()
    }
}

/// Plays as many operations as `SOFTFAULT_ORACLE_OPERATIONS` says, or 2,000: lists of
/// a few hundred, which `lists` draws for the length that it is told. Always the same.
pub fn long_run<S: Strategy>(
    config: ProptestConfig,
    lists: impl Fn(usize) -> S,
    play: impl Fn(S::Value),
) {
    const LIST: usize = 400;
    let text = std::env::var("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or("2_000".into());
    let operations: usize = text.replace('_', "").parse().unwrap();
    let count = operations.div_ceil(LIST);
    let config = ProptestConfig {
        cases: count as u32,
        failure_persistence: None,
        ..config
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let played = runner.run(&lists(LIST), |drawn| {
        play(drawn);
        Ok(())
    });
    played.unwrap();
    println!("{} operations", count * LIST);
}
