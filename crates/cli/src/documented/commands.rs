//! The `softfault` commands that the documents have. Used by the test of this binary's parser, and by the test that runs them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A command as a document has it.
pub struct Documented {
    /// The document, and the command.
    pub place: String,
    /// `softfault` and its arguments.
    pub words: Vec<String>,
    /// It is part of a sentence, and may leave out options without a default.
    pub is_mention: bool,
}

/// All documents with commands for today's version, by their paths from the workspace's root: not the changes, whose commands are of their time.
pub fn documents() -> Vec<(String, String)> {
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
pub fn commands(name: &str, text: &str) -> Vec<Documented> {
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

/// The words of a line of a shell from `softfault` on, if the line runs it.
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
