//! Installs the C library: header, shared and static library, pkg-config file.
//!
//! ```sh
//! cargo run --release -p softfault-c -- --prefix /usr/local
//! ```
//!
//! cargo has built the static library before this runs: it is beside it. The shared one is linked here, from the same
//! objects, because its symbols have versions: the compiler hands the linker a version script of its own for each shared
//! library that it links, without a name, and linkers refuse another beside that. The linker is the C compiler that `CC`
//! names, or `cc`, which the compiler links with, too.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The exported symbols, with versions.
const MAP: &str = include_str!("../../libsoftfault.map");
const HEADER: &str = include_str!("../../include/softfault.h");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The ABI's, as in `build.rs`.
const SONAME: &str = "libsoftfault.so.0";
/// The libraries that a static library of Rust's needs, by `rustc --print native-static-libs`.
const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Handlers and threads outlive a dlclose: as `build.rs` has it for the shared library, and for one that has the static library in it.
const STAYS: &str = "-Wl,-z,nodelete";

const USAGE: &str = "\
usage: cargo run --release -p softfault-c -- [--prefix DIR] [--libdir DIR] [--includedir DIR] [--destdir DIR]
Installs softfault.h, libsoftfault.so, libsoftfault.a and softfault.pc.
  --prefix DIR      below which all goes (/usr/local)
  --libdir DIR      libraries (PREFIX/lib)
  --includedir DIR  the header (PREFIX/include)
  --destdir DIR     a folder that stands for / while a package is made";

fn main() -> ExitCode {
    match Places::of(std::env::args_os().skip(1)) {
        Ok(Some(places)) => match places.install() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("softfault-c-install: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("softfault-c-install: {wrong}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Where things go.
struct Places {
    prefix: PathBuf,
    lib: PathBuf,
    include: PathBuf,
    dest: Option<PathBuf>,
}

impl Places {
    /// By the arguments; `None` if help is wanted.
    fn of(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let (mut prefix, mut lib, mut include, mut dest) = (None, None, None, None);
        while let Some(argument) = arguments.next() {
            let name = argument.to_string_lossy().into_owned();
            let place = match &name[..] {
                "--prefix" => &mut prefix,
                "--libdir" => &mut lib,
                "--includedir" => &mut include,
                "--destdir" => &mut dest,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("no such argument: {name}")),
            };
            let value = arguments.next().ok_or(format!("{name} needs a folder"))?;
            let value = PathBuf::from(value);
            if !value.is_absolute() {
                return Err(format!("{name} needs a folder that begins with /"));
            }
            // It is written to a file that has lines, of words.
            let text = value
                .to_str()
                .filter(|text| !text.contains([' ', '\n', '\'', '"', '\\']));
            if text.is_none() {
                return Err(format!("{name}: pkg-config cannot express such a folder"));
            }
            *place = Some(value);
        }
        let prefix = prefix.unwrap_or_else(|| PathBuf::from("/usr/local"));
        Ok(Some(Self {
            lib: lib.unwrap_or_else(|| prefix.join("lib")),
            include: include.unwrap_or_else(|| prefix.join("include")),
            prefix,
            dest,
        }))
    }

    fn install(&self) -> io::Result<()> {
        let lib = self.folder(&self.lib)?;
        let archive = built("libsoftfault_c.a")?;
        let long = format!("libsoftfault.so.{VERSION}");
        let shared = link_shared(&archive, &lib.join(&long))?;
        put(&lib.join(&long), &shared, 0o755)?;
        link(&lib.join(SONAME), &long)?;
        link(&lib.join("libsoftfault.so"), SONAME)?;
        put(&lib.join("libsoftfault.a"), &fs::read(archive)?, 0o644)?;
        let include = self.folder(&self.include)?;
        put(&include.join("softfault.h"), HEADER.as_bytes(), 0o644)?;
        let pkg_config = self.folder(&self.lib.join("pkgconfig"))?;
        put(
            &pkg_config.join("softfault.pc"),
            self.pc().as_bytes(),
            0o644,
        )
    }

    fn pc(&self) -> String {
        let below = |path: &Path| match path.strip_prefix(&self.prefix) {
            Ok(rest) => format!("${{prefix}}/{}", rest.display()),
            Err(_) => path.display().to_string(),
        };
        format!(
            "prefix={}\nlibdir={}\nincludedir={}\n\n\
             Name: softfault\nDescription: Memory maps larger than memory, under a fixed budget\nVersion: {VERSION}\n\
             Libs: -L${{libdir}} -lsoftfault\nLibs.private: {PRIVATE} {STAYS}\nCflags: -I${{includedir}}\n",
            self.prefix.display(),
            below(&self.lib),
            below(&self.include),
        )
    }

    /// Makes a folder, below the one that stands for /.
    fn folder(&self, path: &Path) -> io::Result<PathBuf> {
        let path = match &self.dest {
            Some(dest) => dest.join(path.strip_prefix("/").expect("it is absolute")),
            None => path.to_owned(),
        };
        fs::create_dir_all(&path).map_err(|error| said(&path, &error))?;
        Ok(path)
    }
}

/// A library that cargo has built with this program.
fn built(name: &str) -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let beside = this.parent().expect("a program is in a folder");
    let places = [beside.join("deps").join(name), beside.join(name)];
    let found = places.iter().find(|path| path.exists());
    let none = || said(&places[0], &"it is not there: run this by cargo run");
    found.cloned().ok_or_else(none)
}

/// Links the shared library of all that is in the static one; returns its bytes. Its temporary files are beside where it is to
/// be.
fn link_shared(archive: &Path, place: &Path) -> io::Result<Vec<u8>> {
    let (map, linked) = (place.with_extension("map"), place.with_extension("linked"));
    let link = || {
        fs::write(&map, MAP).map_err(|error| said(&map, &error))?;
        let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(&cc);
        let script = option("-Wl,--version-script=", &map);
        command.arg("-shared").arg("-o").arg(&linked).arg(script);
        command.arg(format!("-Wl,-soname,{SONAME}"));
        command.args([STAYS, "-Wl,-z,now", "-Wl,-z,relro"]);
        command.args(["-Wl,--gc-sections", "-Wl,-O1", "-Wl,--as-needed"]);
        // A missing symbol is an error here, and not in the programs.
        command.args(["-Wl,-z,defs", "-Wl,--whole-archive"]);
        command.arg(archive).arg("-Wl,--no-whole-archive");
        command.args(PRIVATE.split(' '));
        let done = command.output();
        let done = done.map_err(|error| said(Path::new(&cc), &error))?;
        if !done.status.success() {
            let errors = String::from_utf8_lossy(&done.stderr);
            return Err(said(Path::new(&cc), &errors.trim_end()));
        }
        fs::read(&linked)
    };
    let bytes = link();
    let _ = fs::remove_file(&map);
    let _ = fs::remove_file(&linked);
    bytes
}

/// An option and a path, as one argument.
fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// Puts a file into its place in one step: a program that has the one before goes on with that.
fn put(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let written = || {
        let new = path.with_extension("new");
        fs::write(&new, bytes)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, path)
    };
    written().map_err(|error| said(path, &error))?;
    println!("{}", path.display());
    Ok(())
}

fn link(path: &Path, to: &str) -> io::Result<()> {
    let linked = || {
        let new = path.with_extension("new");
        let _ = fs::remove_file(&new);
        symlink(to, &new)?;
        fs::rename(&new, path)
    };
    linked().map_err(|error| said(path, &error))?;
    println!("{} -> {to}", path.display());
    Ok(())
}

fn said(path: &Path, error: &dyn core::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
