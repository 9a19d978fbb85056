//! memmap2's own tests, with softfault in its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let tests = tests_of(&dir)?;
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

/// Where the sources of memmap2 are, as cargo says it.
fn tests_of(dir: &Path) -> Result<PathBuf, String> {
    let output = cargo(dir)
        .args(["metadata", "--format-version", "1"])
        .output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let of = format!("memmap2-{VERSION}");
    let mut manifests = text
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next());
    let folder = manifests.find_map(|path| {
        let folder = Path::new(path).parent()?;
        (folder.file_name()? == of.as_str()).then_some(folder)
    });
    let said = String::from_utf8_lossy(&output.stderr);
    let folder = folder.ok_or_else(|| format!("{of} cannot be had: {said}"))?;
    Ok(folder.join("test").join("map.rs"))
}

fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    // This program's own settings are not theirs.
    cargo.current_dir(dir).env_remove("CARGO_TARGET_DIR");
    cargo
}
