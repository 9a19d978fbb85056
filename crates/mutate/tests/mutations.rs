//! Every mutation still applies to the source, and names tests that exist.
//! `cargo run -p softfault-mutate` shows that they reject it.

mod trials;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use softfault_mutate::mutation::{Catch, Mutation, all};
use softfault_mutate::workspace::{copy_workspace, root};
use softfault_mutate::world::{OF_THE_CRATE, World, models_of};

#[test]
fn every_mutation_applies() {
    let root = root();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    let mutations = all(&root).unwrap();
    assert!(mutations.len() >= 100, "only {}", mutations.len());
    let mut wrong = Vec::new();
    copy_workspace(&root, &copy).unwrap();
    for mutation in mutations {
        let applied = mutation.apply(&copy);
        let mut changed = false;
        for edit in &mutation.edits {
            let (ours, theirs) = (root.join(&edit.path), copy.join(&edit.path));
            changed |= fs::read(&ours).ok() != fs::read(&theirs).ok();
            // A file that is not there is an error of `apply`.
            let _ = fs::copy(ours, theirs);
        }
        if let Err(error) = applied {
            wrong.push(format!("{}: {error}", mutation.name));
            continue;
        }
        if !changed {
            wrong.push(format!("{} changes nothing", mutation.name));
        }
        for catch in &mutation.caught_by {
            if !has_test(&root, catch) {
                wrong.push(format!("{}: no {catch:?}", mutation.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_second_test_of_a_world_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("second.patch");
    let read = |second: &str| {
        let head = "# a rule\n# caught by: std one::fails\n";
        let diff = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
        fs::write(&file, format!("{head}{second}{diff}")).unwrap();
        Mutation::read(&file)
    };
    assert_eq!(
        read("# caught by: loom two::fails\n")
            .unwrap()
            .caught_by
            .len(),
        2
    );
    let refused = read("# caught by: std two::fails\n").unwrap_err();
    assert_eq!(refused, "two lines name a test of std");
}

/// True if there is such a test, in its file or in a module of its folder.
fn has_test(root: &Path, catch: &Catch) -> bool {
    if catch.file == OF_THE_CRATE {
        let folder = root.join("crates").join(catch.world.tests()[0].folder);
        let Some((module, test)) = catch.test.split_once("::tests::") else {
            return false;
        };
        let file = folder.join("src").join(module.replace("::", "/"));
        let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default();
        return match test.split_once("::") {
            // A file of the tests' folder.
            Some((part, test)) => {
                let text = read(file.join("tests").join(part).with_extension("rs"));
                text.contains(&format!("#[test]\nfn {test}()"))
            }
            // In the file itself, or in a file of its own beside it.
            None => {
                let inside = read(file.with_extension("rs"));
                let beside = read(file.join("tests.rs"));
                inside.contains(&format!("#[test]\n    fn {test}()"))
                    || beside.contains(&format!("#[test]\nfn {test}()"))
            }
        };
    }
    let mut folders = catch.world.tests().iter().map(|tests| {
        let tests = root.join("crates").join(tests.folder).join("tests");
        tests.join(&catch.file)
    });
    let (module, test) = match catch.test.rsplit_once("::") {
        Some((module, test)) => (Some(module.replace("::", "/")), test),
        None => (None, catch.test.as_str()),
    };
    let is_there = |file: PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_default();
        // In a file, or in `proptest!`, where it has arguments.
        text.contains(&format!("\nfn {test}()"))
            || text.contains(&format!("#[test]\n    fn {test}("))
    };
    folders.any(|folder| match &module {
        Some(module) => is_there(folder.join(format!("{module}.rs"))),
        None => is_there(folder.with_extension("rs")) || is_there(folder.join("main.rs")),
    })
}

#[test]
fn mutations_of_orderings_alone_are_recognised() {
    let mutations = all(&root()).unwrap();
    let of_orderings = |name: &str| {
        let found = mutations.iter().find(|mutation| mutation.name == name);
        found
            .unwrap_or_else(|| panic!("no {name}"))
            .is_of_orderings()
    };
    assert!(of_orderings("mutex-unlock-relaxed"));
    assert!(of_orderings("tree-no-acquire-fence"));
    assert!(!of_orderings("mutex-no-wake"));
    assert!(!of_orderings("vma-no-space-check"));
}

#[test]
fn worlds_have_names() {
    for world in World::ALL {
        assert_eq!(world.name().parse(), Ok(world));
    }
    assert!("kernel".parse::<World>().is_err());
}

/// A model that no file leads to was run for no patch that does not name it.
#[test]
fn some_file_leads_to_each_model() {
    // The rules of a model itself, and a word of the models' own world: no patch changes these.
    const OTHERS: [&str; 3] = ["completeness", "main", "wait_word"];
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let inside = paths.flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        });
        inside.collect()
    }
    let root = root();
    let path = |file: &PathBuf| {
        file.strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let sources = files(&root.join("crates/engine/src"));
    let found: BTreeSet<&str> = (sources.iter())
        .flat_map(|file| models_of(&path(file)))
        .copied()
        .collect();
    let models = fs::read_dir(root.join("crates/engine-loom/tests/models")).unwrap();
    let models: BTreeSet<String> = models
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !OTHERS.contains(&name.as_str()))
        .collect();
    let models: BTreeSet<&str> = models.iter().map(String::as_str).collect();
    assert_eq!(found, models);
}
