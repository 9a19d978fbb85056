//! MADV_POPULATE_WRITE (Linux 5.14): pages made present without a touch, with an error as a value.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::memory::Memory;
use super::place::PAGE;
use std::io;

pub const CHECK: Check = Check {
    name: "populate",
    costs: "nothing of today's maps; frames that are filled in advance will be touched one by one",
    run: |_| match try_it() {
        Ok(true) => Tried::ok("pages made present by madvise"),
        Ok(false) => Tried::missing(
            "madvise said yes and did nothing",
            machine::newer_kernel(5, 14),
        ),
        Err(e) => Tried::missing(
            format!("MADV_POPULATE_WRITE: {e}"),
            machine::newer_kernel(5, 14),
        ),
    },
    whereabouts: Whereabouts::Child,
};

fn try_it() -> io::Result<bool> {
    let memory = Memory::map(4 * PAGE)?;
    memory.advise(0, 4 * PAGE, libc::MADV_POPULATE_WRITE)?;
    Ok(memory.present()? == [true; 4])
}
