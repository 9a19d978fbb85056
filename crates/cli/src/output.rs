//! The output of results: stdout, or a file.

use crate::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where the JSON goes.
pub enum Sink {
    /// To stdout.
    Stdout,
    /// To a file.
    File(PathBuf),
}

/// Writes `text` to stdout; a reader that went away has seen enough.
pub fn print(text: &str) -> Result<(), Error> {
    print_bytes(text.as_bytes())
}

/// The same of bytes, which need not be UTF-8.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(cannot_write(Path::new("stdout"), &e)),
        _ => Ok(()),
    }
}

/// Writes `text` where it goes.
pub fn put(sink: &Sink, text: &str) -> Result<(), Error> {
    match sink {
        Sink::Stdout => print(text),
        Sink::File(path) => write(path, text),
    }
}

/// Shows `text` on stderr; where nobody can read that, nothing is lost that stdout does not have.
pub fn tell(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Puts the JSON, then shows the tables: on stderr if stdout is taken. That one cannot be written does not cost the
/// other.
pub fn both(json: Option<(&Sink, &str)>, text: &str, taken: bool) -> Result<(), Error> {
    let put = json.map_or(Ok(()), |(sink, json)| put(sink, json));
    let shown = match taken {
        true => {
            tell(text);
            Ok(())
        }
        false => print(text),
    };
    put.and(shown)
}

/// Writes a whole file, or none.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    let mut file = File::create(path).map_err(|e| cannot_write(path, &e))?;
    file.write_all(text.as_bytes()).map_err(|e| {
        // Half an array, or half a page, is of no use to anybody; a device or pipe is not ours to remove.
        if path.is_file() {
            let _ = std::fs::remove_file(path);
        }
        cannot_write(path, &e)
    })
}

/// Sees before hours of running that the JSON can be written.
pub fn sink(path: &Path) -> Result<Sink, Error> {
    match path == Path::new("-") {
        true => Ok(Sink::Stdout),
        false => can_write(path).map(|()| Sink::File(path.to_owned())),
    }
}

/// Fails if `path` cannot be a file, before anything is measured for it.
pub fn can_write(path: &Path) -> Result<(), Error> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match () {
        _ if path.is_dir() => Err(cannot_write(path, &"is a directory")),
        _ if !parent.is_dir() => Err(cannot_write(path, &"no such directory")),
        _ => Ok(()),
    }
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::input(format_args!("cannot write {}: {error}", path.display()))
}
