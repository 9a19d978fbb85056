//! Names and counts in documents.

use std::collections::BTreeSet;

use crate::source::Sources;
use crate::{Broken, Rule};

pub const PATHS: Rule = Rule {
    name: "documents-name-existing-things",
    why: "a document is believed: a file that it names has to be there, or its reader looks for it in vain",
    check: paths,
    bad: &[
        &[("A.md", "see `crates/a/src/gone.rs`")],
        &[("A.md", "    fault::handle      engine/src/gone.rs")],
        &[("A.md", "in `docs/`")],
        &[("A.md", "in `mm/gone`"), ("crates/a/src/mm/b.rs", "")],
        &[("A.md", "[this](docs/gone.md)")],
        // The end of a path begins with a whole name.
        &[("A.md", "`k.rs`"), ("crates/a/src/lock.rs", "")],
        // A link goes from where the document is.
        &[("docs/a.md", "[this](docs/b.md)"), ("docs/b.md", "")],
        &[("A.md", "[this](B.md#no-such)"), ("B.md", "# Such")],
        &[("A.md", "[this](#no-such)\n## Such")],
    ],
    good: &[
        (
            "A.md",
            "`crates/a/src/b.rs`, b.rs, `a/src/`, `src/b`, [this](docs/c.md#what-is-it-a-b), `faults/sec`, `/proc/self/io`, \
             [web](https://example.org/a.md), `mm/filemap.c`, `a/*.rs`, 1/2, `int/out`, a `.patch`",
        ),
        ("docs/c.md", "# What is it: `a`, b?\n[up](../A.md), b.rs."),
        ("crates/a/src/b.rs", ""),
    ],
};

/// Endings of files that are in this repository wherever a document names them.
const OURS: [&str; 3] = [".rs", ".md", ".patch"];

fn paths(sources: &Sources) -> Vec<Broken> {
    let known: BTreeSet<&str> = sources.paths().flat_map(with_folders).collect();
    // Names of folders: code that begins with one is taken for a path.
    let folders: BTreeSet<&str> = (sources.paths())
        .filter_map(|path| path.rsplit_once('/'))
        .flat_map(|(folder, _)| folder.split('/'))
        .collect();
    let is_there = |name: &str| {
        (known.iter()).any(|path| match path.strip_suffix(name) {
            Some(before) => before.is_empty() || before.ends_with('/'),
            None => false,
        })
    };
    let mut broken = Vec::new();
    for (path, text) in sources.documents() {
        for (number, line) in (1..).zip(text.lines()) {
            let mut missing = |name: &str| broken.push(format!("{path}:{number} names {name}"));
            for word in line.split(|c: char| !(c.is_alphanumeric() || "_./{}*:-".contains(c))) {
                let word = word.trim_end_matches(['.', ':']).trim_start_matches("../");
                let is_path = OURS.iter().any(|end| word.ends_with(end) && word != *end);
                if is_path && !word.contains([':', '*', '{']) && !is_there(word) {
                    missing(word);
                }
            }
            for code in line.split('`').skip(1).step_by(2) {
                let (first, rest) = code.split_once('/').unwrap_or(("", ""));
                let plain =
                    |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_-".contains(c);
                let is_path =
                    rest.chars().all(plain) && (rest.is_empty() || folders.contains(first));
                let name = code.trim_end_matches('/');
                if !first.is_empty()
                    && first.chars().all(|c| plain(c) || c == '.')
                    && is_path
                    && !FIGURES.contains(&code)
                    && !is_there(name)
                    && !is_there(&format!("{name}.rs"))
                {
                    missing(code);
                }
            }
            for target in links(line) {
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = match file {
                    "" => path.to_owned(),
                    file => joined(path, file),
                };
                let there = known.contains(&file[..]);
                let text = sources.text(&file).unwrap_or("");
                if !there || !heading.is_empty() && !headings(text).any(|known| known == heading) {
                    missing(target);
                }
            }
        }
    }
    broken
}

/// Rates that look like paths.
const FIGURES: [&str; 4] = ["faults/sec", "faults/sec-4", "faults/cpu-4", "maps/sec"];

