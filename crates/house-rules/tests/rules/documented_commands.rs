//! Commands in documents: their packages, targets, tests and recipes are there.
//!
//! The arguments of `softfault` itself are looked at where its parser is, in `crates/cli/src/documented.rs`.

use crate::source::Sources;
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "documented-commands-exist",
    why: "a command in a document is typed as it stands: the names in it have to be there, or its reader is stuck at the first step",
    check: commands,
    bad: &[
        &[("A.md", "`cargo test -p gone`")],
        &[("A.md", "```sh\ncargo run --example gone -- FILE\n```")],
        &[
            ("A.md", "`cargo test -p a --test gone`"),
            ("a/Cargo.toml", "name = \"a\""),
        ],
        &[("A.md", "`cargo bench --bench gone`")],
        &[("A.md", "`cargo run --bin gone`")],
        &[("A.md", "`cargo run --manifest-path gone/Cargo.toml`")],
        &[
            ("A.md", "`cargo test gone_too`"),
            ("a/src/b.rs", "fn gone() {}"),
        ],
        &[
            ("A.md", "`cargo test -- --nocapture gone`"),
            ("a/src/b.rs", ""),
        ],
        &[
            ("A.md", "```\nSOFTFAULT_X=1 just gone 5\n```"),
            ("justfile", "ci:\n    .ci/run\n"),
        ],
    ],
    good: &[
        (
            "A.md",
            "```sh\ncargo run --release --manifest-path a/Cargo.toml -- --gone   # cargo test gone\n```\n`cargo test -p a --test t \
             -- --nocapture b::does`, `cargo test -p a t`, `cargo run --bin a -- gone`, `cargo run --example e`, just gone, `just say \
             it`, `cargo install gone`, `cargo cinstall -p a`, `just ci`",
        ),
        ("a/Cargo.toml", "name = \"a\"\n[[bin]]\nname = \"b\""),
        ("a/tests/t/main.rs", "fn does_it() {}"),
        ("a/examples/e.rs", ""),
        (
            "justfile",
            "say what=\"it\":\n    echo {{ what }}\nci:\n    .ci/run\n",
        ),
    ],
};

fn commands(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.documents() {
        for command in documented(text) {
            let mut words = command
                .split_whitespace()
                .skip_while(|word| word.contains('='));
            let missing = match (words.next(), words.next()) {
                (Some("just"), Some(recipe)) => missing_recipe(sources, recipe),
                (Some("cargo"), Some(verb)) => missing_target(sources, verb, words),
                _ => None,
            };
            if let Some(missing) = missing {
                broken.push(format!("{path}: `{command}`: there is no {missing}"));
            }
        }
    }
    broken
}

/// The lines of a document's blocks of code, and the code in its sentences.
fn documented(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        match number % 2 {
            0 => all.extend(part.split('`').skip(1).step_by(2).map(str::to_owned)),
            _ => {
                let part = part.replace("\\\n", " ");
                let without_comment = |line: &str| line.split(" # ").next().map(str::to_owned);
                all.extend(part.lines().filter_map(without_comment));
            }
        }
    }
    all
}

fn missing_recipe(sources: &Sources, recipe: &str) -> Option<String> {
    let text = sources.text("justfile").unwrap_or("");
    let is_it = |line: &str| {
        let rest = line.strip_prefix(recipe);
        rest.is_some_and(|rest| rest.starts_with([':', ' ']))
    };
    (!text.lines().any(is_it)).then(|| format!("recipe {recipe}"))
}

/// Names in `cargo verb words` that are not there.
fn missing_target<'a>(
    sources: &Sources,
    verb: &str,
    mut words: impl Iterator<Item = &'a str>,
) -> Option<String> {
    if !["run", "test", "bench", "build", "doc", "check", "cinstall"].contains(&verb) {
        return None;
    }
    while let Some(word) = words.next() {
        let (name, is_there) = match word {
            // The next words are the program's; only tests have names there, too.
            "--" if verb != "test" => return None,
            "-p" => words.next().map(|name| (name, has_name(sources, name)))?,
            "--bin" => words.next().map(|name| (name, is_binary(sources, name)))?,
            "--manifest-path" => (words.next()).map(|name| (name, sources.text(name).is_some()))?,
            "--test" => words
                .next()
                .map(|name| (name, is_target(sources, "tests", name)))?,
            "--bench" => words
                .next()
                .map(|name| (name, is_target(sources, "benches", name)))?,
            "--example" => words
                .next()
                .map(|name| (name, is_target(sources, "examples", name)))?,
            filter if verb == "test" && !filter.starts_with('-') => {
                (filter, is_test(sources, filter))
            }
            _ => continue,
        };
        if !is_there {
            return Some(name.to_owned());
        }
    }
    None
}

/// True if a package has a binary of this name: its own, or one of a file.
fn is_binary(sources: &Sources, name: &str) -> bool {
    has_name(sources, name) || is_target(sources, "src/bin", name)
}

/// True if a package has such a target.
fn is_target(sources: &Sources, kind: &str, name: &str) -> bool {
    let ends = [
        format!("{kind}/{name}.rs"),
        format!("{kind}/{name}/main.rs"),
    ];
    let mut paths = sources.paths();
    paths.any(|path| ends.iter().any(|end| is_below(path, end)))
}

/// True if the path ends so, from a whole folder on.
fn is_below(path: &str, end: &str) -> bool {
    let before = path.strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// True if a manifest gives a package, or a target of it, this name.
fn has_name(sources: &Sources, name: &str) -> bool {
    let line = format!("name = \"{name}\"");
    let mut all = sources.manifests();
    all.any(|(_, text)| text.lines().any(|known| known.trim() == line))
}

/// True if tests may have this in their names: the last part begins a function's or a module's.
fn is_test(sources: &Sources, filter: &str) -> bool {
    let last = filter.rsplit("::").next().unwrap_or(filter);
    let function = format!("fn {last}");
    sources.rust().any(|(path, text)| {
        let mut parts = path.trim_end_matches(".rs").split('/');
        parts.any(|part| part.starts_with(last)) || text.contains(&function)
    })
}
