//! The variables that the library in the program reads, when all options are in them: a value that cannot be used ends the
//! command, and a name that nobody knows is told.

pub use super::names::{
    ANONYMOUS, ASSUME_IMMUTABLE, EXCLUDE, FAULTS, INCLUDE, MIN_SIZE, STATS, STATS_EVERY,
    STATS_FILE, STRICT,
};
use super::seconds::seconds;
use super::{patterns, stamp, tree};
use crate::error::Error;
use crate::output::tell;
use softfault::{VARIABLES, check_environment, parse_bytes, setting};
use std::env::{var_os, vars_os};
use std::ffi::OsStr;
use std::path::Path;

/// Where the library is, which this command alone reads.
pub const PRELOAD: &str = "SOFTFAULT_PRELOAD";

/// Why a value cannot be used.
type WhyNot = fn(&OsStr) -> Option<&'static str>;

/// Those of `softfault run`.
const OURS: [(&str, WhyNot); 13] = [
    (MIN_SIZE, |value| {
        match value.to_str().and_then(parse_bytes) {
            Some(1..) => None,
            Some(0) => Some("a size must be above zero"),
            None => Some("a size is a whole number of bytes, or one followed by K, M, G or T"),
        }
    }),
    (INCLUDE, patterns::why_not),
    (EXCLUDE, patterns::why_not),
    (FAULTS, |value| {
        let known = ["auto", "messages", "signals"];
        none_of(value, &known, "the value must be auto, messages or signals")
    }),
    (ANONYMOUS, flag),
    (ASSUME_IMMUTABLE, flag),
    (STRICT, flag),
    (STATS, |value| {
        none_of(value, &["text", "json"], "the value must be text or json")
    }),
    (STATS_EVERY, |value| {
        match value.to_str().and_then(seconds) {
            Some(_) => None,
            None => Some(WHY_NO_SECONDS),
        }
    }),
    (STATS_FILE, absolute),
    (tree::VARIABLE, absolute),
    (stamp::VARIABLE, |_| None),
    (PRELOAD, |_| None),
];

/// The answer to what is no number of seconds.
pub const WHY_NO_SECONDS: &str = "the value must be a number of seconds, at least 0.01";

fn none_of(value: &OsStr, known: &[&str], why: &'static str) -> Option<&'static str> {
    (!known.iter().any(|known| value == *known)).then_some(why)
}

fn flag(value: &OsStr) -> Option<&'static str> {
    none_of(value, &["0", "1"], "the value must be 0 or 1")
}

/// A path must be absolute: the program may change its directory.
fn absolute(value: &OsStr) -> Option<&'static str> {
    (!Path::new(value).is_absolute()).then_some("the value must be a path that begins with a slash")
}

/// The value of a variable of `softfault run`; an empty one counts as not set.
pub fn said(name: &str) -> Option<std::ffi::OsString> {
    var_os(name).filter(|value| !value.is_empty())
}

/// An error for the first invalid value.
pub fn check() -> Result<(), Error> {
    check_environment().map_err(Error::input)?;
    for (name, why_not) in OURS {
        if let Some(value) = said(name)
            && let Some(why) = why_not(&value)
        {
            return Err(Error::input(format_args!(
                "{}: {why}",
                setting(name, &value)
            )));
        }
    }
    Ok(())
}

/// Names of all that `softfault run` looks at for itself.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    OURS.iter().map(|(name, _)| *name)
}

/// A line on the standard error for each unknown name that begins with our prefix.
pub fn tell_unknown() {
    let names = || (VARIABLES.into_iter()).chain(OURS.iter().map(|(name, _)| *name));
    for (name, _) in vars_os() {
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || names().any(|known| known == name) {
            continue;
        }
        let near = names().filter_map(|known| Some((distance(&name, known)?, known)));
        let near = near
            .min()
            .map_or_else(String::new, |(_, known)| format!(": did you mean {known}?"));
        tell(&format!(
            "warning: softfault has no variable {name}{near}\n"
        ));
    }
}

const PREFIX: &str = "SOFTFAULT_";

/// How far a name is from one of ours, of which `RUN_` is easily left out; `None`: it is another.
fn distance(name: &str, known: &str) -> Option<(usize, usize)> {
    fn rest(name: &str) -> &str {
        let name = name.trim_start_matches(PREFIX);
        name.strip_prefix("RUN_").unwrap_or(name)
    }
    let far = strsim::osa_distance(rest(name), rest(known));
    let whole = strsim::osa_distance(name, known);
    (far <= 2 && 2 * far < rest(known).len()).then_some((far, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let is_near = |name, known| distance(name, known).is_some();
        assert!(is_near("SOFTFAULT_MEMROY", "SOFTFAULT_MEMORY"));
        assert!(is_near("SOFTFAULT_MINSIZE", MIN_SIZE));
        assert!(is_near("SOFTFAULT_RUN_MEMORY", "SOFTFAULT_MEMORY"));
        assert!(!is_near("SOFTFAULT_FOO", tree::VARIABLE));
        // Of two that are as near, the one that is nearer as it is written.
        let stat = "SOFTFAULT_RUN_STAT";
        assert!(distance(stat, STATS) < distance(stat, "SOFTFAULT_STATS"));
    }
}
