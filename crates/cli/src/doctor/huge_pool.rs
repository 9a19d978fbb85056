//! The pool of huge pages (hugetlb): one is mapped and touched.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::memory::Memory;

pub const CHECK: Check = Check {
    name: "huge-pool",
    costs: "maps of files and private memory nothing; huge memory is made of transparent huge pages or ordinary ones",
    run: |_| {
        let count = |key| machine::figure("/proc/meminfo", key);
        let (Some(total), Some(free)) = (count("HugePages_Total"), count("HugePages_Free")) else {
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
