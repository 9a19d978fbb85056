//! The commands that would measure the rows again.

use crate::results::group::Group;
use crate::results::row::Row;
use crate::size;
use crate::table::figure;

/// A command for each workload, file and memory; numbers of threads share one if all else is the same.
pub fn commands(groups: &[Group]) -> Vec<String> {
    let mut alike: Vec<Vec<&Group>> = Vec::new();
    for group in groups {
        let like = |others: &&mut Vec<&Group>| {
            let (a, b) = (others[0].key, group.key);
            (a.workload, a.threads, a.file_bytes, a.memory_bytes)
                == (b.workload, b.threads, b.file_bytes, b.memory_bytes)
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
        "sparse" | "scan" | "pft" => add(&mut before, "--pattern", &patterns.join(",")),
        "anon" | "swap-retry" | "snapshot" => {
            // `zipf0.9` is zipf, told how uneven.
            let mut thetas = patterns
                .iter()
                .filter_map(|pattern| pattern.strip_prefix("zipf"));
            let theta = thetas.find(|theta| !theta.is_empty());
            let name = |named: &&str| match named.starts_with("zipf") {
                true => "zipf",
                false => "uniform",
            };
            let mut names: Vec<&str> = patterns.iter().map(name).collect();
            names.dedup();
            add(&mut before, "--pattern", &names.join(","));
            if let Some(theta) = theta {
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
    if let Some(touch) = touched(key.workload, rows()) {
        add(&mut after, "--touch", &figure::show(touch));
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

/// Percent of the pages that a sparse run touched, unless it is the usual one.
fn touched<'a>(workload: &str, mut rows: impl Iterator<Item = &'a Row>) -> Option<f64> {
    let row = rows.find(|row| workload == "sparse" && !row.gave_up && row.file_bytes > 0)?;
    let pages = row.file_bytes as f64 / crate::results::row::PAGE;
    let percent = (1000.0 * row.accesses as f64 / pages).ceil() / 10.0;
    (percent != 1.0).then_some(percent)
}

/// The duration of timed runs: none is shorter than requested.
fn lasted<'a>(workload: &str, rows: impl Iterator<Item = &'a Row>) -> Option<f64> {
    let timed = ["random", "thrash", "pft", "spf", "loops", "storm", "anon"].contains(&workload);
    let ended = rows
        .filter(|row| timed && !row.gave_up)
        .map(|row| row.elapsed_s);
    let least = ended.min_by(f64::total_cmp)?;
    Some((least * 10.0).floor() / 10.0).filter(|seconds| *seconds > 0.0)
}
