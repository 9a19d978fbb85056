//! The machine: processor, kernel, memory, disk.

use crate::figure::figure;
use crate::lab::read_ahead::Device;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names and values of the machine's properties.
pub fn machine(disk: &Path) -> Vec<(&'static str, String)> {
    let facts = [
        ("Processor", processor()),
        ("Memory", memory()),
        ("Kernel", kernel()),
        ("Disk", of_disk(disk)),
    ];
    let known = |(name, value): (&'static str, Option<String>)| Some((name, value?));
    facts.into_iter().filter_map(known).collect()
}

fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = field(&info, "model name").unwrap_or_else(|| std::env::consts::ARCH.into());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Some(format!("{model}, {count} logical CPUs to run on"))
}

fn memory() -> Option<String> {
    figure("/proc/meminfo", "MemTotal:").map(|kib| crate::size::show(kib << 10))
}

fn kernel() -> Option<String> {
    let name = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    Some(format!(
        "{} {}",
        name("ostype").ok()?.trim(),
        name("osrelease").ok()?.trim()
    ))
}

/// File system, device and read-ahead of the file system that `path` is on.
fn of_disk(path: &Path) -> Option<String> {
    let device = fs::metadata(path)
        .or_else(|_| fs::metadata("."))
        .ok()?
        .dev();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&number))?;
    let mut after = mount.split(" - ").nth(1)?.split(' ');
    let (kind, source) = (after.next()?, after.next()?);
    Some(
        match Device::numbered(device).and_then(|device| device.read_ahead_kb()) {
            Some(kb) => format!("{source}, {kind}, read_ahead_kb {kb}"),
            None => format!("{source}, {kind}"),
        },
    )
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines
        .filter(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim());
    values.next().map(Into::into)
}
