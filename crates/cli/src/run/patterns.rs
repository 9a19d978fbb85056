//! Patterns of paths, as fnmatch(3) reads them in the program. One that it would take for something else than was meant is an
//! error here: there it would match nothing, without a word.

use super::set;
use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Puts the patterns of an option into a variable, one a line.
pub fn put(variable: &str, option: &str, patterns: &[OsString]) -> Result<(), Error> {
    if patterns.is_empty() {
        return Ok(());
    }
    for pattern in patterns {
        let shown = pattern.display();
        if pattern.is_empty() {
            return Err(Error::input(format_args!(
                "{option}: the pattern is empty, and matches no file"
            )));
        }
        if pattern.as_bytes().contains(&b'\n') {
            return Err(Error::input("a pattern must not have line breaks"));
        }
        if let Some(why) = why_not(pattern) {
            return Err(Error::input(format_args!("{option} {shown}: {why}")));
        }
    }
    set(variable, &patterns.join(OsStr::new("\n")));
    Ok(())
}

/// Why one of these patterns, a line each, cannot be used.
pub fn why_not(patterns: &OsStr) -> Option<&'static str> {
    let mut lines = patterns.as_bytes().split(|&byte| byte == b'\n');
    lines.find_map(|pattern| {
        let mut rest = pattern;
        while let Some((&first, behind)) = rest.split_first() {
            rest = match first {
                b'\\' if behind.is_empty() => {
                    return Some("nothing is behind the last backslash; \\\\ matches a backslash");
                }
                b'\\' => &behind[1..],
                b'[' => match behind_bracket(behind) {
                    Some(behind) => behind,
                    None => return Some("no ] closes a [; \\[ matches the character itself"),
                },
                _ => behind,
            };
        }
        None
    })
}

/// The part of a pattern behind the bracket that closes the list of characters at its beginning.
fn behind_bracket(list: &[u8]) -> Option<&[u8]> {
    // The first character is one of the list, also if it is a closing bracket.
    let mut at = usize::from(matches!(list.first(), Some(b'!' | b'^')));
    let first = at;
    loop {
        at += match list.get(at..)? {
            [b']', ..] if at > first => return Some(&list[at + 1..]),
            [b'\\', ..] => 2,
            [b'[', kind @ (b':' | b'.' | b'='), class @ ..] => {
                let end = [*kind, b']'];
                let end = class.windows(2).position(|bytes| bytes == end);
                end.map_or(1, |end| end + 4)
            }
            [_, ..] => 1,
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_backslashes() {
        let is_ok = |pattern: &str| why_not(OsStr::new(pattern)).is_none();
        for pattern in [
            "",
            "*.db",
            "[ab]*",
            "[]]",
            "[!]]x",
            "[^]a]",
            "\\[x",
            "x]",
            "[[:digit:]]",
            "[[.].]a]",
            "[[:]",
            "[\\]]",
            "a\\\\",
            "a\n[b]",
        ] {
            assert!(is_ok(pattern), "{pattern:?}");
        }
        for pattern in [
            "[",
            "[a",
            "[]",
            "[!]",
            "a[b]c[",
            "[[:digit:]",
            "[\\]",
            "a\\",
            "a\n[b",
            "[a\nb]",
        ] {
            assert!(!is_ok(pattern), "{pattern:?}");
        }
    }
}
