//! How the programs are built: as they were published, by `cargo install`, with memmap2 and with softfault under
//! its name.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose maps a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maps {
    Memmap2,
    Softfault,
}

impl Maps {
    pub const BOTH: [Self; 2] = [Self::Memmap2, Self::Softfault];

    pub fn name(self) -> &'static str {
        match self {
            Self::Memmap2 => "memmap2",
            Self::Softfault => "softfault",
        }
    }
}

/// A program: what cargo is to install, and the file that comes of it.
pub struct Program {
    pub name: &'static str,
    what: What,
    file: &'static str,
}

enum What {
    /// From the registry, at this version.
    Published(&'static str),
    /// A folder beside this one.
    Beside(&'static str),
}

pub const B3SUM: Program = Program {
    name: "b3sum",
    what: What::Published("b3sum@1.8.7"),
    file: "b3sum",
};
pub const RIPGREP: Program = Program {
    name: "ripgrep",
    what: What::Published("ripgrep@15.2.0"),
    file: "rg",
};
pub const TANTIVY: Program = Program {
    name: "tantivy",
    what: What::Beside("search"),
    file: "search",
};
/// Its mapping is C++'s: there is one of it.
pub const VECTORS: Program = Program {
    name: "vectors",
    what: What::Beside("vectors"),
    file: "vectors",
};

impl Program {
    /// Builds it, if it is not built yet; softfault's always, since it changes. Answers where it is.
    pub fn build(&self, dir: &Path, maps: Maps) -> Result<PathBuf, String> {
        let root = dir.join(maps.name());
        let built = root.join("bin").join(self.file);
        if maps == Maps::Memmap2 && built.exists() {
            return Ok(built);
        }
        eprintln!("building {} with {}", self.name, maps.name());
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        cargo.args(["install", "--quiet", "--force", "--root"]);
        cargo
            .arg(&root)
            .arg("--target-dir")
            .arg(root.join("target"));
        if maps == Maps::Softfault {
            let ours = here.join("memmap2");
            cargo.arg("--config");
            cargo.arg(format!("patch.crates-io.memmap2.path={ours:?}"));
        }
        match self.what {
            What::Published(version) => cargo.arg(version),
            What::Beside(folder) => cargo.arg("--path").arg(here.join(folder)),
        };
        // This program's own settings are not theirs.
        cargo.env_remove("CARGO_TARGET_DIR");
        let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
        match status.success() && built.exists() {
            true => Ok(built),
            false => Err(format!("{} could not be built", self.name)),
        }
    }
}
