//! The tour, made small.

use super::{directory, finish, is_empty, softfault};

#[test]
fn the_tour_ends_with_a_table_of_both_engines() {
    let dir = directory();
    let mut tour = softfault(&["tour", "--memory", "32M", "--seconds", "0.3", "--dir"]);
    let (code, out, err) = finish(tour.arg(dir.path()));
    assert_eq!(code, 0, "{err}");
    for workload in ["sparse", "random", "scan", "thrash"] {
        let lines = out
            .lines()
            .filter(|line| line.trim_start().starts_with(workload));
        let on = |engine: &str| lines.clone().filter(|line| line.contains(engine)).count();
        assert!(
            on(" kernel ") > 0 && on(" kernel ") == on(" softfault "),
            "{out}"
        );
    }
    assert!(!out.contains("failed") && is_empty(dir.path()), "{out}");
}
