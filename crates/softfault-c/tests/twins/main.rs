//! What the C functions answer, beside what the kernel's own answer for the same arguments.

mod arguments;
mod calls;
mod ends;
mod forks;
mod kept;
mod many;
mod parts;
mod random;
mod sizes;
mod threads;
mod twin;
