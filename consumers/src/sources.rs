//! Where the sources of a published crate are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of `of`, a name and a version, which the package in `dir` depends on, as cargo says it.
pub fn folder_of(dir: &Path, of: &str) -> Result<PathBuf, String> {
    let output = cargo(dir)
        .args(["metadata", "--format-version", "1"])
        .output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut manifests = text
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next());
    let folder = manifests.find_map(|path| {
        let folder = Path::new(path).parent()?;
        (folder.file_name()? == of).then(|| folder.to_owned())
    });
    let said = String::from_utf8_lossy(&output.stderr);
    folder.ok_or_else(|| format!("{of} cannot be had: {said}"))
}

/// Cargo, in a folder.
pub fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    // This program's own settings are not theirs.
    cargo.current_dir(dir).env_remove("CARGO_TARGET_DIR");
    cargo
}
