//! Huge pages against a model: every word, every error, every reservation, after every
//! operation of lists that chance draws; over leaves of four and eight pages, so that
//! lists often come to the end of one, and pools that are sometimes short.
//!
//! ```text
//!   SOFTFAULT_ORACLE_OPERATIONS=1_000_000   so many operations in `a_long_run`
//! ```

use proptest::prelude::*;
use softfault_oracle::{HugeSetting, any_huge_op, cases, long_run, play_huge};

/// Pages of a file: four leaves and a half of four, two and a quarter of eight.
const FILE_PAGES: u64 = 18;

fn any_setting() -> impl Strategy<Value = HugeSetting> {
    let policies = (0..96_u64).prop_map(HugeSetting::policies_of);
    let pool = prop_oneof![Just(40), Just(40), 6..24u32];
    let leaf = prop_oneof![Just(4), Just(8)];
    let mutexes = prop_oneof![Just(1), Just(4), Just(64)];
    (policies, pool, leaf, mutexes, 1..3usize, 2..4usize).prop_map(
        |(policies, pool_pages, leaf_pages, fault_mutexes, files, spaces)| HugeSetting {
            policies,
            leaf_pages,
            fault_mutexes,
            pool_pages,
            file_pages: FILE_PAGES,
            files,
            spaces,
        },
    )
}

fn config(count: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/huge_oracle.txt"
    );
    ProptestConfig {
        max_shrink_iters: 4000,
        ..cases(kept, count)
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

#[test]
fn a_long_run() {
    let lists = |ops| {
        let list = proptest::collection::vec(any_huge_op(FILE_PAGES), ops);
        (any_setting(), list)
    };
    long_run(config(1), lists, |(setting, ops)| play_huge(setting, &ops));
}
