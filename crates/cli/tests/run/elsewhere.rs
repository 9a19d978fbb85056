//! The command and its library where everybody can run them: the target's directory may be closed to others.

use crate::nobody::{NOBODY, is_root};
use crate::{preload_library, unwritten};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Elsewhere(tempfile::TempDir);

impl Elsewhere {
    pub fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let place = Self(place);
        place.copy(Path::new(env!("CARGO_BIN_EXE_softfault")), "softfault");
        place.copy(&preload_library(), "libsoftfault_preload.so");
        place
    }

    pub fn library(&self) -> PathBuf {
        self.0.path().join("libsoftfault_preload.so")
    }

    /// A copy of a file, which is this test's user's.
    pub fn copy(&self, file: &Path, name: &str) -> PathBuf {
        let copy = self.0.path().join(name);
        fs::copy(file, &copy).unwrap();
        unwritten::wait(&copy);
        copy
    }

    /// The command, as an ordinary user.
    pub fn softfault(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("softfault"));
        command.args(arguments).current_dir(self.0.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SOFTFAULT_") {
                command.env_remove(name);
            }
        }
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}
