//! The answers of the C functions, beside the kernel's own answers for the same arguments.

mod arguments;
mod beside;
mod calls;
#[path = "../../../softfault/tests/child/mod.rs"]
mod child;
mod devices;
mod ends;
mod fixed;
mod forks;
mod grow;
mod huge;
#[path = "../../../softfault/tests/huge_scene/mod.rs"]
mod huge_scene;
mod kept;
mod many;
mod parts;
#[path = "../../../softfault/tests/proc/mod.rs"]
mod proc;
mod protect;
mod random;
mod sizes;
mod threads;
mod twin;
