//! `softfault sum`: a file's SHA-256, read through a softfault map. Files that cannot be mapped (a pipe, a
//! device, a file of /proc) and the standard input are read by read(2).

use crate::error::Error;
use crate::lab::files::{byte_bar, open_unless_directory};
use crate::output;
use crate::size;
use crate::standard_input;
use clap::Args;
use sha2::{Digest, Sha256};
use softfault::{Advice, Engine, Mmap, Reads, Stats};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes copied and hashed between two movements of the bar.
const CHUNK: usize = 256 << 10;

/// Arguments of `sum`.
#[derive(Args, Debug)]
pub struct SumArgs {
    /// The file; `-` is the standard input
    file: PathBuf,
    /// The budget of the map
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    memory: u64,
    /// How files are read: direct (past the kernel's page cache), cached (through it), or auto (depends on free memory)
    #[arg(long, value_name = "HOW", default_value_t)]
    reads: Reads,
}

/// Prints the sum on stdout in the form of sha256sum, and the time and memory on stderr.
pub fn run(args: &SumArgs) -> Result<(), Error> {
    let name = args.file.display();
    let fail = |e: &dyn std::fmt::Display| Error::input(format_args!("{name}: {e}"));
    let start = Instant::now();
    let (sum, took) = if args.file == Path::new("-") {
        if standard_input::was_closed() {
            return Err(fail(&"the standard input is closed"));
        }
        let (sum, bytes) = of_reader(&mut io::stdin().lock()).map_err(|e| fail(&e))?;
        (sum, plain(bytes, start.elapsed()))
    } else {
        let mut file = open_unless_directory(&args.file)?;
        let memory = usize::try_from(args.memory).map_err(Error::input)?;
        let engine = Engine::builder()
            .memory(memory)
            .reads(args.reads)
            .build()
            .map_err(Error::input)?;
        // SAFETY: its bytes are copied by calls. If somebody writes to the file meanwhile, the sum is that of
        // a mixture, as from sha256sum.
        match unsafe { engine.map(&file) } {
            Ok(map) => {
                let sum = of_map(&map).map_err(|e| fail(&e))?;
                (sum, summary(&engine.stats(), map.len(), start.elapsed()))
            }
            Err(e) if cannot_be_mapped(&e) => {
                let (sum, bytes) = of_reader(&mut file).map_err(|e| fail(&e))?;
                (
                    sum,
                    plain(bytes, start.elapsed()) + ", for it cannot be mapped",
                )
            }
            Err(e) => return Err(fail(&e)),
        }
    };
    output::print_bytes(&line(&sum, args.file.as_os_str().as_bytes()))?;
    output::tell(&format!("{took}\n"));
    Ok(())
}

/// A line as sha256sum prints it, and `sha256sum -c` reads it: the name's bytes. Where the name would end the line, it is escaped,
/// and a backslash in front of the sum says so.
fn line(sum: &str, name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => escaped.extend(br"\\"),
            b'\n' => escaped.extend(br"\n"),
            b'\r' => escaped.extend(br"\r"),
            byte => escaped.push(byte),
        }
    }
    let mark: &[u8] = if escaped == name { b"" } else { br"\" };
    [mark, sum.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

/// True if the error is about the kind of file, and not about this one.
fn cannot_be_mapped(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV) || error.kind() == io::ErrorKind::Unsupported
}

fn of_map(map: &Mmap) -> io::Result<String> {
    map.advise(Advice::Sequential)?;
    let bar = byte_bar(map.len() as u64, "sha256");
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    for first in (0..map.len()).step_by(CHUNK) {
        // Copied rather than touched: a file that shrinks is an error to tell, not a signal to die of, also where the kernel
        // serves it.
        let copied = map.read_at(&mut chunk, first)?;
        hash.update(&chunk[..copied]);
        bar.inc(copied as u64);
    }
    bar.finish_and_clear();
    Ok(hex(hash))
}

/// The sum of all that there is to read, and its bytes.
fn of_reader(reader: &mut impl Read) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok((hex(hash), bytes)),
            Ok(read) => {
                hash.update(&chunk[..read]);
                bytes += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn hex(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plain(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    format!(
        "{} in {seconds:.2} s ({}/s); read plainly",
        size::show(bytes),
        size::show((bytes as f64 / seconds) as u64),
    )
}

fn summary(stats: &Stats, bytes: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    let mut parts = vec![
        format!(
            "{} in {seconds:.2} s ({}/s)",
            size::show(bytes as u64),
            size::show((bytes as f64 / seconds) as u64)
        ),
        format!(
            "{} read past the page cache and {} through it",
            size::show(stats.read_direct_bytes),
            size::show(stats.read_cached_bytes)
        ),
    ];
    let kernel = stats.kernel;
    if kernel.switched_to_kernel + kernel.small_maps > 0 {
        parts.push("the kernel served the pages in its page cache".to_owned());
    }
    parts.push(format!("{} faults", stats.faults));
    if stats.readahead_pages > 0 {
        parts.push(format!(
            "{} of {} pages read ahead used",
            stats.readahead_used, stats.readahead_pages
        ));
    }
    parts.push(format!(
        "at most {} in memory",
        size::show(stats.peak_bytes)
    ));
    parts.join("; ")
}
