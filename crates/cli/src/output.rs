//! The output of results: stdout, or a file.

use crate::error::Error;
use crate::interrupt::Output;
use crate::lab::files::reserve;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// How a page begins.
const PAGE_BEGINS: &[u8] = b"<!DOCTYPE html";

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
    let _output = Output::begin()?;
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    unless_gone(written, Path::new("stdout"))
}

/// The error of a write to `path`, unless its reader went away.
fn unless_gone(written: io::Result<()>, path: &Path) -> Result<(), Error> {
    match written {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(cannot_write(path, &e)),
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
        true => Output::begin().map(|_output| tell(text)),
        false => print(text),
    };
    put.and(shown)
}

/// Writes a whole file, or leaves what was there: half an array, or half a page, is of no use to anybody.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    write_by(path, &|out| {
        unless_gone(out.write_all(text.as_bytes()), path)
    })
}

/// The same of a file that `fill` writes; it is called twice where no file can be made beside the old one.
pub fn write_by(
    path: &Path,
    fill: &dyn Fn(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    write_beside(path, fill).unwrap_or_else(|| write_over(path, fill))
}

/// Writes a file beside the one of this name, and puts it in its place. `None`: no file can be made there, or what is there is
/// no file with a name.
fn write_beside(
    path: &Path,
    fill: &dyn Fn(&mut dyn Write) -> Result<(), Error>,
) -> Option<Result<(), Error>> {
    // A link stays one.
    let before = fs::metadata(path).ok();
    let place = match &before {
        Some(before) => place_of(path, before)?,
        None => new_place(path),
    };
    let mut name = place.file_name()?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = place.with_file_name(name);
    let file = File::create_new(&beside).ok()?;
    if let Some(before) = before {
        let _ = file.set_permissions(before.permissions());
        let _ = fchown(&file, Some(before.uid()), Some(before.gid()));
    }
    let written = filled(&file, path, fill)
        .and_then(|()| fs::rename(&beside, &place).map_err(|e| cannot_write(path, &e)));
    Some(written.inspect_err(|_| drop(fs::remove_file(&beside))))
}

/// Writes over what is there: a device, a pipe, or a file in a directory that takes no other. A file keeps what it has until
/// there is room for all of the new.
fn write_over(
    path: &Path,
    fill: &dyn Fn(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let wrong = |e: io::Error| cannot_write(path, &e);
    // A pipe may have no reader.
    let waits = fs::metadata(path).is_ok_and(|about| !about.is_file());
    let _output = waits.then(Output::begin).transpose()?;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let mut file = options.open(path).map_err(wrong)?;
    let before = file.metadata().map_err(wrong)?;
    if !before.is_file() {
        return filled(&file, path, fill);
    }
    let mut length = Length(0);
    fill(&mut length)?;
    if let Err(e) = reserve(&file, length.0.max(1)) {
        let _ = file.set_len(before.len());
        return Err(wrong(e));
    }
    let written = filled(&file, path, fill);
    // Of a failed one there is the beginning, and nothing of the old one behind it.
    let end = file.stream_position().map_err(wrong)?;
    written.and(file.set_len(end).map_err(wrong))
}

/// Counts the bytes that are written to it.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn filled(
    file: &File,
    path: &Path,
    fill: &dyn Fn(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    unless_gone(out.flush(), path)
}

/// Sees before hours of running that the JSON can be written. `inputs` as for [`can_write`].
pub fn sink(path: &Path, inputs: &[&Path]) -> Result<Sink, Error> {
    match path == Path::new("-") {
        true => Ok(Sink::Stdout),
        false => can_write(path, inputs).map(|()| Sink::File(path.to_owned())),
    }
}

/// Fails if `path` cannot be a page, before anything is measured for it. Only a page takes the place of what is there: a
/// forgotten name before a list of results would make a page of the first of them.
pub fn can_write_page(path: &Path, inputs: &[&Path]) -> Result<(), Error> {
    can_write(path, inputs)?;
    if !path.is_file() {
        return Ok(());
    }
    let mut begin = Vec::new();
    File::open(path)
        .and_then(|file| file.take(PAGE_BEGINS.len() as u64).read_to_end(&mut begin))
        .map_err(|e| cannot_write(path, &e))?;
    match begin.is_empty() || begin == PAGE_BEGINS {
        true => Ok(()),
        false => Err(cannot_write(
            path,
            &"it is there already, and is not an HTML page",
        )),
    }
}

/// Fails if `path` cannot be a file, before anything is measured for it, or if it is one of `inputs`, the files that the
/// command reads. Of those `-` is stdin.
pub fn can_write(path: &Path, inputs: &[&Path]) -> Result<(), Error> {
    if path.is_dir() {
        return Err(cannot_write(path, &"is a directory"));
    }
    // Path drops these ends, and the kernel does not.
    let name = path.as_os_str().as_bytes();
    if name.ends_with(b"/") || name.ends_with(b"/.") {
        return Err(cannot_write(path, &"a directory's name, and there is none"));
    }
    if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
        let input = input.display();
        return Err(cannot_write(
            path,
            &format_args!("the command reads it ({input})"),
        ));
    }
    let opened = match fs::metadata(path) {
        Ok(about) if about.is_file() => File::options().append(true).open(path).map(drop),
        // To open a pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(_) => {
            let place = new_place(path);
            if !parent(&place).is_dir() {
                return Err(cannot_write(path, &"no such directory"));
            }
            // It goes again: whoever is interrupted leaves nothing.
            File::create_new(&place).and_then(|_| fs::remove_file(&place))
        }
    };
    opened.map_err(|e| cannot_write(path, &e))
}

/// Whether both are one regular file, by whatever name, or would become one.
pub fn is_same(path: &Path, other: &Path) -> bool {
    let other = match other == Path::new("-") {
        true => Path::new("/dev/stdin"),
        false => other,
    };
    match (fs::metadata(path), fs::metadata(other)) {
        (Ok(path), Ok(other)) => path.is_file() && is_same_file(&path, &other),
        (Err(_), Err(_)) => new_place(path) == new_place(other),
        _ => false,
    }
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The name of a file, to which all links lead. `None` for what is no regular file, and for a file without a name: a link in
/// `/proc` (/dev/stdout, say) leads also to a file that was removed.
fn place_of(path: &Path, about: &Metadata) -> Option<PathBuf> {
    let place = fs::canonicalize(path).ok()?;
    let found = fs::metadata(&place).ok()?;
    (about.is_file() && is_same_file(&found, about)).then_some(place)
}

/// Where a file of this name would be made, which is not there yet: where all links lead to.
fn new_place(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        let Ok(to) = fs::read_link(&path) else { break };
        path = parent(&path).join(to);
    }
    match (fs::canonicalize(parent(&path)), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The error of a write to `path`.
pub fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::input(format_args!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Failed before: the rest of the old one followed.
    #[test]
    fn of_a_failed_write_over_a_file_there_is_the_beginning_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for old in ["the old one, which is long", "old"] {
            fs::write(file.path(), old).unwrap();
            // The first call is for the length.
            let calls = Cell::new(0);
            let fill = |out: &mut dyn Write| {
                out.write_all(b"new").unwrap();
                if calls.replace(calls.get() + 1) > 0 {
                    return Err(Error::failed("interrupted"));
                }
                out.write_all(b" one").unwrap();
                Ok(())
            };
            assert!(write_over(file.path(), &fill).is_err());
            assert_eq!(fs::read_to_string(file.path()).unwrap(), "new");
        }
    }
}
