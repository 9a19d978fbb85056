//! The program: where it is, and whether its loader would load a library before its own.

use super::not_begun::{cannot_run, not_found};
use crate::error::Error;
use std::env::var_os;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes that are read of a program: its headers, or the line that names its interpreter.
const HEAD: usize = 4096;
/// How often an interpreter may have one itself.
const MOST_INTERPRETERS: usize = 4;

/// A program that is to be run.
pub struct Program(PathBuf);

impl Program {
    /// Finds it, as execvp(3) does.
    pub fn find(name: &OsStr) -> Result<Self, Error> {
        let shown = name.display();
        if name.as_bytes().contains(&b'/') {
            return match Path::new(name).exists() {
                true => Ok(Self(name.into())),
                false => Err(not_found(format_args!("{shown}: there is no such program"))),
            };
        }
        let path = var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let places = std::env::split_paths(&path).map(|directory| directory.join(name));
        let files: Vec<_> = places.filter(|path| path.is_file()).collect();
        let program = files.iter().find(|path| is_executable(path));
        match (program, files.first()) {
            (Some(program), _) => Ok(Self(program.clone())),
            (None, Some(file)) => {
                let file = file.display();
                Err(cannot_run(format_args!("{file}: it is not executable")))
            }
            (None, None) => Err(not_found(format_args!(
                "{shown}: there is no such program in PATH"
            ))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// An error with the reason, if the program's loader ignores preloaded libraries.
    pub fn can_be_preloaded(&self) -> Result<(), Error> {
        let mut path = self.0.clone();
        for _ in 0..MOST_INTERPRETERS {
            let shown = path.display().to_string();
            let refuse = |why: &str| Err(cannot_run(format_args!("{shown}: {why}")));
            if gains_rights(&path) {
                return refuse("a setuid or setgid program: its loader ignores LD_PRELOAD");
            }
            // A file that cannot be read can be executed all the same.
            let Ok(head) = Head::read(&path) else {
                return Ok(());
            };
            match head.kind() {
                Kind::Script(interpreter) => path = interpreter,
                Kind::Dynamic => return Ok(()),
                Kind::Static => {
                    return refuse(
                        "a statically linked program has no loader, and LD_PRELOAD does nothing: run it without softfault",
                    );
                }
                Kind::Musl => {
                    return refuse(
                        "linked with musl, whose loader cannot load our library: it is glibc's",
                    );
                }
                Kind::Other => {
                    return refuse("not a program for this machine's processor and word size");
                }
                Kind::Unknown => return Ok(()),
            }
        }
        Ok(())
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o111 != 0)
}

/// True if the program runs with another user's or group's rights: the loader is careful then.
fn gains_rights(path: &Path) -> bool {
    let Ok(about) = fs::metadata(path) else {
        return false;
    };
    // SAFETY: only ask.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = about.mode();
    mode & libc::S_ISUID != 0 && about.uid() != user
        || mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
            && about.gid() != group
}

/// The first bytes of a program.
struct Head {
    file: File,
    bytes: Vec<u8>,
}

enum Kind {
    /// `#!` of this interpreter.
    Script(PathBuf),
    Dynamic,
    Static,
    Musl,
    /// Of another machine.
    Other,
    Unknown,
}

/// Numbers of an ELF header, all little-endian on the machines that we know.
const ELF64: usize = 2;
const MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else {
    183
};
const PT_INTERP: u64 = 3;

impl Head {
    fn read(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        (&file).take(HEAD as u64).read_to_end(&mut bytes)?;
        Ok(Self { file, bytes })
    }

    fn kind(&self) -> Kind {
        if let Some(line) = self.bytes.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let interpreter = line.trim_ascii().split(|byte| b" \t".contains(byte)).next();
            return match interpreter {
                Some(path) if !path.is_empty() => Kind::Script(OsStr::from_bytes(path).into()),
                _ => Kind::Unknown,
            };
        }
        if !self.bytes.starts_with(b"\x7fELF") {
            return Kind::Unknown;
        }
        if usize::from(self.bytes[4]) != ELF64 || self.number(18, 2) != Some(MACHINE) {
            return Kind::Other;
        }
        let headers = || {
            Some((
                self.number(32, 8)?,
                self.number(54, 2)?,
                self.number(56, 2)?,
            ))
        };
        let Some((at, size, count)) = headers() else {
            return Kind::Unknown;
        };
        let interpreter = (0..count).find_map(|header| self.interpreter(at + header * size));
        match interpreter {
            None => Kind::Static,
            Some(path) if path.windows(7).any(|part| part == b"ld-musl") => Kind::Musl,
            Some(_) => Kind::Dynamic,
        }
    }

    /// The interpreter that a program header names, if it is that of an interpreter.
    fn interpreter(&self, header: u64) -> Option<Vec<u8>> {
        if self.number(header, 4)? != PT_INTERP {
            return None;
        }
        let (at, bytes) = (self.number(header + 8, 8)?, self.number(header + 32, 8)?);
        let mut path = vec![0; (bytes as usize).min(HEAD)];
        self.file.read_exact_at(&mut path, at).ok()?;
        Some(path)
    }

    fn number(&self, at: u64, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        self.file.read_exact_at(&mut number[..bytes], at).ok()?;
        Some(u64::from_le_bytes(number))
    }
}
