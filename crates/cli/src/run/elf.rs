//! An executable file: how it is executed, and its notes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are read of a file at a time: its headers, the line that names its interpreter, notes.
const HEAD: usize = 4096;

/// A program or a library, and its first bytes.
pub struct Head {
    file: File,
    bytes: Vec<u8>,
}

/// The parts of a program that tell its loader.
pub enum Kind {
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
const MAGIC: &[u8] = b"\x7fELF";
const ELF64: u8 = 2;
const MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else {
    183
};
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

impl Head {
    /// Reads the first bytes of a file.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        // A pipe or a terminal would be waited for; to execute it is refused.
        if !path.metadata()?.is_file() {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        (&file).take(HEAD as u64).read_to_end(&mut bytes)?;
        Ok(Self { file, bytes })
    }

    /// How the file is executed.
    pub fn kind(&self) -> Kind {
        if let Some(line) = self.bytes.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let interpreter = line.trim_ascii().split(|byte| b" \t".contains(byte)).next();
            return match interpreter {
                Some(path) if !path.is_empty() => Kind::Script(OsStr::from_bytes(path).into()),
                _ => Kind::Unknown,
            };
        }
        if !self.bytes.starts_with(MAGIC) {
            return Kind::Unknown;
        }
        if !self.is_ours() {
            return Kind::Other;
        }
        let Some(interpreters) = self.segments(PT_INTERP) else {
            return Kind::Unknown;
        };
        match interpreters.first() {
            None => Kind::Static,
            Some(path) if path.windows(7).any(|part| part == b"ld-musl") => Kind::Musl,
            Some(_) => Kind::Dynamic,
        }
    }

    /// The text of the note of this name and type, if the file has one.
    pub fn note(&self, (name, kind): (&[u8], u32)) -> Option<Vec<u8>> {
        let segments = self.is_ours().then(|| self.segments(PT_NOTE))??;
        segments
            .iter()
            .find_map(|notes| find_note(notes, name, kind))
    }

    /// True for a file of this machine's processor and word size.
    fn is_ours(&self) -> bool {
        self.bytes.starts_with(MAGIC)
            && self.bytes.get(4) == Some(&ELF64)
            && self.number(18, 2) == Some(MACHINE)
    }

    /// The first bytes of all segments of a type.
    fn segments(&self, kind: u64) -> Option<Vec<Vec<u8>>> {
        let at = self.number(32, 8)?;
        let (size, count) = (self.number(54, 2)?, self.number(56, 2)?);
        let headers = (0..count).map(|header| at.saturating_add(header * size));
        let headers = headers.filter(|&header| self.number(header, 4) == Some(kind));
        Some(headers.filter_map(|header| self.segment(header)).collect())
    }

    /// The first bytes of the segment of a program header.
    fn segment(&self, header: u64) -> Option<Vec<u8>> {
        let (at, bytes) = (self.number(header + 8, 8)?, self.number(header + 32, 8)?);
        let mut segment = vec![0; (bytes as usize).min(HEAD)];
        self.file.read_exact_at(&mut segment, at).ok()?;
        Some(segment)
    }

    fn number(&self, at: u64, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        self.file.read_exact_at(&mut number[..bytes], at).ok()?;
        Some(u64::from_le_bytes(number))
    }
}

/// The text of a note among some.
fn find_note(mut notes: &[u8], name: &[u8], kind: u32) -> Option<Vec<u8>> {
    loop {
        let word = |at: usize| {
            let bytes = notes.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (name_len, len, found) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let text = 12 + name_len.next_multiple_of(4);
        if found == kind && notes.get(12..12 + name_len)? == name {
            return Some(notes.get(text..text + len)?.to_vec());
        }
        notes = notes.get(text + len.next_multiple_of(4)..)?;
    }
}
