//! What the C functions answer, beside what the kernel's own answer for the same arguments.

mod arguments;
mod calls;
mod ends;
mod fixed;
mod forks;
mod grow;
mod kept;
mod many;
mod parts;
mod protect;
mod random;
mod sizes;
mod threads;
mod twin;
