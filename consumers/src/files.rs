//! The files that the programs read: made once, and put into the page cache or out of it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// xorshift: drawn numbers, the same each time.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn line(&mut self) -> String {
        let word = |draw: &mut Self| {
            let letters = 2 + draw.next() % 9;
            (0..letters)
                .map(|_| char::from(b'a' + (draw.next() % 26) as u8))
                .collect::<String>()
        };
        let words: Vec<_> = (0..12).map(|_| word(self)).collect();
        words.join(" ")
    }
}

/// Makes a file unless it is there: under another name first, so that one that is there is whole.
fn made(path: &Path, make: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    eprintln!("making {}", path.display());
    let unfinished = path.with_extension("unfinished");
    let mut file = BufWriter::new(File::create(&unfinished)?);
    make(&mut file)?;
    file.into_inner()?.sync_all()?;
    fs::rename(&unfinished, path)
}

/// Bytes that mean nothing.
pub fn bytes(dir: &Path, mib: u64) -> io::Result<PathBuf> {
    let path = dir.join(format!("bytes-{mib}"));
    made(&path, |file| {
        let mut draw = Draw(1);
        for _ in 0..mib {
            let words: Vec<u8> = (0..1 << 17)
                .flat_map(|_| draw.next().to_le_bytes())
                .collect();
            file.write_all(&words)?;
        }
        Ok(())
    })?;
    Ok(path)
}

/// Lines of drawn words.
pub fn text(dir: &Path, mib: u64) -> io::Result<PathBuf> {
    let path = dir.join(format!("text-{mib}"));
    made(&path, |file| {
        let mut draw = Draw(2);
        let lines: Vec<String> = (0..20_000).map(|_| draw.line() + "\n").collect();
        let mut left = mib << 20;
        while left > 0 {
            let line = lines[draw.next() as usize % lines.len()].as_bytes();
            let line = &line[..line.len().min(left as usize)];
            file.write_all(line)?;
            left -= line.len() as u64;
        }
        Ok(())
    })?;
    Ok(path)
}

/// A tree of files of 20 lines and more: most are small, and a few large.
pub fn tree(dir: &Path, files: usize) -> io::Result<PathBuf> {
    let path = dir.join(format!("tree-{files}"));
    if path.exists() {
        return Ok(path);
    }
    eprintln!("making {}", path.display());
    let unfinished = dir.join("tree.unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    let mut draw = Draw(3);
    let lines: Vec<String> = (0..20_000).map(|_| draw.line() + "\n").collect();
    for number in 0..files {
        let folder = unfinished.join(format!("{}", number / 100));
        fs::create_dir_all(&folder)?;
        // Pareto's: the number of lines halves the number of files that have more.
        let part = (draw.next() % 10_000 + 1) as f64 / 10_000.0;
        let count = ((20.0 / part) as usize).min(8000);
        let text: String = (0..count)
            .map(|_| &lines[draw.next() as usize % lines.len()][..])
            .collect();
        fs::write(folder.join(format!("{number}.txt")), text)?;
    }
    fs::rename(unfinished, &path)?;
    Ok(path)
}

/// All files below a path, or it alone.
pub fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        all.extend(below(&entry?.path())?);
    }
    Ok(all)
}

/// Bytes of all files below a path.
pub fn size(path: &Path) -> io::Result<u64> {
    let sizes = below(path)?
        .into_iter()
        .map(|file| Ok(file.metadata()?.len()));
    sizes.sum()
}

/// Reads all below a path, so that it is in the page cache.
pub fn warm(path: &Path) -> io::Result<()> {
    for file in below(path)? {
        io::copy(&mut File::open(file)?.take(u64::MAX), &mut io::sink())?;
    }
    Ok(())
}

/// Puts all below a path out of the page cache. It is read first: on a virtual machine, memory that the host has
/// taken back would cost a cold run more than all else, and one of two more than the other.
pub fn cool(path: &Path) -> io::Result<()> {
    warm(path)?;
    for file in below(path)? {
        let file = File::open(file)?;
        file.sync_all()?;
        // SAFETY: advice about an open file.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}
