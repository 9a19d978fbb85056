//! Whether this library and the command that gave it its options are of one build: one that does not know an option of the other
//! would pass over it without a word.

use crate::declined::FAILED;
use crate::stamp::{BYTES, LEN, NOTE, STAMP, VARIABLE};
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use std::env::var_os;

/// `Elf64_Nhdr`, the name and the stamp, each filled up to words.
#[repr(C, align(4))]
struct Note {
    name_len: u32,
    stamp_len: u32,
    kind: u32,
    name: [u8; NOTE.0.len().next_multiple_of(4)],
    stamp: [u8; LEN.next_multiple_of(4)],
}

/// The command reads it in our file.
#[used]
#[unsafe(link_section = ".note.softfault")]
static OURS: Note = Note {
    name_len: NOTE.0.len() as u32,
    stamp_len: LEN as u32,
    kind: NOTE.1,
    name: filled(NOTE.0),
    stamp: filled(&BYTES),
};

const fn filled<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all.split_at_mut(bytes.len()).0.copy_from_slice(bytes);
    all
}

/// Ends the process where a command of another build has given the options. One that is older than the stamps is not told from
/// a user who loads the library himself: then there is none.
pub fn check() {
    let Some(theirs) = var_os(VARIABLE).filter(|stamp| !stamp.is_empty() && stamp != STAMP) else {
        return;
    };
    let theirs = theirs.to_string_lossy();
    let line = format!(
        "softfault: {}, of softfault {STAMP}, does not fit the command that gave it its options, of softfault {}: they have to be of one build\n",
        path().escape_debug(),
        theirs.escape_debug()
    );
    // SAFETY: bytes that are there; and the end of the process, of which no code has run.
    unsafe {
        softfault::system_call!(
            libc::SYS_write,
            libc::STDERR_FILENO,
            line.as_ptr(),
            line.len(),
        );
        libc::_exit(FAILED);
    }
}

/// Where the loader has found us.
fn path() -> String {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: looks an address of ours up; zeros are a valid structure.
    let about = unsafe {
        libc::dladdr((&raw const OURS).cast::<c_void>(), about.as_mut_ptr());
        about.assume_init()
    };
    match about.dli_fname.is_null() {
        true => "the library".to_owned(),
        // SAFETY: the loader's, and ends in zero.
        false => unsafe { CStr::from_ptr(about.dli_fname) }
            .to_string_lossy()
            .into_owned(),
    }
}
