//! Huge pages under real threads: lists that chance draws, a thread and a space each, on
//! files that all of them map, cut, punch and write to. A word that a touch showed must have been
//! there at some moment of it; a page that was promised is there; nothing is left at the end.

use softfault_oracle::{HugeSetting, Random, draw_huge, play_huge_together};

/// As many operations as the environment says.
#[test]
fn each_threads_view_was_true_at_some_moment() {
    let text = std::env::var("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or("12_000".into());
    let operations: usize = text.replace('_', "").parse().unwrap();
    const LIST: usize = 60;
    let (mut done, mut seed) = (0, 0);
    while done < operations {
        seed += 1;
        let mut random = Random::new(seed);
        let setting = HugeSetting {
            policies: HugeSetting::policies_of(random.below(96) as u64),
            leaf_pages: [2, 4][random.below(2)],
            fault_mutexes: [1, 4, 64][random.below(3)],
            pool_pages: [32, 9, 5][random.below(3)],
            file_pages: 8,
            files: 1 + random.below(2),
            spaces: 2 + random.below(3),
        };
        let (setup, lists) = draw_huge(&mut random, &setting, LIST);
        play_huge_together(setting, &setup, &lists, |_| {});
        done += setup.len() + lists.len() * LIST;
    }
    println!("{done} operations, {seed} lists of lists");
}
