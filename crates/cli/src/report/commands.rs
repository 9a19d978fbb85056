//! The commands that would measure the rows again.

use crate::results::group::{Group, Key};
use crate::results::row::Row;
use crate::size;

/// A command for each workload, file, memory, and share of writes or of flushes; numbers of threads share one if all else is the same.
pub fn commands(groups: &[Group]) -> Vec<String> {
    let mut alike: Vec<Vec<&Group>> = Vec::new();
    for group in groups {
        let like = |others: &&mut Vec<&Group>| {
            let as_of = |pattern| Key {
                pattern,
                ..group.key
            };
            others.iter().all(|other| {
                let thetas = theta(other).zip(theta(group));
                let one_theta = thetas.is_none_or(|(a, b)| a == b);
                one_theta && other.key == as_of(other.key.pattern)
            })
        };
        match alike.iter_mut().find(like) {
            Some(others) => others.push(group),
            None => alike.push(vec![group]),
        }
    }
    let mut commands: Vec<([String; 2], Vec<String>)> = Vec::new();
    for groups in alike {
        let (around, threads) = (command(&groups), groups[0].key.threads.to_string());
        match commands.iter_mut().find(|(other, _)| *other == around) {
            Some((_, counts)) => counts.push(threads),
            None => commands.push((around, vec![threads])),
        }
    }
    let text = |([before, after], threads): ([String; 2], Vec<String>)| {
        format!("{before} --threads {}{after}", threads.join(","))
    };
    commands.into_iter().map(text).collect()
}

/// The parts before and after `--threads N`.
fn command(groups: &[&Group]) -> [String; 2] {
    let key = groups[0].key;
    let rows = || groups.iter().flat_map(|group| group.runs.iter().copied());
    let mut on: Vec<&str> = Vec::new();
    let mut patterns: Vec<&str> = Vec::new();
    for group in groups {
        // Where files were told apart by name, the engine is the part before it.
        let name = group.on.split(" (").next().unwrap_or(group.on);
        if !on.contains(&name) {
            on.push(name);
        }
        if !patterns.contains(&group.key.pattern) {
            patterns.push(group.key.pattern);
        }
    }
    let mut before = format!("softfault lab run {} --on {}", key.workload, on.join(","));
    let mut after = String::new();
    let add = |text: &mut String, option: &str, value: &str| *text += &format!(" {option} {value}");
    match key.workload {
        "sparse" | "many" | "orders" | "scan" | "pft" | "loops" | "hugetlb" => {
            add(&mut before, "--pattern", &patterns.join(","));
        }
        "write" | "anon" | "swap-retry" | "snapshot" => {
            let name = |named: &&'_ str| match named.starts_with("zipf") {
                true => "zipf".to_owned(),
                false => (*named).to_owned(),
            };
            let names: Vec<String> = patterns.iter().map(name).collect();
            add(&mut before, "--pattern", &names.join(","));
            let mut thetas = groups.iter().filter_map(|group| theta(group));
            if let Some(theta) = thetas.find(|theta| !theta.is_empty()) {
                add(&mut before, "--theta", theta);
            }
        }
        "thrash" => add(&mut before, "--files", &patterns.join(",")),
        _ => {}
    }
    let bytes = key.thread_bytes().unwrap_or(key.file_bytes);
    if bytes > 0 {
        add(&mut before, "--file-size", &size::argument(bytes));
    }
    if key.memory_bytes > 0 {
        add(&mut before, "--memory", &size::argument(key.memory_bytes));
    }
    if let Some(writes) = key.writes {
        add(&mut after, "--writes", &writes.to_string());
    }
    if let Some(pages) = key.flush_every {
        add(&mut after, "--flush-every", &pages.to_string());
    }
    if let Some(touch) = touched(&key, rows()) {
        add(&mut after, "--touch", &touch.to_string());
    }
    if let Some(seconds) = lasted(key.workload, rows()) {
        add(&mut after, "--seconds", &seconds.to_string());
    }
    let repeat = groups
        .iter()
        .map(|group| group.runs.len() + group.failed)
        .max();
    add(&mut after, "--repeat", &repeat.unwrap_or(1).to_string());
    if let Some(seed) = rows().find_map(|row| row.seed) {
        add(&mut after, "--seed", &seed.to_string());
    }
    [before, after]
}

