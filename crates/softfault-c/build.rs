//! How the compiler links the shared library: for cargo-c, and without versions of symbols. The one that is installed
//! otherwise `src/bin/install.rs` links.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The ABI's version. A change that breaks a compiled program counts it up, here and in `version.rs`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsoftfault.so.0");
    // Its handlers and threads outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}
