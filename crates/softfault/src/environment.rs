//! Environment variables: the settings of the default engine, and defaults for all engines.
//! `docs/environment.md` lists them, with their values.
//!
//! An invalid value makes the map fail, and is reported once on the standard error: many programs
//! read a file that they cannot map, and report nothing.

use crate::error;
use crate::generation::Done;
use crate::options::Coherence;
use crate::store::Reads;
use crate::swap::Swap;
use crate::uffd::Faults;
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use softfault_engine::cache::node::MIN_BYTES;
use std::env::var_os;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

const MEMORY: &str = "SOFTFAULT_MEMORY";
const SWAP: &str = "SOFTFAULT_SWAP";
const FAULTS: &str = "SOFTFAULT_FAULTS";
const READS: &str = "SOFTFAULT_READS";
const ALLOW_KERNEL_MAPS: &str = "SOFTFAULT_ALLOW_KERNEL_MAPS";
const COHERENCE: &str = "SOFTFAULT_COHERENCE";
const SMALL_MAPS: &str = "SOFTFAULT_SMALL_MAPS";
const STATS: &str = "SOFTFAULT_STATS";

const SIZE: &str = "a size is a whole number of bytes, or one followed by K, M, G or T";

/// The default engine's budget, if the variable is set.
pub(crate) fn memory() -> io::Result<Option<usize>> {
    value_of(MEMORY, memory_of)
}

/// The default engine's swap, if the variable is set.
pub(crate) fn swap() -> io::Result<Option<Swap>> {
    value_of(SWAP, swap_of)
}

fn value_of<T, E: Display>(
    name: &str,
    of: impl FnOnce(&OsStr) -> Result<T, E>,
) -> io::Result<Option<T>> {
    let Some(value) = var_os(name) else {
        return Ok(None);
    };
    let said = of(&value).map_err(|why| refused(name, &value, why))?;
    Ok(Some(said))
}

/// The way in which faults are served.
pub(crate) fn faults() -> io::Result<Faults> {
    value_of(FAULTS, faults_of).map(Option::unwrap_or_default)
}

/// Whether files are read through the kernel's page cache.
pub(crate) fn reads() -> io::Result<Reads> {
    value_of(READS, reads_of).map(Option::unwrap_or_default)
}

/// Whether the kernel may serve files by mappings of its own.
pub(crate) fn allow_kernel_maps() -> io::Result<Option<bool>> {
    value_of(ALLOW_KERNEL_MAPS, allow_kernel_maps_of)
}

/// Whether the kernel or the engine serves maps that write to their file.
pub(crate) fn coherence() -> io::Result<Option<Coherence>> {
    value_of(COHERENCE, coherence_of)
}

/// Size in bytes of the largest file that the kernel maps by itself.
pub(crate) fn small_maps() -> io::Result<Option<usize>> {
    value_of(SMALL_MAPS, bytes_of)
}

/// Names of all variables.
#[doc(hidden)]
pub const VARIABLES: [&str; 8] = [
    MEMORY,
    SWAP,
    FAULTS,
    READS,
    ALLOW_KERNEL_MAPS,
    COHERENCE,
    SMALL_MAPS,
    STATS,
];

/// If a variable has an invalid value: `NAME=value`, and the reason.
#[doc(hidden)]
pub fn check_environment() -> Result<(), String> {
    for name in VARIABLES {
        let Some(value) = var_os(name) else {
            continue;
        };
        let checked = match name {
            MEMORY => reason(memory_of(&value)),
            SWAP => reason(swap_of(&value)),
            FAULTS => reason(faults_of(&value)),
            READS => reason(reads_of(&value)),
            ALLOW_KERNEL_MAPS => reason(allow_kernel_maps_of(&value)),
            COHERENCE => reason(coherence_of(&value)),
            SMALL_MAPS => reason(bytes_of(&value)),
            _ => reason(stats_of(&value)),
        };
        if let Some(why) = checked {
            return Err(format!("{}: {why}", setting(name, &value)));
        }
    }
    Ok(())
}

fn reason<T, E: Into<String>>(value: Result<T, E>) -> Option<String> {
    value.err().map(Into::into)
}

/// The `error` of building an engine, with the settings that may have caused it; reported once.
pub(crate) fn report(error: io::Error) -> io::Error {
    let set: Vec<String> = [MEMORY, SWAP]
        .into_iter()
        .filter_map(|name| Some(setting(name, &var_os(name)?)))
        .collect();
    if set.is_empty() {
        return error;
    }
    let message = format!("{error} ({})", set.join(", "));
    print_first(&message);
    error::told(error, message)
}

/// True if the counters are to be printed at exit.
pub(crate) fn wants_stats() -> bool {
    static LOOKED: Done = Done::new();
    static WANTED: AtomicBool = AtomicBool::new(false);
    LOOKED.once(|| {
        let value = var_os(STATS).unwrap_or_default();
        let wanted = stats_of(&value).unwrap_or_else(|why| {
            error::print_line(&format!("{}: {why}", setting(STATS, &value)));
            false
        });
        WANTED.store(wanted, Relaxed);
    });
    // Relaxed: `once` has read the variable before.
    WANTED.load(Relaxed)
}