/// A path, and the folders that it is in.
fn with_folders(path: &str) -> impl Iterator<Item = &str> {
    let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
    folders.chain([path])
}

/// Targets of the links of a line that are no addresses.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://"))
}

/// Where a link from a document goes to.
fn joined(document: &str, link: &str) -> String {
    let mut folders: Vec<&str> = document.split('/').collect();
    folders.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(folders.pop()),
            "." => {}
            part => folders.push(part),
        }
    }
    folders.join("/")
}

/// Names by which links know the headings of a document.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        title
            .chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

pub const COUNTS: Rule = Rule {
    name: "documents-count-right",
    why: "a count of checks in a document is of those that are there, and a table of them has a \
          row for each",
    check: counts,
    bad: &[
        // A wrong number of mutations.
        &[
            ("docs/proof-mutations.md", "Each of the 1 patches"),
            ("mutations/a.patch", ""),
            ("mutations/b.patch", ""),
        ],
        // A model more than the row says, and one that has no row.
        &[
            (
                "docs/proof-loom.md",
                "| `a` | x | 1 |\n| `a::one` | 3 |\n| | | **1** |",
            ),
            ("docs/proof.md", "1 models"),
            (
                "crates/engine-loom/tests/models/a.rs",
                "#[test]\nfn one() {}\n#[test]\nfn two() {}",
            ),
        ],
        &[
            ("docs/proof-loom.md", "| `a` | x | 1 |\n| | | **1** |"),
            ("docs/proof.md", "1 models"),
            (
                "crates/engine-loom/tests/models/a.rs",
                "#[test]\nfn one() {}",
            ),
        ],
        &[
            (
                "docs/proof-loom.md",
                "| `a` | x | 1 |\n| `a::one` | 3 |\n| | | **1** |",
            ),
            ("docs/proof.md", "2 models"),
            (
                "crates/engine-loom/tests/models/a.rs",
                "#[test]\nfn one() {}",
            ),
        ],
        // Schedules of a file that are not those of its models.
        &[
            (
                "docs/proof-loom.md",
                "| `a` | x | 1 | 3 | 1,002 | 1.0 |\n| `a::one` | 3 | 1,001 | 1.00 |\n| | | **1** |",
            ),
            ("docs/proof.md", "1 models"),
            (
                "crates/engine-loom/tests/models/a.rs",
                "#[test]\nfn one() {}",
            ),
        ],
        // A scenario more than the text says.
        &[
            ("docs/proof.md", "1 scenarios"),
            (
                "crates/engine-shuttle/tests/scenarios/a.rs",
                "#[test]\nfn one() {}\n#[test]\nfn two() {}",
            ),
        ],
    ],
    good: &[
        ("docs/proof-mutations.md", "Each of the 1 patches"),
        ("mutations/a-b.patch", ""),
        (
            "docs/proof-loom.md",
            "| `a` | x | 1 | 3 | 1,001 | 1.0 |\n| `a::one` | 3 | 1,001 | 1.00 |\n| | | **1** |",
        ),
        ("docs/proof.md", "1 models, many schedules; 1 scenarios"),
        (
            "crates/engine-shuttle/tests/scenarios/a.rs",
            "#[test]\nfn one() {}",
        ),
        (
            "crates/engine-shuttle/tests/scenarios/found.rs",
            "#[test]\nfn one() {}",
        ),
        (
            "crates/engine-loom/tests/models/a.rs",
            "#[test]\nfn one() {}",
        ),
        (
            "crates/engine-loom/tests/models/completeness.rs",
            "#[test]\nfn no_model() {}",
        ),
    ],
};

fn counts(sources: &Sources) -> Vec<Broken> {
    let mut broken = mutations(sources);
    broken.extend(models(sources));
    broken.extend(scenarios(sources));
    broken
}

fn mutations(sources: &Sources) -> Vec<Broken> {
    const DOCUMENT: &str = "docs/proof-mutations.md";
    let mut broken = Vec::new();
    if sources.text(DOCUMENT).is_some() {
        let is_patch = |path: &&str| path.starts_with("mutations/") && path.ends_with(".patch");
        let count = sources.paths().filter(is_patch).count();
        let figure = format!("the {count} patches");
        says(sources, DOCUMENT, &figure, &mut broken);
    }
    broken
}

