//! What the cases of one source have in common.

use crate::{compile, directory, file};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A program that has the cases, and a file for them.
pub struct Scene {
    pub directory: PathBuf,
    pub program: PathBuf,
    pub data: PathBuf,
}

impl Scene {
    /// Compiles `name.c`, and makes a file of so many bytes; `None` where there is no compiler.
    pub fn new(name: &str, compiler: &[&str], bytes: usize) -> Option<Self> {
        let directory = directory(name);
        let program = directory.join("program");
        Some(Self {
            program: compile(&format!("{name}.c"), &program, compiler)?,
            data: file(&directory, bytes),
            directory,
        })
    }

    /// A case over the file.
    pub fn command<'a>(&'a self, case: &'a str) -> [&'a OsStr; 3] {
        [self.program.as_ref(), case.as_ref(), self.data.as_ref()]
    }

    /// The same without softfault.
    pub fn without(&self, case: &str) -> Output {
        let mut without = Command::new(&self.program);
        without.arg(case).arg(&self.data).output().unwrap()
    }

    /// A directory for so much swap, as an option has it.
    pub fn swap(&self, size: &str) -> String {
        format!("{}:{size}", self.directory.display())
    }
}
