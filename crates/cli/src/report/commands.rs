//! The commands that would measure the rows again.

use crate::results::Row;
use crate::results::figure;
use crate::results::group::Group;
use crate::size;

/// A command for each workload, file, memory and number of threads.
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
    alike.iter().map(|groups| command(groups)).collect()
}

fn command(groups: &[&Group]) -> String {
    let key = groups[0].key;
    let rows = || groups.iter().flat_map(|group| group.runs.iter().copied());
    let mut on: Vec<&str> = Vec::new();
    let mut patterns: Vec<&str> = Vec::new();
    for group in groups {
        // Where files were told apart by name, the engine is what stands before it.
        let name = group.on.split(" (").next().unwrap_or(group.on);
        if !on.contains(&name) {
            on.push(name);
        }
        if !patterns.contains(&group.key.pattern) {
            patterns.push(group.key.pattern);
        }
    }
    let in_rounds = rows().any(|row| row.rounds.is_some());
    let mut text = format!("softfault lab run {} --on {}", key.workload, on.join(","));
    let mut add = |option: &str, value: &str| text += &format!(" {option} {value}");
    match key.workload {
        "sparse" | "scan" => add("--pattern", &patterns.join(",")),
        "thrash" => add("--files", &patterns.join(",")),
        _ => {}
    }
    match key.file_bytes {
        0 => {}
        bytes if in_rounds && key.threads > 0 => {
            add("--file-size", &size::argument(bytes / key.threads))
        }
        bytes => add("--file-size", &size::argument(bytes)),
    }
    if key.memory_bytes > 0 {
        add("--memory", &size::argument(key.memory_bytes));
    }
    add("--threads", &key.threads.to_string());
    if let Some(touch) = touched(key.workload, rows()) {
        add("--touch", &figure::show(touch));
    }
    if let Some(seconds) = lasted(key.workload, rows()) {
        add("--seconds", &seconds.to_string());
    }
    let repeat = groups
        .iter()
        .map(|group| group.runs.len() + group.failed)
        .max();
    add("--repeat", &repeat.unwrap_or(1).to_string());
    if let Some(seed) = rows().find_map(|row| row.seed) {
        add("--seed", &seed.to_string());
    }
    text
}

/// Percent of the pages that a sparse run touched, unless it is the usual one.
fn touched<'a>(workload: &str, mut rows: impl Iterator<Item = &'a Row>) -> Option<f64> {
    let row = rows.find(|row| workload == "sparse" && !row.gave_up && row.file_bytes > 0)?;
    let pages = row.file_bytes as f64 / crate::results::PAGE;
    let percent = (1000.0 * row.accesses as f64 / pages).ceil() / 10.0;
    (percent != 1.0).then_some(percent)
}

/// How long timed runs were to last: none is shorter than what was asked for.
fn lasted<'a>(workload: &str, rows: impl Iterator<Item = &'a Row>) -> Option<f64> {
    let timed = ["random", "thrash"].contains(&workload);
    let ended = rows
        .filter(|row| timed && !row.gave_up)
        .map(|row| row.elapsed_s);
    let least = ended.min_by(f64::total_cmp)?;
    Some((least * 10.0).floor() / 10.0).filter(|seconds| *seconds > 0.0)
}