fn models(sources: &Sources) -> Vec<Broken> {
    const DOCUMENT: &str = "docs/proof-loom.md";
    let Some(document) = sources.text(DOCUMENT) else {
        return Vec::new();
    };
    let mut models = BTreeSet::new();
    let mut broken = Vec::new();
    for (path, text) in sources.rust_below("crates/engine-loom/tests/models/") {
        let file = path
            .rsplit('/')
            .next()
            .unwrap_or(path)
            .trim_end_matches(".rs");
        // A model that is stopped early is none; folders are the shared code of models.
        if ["completeness", "main"].contains(&file) || path.matches('/').count() > 4 {
            continue;
        }
        let tests: Vec<&str> = tests(text).collect();
        let row = rows(document).find(|row| row[0] == file);
        let said = row.and_then(|row| row.get(2).copied()).unwrap_or("none");
        if said != tests.len().to_string() {
            broken.push(format!(
                "{DOCUMENT} has {said} models of {file}, not {}",
                tests.len()
            ));
        }
        models.extend(tests.iter().map(|test| format!("{file}::{test}")));
    }
    broken.extend(wrong_sums(DOCUMENT, document));
    let rows = rows(document)
        .map(|row| row[0])
        .filter(|row| row.contains("::"));
    let there = models.iter().map(|model| &model[..]).collect();
    broken.extend(differences(DOCUMENT, &rows.collect(), &there));
    let count = models.len();
    says(sources, DOCUMENT, &format!("**{count}**"), &mut broken);
    says(
        sources,
        "docs/proof.md",
        &format!("{count} models"),
        &mut broken,
    );
    broken
}

/// Files of models whose number of schedules is not the sum of their models'.
fn wrong_sums(path: &str, document: &str) -> Vec<Broken> {
    let number = |text: &str| text.replace(',', "").parse().unwrap_or(0u64);
    let of_file = |file: &str| {
        let models = rows(document)
            .filter(|row| (row[0].split_once("::")).is_some_and(|(name, _)| name == file));
        models
            .filter_map(|row| row.get(2).copied().map(number))
            .sum::<u64>()
    };
    let files = rows(document).filter(|row| !row[0].contains("::") && row.len() > 5);
    files
        .filter(|row| number(row[4]) != of_file(row[0]))
        .map(|row| format!("{path}: {} has {} schedules", row[0], of_file(row[0])))
        .collect()
}

fn scenarios(sources: &Sources) -> Vec<Broken> {
    // Tests in `found` look at the seeds of others.
    let files = (sources.rust_below("crates/engine-shuttle/tests/scenarios/"))
        .filter(|(path, _)| !path.ends_with("/found.rs"));
    let count = files.flat_map(|(_, text)| tests(text)).count();
    let mut broken = Vec::new();
    if count > 0 {
        let figure = format!("{count} scenarios");
        says(sources, "docs/proof.md", &figure, &mut broken);
    }
    broken
}

/// Rows of tables whose first cell is code, as their cells.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter_map(|line| {
        let (name, cells) = line.strip_prefix("| `")?.split_once("` |")?;
        Some(
            [name]
                .into_iter()
                .chain(cells.split('|').map(str::trim))
                .collect(),
        )
    })
}

/// Names of test functions.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("fn ")?;
        rest.split('(').next()
    })
}

fn differences(document: &str, rows: &BTreeSet<&str>, there: &BTreeSet<&str>) -> Vec<Broken> {
    let gone = rows
        .difference(there)
        .map(|row| format!("{document} has {row}, which is gone"));
    let new = there
        .difference(rows)
        .map(|row| format!("{document} has no row of {row}"));
    gone.chain(new).collect()
}

fn says(sources: &Sources, document: &str, figure: &str, broken: &mut Vec<Broken>) {
    let text = sources.text(document).unwrap_or("");
    // A whole number: "77 models" is in "177 models".
    let whole = |at: usize| !text[..at].ends_with(|c: char| c.is_ascii_digit());
    if !text.match_indices(figure).any(|(at, _)| whole(at)) {
        broken.push(format!("{document} does not say \"{figure}\""));
    }
}
