//! Huge pages: transparent ones for frames, and those of the pool.

use super::check::{Check, Tried, Whereabouts};
use super::machine::MOUNT_PROC;
use super::place::PAGE;
use crate::figure::figure;
use softfault_sim::calibrate::memory::Memory;
use std::fs;
use std::io;

/// Transparent huge pages for the frames that reads go to: one is asked for and looked at.
pub const FRAMES: Check = Check {
    name: "huge-frames",
    costs: "large reads reach the disk in pieces of 4 KiB, and the frames need more page tables",
    run: |_| {
        let enabled = fs::read_to_string(ENABLED);
        let mode = enabled
            .as_deref()
            .ok()
            .and_then(chosen)
            .unwrap_or("not built in");
        let found = |what| format!("transparent huge pages: {mode}; {what}");
        match try_one() {
            Ok(true) => Tried::ok(found("one was had")),
            Ok(false) if ["always", "madvise"].contains(&mode) => Tried::slower(
                found("none available"),
                match is_off_for_us() {
                    true => "start it without prctl(PR_SET_THP_DISABLE)",
                    false => "echo 1 > /proc/sys/vm/compact_memory",
                },
            ),
            Ok(false) if mode == "never" => {
                Tried::slower(found("none available"), format!("echo madvise > {ENABLED}"))
            }
            Ok(false) => Tried::slower(
                found("none available"),
                "boot a kernel built with CONFIG_TRANSPARENT_HUGEPAGE=y",
            ),
            Err(e) => Tried::slower(found(&e.to_string()), "ulimit -v unlimited"),
        }
    },
    whereabouts: Whereabouts::Child,
};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

/// Whether huge pages are off for this process and its parents' other children.
fn is_off_for_us() -> bool {
    // SAFETY: asks for a number only.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0 }
}

/// Whether a touch of memory that wants huge pages makes one.
fn try_one() -> io::Result<bool> {
    let memory = Memory::map(2 * HUGE, false)?;
    let offset = memory.aligned(HUGE);
    if memory.advise(offset, HUGE, libc::MADV_HUGEPAGE).is_err() {
        return Ok(false);
    }
    memory.write(offset, 1);
    // Pages that were not touched are present only if the memory came in one piece.
    let first = offset / PAGE;
    let pages = memory.present()?;
    Ok(pages[first..first + HUGE / PAGE]
        .iter()
        .all(|&present| present))
}

/// The pool of huge pages (hugetlb): one is mapped and touched.
pub const POOL: Check = Check {
    name: "huge-pool",
    costs: "maps of files and private memory nothing; huge memory is made of transparent huge pages or ordinary ones",
    run: |_| {
        if let Err(why) = fs::metadata(MEMINFO) {
            return Tried::missing(format!("{MEMINFO}: {why}"), MOUNT_PROC);
        }
        let count = |key| figure(MEMINFO, key);
        let (Some(total), Some(free)) = (count("HugePages_Total:"), count("HugePages_Free:"))
        else {
            return Tried::missing(
                "not built in",
                "boot a kernel built with CONFIG_HUGETLBFS=y",
            );
        };
        let found = format!("{free} of {total} pages free (vm.nr_hugepages)");
        match Memory::map_with(HUGE, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB) {
            Ok(memory) => {
                memory.write(0, 1);
                Tried::ok(format!("{found}; one was had"))
            }
            Err(_) => Tried::missing(found, "sysctl -w vm.nr_hugepages=512"),
        }
    },
    whereabouts: Whereabouts::Child,
};

const HUGE: usize = 2 << 20;
const MEMINFO: &str = "/proc/meminfo";

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise [never]\n"), Some("never"));
        assert_eq!(chosen(""), None);
    }
}
