//! Programs that run with more rights than their user has: the kernel tells the loader to be careful (AT_SECURE), and it ignores
//! preloaded libraries.

use crate::lab::files;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The part of a file's capabilities (capabilities(7)) that counts here: the sets, as far as the process may have them.
const EFFECTIVE: u32 = 1;
/// Bytes of the longest form: a word with the version and a flag, two words for each half of the sets, and a user's number.
const LONGEST: usize = 24;

/// Why the loader of a program is careful; `None`: it is not.
pub fn why_careful(path: &Path) -> Option<&'static str> {
    // SAFETY: only ask.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: the same.
    let now = unsafe { (libc::geteuid(), libc::getegid()) };
    let gives_rights = !is_without_rights(path);
    let by_file = if gives_rights {
        ids_of(path)
    } else {
        (None, None)
    };
    let ids = (by_file.0.unwrap_or(now.0), by_file.1.unwrap_or(now.1));
    if ids != (user, group) {
        return Some(match ids == now {
            true => {
                "softfault runs with another effective user or group than its real one (setuid or setgid), and so would the program: its loader ignores LD_PRELOAD"
            }
            false => "a setuid or setgid program: its loader ignores LD_PRELOAD",
        });
    }
    let has = gives_rights && has_capabilities(path).unwrap_or(false);
    has.then_some(
        "a program with file capabilities (getcap): its loader ignores LD_PRELOAD, unless root runs it",
    )
}

/// True if the file system gives no program rights.
fn is_without_rights(path: &Path) -> bool {
    files::file_system(path).is_some_and(|about| about.f_flag & libc::ST_NOSUID != 0)
}

/// The user and the group that the file has the program run as. Without new privileges (`PR_SET_NO_NEW_PRIVS`) there are none; the
/// loader is careful about capabilities all the same.
fn ids_of(path: &Path) -> (Option<u32>, Option<u32>) {
    const SET_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    match fs::metadata(path) {
        Ok(about) if of_this_process("NoNewPrivs:").as_deref() != Some("1") => {
            let has = |bits| about.mode() & bits == bits;
            let user = has(libc::S_ISUID).then(|| about.uid());
            (user, has(SET_GROUP).then(|| about.gid()))
        }
        _ => (None, None),
    }
}

/// True if the file gives capabilities that the kernel takes for more rights: any, to all users but root. `None`: it has none.
fn has_capabilities(path: &Path) -> Option<bool> {
    // SAFETY: only asks.
    if unsafe { libc::getuid() } == 0 {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut value = [0_u8; LONGEST];
    // SAFETY: fills as many bytes at most.
    let bytes = unsafe {
        let to = value.as_mut_ptr().cast();
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), to, LONGEST)
    };
    let words: Vec<_> = (value[..usize::try_from(bytes).ok()?].chunks_exact(4))
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let (&head, sets) = words.split_first()?;
    let all = |first: usize| {
        let half = |at: usize| u64::from(sets.get(at).copied().unwrap_or(0));
        // The first form has half the sets.
        half(first)
            | if sets.len() < 4 {
                0
            } else {
                half(first + 2) << 32
            }
    };
    let allowed = all(0) & own_set("CapBnd:") | all(1) & own_set("CapInh:");
    Some(head & EFFECTIVE != 0 || allowed != 0)
}

/// A set of capabilities of this process, which the program will have; all where the kernel does not say.
fn own_set(name: &str) -> u64 {
    let set = of_this_process(name).and_then(|set| u64::from_str_radix(&set, 16).ok());
    set.unwrap_or(u64::MAX)
}

/// A value of this process, which the program inherits (proc(5)).
fn of_this_process(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}