fn memory_of(value: &OsStr) -> Result<usize, String> {
    match bytes_of(value)? {
        bytes if bytes < MIN_BYTES => Err(format!(
            "a memory budget is at least {} MiB",
            MIN_BYTES >> 20
        )),
        bytes => Ok(bytes),
    }
}

fn bytes_of(value: &OsStr) -> Result<usize, String> {
    let bytes = value.to_str().and_then(crate::machine::parse_bytes);
    bytes.ok_or_else(|| SIZE.to_owned())
}

fn faults_of(value: &OsStr) -> Result<Faults, &'static str> {
    match value.as_bytes() {
        b"signals" => Ok(Faults::Signals),
        b"threads" => Ok(Faults::Threads),
        b"messages" => Ok(Faults::Messages),
        _ => Err("the value must be signals, threads or messages"),
    }
}

fn reads_of(value: &OsStr) -> Result<Reads, &'static str> {
    value.to_str().unwrap_or_default().parse()
}

fn allow_kernel_maps_of(value: &OsStr) -> Result<bool, &'static str> {
    match value.as_bytes() {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err("the value must be 0 or 1"),
    }
}

fn coherence_of(value: &OsStr) -> Result<Coherence, &'static str> {
    match value.as_bytes() {
        b"kernel" => Ok(Coherence::Kernel),
        b"engine" => Ok(Coherence::Engine),
        _ => Err("the value must be kernel or engine"),
    }
}

fn stats_of(value: &OsStr) -> Result<bool, &'static str> {
    match value.as_bytes() {
        b"" | b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err("the value must be 0 or 1"),
    }
}

/// Swap as a text gives it: a directory, optionally followed by a colon and a size.
pub fn swap_of(value: &OsStr) -> Result<Swap, String> {
    let bytes = value.as_bytes();
    let colon = bytes.iter().rposition(|&byte| byte == b':');
    let (dir, size) = match colon {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    if dir.is_empty() {
        return Err("the value names no directory".to_owned());
    }
    let swap = Swap::in_dir(OsStr::from_bytes(dir));
    let Some(size) = size else {
        return Ok(swap);
    };
    let size = core::str::from_utf8(size).ok();
    let size = size.and_then(crate::machine::parse_bytes);
    let size = size.ok_or("the text after the last colon is no size: ".to_owned() + SIZE)?;
    Ok(swap.bytes(size as u64))
}

fn refused(name: &str, value: &OsStr, why: impl Display) -> io::Error {
    let message = format!("{}: {why}", setting(name, value));
    print_first(&message);
    error::invalid(&message)
}

/// `NAME=value`, in one line for every value.
#[doc(hidden)]
pub fn setting(name: &str, value: &OsStr) -> String {
    let shown = match value.to_str() {
        Some(text) if text.chars().all(|c| c.is_ascii_graphic()) && !text.is_empty() => {
            text.to_owned()
        }
        _ => format!("{value:?}"),
    };
    format!("{name}={shown}")
}

/// Prints an error on the standard error, too, the first time.
fn print_first(message: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Relaxed) {
        error::print_line(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        let of = |text: &str| memory_of(OsStr::new(text));
        assert_eq!(of("8388608"), Ok(MIN_BYTES));
        assert_eq!(of(" 64m "), Ok(64 << 20));
        assert!(of("8388607").unwrap_err().contains("at least 8 MiB"));
        for wrong in [
            "",
            " ",
            "abc",
            "-1",
            "1.5G",
            "64MB",
            "64 M",
            "0x10",
            "1e9",
            "G",
            "1X",
            "64M,",
            "+64M",
            "99999999999999999999",
            "17179869184G",
            "64M\0",
            "٣M",
        ] {
            assert_eq!(of(wrong), Err(SIZE.to_owned()), "{wrong:?}");
        }
        assert!(memory_of(OsStr::from_bytes(b"64\xff")).is_err());
    }

    #[test]
    fn a_directory_and_a_size() {
        let of = |text: &str| swap_of(OsStr::new(text)).unwrap();
        assert_eq!(of("/swap"), Swap::in_dir("/swap"));
        assert_eq!(of("/a:b:2G"), Swap::in_dir("/a:b").bytes(2 << 30));
        for wrong in ["", ":1G", "/swap:", "/swap:lots", "/swap:-1", "/swap:1G "] {
            let is_size = wrong.ends_with("1G ");
            assert_eq!(swap_of(OsStr::new(wrong)).is_ok(), is_size, "{wrong:?}");
        }
        let bytes = OsStr::from_bytes(b"/sw\xffap:1M");
        let expected = Swap::in_dir(OsStr::from_bytes(b"/sw\xffap")).bytes(1 << 20);
        assert_eq!(swap_of(bytes), Ok(expected));
    }

    #[test]
    fn a_setting_is_one_line() {
        let of = |bytes: &'static [u8]| setting("A", OsStr::from_bytes(bytes));
        assert_eq!(of(b"64M"), "A=64M");
        assert_eq!(of(b""), "A=\"\"");
        assert_eq!(of(b"a\nb\xff"), "A=\"a\\nb\\xFF\"");
    }
}
