//! Whether `softfault run` finds the library that it loads into programs, and whether that takes this command's options.

use super::check::{Check, Tried, Whereabouts};
use super::machine::MOUNT_PROC;
use crate::run;

pub const CHECK: Check = Check {
    name: "run-library",
    costs: "softfault run does not work",
    run: |_| match run::library() {
        Ok(library) => Tried::ok(format!(
            "{}, which takes this command's options",
            library.display()
        )),
        Err(why) => Tried::missing(
            why.to_string(),
            match std::env::current_exe() {
                Ok(_) => {
                    "put the command and the library of one build into one directory, or name the library in SOFTFAULT_PRELOAD"
                }
                Err(_) => MOUNT_PROC,
            },
        ),
    },
    whereabouts: Whereabouts::Here,
};