/// How uneven a group of zipf is: `zipf0.9` says so, `zipf` is the usual one, and others are not zipf.
fn theta<'a>(group: &Group<'a>) -> Option<&'a str> {
    group.key.pattern.strip_prefix("zipf")
}

/// Percent of the pages that a sparse run touched, unless it is the usual one. Of rows that do not tell, about.
fn touched<'a>(key: &Key, mut rows: impl Iterator<Item = &'a Row>) -> Option<f64> {
    let old = |row: &&Row| row.touch.is_none() && !row.gave_up && row.file_bytes > 0;
    if key.workload != "sparse" || key.touch.is_some() {
        return key.touch;
    }
    let row = rows.find(old)?;
    let pages = row.file_bytes as f64 / crate::results::row::PAGE;
    let percent = (1000.0 * row.accesses as f64 / pages).ceil() / 10.0;
    (percent != 1.0).then_some(percent)
}

/// The duration of timed runs: of rows that do not tell, the shortest, since none is shorter than requested.
fn lasted<'a>(workload: &str, rows: impl Iterator<Item = &'a Row> + Clone) -> Option<f64> {
    if let Some(seconds) = rows.clone().find_map(|row| row.seconds) {
        return Some(seconds);
    }
    let timed = [
        "random", "thrash", "pft", "spf", "loops", "storm", "anon", "hugetlb",
    ];
    // Writes in order end with their file.
    let is_timed = |row: &Row| match workload {
        "write" => row.pattern == "random" || row.pattern.starts_with("zipf"),
        _ => timed.contains(&workload),
    };
    let ended = rows
        .filter(|row| is_timed(row) && !row.gave_up)
        .map(|row| row.elapsed_s);
    let least = ended.min_by(f64::total_cmp)?;
    Some((least * 10.0).floor() / 10.0).filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::group::group;

    fn row(workload: &str, pattern: &str) -> Row {
        Row {
            workload: workload.into(),
            pattern: pattern.into(),
            on: "soft".into(),
            threads: 2,
            ..Row::default()
        }
    }

    #[test]
    fn a_command_has_all_that_decided_its_rows() {
        let mut writes = row("write", "zipf0.9");
        (writes.flush_every, writes.seconds) = (Some(64), Some(3.0));
        let mut reads = row("anon", "uniform");
        (reads.writes, reads.seconds) = (Some(0), Some(0.5));
        let mut usual = row("anon", "uniform");
        usual.writes = Some(50);
        let mut snapshot = row("snapshot", "uniform");
        (snapshot.writes, snapshot.seconds) = (Some(100), Some(2.0));
        let mut sparse = row("sparse", "random");
        sparse.touch = Some(0.25);
        let rows = [
            sparse,
            row("many", "cold"),
            row("many", "present"),
            row("orders", "shuffle64"),
            row("loops", "unmap-contended"),
            row("hugetlb", "emptied"),
            writes,
            reads,
            usual,
            snapshot,
        ];
        let all = [
            "sparse --on soft --pattern random --threads 2 --touch 0.25 --repeat 1",
            "many --on soft --pattern cold,present --threads 2 --repeat 1",
            "orders --on soft --pattern shuffle64 --threads 2 --repeat 1",
            "loops --on soft --pattern unmap-contended --threads 2 --repeat 1",
            "hugetlb --on soft --pattern emptied --threads 2 --repeat 1",
            "write --on soft --pattern zipf --theta 0.9 --threads 2 --flush-every 64 --seconds 3 --repeat 1",
            "anon --on soft --pattern uniform --threads 2 --writes 0 --seconds 0.5 --repeat 1",
            "anon --on soft --pattern uniform --threads 2 --repeat 1",
            "snapshot --on soft --pattern uniform --threads 2 --seconds 2 --repeat 1",
        ];
        let all = all.map(|command| format!("softfault lab run {command}"));
        assert_eq!(commands(&group(&rows)), all);
    }

    #[test]
    fn two_kinds_of_zipf_are_two_commands() {
        let rows = ["uniform", "zipf0.9", "zipf"].map(|pattern| row("anon", pattern));
        let commands = commands(&group(&rows));
        assert_eq!(commands.len(), 2);
        assert!(commands[0].contains("--pattern uniform,zipf --theta 0.9 "));
        assert!(!commands[1].contains("--theta"), "{commands:?}");
    }
}
