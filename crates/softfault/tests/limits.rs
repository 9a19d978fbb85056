//! A budget that nobody asked for, and the limits of memory cgroups.

mod cgroup;
mod child;
mod files;

use cgroup::{Group, lift_limit, set_limit};
use child::{command, scenario};
use files::{byte_at, check, map, path};
use softfault::{Advice, Engine, Mmap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A file of known bytes, with a name for other processes.
fn made_file_at(name: &str) -> PathBuf {
    let path = path(name);
    let text: Vec<u8> = (0..32 * MIB).map(byte_at).collect();
    fs::write(&path, text).expect("written");
    path
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
fn follow_in_child(scenario: &str) {
    let (group, path) = scenario.split_once(' ').expect("two words");
    let group = Path::new(group);
    join(group);
    let file = File::open(path).expect("opened");
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
    if let Some(scenario) = scenario() {
        return follow_in_child(&scenario);
    }
    let Some(group) = Group::new("follows", 1024 * MIB) else {
        return softfault_skip::skipped("root", "no memory cgroup can be made");
    };
    let file = made_file_at("follows");
    let scenario = format!("{} {}", group.0.display(), file.display());
    let output = command(TEST, &scenario).output().expect("a child");
    fs::remove_file(&file).expect("removed");
    assert!(output.status.success(), "{output:?}");
}

/// In a child: is moved to a second cgroup, and the first is removed.
fn move_in_child(scenario: &str) {
    let words: Vec<&str> = scenario.split(' ').collect();
    let [first, second, path] = words[..] else {
        panic!("three words");
    };
    join(Path::new(first));
    let file = File::open(path).expect("opened");
    let engine = not_told();
    let map = map(&engine, &file);
    let until = |budget| until_it_has(&engine, budget, || touch_all(&map));
    until(256 * MIB);
    join(Path::new(second));
    until(128 * MIB);
    fs::remove_dir(first).expect("nobody is in it");
    (0..20).for_each(|_| touch_all(&map));
    until(128 * MIB);
    assert!(set_limit(Path::new(second), 256 * MIB));
    until(64 * MIB);
}

/// Failed before: the limits were those of the first cgroup for ever, and none at all once it was removed.
#[test]
fn a_budget_follows_the_process_to_another_cgroup() {
    const TEST: &str = "a_budget_follows_the_process_to_another_cgroup";
    if let Some(scenario) = scenario() {
        return move_in_child(&scenario);
    }
    let groups = [("first", 1024 * MIB), ("second", 512 * MIB)];
    let [Some(first), Some(second)] = groups.map(|(name, limit)| Group::new(name, limit)) else {
        return softfault_skip::skipped("root", "no memory cgroup can be made");
    };
    let file = made_file_at("moves");
    let (first, second) = (first.0.display(), second.0.display());
    let scenario = format!("{first} {second} {}", file.display());
    let output = command(TEST, &scenario).output().expect("a child");
    fs::remove_file(&file).expect("removed");
    assert!(output.status.success(), "{output:?}");
}

/// In a child: its engine pays for private memory only.
fn follow_with_private_memory(group: &str) {
    let group = Path::new(group);
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
    if let Some(scenario) = scenario() {
        return follow_with_private_memory(&scenario);
    }
    let Some(group) = Group::new("private", 1024 * MIB) else {
        return softfault_skip::skipped("root", "no memory cgroup can be made");
    };
    let scenario = group.0.display().to_string();
    let output = command(TEST, &scenario).output().expect("a child");
    assert!(output.status.success(), "{output:?}");
}
