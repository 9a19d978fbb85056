//! Figures of `/proc`.

/// The number behind `name`, separator included, at the beginning of a line.
pub fn figure(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn a_missing_figure_is_none() {
        assert_eq!(figure("/proc/self/status", "NoSuchKey:"), None);
        assert_eq!(figure("/proc/no-such-file", "Threads:"), None);
        assert!(figure("/proc/self/status", "Threads:").is_some());
    }
}
