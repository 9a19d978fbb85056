//! memmap2's own tests, with softfault in its place.

use crate::sources::{cargo, folder_of};
use std::fs;
use std::path::Path;

/// The version whose tests they are.
const VERSION: &str = "0.9.12";

/// Fetches memmap2, builds its tests over softfault and runs them. An error if one fails.
pub fn run(dir: &Path) -> Result<(), String> {
    let dir = dir.join("memmap2-tests");
    let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir.join("src")).map_err(fail)?;
    let dir = dir.canonicalize().map_err(fail)?;
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("memmap2");
    let manifest = format!(
        "[package]\nname = \"memmap2-tests\"\nversion = \"0.0.0\"\nedition = \"2018\"\n\n\
         [features]\ndefault = [\"stable_deref_trait\"]\nstable_deref_trait = []\n\n\
         [dependencies]\nlibc = \"0.2\"\ntempfile = \"3\"\nowning_ref = \"0.4\"\n\
         ours = {{ package = \"memmap2\", path = {ours:?}, features = [\"stable_deref_trait\"] }}\n\
         theirs = {{ package = \"memmap2\", version = \"={VERSION}\" }}\n\n[workspace]\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest).map_err(fail)?;
    fs::write(dir.join("src/lib.rs"), "").map_err(fail)?;
    let tests = folder_of(&dir, &format!("memmap2-{VERSION}"))?
        .join("test")
        .join("map.rs");
    // As memmap2's own lib.rs has them: a module that finds all beside it and in the root.
    let text = format!(
        "pub use ours::*;\nmod advice {{\n    pub use ours::Advice;\n}}\n#[cfg(test)]\n#[path = {tests:?}]\nmod test;\n"
    );
    fs::write(dir.join("src/lib.rs"), text).map_err(fail)?;
    let status = cargo(&dir).arg("test").status().map_err(fail)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("memmap2's tests: {status}")),
    }
}
