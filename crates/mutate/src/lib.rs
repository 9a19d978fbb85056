//! Mutations: small patches to the engine's real source, each of which breaks a
//! protocol (a memory ordering weakened, a check left out, a wake-up dropped).
//! The model named in the patch has to reject it, or the model shows nothing.
//!
//! A file in `mutations/` is a unified diff after header lines:
//!
//! ```text
//! # what is broken, in a line
//! # caught by: <test file>::<test name>     of crates/engine-loom/tests
//! ```
//!
//! Hunks are found by their lines alone, which must occur in the file exactly
//! once, so that a patch does not age with what lies around it.

use std::fs;
use std::path::{Path, PathBuf};

/// One mutation, as read from its file.
#[derive(Debug)]
pub struct Mutation {
    /// Name of the file, without its ending.
    pub name: String,
    /// What is broken.
    pub what: String,
    /// File of the model that must reject it, in `crates/engine-loom/tests`.
    pub test_file: String,
    /// Name of that model.
    pub test: String,
    /// What to change.
    pub edits: Vec<Edit>,
}

/// A run of lines to be replaced by another.
#[derive(Debug)]
pub struct Edit {
    /// The file, from the workspace's root.
    pub path: PathBuf,
    /// The lines that are there, with context.
    pub old: String,
    /// What takes their place.
    pub new: String,
}

impl Mutation {
    /// Reads a mutation, or says what is wrong with its file.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        let mut comments = text.lines().filter_map(|line| line.strip_prefix("# "));
        let what = comments.next().ok_or("no line says what is broken")?;
        let caught_by = comments
            .find_map(|line| line.strip_prefix("caught by: "))
            .ok_or("no line says what it is caught by")?;
        let (test_file, test) = caught_by
            .split_once("::")
            .ok_or("'caught by' is not <test file>::<test name>")?;
        let name = file.file_stem().ok_or("no name")?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            what: what.to_owned(),
            test_file: test_file.to_owned(),
            test: test.trim().to_owned(),
            edits: edits(&text)?,
        })
    }

    /// Makes the changes in the workspace at `root`. Changes nothing if any of
    /// them cannot be made.
    pub fn apply(&self, root: &Path) -> Result<(), String> {
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        for edit in &self.edits {
            let path = root.join(&edit.path);
            let at = match files.iter().position(|(known, _)| *known == path) {
                Some(at) => at,
                None => {
                    let shown = edit.path.display();
                    let text = fs::read_to_string(&path);
                    let text = text.map_err(|error| format!("{shown}: {error}"))?;
                    files.push((path, text));
                    files.len() - 1
                }
            };
            let text = &mut files[at].1;
            let times = text.matches(&edit.old).count();
            if times != 1 {
                let (shown, old) = (edit.path.display(), &edit.old);
                return Err(format!("{shown} has these lines {times} times:\n{old}"));
            }
            *text = text.replacen(&edit.old, &edit.new, 1);
        }
        for (path, text) in files {
            fs::write(&path, text).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The edits of a unified diff.
fn edits(diff: &str) -> Result<Vec<Edit>, String> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut path = None;
    let mut in_hunk = false;
    for line in diff.lines() {
        if line.starts_with("--- ") {
            in_hunk = false;
        } else if let Some(name) = line.strip_prefix("+++ ") {
            let name = name.split('\t').next().unwrap_or(name);
            path = Some(name.strip_prefix("b/").ok_or("a path without 'b/'")?);
        } else if line.starts_with("@@") {
            in_hunk = true;
            edits.push(Edit {
                path: path.ok_or("a hunk without a file")?.into(),
                old: String::new(),
                new: String::new(),
            });
        } else if in_hunk {
            let edit = edits.last_mut().ok_or("a line without a hunk")?;
            let (kind, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
            if matches!(kind, " " | "-") {
                edit.old.extend([rest, "\n"]);
            }
            if matches!(kind, " " | "+") {
                edit.new.extend([rest, "\n"]);
            }
        }
    }
    if edits.is_empty() {
        return Err("it changes nothing".into());
    }
    Ok(edits)
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All mutations of the workspace at `root`, by name.
pub fn all(root: &Path) -> Result<Vec<Mutation>, String> {
    let folder = fs::read_dir(root.join("mutations")).map_err(|error| error.to_string())?;
    let mut files: Vec<PathBuf> = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "patch"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| Mutation::read(file).map_err(|error| format!("{}: {error}", file.display())))
        .collect()
}

/// Copies what is needed to build the workspace at `from` to `to`, leaving
/// files that are the same already untouched (a build there then knows that
/// they are), and taking away what has gone.
pub fn copy_workspace(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        copy(&from.join(name), &to.join(name))?;
    }
    copy(&from.join("crates"), &to.join("crates"))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(to)? {
            let entry = entry?;
            if from.join(entry.file_name()).exists() {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let text = fs::read(from)?;
    if fs::read(to).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(to, text)
}
