//! The files that are judged, and the code in them.

use std::collections::BTreeMap;
use std::path::Path;

/// Text files by their path from the workspace's root.
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// The workspace's files. Only of Rust and Python sources, manifests, documents, scripts and the justfile there is a text.
    pub fn of_workspace() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = BTreeMap::new();
        collect(&root, "", &mut files);
        Self(files)
    }

    /// Made-up files.
    pub fn of_sample(sample: &[(&str, &str)]) -> Self {
        let own = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        Self(sample.iter().map(own).collect())
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// All Rust files, as path and text.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// All manifests, as path and text.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with("Cargo.toml"))
    }

    /// All documents, as path and text.
    pub fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".md"))
    }

    /// All files, as path and text.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (&path[..], &text[..]))
    }

    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|path| &path[..])
    }

    /// Rust files below `folder`, as path and text.
    pub fn rust_below(&self, folder: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.rust()
            .filter(move |(path, _)| path.starts_with(folder))
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the workspace") {
        let entry = entry.expect("an entry of a folder");
        let name = entry.file_name().into_string().expect("a UTF-8 name");
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("a file type").is_dir() {
            if name == ".ci" || !name.starts_with('.') && name != "target" {
                collect(&entry.path(), &format!("{path}/"), files);
            }
        } else {
            let has_text = [".rs", ".py", ".md"]
                .iter()
                .any(|ending| name.ends_with(ending))
                || ["Cargo.toml", "justfile"].contains(&&name[..])
                || prefix.starts_with(".ci/");
            let text = match has_text {
                true => std::fs::read_to_string(entry.path()).expect("UTF-8 text"),
                false => String::new(),
            };
            files.insert(path, text);
        }
    }
}

/// The text with comments and the insides of literals blanked out; lines stay
/// where they are.
pub fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = not_code(rest);
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            // The quote of a literal must not be taken for a prefix's.
            if first.is_alphanumeric() || first == '_' {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                code.push_str(word);
                rest = after;
            }
        } else {
            let (blank, after) = rest.split_at(skipped);
            code.extend(blank.chars().map(|c| if c == '\n' { c } else { ' ' }));
            rest = after;
        }
    }
    code
}

/// Bytes at the front that are a comment or a literal.
fn not_code(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    let raw = text.trim_start_matches(['b', 'c']);
    if let Some(hashes) = raw.strip_prefix('r') {
        let body = hashes.trim_start_matches('#');
        if let Some(body) = body.strip_prefix('"') {
            let count = hashes.len() - body.len() - 1;
            let end = format!("\"{}", "#".repeat(count));
            let before = text.len() - body.len();
            return body
                .find(&end)
                .map_or(text.len(), |at| before + at + end.len());
        }
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    // A quote is a character only if it is closed right behind it; otherwise a
    // lifetime.
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('\''), Some('\\'), _) => quoted(text, '\''),
        (Some('\''), Some(inner), Some('\'')) => 2 + inner.len_utf8(),
        _ => 0,
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(0, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The identifiers and keywords of a line of code.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// Lines of code as (path with line number, code of the line).
pub fn lines(path: &str, text: &str) -> Vec<(String, String)> {
    let code = code(text);
    let numbered = (1..).zip(code.lines());
    numbered
        .map(|(number, line)| (format!("{path}:{number}"), line.to_owned()))
        .collect()
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = r##"
let a = "x // y \" z"; // unsafe
let b = 'u'; let c: &'static str = r#"unsafe " here"#; /* un /* sa */ fe
*/ let for_r = b"unsafe"; let d = '\''; let e = '"'; f("unsafe");
"##;
    let code = code(text);
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(!words(&code).any(|word| word == "unsafe"));
    let kept: Vec<_> = words(&code).collect();
    assert_eq!(
        kept,
        [
            "let", "a", "let", "b", "let", "c", "static", "str", "let", "for_r", "b", "let", "d",
            "let", "e", "f"
        ]
    );
}
