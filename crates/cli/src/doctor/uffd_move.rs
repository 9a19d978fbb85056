//! UFFDIO_MOVE (Linux 6.8): pages moved into a window instead of copied.

use super::check::{Check, Tried, Whereabouts};
use super::memory::Memory;
use super::place::PAGE;
use super::{machine, uffd};
use std::io;

pub const CHECK: Check = Check {
    name: "uffd-move",
    costs: "nothing of today's maps, whose runs are short enough to copy; long runs will not be moved",
    run: |_| match try_it() {
        Ok(()) => Tried::ok("a page moved into a window"),
        Err(e) => Tried::missing(format!("UFFDIO_MOVE: {e}"), mend(&e)),
    },
    whereabouts: Whereabouts::Child,
};

fn mend(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => "open userfaultfd (see there)".to_owned(),
        _ => machine::newer_kernel(6, 8),
    }
}

fn try_it() -> io::Result<()> {
    let fd = uffd::open()?;
    uffd::enable(&fd, uffd::FEATURE_SIGBUS | uffd::FEATURE_MOVE)?;
    let memory = Memory::map(4 * PAGE)?;
    uffd::register(&fd, &memory, 0, PAGE)?;
    memory.write(2 * PAGE, 77);
    uffd::move_pages(&fd, &memory, 0, 2 * PAGE, PAGE)?;
    match memory.present()?[2] || memory.read(0) != 77 {
        false => Ok(()),
        true => Err(io::Error::other("the page is not where it was moved to")),
    }
}
