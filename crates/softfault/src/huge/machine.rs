//! The machine's settings of huge pages.

use crate::huge_faults::HugeSize;
use crate::machine::huge_page_bytes;
use std::fs::read_to_string;

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";

/// True if shared memory that asks for transparent huge pages may get some.
pub(super) fn gives_transparent() -> bool {
    let general = chosen(&format!("{TRANSPARENT}/shmem_enabled"));
    let own = chosen(&format!("{TRANSPARENT}/hugepages-2048kB/shmem_enabled"));
    gives(general.as_deref(), own.as_deref())
}

/// By the setting for all sizes and that for pages of 2 MiB, which kernels before Linux 6.11
/// do not have.
fn gives(general: Option<&str>, own: Option<&str>) -> bool {
    let yes = |word| matches!(word, Some("always" | "within_size" | "advise" | "force"));
    match (general, own) {
        (Some("deny"), _) => false,
        (Some("force"), _) => true,
        (general, Some("inherit") | None) => yes(general),
        (_, own) => yes(own),
    }
}

/// The word in brackets.
fn chosen(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The command that gives the pool of this size `pages` pages.
pub(super) fn remedy(size: HugeSize, pages: u64) -> String {
    let kib = size.bytes() >> 10;
    match huge_page_bytes() == Some(size.bytes()) {
        true => format!("`sysctl vm.nr_hugepages={pages}`"),
        false => {
            format!("`echo {pages} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::gives;

    #[test]
    fn the_setting_for_all_sizes_is_inherited_or_overrides() {
        assert!(gives(Some("advise"), None) && gives(Some("advise"), Some("inherit")));
        assert!(!gives(Some("never"), None) && !gives(Some("never"), Some("inherit")));
        assert!(gives(Some("never"), Some("always")));
        assert!(!gives(Some("always"), Some("never")));
        assert!(gives(Some("force"), Some("never")));
        assert!(!gives(Some("deny"), Some("always")));
        assert!(!gives(None, None));
    }
}
