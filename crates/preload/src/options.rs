//! The options in the environment. `softfault run` puts its arguments there, and looks at them before.
//!
//! | variable | value |
//! |---|---|
//! | `SOFTFAULT_MEMORY`, `SOFTFAULT_SWAP`, `SOFTFAULT_READS` | as for every engine |
//! | `SOFTFAULT_RUN_TREE` | the page that a tree of processes shares, whose budget `SOFTFAULT_MEMORY` is; without, it is each process's |
//! | `SOFTFAULT_RUN_FAULTS` | `auto`, `messages` or `signals` |
//! | `SOFTFAULT_RUN_MIN_SIZE` | bytes of the smallest file whose mappings are taken |
//! | `SOFTFAULT_RUN_INCLUDE`, `SOFTFAULT_RUN_EXCLUDE` | patterns of paths, a line each |
//! | `SOFTFAULT_RUN_ANONYMOUS` | `1`: large anonymous memory is taken |
//! | `SOFTFAULT_RUN_ASSUME_IMMUTABLE` | `1`: nobody writes to the files |
//! | `SOFTFAULT_RUN_STRICT` | `1`: a process of which a mapping is declined that would have been taken ends |
//! | `SOFTFAULT_RUN_STATS` | `text` or `json`: write statistics at exit |
//! | `SOFTFAULT_RUN_STATS_EVERY` | and while the program runs, each time that so many seconds have passed; needs a file |
//! | `SOFTFAULT_RUN_STATS_FILE` | where to: a file to append to; without, the standard error |
//!
//! A change of this file makes another stamp (`stamp.rs`): the command and the library of two stamps refuse each other.

use crate::names;
use crate::seconds::seconds;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::time::Duration;
use softfault::Swap;
use std::env::var_os;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;

/// The options in the environment.
pub struct Options {
    /// Bytes of the smallest file whose mappings are taken.
    pub min_size: u64,
    /// Patterns of paths that are taken; empty: all.
    pub include: Vec<CString>,
    /// Patterns of paths that are not.
    pub exclude: Vec<CString>,
    /// Anonymous memory is taken.
    pub anonymous: bool,
    /// Where private memory goes that does not fit the budget.
    pub swap: Option<Swap>,
    /// Nobody writes to the files.
    pub assume_immutable: bool,
    /// A mapping that should have been taken and is not ends the process.
    pub strict: bool,
    /// The budget, if it is said.
    pub memory: Option<usize>,
    /// The page of the tree that the budget is for.
    pub tree: Option<CString>,
    /// How faults arrive, if it is said.
    pub faults: Option<Mode>,
    /// The statistics at exit.
    pub stats: Option<StatsForm>,
    /// The time from one report of them to the next, while the program runs.
    pub stats_every: Option<Duration>,
    /// Where to; without, to the standard error.
    pub stats_file: Option<CString>,
}

/// How faults of the program reach us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By messages to threads of ours, the kernel's faults too.
    Messages,
    /// By SIGBUS in the thread that touches; system calls are wrapped.
    Signals,
}

/// The form of the statistics at exit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StatsForm {
    /// Lines to be read.
    Text,
    /// A line of JSON.
    Json,
}

/// Files that are smaller are cheaper by the kernel.
const MIN_SIZE: u64 = 16 << 20;

static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(core::ptr::null_mut());

/// The options of the environment when the library was loaded, or at the first call before that.
pub fn get() -> &'static Options {
    // Acquire pairs with the AcqRel below.
    let there = OPTIONS.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(options) = unsafe { there.as_ref() } {
        return options;
    }
    let made = Box::into_raw(Box::new(read()));
    let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
    let null = core::ptr::null_mut();
    match OPTIONS.compare_exchange(null, made, set, failed) {
        // SAFETY: just boxed, and never dropped.
        Ok(_) => unsafe { &*made },
        // SAFETY: just boxed, and nobody knows it; the other was leaked so.
        Err(other) => unsafe {
            drop(Box::from_raw(made));
            &*other
        },
    }
}

fn read() -> Options {
    // One that is empty says nothing.
    let said = |name: &str| var_os(name).filter(|value| !value.is_empty());
    let text = |name: &str| said(name).and_then(|value| value.into_string().ok());
    let bytes = |name: &str| text(name).and_then(|value| softfault::parse_bytes(&value));
    let path = |name: &str| said(name).and_then(|path| CString::new(path.into_vec()).ok());
    let lines = |name: &str| patterns(said(name).unwrap_or_default());
    Options {
        min_size: bytes(names::MIN_SIZE).map_or(MIN_SIZE, |bytes| bytes as u64),
        include: lines(names::INCLUDE),
        exclude: lines(names::EXCLUDE),
        anonymous: text(names::ANONYMOUS).as_deref() == Some("1"),
        swap: var_os("SOFTFAULT_SWAP").and_then(|swap| softfault::swap_of(&swap).ok()),
        assume_immutable: text(names::ASSUME_IMMUTABLE).as_deref() == Some("1"),
        strict: text(names::STRICT).as_deref() == Some("1"),
        memory: bytes("SOFTFAULT_MEMORY"),
        tree: path(names::TREE),
        faults: match text(names::FAULTS).as_deref() {
            Some("messages") => Some(Mode::Messages),
            Some("signals") => Some(Mode::Signals),
            _ => None,
        },
        stats: match text(names::STATS).as_deref() {
            Some("text") => Some(StatsForm::Text),
            Some("json") => Some(StatsForm::Json),
            _ => None,
        },
        stats_every: text(names::STATS_EVERY).and_then(|value| seconds(&value)),
        stats_file: path(names::STATS_FILE),
    }
}

fn patterns(lines: OsString) -> Vec<CString> {
    let lines = lines.into_vec();
    let lines = lines
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty());
    lines.filter_map(|line| CString::new(line).ok()).collect()
}
