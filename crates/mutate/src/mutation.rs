//! A mutation, as its file in `mutations/` says it: a unified diff after header
//! lines.
//!
//! ```text
//! # the broken rule, in a line
//! # caught by: <world> <module>::<test>         of the world's tests, which are one program
//! # caught by: library <test file>::<test>      of crates/softfault/tests, or of those of the C library, which are `c` and
//!                                             `twins`, or of `softfault run`, which are `run`
//! # caught by: library src::<module>::<test>    of crates/softfault/src
//! ```
//!
//! Hunks are found by their lines alone, which must occur in the file exactly
//! once, so that a patch does not age with the code around it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::world::World;

/// One mutation, as read from its file.
#[derive(Debug)]
pub struct Mutation {
    /// Name of the file, without its ending.
    pub name: String,
    /// The broken rule.
    pub what: String,
    /// The tests that must fail with it, one a world at most.
    pub caught_by: Vec<Catch>,
    /// The changes.
    pub edits: Vec<Edit>,
}

/// A test that must fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catch {
    /// Whose test.
    pub world: World,
    /// The test's binary: its file or folder in the world's tests.
    pub file: String,
    /// Its name there.
    pub test: String,
}

impl Catch {
    fn read(line: &str) -> Result<Self, String> {
        let (world, place) = (line.trim().split_once(' ')).ok_or("'caught by' names no world")?;
        let world = world.parse()?;
        // A single binary needs no name.
        let (file, test) = match world {
            World::Loom => ("models", place),
            World::Shuttle => ("scenarios", place),
            World::Std => ("parts", place),
            _ => (place.split_once("::")).ok_or("'caught by' is not <test file>::<test name>")?,
        };
        Ok(Self {
            world,
            file: file.to_owned(),
            test: test.to_owned(),
        })
    }
}

/// A run of lines to be replaced by another.
#[derive(Debug)]
pub struct Edit {
    /// The file, from the workspace's root.
    pub path: PathBuf,
    /// The lines that are there, with context.
    pub old: String,
    /// The lines that take their place.
    pub new: String,
}

impl Mutation {
    /// Reads a mutation, or returns the error of its file.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        let mut comments = text.lines().filter_map(|line| line.strip_prefix("# "));
        let what = comments.next().ok_or("no line names the broken rule")?;
        let caught_by: Vec<Catch> = comments
            .filter_map(|line| line.strip_prefix("caught by: "))
            .map(Catch::read)
            .collect::<Result<_, _>>()?;
        if caught_by.is_empty() {
            return Err("no line names the tests that catch it".into());
        }
        // Of two only the first would be tried.
        for (nth, catch) in caught_by.iter().enumerate() {
            if caught_by[..nth]
                .iter()
                .any(|other| other.world == catch.world)
            {
                return Err(format!("two lines name a test of {}", catch.world));
            }
        }
        let name = file.file_stem().ok_or("no name")?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            what: what.to_owned(),
            caught_by,
            edits: edits(&text)?,
        })
    }

    /// The test of this world that must fail.
    pub fn named(&self, world: World) -> Option<&Catch> {
        self.caught_by.iter().find(|catch| catch.world == world)
    }

    /// True if it changes memory orderings and nothing else: a run of all
    /// accesses in one order cannot see it.
    pub fn is_of_orderings(&self) -> bool {
        const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
        let without = |text: &str| {
            let code = text
                .lines()
                .map(|line| line.split("//").next().unwrap_or(line));
            let mut code: String = code.flat_map(str::split_whitespace).collect();
            for ordering in ORDERINGS {
                code = code.replace(&format!("Ordering::{ordering}"), "_");
                code = code.replace(ordering, "_");
            }
            // A fence more or less is an ordering too.
            code.replace("fence(_);", "")
        };
        (self.edits.iter()).all(|edit| without(&edit.old) == without(&edit.new))
    }

    /// Makes the changes in the workspace at `root`. Changes nothing if any of
    /// them cannot be made.
    pub fn apply(&self, root: &Path) -> Result<(), String> {
        apply(&self.edits, root)
    }
}

/// Makes the changes below `root`, or none if any of them cannot be made.
pub fn apply(edits: &[Edit], root: &Path) -> Result<(), String> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for edit in edits {
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

/// The edits of a unified diff.
pub fn edits(diff: &str) -> Result<Vec<Edit>, String> {
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
