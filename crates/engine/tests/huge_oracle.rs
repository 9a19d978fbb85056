//! Huge pages against a model: every word, every error, every reservation, after every
//! operation of lists that chance draws; over leaves of four and eight pages, so that
//! lists often come to the end of one, and pools that are sometimes short.

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use softfault_engine::policy::ShareSync;
use softfault_oracle::{HugeSetting, any_huge_op, play_huge};

/// Pages of a file: four leaves and a half of four, two and a quarter of eight.
const FILE_PAGES: u64 = 18;

fn any_setting() -> impl Strategy<Value = HugeSetting> {
    let sync = prop_oneof![Just(ShareSync::VmaLock), Just(ShareSync::IMmapRwsem)];
    let pool = prop_oneof![Just(40), Just(40), 6..24u32];
    let leaf = prop_oneof![Just(4), Just(8)];
    let mutexes = prop_oneof![Just(1), Just(4), Just(64)];
    (sync, pool, leaf, mutexes, 1..3usize, 2..4usize).prop_map(
        |(sync, pool_pages, leaf_pages, fault_mutexes, files, spaces)| HugeSetting {
            sync,
            leaf_pages,
            fault_mutexes,
            pool_pages,
            file_pages: FILE_PAGES,
            files,
            spaces,
        },
    )
}

/// Seeds that failed once are kept beside the sources, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/huge_oracle.txt"
    );
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn every_word_and_every_promise_is_the_models(
        setting in any_setting(),
        ops in proptest::collection::vec(any_huge_op(FILE_PAGES), 1..80),
    ) {
        play_huge(setting, &ops);
    }
}

/// As many operations as the environment says, in lists of a few hundred.
#[test]
fn a_long_run() {
    let text = std::env::var("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or("4_000".into());
    let operations: usize = text.replace('_', "").parse().unwrap();
    const LIST: usize = 400;
    let lists = operations.div_ceil(LIST);
    let config = ProptestConfig {
        failure_persistence: None,
        ..config(lists as u32)
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let list = proptest::collection::vec(any_huge_op(FILE_PAGES), LIST);
    let played = runner.run(&(any_setting(), list), |(setting, ops)| {
        play_huge(setting, &ops);
        Ok(())
    });
    played.unwrap();
    println!("{} operations", lists * LIST);
}
