//! The build of softfault that the command and the library are of, as far as it matters to both: the version, and a digest of
//! `options.rs`, `names.rs` and `seconds.rs`, in which the options are that one hands to the other. This file is compiled into each of them.
//!
//! The command looks for the library's stamp in its file, as an ELF note, because a library that is older than the stamps has
//! none. It puts its own into the environment, where the library looks for it.

/// Where the command's stamp is.
pub const VARIABLE: &str = "SOFTFAULT_RUN_BUILD";

/// The name of the library's note, with the zero that ends it, and the note's type.
pub const NOTE: (&[u8], u32) = (b"softfault\0", 1);

/// Of this build.
pub const STAMP: &str = match core::str::from_utf8(&BYTES) {
    Ok(text) => text,
    Err(_) => panic!("the text is ASCII"),
};

const VERSION: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();
const OPTIONS: &[u8] = b" options ";
const DIGITS: usize = 16;
/// Its length in bytes.
pub const LEN: usize = VERSION.len() + OPTIONS.len() + DIGITS;

/// The version, and the digest in hexadecimal digits.
pub const BYTES: [u8; LEN] = {
    let names = digest(include_bytes!("names.rs"));
    let digest =
        digest(include_bytes!("options.rs")) ^ names ^ digest(include_bytes!("seconds.rs"));
    let mut bytes = [0; LEN];
    let (version, rest) = bytes.split_at_mut(VERSION.len());
    version.copy_from_slice(VERSION);
    let (options, digits) = rest.split_at_mut(OPTIONS.len());
    options.copy_from_slice(OPTIONS);
    let mut at = 0;
    while at < DIGITS {
        let digit = digest >> (4 * (DIGITS - 1 - at)) & 15;
        digits[at] = b"0123456789abcdef"[digit as usize];
        at += 1;
    }
    bytes
};

/// FNV-1a of 64 bits.
const fn digest(bytes: &[u8]) -> u64 {
    let mut digest = 0xCBF2_9CE4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        digest = (digest ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01B3);
        at += 1;
    }
    digest
}
