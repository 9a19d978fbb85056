//! A budget that nobody asked for, and the limits of memory cgroups.

mod cgroup;
mod child;
mod files;

use cgroup::{Group, lift_limit, set_limit};
use files::{check, made_file, map};
use softfault::{Advice, Engine, Mmap};
use std::fs;
use std::path::Path;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Runs a test in a child, with memory cgroups of these names and limits.
#[track_caller]
fn in_groups<const N: usize>(
    test: &str,
    groups: [(&str, usize); N],
    in_child: impl FnOnce([&Path; N]),
) {
    if let Some(scenario) = child::scenario() {
        let paths: Vec<&Path> = scenario.split(' ').map(Path::new).collect();
        return in_child(paths.try_into().expect("a path for each group"));
    }
    let groups: Option<Vec<Group>> = (groups.iter())
        .map(|(name, limit)| Group::new(name, *limit))
        .collect();
    let Some(groups) = groups else {
        return softfault_skip::skipped("root", "no memory cgroup can be made");
    };
    let paths: Vec<String> = (groups.iter())
        .map(|group| group.0.display().to_string())
        .collect();
    child::succeeds(test, &paths.join(" "));
}

/// The calling process is in a memory cgroup from now on.
fn join(group: &Path) {
    fs::write(group.join("cgroup.procs"), "0").expect("joined");
}

/// An engine that is not told its budget.
fn not_told() -> Engine {
    let builder = Engine::builder().allow_kernel_maps(false);
    builder.build().expect("built")
}

fn touch_all(map: &Mmap) {
    (0..map.len()).step_by(PAGE).for_each(|at| check(map, at));
    map.advise(Advice::PageOut).expect("evicted");
}

/// Goes on with something until an engine has a budget.
fn until_it_has(engine: &Engine, budget: usize, go_on: impl Fn()) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while engine.stats().budget_bytes != budget as u64 {
        assert!(std::time::Instant::now() < end, "{:?}", engine.stats());
        go_on();
    }
}

/// In a child: joins a memory cgroup, and touches a file until the budget is the one that a limit makes of it.
fn follow_in_child([group]: [&Path; 1]) {
    let file = made_file("follows", 32 * MIB);
    join(group);
    let engine = not_told();
    let map = map(&engine, &file);
    let until = |budget| until_it_has(&engine, budget, || touch_all(&map));
    until(256 * MIB);
    assert!(set_limit(group, 256 * MIB));
    until(64 * MIB);
    assert!(set_limit(group, 2048 * MIB));
    until(256 * MIB);
    assert!(set_limit(group, 256 * MIB));
    until(64 * MIB);
    // Nor does a limit that is taken away leave a trace.
    assert!(lift_limit(group));
    until(256 * MIB);
    // From now on it is the program's.
    engine.set_memory(128 * MIB).expect("set");
    until(128 * MIB);
    assert!(set_limit(group, 256 * MIB));
    (0..20).for_each(|_| touch_all(&map));
    until(128 * MIB);
}

#[test]
fn a_budget_that_nobody_asked_for_follows_the_limit() {
    const TEST: &str = "a_budget_that_nobody_asked_for_follows_the_limit";
    in_groups(TEST, [("follows", 1024 * MIB)], follow_in_child);
}

/// In a child: is moved to a second cgroup, and the first is removed.
fn move_in_child([first, second]: [&Path; 2]) {
    let file = made_file("moves", 32 * MIB);
    join(first);
    let engine = not_told();
    let map = map(&engine, &file);
    let until = |budget| until_it_has(&engine, budget, || touch_all(&map));
    until(256 * MIB);
    join(second);
    until(128 * MIB);
    fs::remove_dir(first).expect("nobody is in it");
    (0..20).for_each(|_| touch_all(&map));
    until(128 * MIB);
    assert!(set_limit(second, 256 * MIB));
    until(64 * MIB);
}

/// Failed before: the limits were those of the first cgroup for ever, and none at all once it was removed.
#[test]
fn a_budget_follows_the_process_to_another_cgroup() {
    const TEST: &str = "a_budget_follows_the_process_to_another_cgroup";
    let groups = [("first", 1024 * MIB), ("second", 512 * MIB)];
    in_groups(TEST, groups, move_in_child);
}

/// In a child: its engine pays for private memory only.
fn follow_with_private_memory([group]: [&Path; 1]) {
    join(group);
    let engine = not_told();
    let mut memory = engine.map_anon(16 * MIB).expect("mapped");
    memory.fill(1);
    let wait = || std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(engine.stats().budget_bytes, 256 * MIB as u64);
    assert!(set_limit(group, 256 * MIB));
    until_it_has(&engine, 64 * MIB, wait);
    assert!(lift_limit(group));
    until_it_has(&engine, 256 * MIB, wait);
    assert!(memory.iter().all(|&byte| byte == 1));
}

/// Failed before: only engines that had read a file through a read-only map looked at the limits.
#[test]
fn a_budget_of_private_memory_follows_the_limit() {
    const TEST: &str = "a_budget_of_private_memory_follows_the_limit";
    let groups = [("private", 1024 * MIB)];
    in_groups(TEST, groups, follow_with_private_memory);
}
