//! Properties of the program.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Type of a note, and its name, which Go's linker writes into each program (`NT_GNU_BUILD_ID` of Go).
const GO: (u32, &[u8]) = (4, b"Go\0\0");

/// True if the program makes system calls by itself, and not by the C library: Go's runtime does.
pub fn makes_calls_itself() -> bool {
    // Relaxed: every look finds the same.
    match ITSELF.load(Relaxed) {
        0 => {
            let mut found = false;
            // SAFETY: the function is called with the structures of the loaded objects, the program first.
            unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
            ITSELF.store(1 + u8::from(found), Relaxed);
            found
        }
        known => known == 2,
    }
}

/// 0: nobody has looked yet.
static ITSELF: AtomicU8 = AtomicU8::new(0);

/// True if the program's malloc is not the C library's: its blocks may be memory that was taken, and the threads
/// that serve faults have a little of it.
pub fn has_own_malloc() -> bool {
    // Relaxed: every look finds the same.
    match OWN_MALLOC.load(Relaxed) {
        0 => {
            let own = finds_own_malloc();
            OWN_MALLOC.store(1 + u8::from(own), Relaxed);
            own
        }
        known => known == 2,
    }
}

/// 0: nobody has looked yet.
static OWN_MALLOC: AtomicU8 = AtomicU8::new(0);

/// Ours is in front of the C library's, and of nothing else, or the program's is another.
fn finds_own_malloc() -> bool {
    let object_of = |addr: *const c_void| {
        let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: looks an address up; zeros are a valid structure.
        unsafe {
            libc::dladdr(addr, about.as_mut_ptr());
            about.assume_init().dli_fbase
        }
    };
    // SAFETY: looks a name up.
    let find = |from: *mut c_void, name: &CStr| unsafe { libc::dlsym(from, name.as_ptr()) };
    let ours = object_of(finds_own_malloc as *const c_void);
    let library = object_of(find(libc::RTLD_DEFAULT, c"gnu_get_libc_version"));
    let names = [
        c"malloc",
        c"calloc",
        c"realloc",
        c"free",
        c"memalign",
        c"aligned_alloc",
        c"posix_memalign",
        c"malloc_usable_size",
    ];
    names.into_iter().any(|name| {
        let first = find(libc::RTLD_DEFAULT, name);
        (object_of(first) != ours && !is_entry_of_program(first))
            || object_of(find(libc::RTLD_NEXT, name)) != library
    })
}

/// True if the address is that of an entry in a program's table of calls, behind which is the address that the loader has found. A program that is
/// not position-independent has such entries for the functions whose addresses it takes, and there alone a symbol that is not
/// defined has an address (System V ABI, AMD64, "Function Addresses").
#[cfg(target_env = "gnu")]
fn is_entry_of_program(addr: *const c_void) -> bool {
    /// The name's of <dlfcn.h>.
    const RTLD_DL_SYMENT: c_int = 1;
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol = core::ptr::null_mut();
    // SAFETY: looks an address up, with room for both answers; a symbol is the loader's, and stays.
    unsafe {
        libc::dladdr1(addr, about.as_mut_ptr(), &mut symbol, RTLD_DL_SYMENT) != 0
            && !symbol.is_null()
            && (*symbol.cast::<libc::Elf64_Sym>()).st_shndx == 0
    }
}

/// No other C library says so.
#[cfg(not(target_env = "gnu"))]
fn is_entry_of_program(_: *const c_void) -> bool {
    false
}

/// Looks at the program, and at nothing that is loaded after it.
unsafe extern "C" fn look(about: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's, for as long as the call lasts.
    let about = unsafe { &*about };
    // SAFETY: as many headers as it says.
    let headers = unsafe { core::slice::from_raw_parts(about.dlpi_phdr, about.dlpi_phnum.into()) };
    for header in headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE)
    {
        let start = (about.dlpi_addr + header.p_vaddr) as *const u8;
        // SAFETY: a part of the program that is loaded and may be read.
        let notes = unsafe { core::slice::from_raw_parts(start, header.p_memsz as usize) };
        if has_go_note(notes) {
            // SAFETY: the pointer that the caller has handed to the loader.
            unsafe { *found.cast::<bool>() = true };
        }
    }
    1
}

/// True if one of some notes is Go's.
fn has_go_note(mut notes: &[u8]) -> bool {
    let word = |notes: &[u8], at: usize| {
        let bytes = notes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    while let (Some(name), Some(bytes), Some(kind)) =
        (word(notes, 0), word(notes, 4), word(notes, 8))
    {
        let rest = &notes[12..];
        if kind == GO.0 && rest.starts_with(GO.1) {
            return true;
        }
        let len = (name as usize).next_multiple_of(4) + (bytes as usize).next_multiple_of(4);
        match rest.get(len..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
    false
}

/// Why the program can have no engine, if it runs under a tool that looks at all that is read and written.
pub fn obstacle() -> Option<&'static str> {
    // Relaxed: as above.
    let mut known = OBSTACLE.load(Relaxed);
    if known == 0 {
        let found = OBSTACLES.iter().position(|(name, _)| {
            // SAFETY: looks a name up.
            unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
        });
        known = found.map_or(1, |at| 2 + at as u8);
        OBSTACLE.store(known, Relaxed);
    }
    let at = usize::from(known).checked_sub(2)?;
    Some(OBSTACLES[at].1)
}

/// 0: nobody has looked yet; 1: none.
static OBSTACLE: AtomicU8 = AtomicU8::new(0);

/// By a function that the tool's library has. Sanitizers take softfault's work on memory for the program's errors. Valgrind lets one
/// thread run at a time: while that one sleeps in a fault, the thread that would serve it never runs.
const OBSTACLES: [(&CStr, &str); 3] = [
    (
        c"__tsan_init",
        "ThreadSanitizer would report softfault's changes to memory as errors of the program",
    ),
    (
        c"__msan_init",
        "MemorySanitizer would report softfault's changes to memory as errors of the program",
    ),
    (
        c"_vgnU_freeres",
        "Valgrind runs one thread at a time, and no other would serve its faults",
    ),
];

/// The beginning of each line that is written about this process.
pub fn line_prefix() -> String {
    format!("softfault: {}[{}]", name(), std::process::id())
}

unsafe extern "C" {
    /// The last part of the name by which the program was executed (glibc).
    static program_invocation_short_name: *const c_char;
}

/// The name of the process.
pub fn name() -> String {
    if let Ok(name) = std::fs::read_to_string("/proc/self/comm") {
        return name.trim_end().to_owned();
    }
    // There may be no descriptor left, or no /proc.
    // SAFETY: the C library's, a string that ends in zero, set before the program begins.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    name.to_string_lossy().into_owned()
}
