//! The library, installed into a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where it is installed.
pub struct Installed {
    pub prefix: PathBuf,
}

/// Installs it once.
pub fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let _ = fs::remove_dir_all(&prefix);
        let prefix = prefix.to_str().expect("UTF-8");
        let said = install(&["--prefix", prefix]);
        assert!(said.status.success(), "{said:?}");
        Installed {
            prefix: prefix.into(),
        }
    })
}

fn install(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_softfault-c-install");
    Command::new(program).args(arguments).output().unwrap()
}

impl Installed {
    pub fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The output of pkg-config, word by word; `None` where there is no pkg-config.
    pub fn pkg_config(&self, arguments: &[&str]) -> Option<Vec<String>> {
        let asked = Command::new("pkg-config")
            .args(arguments)
            .arg("softfault")
            .env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"))
            .output();
        let Ok(said) = asked else {
            softfault_skip::skipped("program", "there is no pkg-config");
            return None;
        };
        assert!(said.status.success(), "{said:?}");
        let words = String::from_utf8(said.stdout).unwrap();
        Some(words.split_whitespace().map(str::to_owned).collect())
    }
}

#[test]
fn installed_files() {
    let Installed { prefix } = installed();
    for name in [
        "include/softfault.h",
        "lib/libsoftfault.a",
        "lib/libsoftfault.so",
        "lib/libsoftfault.so.0",
        "lib/pkgconfig/softfault.pc",
    ] {
        assert!(prefix.join(name).is_file(), "{name}");
    }
    let long = format!("libsoftfault.so.{}", env!("CARGO_PKG_VERSION"));
    let link = |name: &str| fs::read_link(prefix.join("lib").join(name)).unwrap();
    assert_eq!(link("libsoftfault.so"), Path::new("libsoftfault.so.0"));
    assert_eq!(link("libsoftfault.so.0"), Path::new(&long));
    // The header is the one that is checked in.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/softfault.h");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(read(&prefix.join("include/softfault.h")), read(&own));
}

#[test]
fn a_package_is_made_below_another_root() {
    let dest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    let _ = fs::remove_dir_all(&dest);
    let dest = dest.to_str().unwrap();
    let said = install(&[
        "--destdir",
        dest,
        "--prefix",
        "/usr",
        "--libdir",
        "/usr/lib64",
    ]);
    assert!(said.status.success(), "{said:?}");
    let dest = Path::new(dest);
    let pc = fs::read_to_string(dest.join("usr/lib64/pkgconfig/softfault.pc")).unwrap();
    assert!(pc.contains("prefix=/usr\nlibdir=${prefix}/lib64\n"), "{pc}");
    assert!(dest.join("usr/include/softfault.h").is_file());
    // It is as large as the library, some of which are.
    fs::remove_dir_all(dest).unwrap();
}

#[test]
fn wrong_arguments_install_nothing() {
    for wrong in [
        &["--prefix"][..],
        &["--prefix", "relative"],
        &["--prefix", "/with space"],
        &["--frobnicate", "/tmp"],
    ] {
        let said = install(wrong);
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stderr).contains("usage:"));
    }
}
