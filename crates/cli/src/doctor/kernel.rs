//! Which kernel this is. What it can do is tried, not told from its name; only its page has to be ours.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::PAGE;

pub const CHECK: Check = Check {
    name: "kernel",
    costs: "no map can be served: softfault's pages are of 4096 bytes",
    run: |_| {
        let mut found = format!("Linux {} on {}", machine::release(), std::env::consts::ARCH);
        if let Some(program) = machine::container() {
            found += &format!(", in a {program} container");
        }
        if machine::is_filtered() {
            found += ", under a seccomp filter";
        }
        // SAFETY: asks for a number only.
        match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
            bytes if bytes == PAGE as libc::c_long => Tried::ok(found),
            bytes => Tried::missing(
                format!("{found}, pages of {bytes} bytes"),
                "boot a kernel with pages of 4096 bytes (CONFIG_ARM64_4K_PAGES=y)",
            ),
        }
    },
    whereabouts: Whereabouts::Child,
};
