//! The command as an ordinary user runs it.

use crate::nobody::{NOBODY, is_root};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

pub struct OrdinaryUser {
    /// A copy of the command: the target's may be closed to others.
    program: PathBuf,
    /// A directory that everybody may write to.
    pub files: PathBuf,
    _dir: TempDir,
}

impl OrdinaryUser {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join("softfault");
        fs::copy(env!("CARGO_BIN_EXE_softfault"), &program).unwrap();
        crate::unwritten::wait(&program);
        let files = dir.path().join("files");
        fs::create_dir(&files).unwrap();
        fs::set_permissions(&files, Permissions::from_mode(0o777)).unwrap();
        Self {
            program,
            files,
            _dir: dir,
        }
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}
