//! Memory for the loader, while it looks the C library's malloc up for us: some releases need a little for that. And for
//! those that allocate before the loader is done with this library.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{c_char, c_void, size_t};

const PAGE: usize = crate::decide::PAGE;
const BYTES: usize = 16 * PAGE;

/// Memory of zeros.
#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: each part is given to one caller, by `USED`.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));

/// Bytes that were given away. Relaxed: each caller gets other bytes.
static USED: AtomicUsize = AtomicUsize::new(0);

/// True if a block is of here. Each begins with a page, as those that are asked for in `blocks.rs`.
pub fn has(block: *mut c_void) -> bool {
    let arena = ARENA.0.get() as usize;
    (arena..arena + BYTES).contains(&(block as usize))
}

/// Bytes that a block has at least.
pub const LEAST: usize = PAGE;

/// Functions that are called meanwhile.
#[derive(Clone, Copy)]
pub enum EarlyCall {
    Malloc,
    Calloc,
    Realloc,
    Free,
    Other,
}

impl EarlyCall {
    /// That of a name.
    pub const fn of(name: &CStr) -> Self {
        match name.to_bytes() {
            b"malloc" => Self::Malloc,
            b"calloc" => Self::Calloc,
            b"realloc" | b"__libc_realloc" => Self::Realloc,
            b"free" | b"__libc_free" => Self::Free,
            _ => Self::Other,
        }
    }

    /// Its address.
    pub fn function(self) -> Option<usize> {
        Some(match self {
            Self::Malloc => malloc as *const () as usize,
            Self::Calloc => calloc as *const () as usize,
            Self::Realloc => realloc as *const () as usize,
            Self::Free => free as *const () as usize,
            Self::Other => return None,
        })
    }
}

/// False if the loader has not entered where that function is yet: a sanitizer allocates while libraries are being loaded.
pub fn can_look_up() -> bool {
    // The compiler knows that a function is somewhere.
    core::hint::black_box(libc::dlsym as *const () as usize) != 0
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// False where the program's first functions run (`.preinit_array`): the C library has not been given the environment yet, in
/// which the options are.
pub fn has_environment() -> bool {
    // SAFETY: looks at a pointer, which the loader's thread sets before there are others.
    !unsafe { environ }.is_null()
}

extern "C" fn malloc(bytes: size_t) -> *mut c_void {
    let pages = bytes.max(1).checked_next_multiple_of(PAGE);
    let Some(pages) = pages.filter(|&pages| pages <= BYTES) else {
        return null_mut();
    };
    let at = USED.fetch_add(pages, Relaxed);
    match at + pages <= BYTES {
        true => (ARENA.0.get() as usize + at) as *mut c_void,
        false => null_mut(),
    }
}

extern "C" fn calloc(count: size_t, bytes: size_t) -> *mut c_void {
    let block = count
        .checked_mul(bytes)
        .map_or(null_mut(), |bytes| malloc(bytes));
    if !block.is_null() {
        // A page that was used before. Not by a call: none may be possible.
        for at in 0..count * bytes {
            // SAFETY: of the block, and its caller's alone.
            unsafe { block.cast::<u8>().add(at).write_volatile(0) };
        }
    }
    block
}

extern "C" fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
    match has(block) && bytes <= LEAST {
        true => block,
        false if block.is_null() => malloc(bytes),
        // Nobody needs so much to look a name up.
        false => null_mut(),
    }
}

/// The last block goes, if it is one page; the others stay.
pub extern "C" fn free(block: *mut c_void) {
    if has(block) {
        let at = block as usize - ARENA.0.get() as usize;
        let _ = USED.compare_exchange(at + PAGE, at, Relaxed, Relaxed);
    }
}
