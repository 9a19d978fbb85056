//! Calls of the library among itself stay in it: where a program has a function of the same name, by `syscall(2)` as a rule, a hook of
//! another name that ended there would come back to us for ever.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
