//! Every mutation still applies to the source, and names a model that exists.
//! That the model rejects it is what `cargo run -p softfault-mutate` shows.

use std::fs;
use std::path::Path;

use softfault_mutate::{all, copy_workspace, root};

#[test]
fn every_mutation_applies() {
    let root = root();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    let mutations = all(&root).unwrap();
    assert!(mutations.len() >= 12, "only {}", mutations.len());
    for mutation in mutations {
        copy_workspace(&root, &copy).unwrap();
        let applied = mutation.apply(&copy);
        assert!(applied.is_ok(), "{}: {applied:?}", mutation.name);
        let changed = mutation.edits.iter().any(|edit| {
            fs::read(root.join(&edit.path)).unwrap() != fs::read(copy.join(&edit.path)).unwrap()
        });
        assert!(changed, "{} changes nothing", mutation.name);
        let models = format!("crates/engine-loom/tests/{}.rs", mutation.test_file);
        let models = fs::read_to_string(root.join(models)).unwrap();
        let test = format!("#[test]\nfn {}()", mutation.test);
        assert!(models.contains(&test), "{}: no {test}", mutation.name);
    }
}
