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
    if is_without_rights(path) {
        return None;
    }
    if is_setid(path) {
        return Some("a setuid or setgid program: its loader ignores LD_PRELOAD");
    }
    let has = has_capabilities(path).unwrap_or(false);
    has.then_some(
        "a program with file capabilities (getcap): its loader ignores LD_PRELOAD, unless root runs it",
    )
}

/// True if the file system gives no program rights.
fn is_without_rights(path: &Path) -> bool {
    files::file_system(path).is_some_and(|about| about.f_flag & libc::ST_NOSUID != 0)
}

/// True if the program runs as another user or group.
fn is_setid(path: &Path) -> bool {
    let Ok(about) = fs::metadata(path) else {
        return false;
    };
    // SAFETY: only ask.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = about.mode();
    mode & libc::S_ISUID != 0 && about.uid() != user
        || mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
            && about.gid() != group
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
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let set = lines.find_map(|line| line.strip_prefix(name));
    set.map_or(u64::MAX, |set| {
        u64::from_str_radix(set.trim(), 16).unwrap_or(u64::MAX)
    })
}
