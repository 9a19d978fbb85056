//! The softfault command.
fn main() {}
