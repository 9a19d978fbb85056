//! The machine's pool of huge pages of 2 MiB, as far as a run needs to know.

use std::fs::read_to_string;

/// A huge page.
pub const HUGE: u64 = 2 << 20;
/// The bytes of a run by default, if the pool has them: one page table's span.
const MOST: u64 = 1 << 30;

/// Bytes that the pool could promise now.
pub fn available() -> u64 {
    let figure = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        let text = read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let free = figure("free_hugepages").unwrap_or(0);
    HUGE * free.saturating_sub(figure("resv_hugepages").unwrap_or(0))
}

/// The bytes of a run by default: as much as there is, up to a page table's span.
pub fn default_bytes() -> u64 {
    match available().min(MOST) {
        0 => MOST,
        bytes => bytes,
    }
}

/// Why there is no room for a file of so many bytes.
pub fn too_small(bytes: u64) -> Option<String> {
    let available = available();
    (bytes > available).then(|| {
        format!(
            "the pool of huge pages has {} of the {} that are needed: `sysctl vm.nr_hugepages=N` makes it larger",
            available / HUGE,
            bytes.div_ceil(HUGE)
        )
    })
}
