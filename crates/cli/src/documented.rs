//! The commands that the documents name are ones that this binary takes, with values that it takes.

use super::{Cli, Command, LabCommand, lab, sim};
use clap::Parser;
use clap::error::ErrorKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A command as a document has it.
struct Documented {
    /// The document, and the command.
    place: String,
    /// `softfault` and its arguments.
    words: Vec<String>,
    /// It is part of a sentence, and may leave out what has no default.
    is_mention: bool,
}

/// All documents that say what to type now, by their paths from the workspace's root: not the changes, which say what there was.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["", "docs", "python"];
    let mut all = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).expect("a folder of documents") {
            let path = entry.expect("an entry").path();
            let is_document = path.extension().is_some_and(|ending| ending == "md");
            if is_document && !path.ends_with("CHANGELOG.md") {
                let name = path.strip_prefix(&root).expect("below the root");
                let text = fs::read_to_string(&path).expect("a document");
                all.push((name.display().to_string(), text));
            }
        }
    }
    all
}

/// The `softfault` commands of a document: lines of its blocks of code, and code in its sentences.
fn commands(name: &str, text: &str) -> Vec<Documented> {
    let mut all = Vec::new();
    let mut add = |line: &str, variables: &BTreeMap<String, String>, is_mention| {
        if let Some(words) = softfault_words(line, variables) {
            let place = format!("{name}: {line}");
            all.push(Documented {
                place,
                words,
                is_mention,
            });
        }
    };
    for (number, part) in text.split("```").enumerate() {
        let none = BTreeMap::new();
        if number % 2 == 0 {
            for code in part.split('`').skip(1).step_by(2) {
                add(code, &none, true);
            }
            continue;
        }
        let mut variables = none;
        for line in part.replace("\\\n", " ").lines() {
            match assignments(line) {
                Some(set) => variables.extend(set),
                None => add(line, &variables, false),
            }
        }
    }
    all
}

/// The variables that a line of a shell sets, if it does nothing else.
fn assignments(line: &str) -> Option<Vec<(String, String)>> {
    let set = |part: &str| {
        let (name, value) = part.trim().split_once('=')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase());
        let is_value = !value.contains(char::is_whitespace);
        (is_name && is_value).then(|| (name.to_owned(), value.to_owned()))
    };
    line.split(';').map(set).collect()
}

/// The words of a line of a shell from `softfault` on, if that is what it runs.
fn softfault_words(line: &str, variables: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let line = line.split(" # ").next().unwrap_or(line);
    let is_set = |word: &&str| word.starts_with("SOFTFAULT_") && word.contains('=');
    let mut words = line.split_whitespace().skip_while(is_set).peekable();
    // By cargo, or as it is installed.
    if words.peek() == Some(&"cargo") {
        let mut before = words.by_ref().take_while(|&word| word != "--");
        let is_ours =
            before.any(|word| word == "softfault") && line.contains("--bin softfault -- ");
        before.for_each(drop);
        is_ours.then_some(())?;
    } else if words.next() != Some("softfault") {
        return None;
    }
    let word = |word: &str| {
        let mut word = word.trim_matches(['[', ']']).to_owned();
        for (name, value) in variables {
            word = word.replace(&format!("${name}"), value);
        }
        word
    };
    let arguments: Vec<String> = words.map(word).collect();
    let is_command = arguments.first().is_some_and(|first| first != "=");
    let is_whole = !arguments
        .iter()
        .any(|word| word.contains(['…', '$']) || word == "...");
    (is_command && is_whole).then(|| [vec!["softfault".to_owned()], arguments].concat())
}

/// Why the command is not taken as it is, if it is not.
fn refused(documented: &Documented) -> Option<String> {
    let cli = match Cli::try_parse_from(&documented.words) {
        Ok(cli) => cli,
        Err(error) => {
            let missing = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            let is_fine = match error.kind() {
                ErrorKind::DisplayHelp => true,
                ErrorKind::MissingRequiredArgument => documented.is_mention,
                kind => documented.is_mention && kind == missing,
            };
            return (!is_fine).then(|| error.to_string());
        }
    };
    let checked = match &cli.command {
        Command::Lab(LabCommand::Run(args)) => lab::plan::Plan::new(args).map(drop),
        Command::Sim(command) => sim::check(command),
        _ => Ok(()),
    };
    checked.err().map(|error| error.to_string())
}

#[test]
fn every_command_in_the_documents_is_taken() {
    let documents = documents();
    let all: Vec<Documented> = (documents.iter())
        .flat_map(|(name, text)| commands(name, text))
        .collect();
    // A search that finds nothing would find nothing wrong.
    for name in ["README.md", "docs/documents.md", "docs/measurements.md"] {
        let has_some = all
            .iter()
            .any(|one| one.place.starts_with(name) && !one.is_mention);
        assert!(has_some, "{name} has commands");
    }
    let refused = |one: &Documented| Some(format!("{}\n    {}", one.place, refused(one)?));
    let refused: Vec<String> = all.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn commands_that_are_not_taken_are_found() {
    let found = |text: &str| {
        let all = commands("A.md", text);
        all.iter().filter_map(refused).count()
    };
    for text in [
        "```\nsoftfault lab run scan --on softfalt\n```",
        "```\nsoftfault lab run scan --on kernel --give-up 0\n```",
        "```sh\nM=nothing\nsoftfault sim pft \\\n  --policies $M\n```",
        "```\nSOFTFAULT_FAULTS=messages softfault lab walk\n```",
        "```\ncargo run --release --bin softfault -- tuor\n```",
        "see `softfault doctor --jason`",
    ] {
        assert_eq!(found(text), 1, "{text}");
    }
    for text in [
        "```\nM=lock=rwsem\nsoftfault sim pft --policies $M   # a comment\n```",
        "`softfault run`, `softfault lab run ... --seeds`, `softfault = { path = \"…\" }`, `cargo run --release`",
    ] {
        assert_eq!(found(text), 0, "{text}");
    }
}
