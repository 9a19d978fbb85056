//! Every function of the C library has a hook, or a reason in `library.txt` why it needs none or has none.

use crate::{MEMORY, assert_same, compile, directory, file, softfault_run, ways};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const REASONS: &str = include_str!("library.txt");

/// The release that `library.txt` is of.
const RELEASE: (u32, u32) = (2, 36);

/// Functions that an object exports, with the versions of their symbols; `None`, and a line, where there is no nm.
fn exported(object: &Path) -> Option<Vec<(String, String)>> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only", "--with-symbol-versions"]);
    let output = match nm.arg(object).output() {
        Ok(output) if output.status.success() => output,
        why => {
            softfault_skip::skipped("program", format_args!("there is no nm: {why:?}"));
            return None;
        }
    };
    let text = crate::text(&output.stdout);
    let functions = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().rev();
        let (symbol, kind) = (words.next()?, words.next()?);
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
        let version = version.trim_start_matches('@');
        matches!(kind, "T" | "W" | "i").then(|| (name.to_owned(), version.to_owned()))
    });
    Some(functions.collect())
}

/// The C library that this process has.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(5));
    let mut found = paths.filter(|path| path.contains("/libc.so.6") || path.contains("/libc-2"));
    PathBuf::from(found.next().expect("a C library"))
}

/// The release of `GLIBC_2.36`; `None` of its private version.
fn release(version: &str) -> Option<(u32, u32)> {
    let number = version.strip_prefix("GLIBC_")?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[test]
fn every_function_has_a_hook_or_a_reason() {
    let with = softfault_run();
    let preload = with
        .get_envs()
        .find(|(name, _)| *name == "SOFTFAULT_PRELOAD");
    let preload = preload.and_then(|(_, value)| value).expect("its library");
    let Some(hooks) = exported(Path::new(preload)) else {
        return;
    };
    let mut reasons = BTreeMap::new();
    let mut twice = Vec::new();
    let names = REASONS.split("\n# ").skip(1).flat_map(|part| {
        let (reason, names) = part.split_once('\n').expect("names below a reason");
        names
            .split_ascii_whitespace()
            .map(move |name| (name, reason))
    });
    for (name, reason) in names {
        let is_hook = hooks.iter().any(|(hook, _)| hook == name);
        if is_hook || reasons.insert(name, reason).is_some() {
            twice.push(name);
        }
    }
    assert!(
        twice.is_empty(),
        "these have hooks, or two reasons: {twice:?}"
    );
    if cfg!(not(target_arch = "x86_64")) {
        softfault_skip::skipped("processor", "library.txt is of x86_64");
        return;
    }
    let all = exported(&library()).expect("nm, as above");
    let is_known = |name: &String| {
        hooks.iter().any(|(hook, _)| hook == name) || reasons.contains_key(&name[..])
    };
    let without: Vec<_> = (all.into_iter())
        .filter(|(_, version)| release(version).is_some())
        .filter(|(name, _)| !is_known(name))
        .collect();
    let is_old = |version: &str| release(version).is_some_and(|release| release <= RELEASE);
    let (old, new): (Vec<_>, Vec<_>) = without.iter().partition(|(_, version)| is_old(version));
    if !new.is_empty() {
        softfault_skip::skipped(
            "glibc",
            format_args!("in part: these are of a release that nobody has looked at: {new:?}"),
        );
    }
    assert!(old.is_empty(), "neither a hook nor a reason: {old:?}");
    assert!(reasons.len() > 1000, "{} reasons", reasons.len());
}

/// Calls that few programs make, on memory that is not there.
#[test]
fn calls_that_few_programs_make() {
    let directory = directory("more-calls");
    let program = compile("more_calls.c", &directory.join("program"), &[]);
    let Some(program) = program else { return };
    let data = file(&directory, 1 << 20);
    let without = Command::new(&program).arg(&data).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    let swap = format!("{}:100M", directory.display());
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--anonymous", "--swap", &swap]);
        with.args(["--faults", how, "--"]);
        let with = with.arg(&program).arg(&data).output().unwrap();
        assert_same(&with, &without, how);
    }
}
