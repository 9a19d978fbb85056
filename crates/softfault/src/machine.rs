//! Properties of the machine.

use crate::cgroup::memory_cgroups;
use core::mem::MaybeUninit;
use softfault_engine::cache::node::MIN_BYTES;
use std::path::PathBuf;

/// Physical memory in bytes.
pub(crate) fn memory_bytes() -> usize {
    // SAFETY: only asks.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    (pages.max(1) as usize).saturating_mul(size.max(1) as usize)
}

/// Bytes of a huge page of the default size, which `vm.nr_hugepages` is about.
pub(crate) fn huge_page_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = (text.lines()).find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Bytes that a file may have for this process.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    let limit = if answer == 0 {
        limit.rlim_cur
    } else {
        u64::MAX
    };
    limit.min(i64::MAX as u64)
}

/// Physical memory and swap: no more can ever be resident, or have been.
pub fn memory_and_swap_bytes() -> usize {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: fills the structure, of which zeros are valid too.
    let info = unsafe {
        libc::sysinfo(info.as_mut_ptr());
        info.assume_init()
    };
    let swap = (info.totalswap as usize).saturating_mul(info.mem_unit as usize);
    memory_bytes().saturating_add(swap)
}

/// Physical memory, or the lowest limit of the process's memory cgroups if that is less, and the file that says it.
pub fn memory_limit() -> (usize, Option<PathBuf>) {
    let groups = memory_cgroups();
    let files = groups.into_iter().flat_map(|group| group.limits);
    let limits = files.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        Some((text.trim().parse::<usize>().ok()?, Some(file)))
    });
    let lower =
        |least: (usize, _), limit: (usize, _)| if limit.0 < least.0 { limit } else { least };
    limits.fold((memory_bytes(), None), lower)
}

/// The budget of an engine that was not told one, where so much memory is.
pub(crate) fn default_budget(limit: usize) -> usize {
    (limit / 4).max(MIN_BYTES)
}

/// Files that this process may have open.
pub(crate) fn open_files() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        // POSIX promises no fewer than 20.
        _ => 20,
    }
}

/// A number of bytes with K, M, G or T (powers of 1024) behind it.
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    (digits.then(|| number.parse::<usize>().ok())?)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes(" 64m "), Some(64 << 20));
        assert_eq!(parse_bytes("2G"), Some(2 << 30));
        for wrong in ["", "G", "1.5G", "-1", "1X", "99999999999999999999"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong:?}");
        }
    }
}
