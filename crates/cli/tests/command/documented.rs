//! The commands of the documents' blocks are run, smaller than they are there: that each is taken with its values is
//! `crates/cli/src/documented.rs`; here, that it ends as it should.
//!
//! Four of them, since all take minutes; the four are others at another seed:
//!   SOFTFAULT_DOCUMENTED=all   all of them (`just documented`)
//!   SOFTFAULT_DOCUMENTED=7     so many
//!   SOFTFAULT_DOCUMENTED_SEED=3

#[path = "../../src/documented/commands.rs"]
mod commands;

use super::{directory, finish, softfault};
use commands::Documented;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Options whose values are sizes, times and places: a small run has its own. Read-ahead is the machine's, takes root,
/// and has tests of its own (`read_ahead`).
const OF_A_SIZE: [&str; 14] = [
    "--file-size",
    "--size",
    "--memory",
    "--seconds",
    "--repeat",
    "--seeds",
    "--cores",
    "--timeout",
    "--file",
    "--dir",
    "--json",
    "--read-ahead-kb",
    "--threads",
    "--touches",
];

/// The smaller command that is run for a command, or why none is.
fn small(words: &[String], dir: &Path) -> Result<Vec<String>, &'static str> {
    let mut kept = Vec::new();
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if OF_A_SIZE.contains(&word.as_str()) {
            words.next();
        } else {
            kept.push(word.clone());
        }
    }
    let is = |first: &str, second: &str| {
        kept.first().is_some_and(|word| word == first)
            && (second.is_empty() || kept.get(1).is_some_and(|word| word == second))
    };
    let more = if is("lab", "run") {
        let (memory, file_size) = match kept.get(2).map(String::as_str) {
            Some("hugetlb") => {
                return Err("takes a pool of huge pages, which `hugetlb` makes and tests");
            }
            Some("spf" | "loops") => ("32M", "64K"),
            Some("pft") => ("32M", "2M"),
            Some("thrash" | "warm-start") => ("64M", "1M"),
            _ => ("32M", "64M"),
        };
        let dir = dir.to_str().expect("a name that can be typed");
        format!(
            "--memory {memory} --file-size {file_size} --threads 2 --seconds 1 --repeat 1 --timeout 20 --dir {dir}"
        )
    } else if is("lab", "profile") {
        let dir = dir.to_str().expect("a name that can be typed");
        format!("--touches 50 --dir {dir}")
    } else if is("sim", "presets") || is("sim", "calibrate") || is("doctor", "") {
        String::new()
    } else if is("sim", "") {
        "--cores 2 --seconds 0.005 --seeds 1".to_owned()
    } else {
        return Err("reads or writes files of a reader, or takes minutes");
    };
    kept.extend(more.split_whitespace().map(str::to_owned));
    Ok(kept)
}

/// All that can be run, each once, by the words that are run; and how many cannot, by the reason.
fn all(dir: &Path) -> (BTreeMap<Vec<String>, String>, BTreeMap<&'static str, usize>) {
    let (mut run, mut not) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = BTreeSet::new();
    let documents = commands::documents();
    let documented = (documents.iter()).flat_map(|(name, text)| commands::commands(name, text));
    let of_blocks = documented.filter(|one: &Documented| !one.is_mention);
    for Documented { place, words, .. } in of_blocks {
        if !seen.insert(words.clone()) {
            continue;
        }
        match small(&words, dir) {
            Ok(words) => drop(run.insert(words, place)),
            Err(why) => *not.entry(why).or_default() += 1,
        }
    }
    (run, not)
}

/// Some numbers below `most`, another set for each seed.
fn drawn(seed: u64, count: usize, most: usize) -> BTreeSet<usize> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut drawn = BTreeSet::new();
    while drawn.len() < count.min(most) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        drawn.insert((state >> 33) as usize % most);
    }
    drawn
}

#[test]
fn commands_of_the_documents_run() {
    let dir = directory();
    let (run, not) = all(dir.path());
    assert!(
        run.len() > 30,
        "a search that finds nothing finds nothing wrong"
    );
    let text = |name| std::env::var(name).ok();
    let count = match text("SOFTFAULT_DOCUMENTED").as_deref() {
        None => 4,
        Some("all") => run.len(),
        Some(count) => count
            .parse()
            .expect("SOFTFAULT_DOCUMENTED is a number, or `all`"),
    };
    let seed = text("SOFTFAULT_DOCUMENTED_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let chosen = drawn(seed, count, run.len());
    println!(
        "{count} of {} commands, seed {seed}; not run: {not:?}",
        run.len()
    );
    for (number, (words, place)) in run.iter().enumerate() {
        if chosen.contains(&number) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            println!("{place}\n    softfault {}", words.join(" "));
            let (code, out, err) = finish(softfault(&words).current_dir(dir.path()));
            assert_eq!(code, 0, "{place}\n{words:?}\n{err}");
            assert!(!out.is_empty(), "{place} prints nothing");
        }
    }
}
