//! Figures of `/proc`.

#![allow(dead_code)]

/// Those of a line `name: 123 kB`, in bytes.
pub fn bytes(path: &str, name: &str) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let figure = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: usize = figure.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The same, of this process.
pub fn status(name: &str) -> usize {
    bytes("/proc/self/status", name).expect(name)
}

/// The same, of the machine.
pub fn machine(name: &str) -> usize {
    bytes("/proc/meminfo", name).expect(name)
}
