//! The workspace, and a copy of it that is broken on purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root, as the kernel says it: tests compare paths of files that are open.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Has cargo download what the workspace at `root` is built with: on a fresh machine a build of one package has not, and builds of
/// the copy, of which there are hundreds, do not ask the network.
pub fn fetch(root: &Path) -> Result<(), String> {
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["fetch", "--locked", "--quiet"])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo fetch: {status}")),
        Err(error) => Err(format!("cargo fetch: {error}")),
    }
}

/// Copies the files for a build of the workspace at `from` to `to`, leaving
/// files that are the same already untouched (a build there then knows that
/// they are), and removing deleted ones.
pub fn copy_workspace(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        copy(&from.join(name), &to.join(name))?;
    }
    // The command's help is made from documents.
    for name in ["crates", "docs"] {
        copy(&from.join(name), &to.join(name))?;
    }
    Ok(())
}

/// Copies a file or a folder, and removes files that `from` does not have.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
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

/// A number that changes with the files that mutations are judged by.
pub fn digest(root: &Path) -> std::io::Result<u64> {
    // FNV-1a, over paths and texts.
    let mut digest = 0xCBF2_9CE4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    };
    // The root manifest has profiles, lints and versions.
    let files = ["crates", "Cargo.toml", "Cargo.lock"];
    let mut left: Vec<_> = files.map(|name| root.join(name)).into();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path)?;
            let mut inside: Vec<PathBuf> = entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<_>>()?;
            inside.sort();
            left.extend(inside.into_iter().filter(|path| matters(path)));
        } else {
            add(path.as_os_str().as_encoded_bytes());
            add(&fs::read(&path)?);
        }
    }
    Ok(digest)
}

/// False for crates that no mutation is judged by.
fn matters(path: &Path) -> bool {
    const OTHERS: [&str; 2] = ["house-rules", "mutate"];
    let is_crate = path
        .parent()
        .is_some_and(|parent| parent.ends_with("crates"));
    !(is_crate && OTHERS.iter().any(|other| path.ends_with(other)))
}
