//! Engines.

use crate::boundary::answer;
use crate::failure::Failure;
use crate::sized::{self, Grows};
use core::ffi::{CStr, c_char, c_int};
use softfault::policy::Policies;
use softfault::{
    AsyncReads, Builder, Coherence, Compression, Engine, Fallback, Faults, OnTruncate, Reads, Swap,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Maps under one budget.
#[allow(non_camel_case_types)]
pub struct softfault_engine {
    pub(crate) engine: Engine,
}

/// Files are read past the kernel's page cache, with O_DIRECT.
pub const SOFTFAULT_READS_DIRECT: c_int = 1;
/// Files are read through the kernel's page cache, where they stay.
pub const SOFTFAULT_READS_CACHED: c_int = 2;
/// The engine decides for each file, by the free memory: the default.
pub const SOFTFAULT_READS_AUTO: c_int = 3;

/// The kernel serves maps that write to their file, in no budget: the default.
pub const SOFTFAULT_COHERENCE_KERNEL: c_int = 1;
/// The engine serves them, under its budget: other readers of the file see a write a few seconds later.
pub const SOFTFAULT_COHERENCE_ENGINE: c_int = 2;

/// Faults are served in the touching thread, by SIGBUS: the default.
pub const SOFTFAULT_FAULTS_SIGNALS: c_int = 1;
/// Faults are served by threads of the library; system calls on missing pages still fail.
pub const SOFTFAULT_FAULTS_THREADS: c_int = 2;
/// The same, and system calls on missing pages wait for them. The system has to allow it: access to /dev/userfaultfd,
/// CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd=1.
pub const SOFTFAULT_FAULTS_MESSAGES: c_int = 3;

/// A touch past the end of a truncated file raises SIGBUS: the default.
pub const SOFTFAULT_ON_TRUNCATE_ERROR: c_int = 1;
/// A touch past the end of a truncated file reads zeros.
pub const SOFTFAULT_ON_TRUNCATE_ZEROS: c_int = 2;

/// Mapping fails if the process may not use userfaultfd: the default.
pub const SOFTFAULT_FALLBACK_ERROR: c_int = 1;
/// The kernel serves the maps then, without a budget.
pub const SOFTFAULT_FALLBACK_KERNEL: c_int = 2;

/// Read-ahead uses io_submit(2), or io_uring if io_submit is not available: the default.
pub const SOFTFAULT_ASYNC_READS_AUTO: c_int = 1;
/// Read-ahead uses io_submit(2).
pub const SOFTFAULT_ASYNC_READS_IO_SUBMIT: c_int = 2;
/// Read-ahead uses io_uring.
pub const SOFTFAULT_ASYNC_READS_IO_URING: c_int = 3;
/// There is no read-ahead: each fault reads its own page.
pub const SOFTFAULT_ASYNC_READS_NEVER: c_int = 4;

/// Pages are written to swap without compression: the default.
pub const SOFTFAULT_COMPRESSION_NONE: c_int = 1;
/// Pages are compressed by lz4 before they are written to swap.
pub const SOFTFAULT_COMPRESSION_LZ4: c_int = 2;

/// The kernel may serve small files, and files in the page cache, outside of the budget: the default with
/// SOFTFAULT_READS_AUTO.
pub const SOFTFAULT_ALLOW_KERNEL_MAPS_YES: c_int = 1;
/// The engine serves all files.
pub const SOFTFAULT_ALLOW_KERNEL_MAPS_NO: c_int = 2;

/// Options of an engine. Set the structure to zero, then set `size` and the options that you want: zero is the default.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct softfault_engine_options {
    /// sizeof(struct softfault_engine_options).
    pub size: usize,
    /// The budget: bytes that may be resident, page tables included, at least 8 MiB. 0: a quarter of the machine's
    /// memory, or of its memory cgroup's limit.
    pub memory: u64,
    /// The largest budget that softfault_set_memory may set later. 0: the machine's memory.
    pub max_memory: u64,
    /// An outer engine: this engine's memory is charged to that engine's budget too. Or NULL.
    pub within: *const softfault_engine,
    /// A directory for swap: private memory that does not fit the budget goes to a file without a name there. NULL: no
    /// swap, and private memory stays in memory.
    pub swap_directory: *const c_char,
    /// Size of swap, in bytes of memory. 0: four times the budget.
    pub swap_size: u64,
    /// Size in bytes of the largest small file. The kernel maps small files by itself. 0: the value of
    /// SOFTFAULT_SMALL_MAPS, or 1 MiB. Negative: no file is small.
    pub small_maps: i64,
    /// Policies other than the default, as text: "lock=rwsem+retry=mmap-lock" (docs/documents.md); or NULL.
    pub policies: *const c_char,
    /// SOFTFAULT_READS_...
    pub reads: c_int,
    /// SOFTFAULT_COHERENCE_...
    pub coherence: c_int,
    /// SOFTFAULT_FAULTS_...
    pub faults: c_int,
    /// SOFTFAULT_ALLOW_KERNEL_MAPS_...
    pub allow_kernel_maps: c_int,
    /// SOFTFAULT_COMPRESSION_...
    pub compression: c_int,
    /// SOFTFAULT_ON_TRUNCATE_...
    pub on_truncate: c_int,
    /// SOFTFAULT_FALLBACK_...
    pub fallback: c_int,
    /// SOFTFAULT_ASYNC_READS_...
    pub async_reads: c_int,
    /// Not 0: allows maps although the program installed a SIGBUS handler after the engine was made. Set it only if that
    /// handler passes on the signals that are not its own.
    pub trust_signal_handlers: c_int,
    /// 0.
    pub reserved: c_int,
}

// SAFETY: words of 8 bytes, the first of which is the size, then an even number of ints; null is a pointer.
unsafe impl Grows for softfault_engine_options {
    const FIRST: usize = 8 * 8 + 10 * 4;
}

const _: () = assert!(size_of::<softfault_engine_options>() == softfault_engine_options::FIRST);

/// Makes an engine: a budget, and options for its maps.
///
/// options may be NULL: all defaults. The environment may set the fields reads, coherence,
/// faults, allow_kernel_maps and small_maps that are zero (docs/c.md); SOFTFAULT_MEMORY and SOFTFAULT_SWAP are for the default
/// engine only. The strings are not used after this returns. The first engine of a process installs a SIGBUS handler, unless
/// threads serve its faults.
///
/// Returns the engine, for softfault_engine_free, or NULL with errno:
///   E2BIG       options has a field that is set and that this release does not know
///   EINVAL      options->size is not a size of this structure in any release, or a field has an invalid value, or the
///               budget is below 8 MiB, or there is no such policy, or faults or the lock policies differ from those of
///               the process's first engine
///   ENOMEM      the machine, or the outer engine's budget, does not have that much memory
///   EOPNOTSUPP  userfaultfd is closed to this process, or SOFTFAULT_FAULTS_MESSAGES is
///   or an error of making a file in the swap directory.
///
/// Several threads may call this at the same time.
///
/// # Safety
/// `options` is null, or a structure of the size that it says, whose strings end and whose engine was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_engine_new(
    options: *const softfault_engine_options,
) -> *mut softfault_engine {
    answer(core::ptr::null_mut(), || {
        let mut builder = Engine::builder();
        if !options.is_null() {
            // SAFETY: the caller's.
            let options = unsafe { sized::read(options) }?;
            // SAFETY: the caller's.
            builder = unsafe { apply(builder, &options) }?;
        }
        let engine = builder.build()?;
        Ok(Box::into_raw(Box::new(softfault_engine { engine })))
    })
}

/// Releases an engine. The engine lives as long as its maps. Does nothing for NULL.
///
/// Several threads may call this at the same time, for different engines, and while other threads call functions on maps
/// of this engine. The pointer must not be used afterwards.
///
/// # Safety
/// `engine` is null, or of softfault_engine_new, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_engine_free(engine: *mut softfault_engine) {
    answer((), || {
        if !engine.is_null() {
            // SAFETY: the caller's: boxed by `softfault_engine_new`, and nobody's any more.
            drop(unsafe { Box::from_raw(engine) });
        }
        Ok(())
    });
}

/// Changes an engine's budget, and evicts down to it. NULL is the default engine.
///
/// Without swap, written pages of private memory cannot be evicted: if they do not fit the new budget, the call fails with ENOMEM, and the
/// budget stays as it was.
///
/// Returns 0, or -1 with errno:
///   EINVAL  the budget is below 8 MiB, or above the engine's max_memory
///   ENOMEM  the outer engine's budget, or the machine, does not have that much memory; or the budget is too small for the
///           present maps, pins and private memory
///
/// Several threads may call this at the same time, and while other threads use the engine's maps.
///
/// # Safety
/// `engine` is null, or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_set_memory(
    engine: *const softfault_engine,
    bytes: u64,
) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's.
        let engine = unsafe { or_default(engine) }?;
        engine.set_memory(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(0)
    })
}

/// The engine, or the process's default one.
///
/// # Safety
/// It is null, or lives as long as the answer is used.
pub(crate) unsafe fn or_default<'a>(
    engine: *const softfault_engine,
) -> Result<&'a Engine, Failure> {
    // SAFETY: the caller's.
    match unsafe { engine.as_ref() } {
        Some(engine) => Ok(&engine.engine),
        None => Ok(Engine::process_default()?),
    }
}

/// The value of a number: one of these, which begin with 1, or 0 for `None`.
fn one_of<T: Copy>(name: &str, value: c_int, values: &[T]) -> Result<Option<T>, Failure> {
    if value == 0 {
        return Ok(None);
    }
    let place = usize::try_from(value)
        .ok()
        .and_then(|value| value.checked_sub(1));
    let found = place.and_then(|place| values.get(place).copied());
    found.map(Some).ok_or_else(|| not_known(name, value))
}

fn not_known(name: &str, value: c_int) -> Failure {
    Failure::invalid(format!(
        "options.{name} is {value}, which is no value of this option"
    ))
}

/// # Safety
/// Pointers are null, or to strings, or to an engine.
unsafe fn apply(
    mut builder: Builder,
    options: &softfault_engine_options,
) -> Result<Builder, Failure> {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    if options.memory != 0 {
        builder = builder.memory(bytes(options.memory));
    }
    if options.max_memory != 0 {
        builder = builder.max_memory(bytes(options.max_memory));
    }
    // SAFETY: the caller's.
    if let Some(within) = unsafe { options.within.as_ref() } {
        builder = builder.within(&within.engine);
    }
    if options.small_maps != 0 {
        builder = builder.small_maps(usize::try_from(options.small_maps).unwrap_or(0));
    }
    // SAFETY: the caller's.
    if let Some(policies) = unsafe { text(options.policies) } {
        let parsed: Result<Policies, _> = policies.to_string_lossy().parse();
        builder = builder.policies(parsed.map_err(|error| Failure::invalid(error.to_string()))?);
    }
    let reads = [Reads::Direct, Reads::Cached, Reads::Auto];
    if let Some(reads) = one_of("reads", options.reads, &reads)? {
        builder = builder.reads(reads);
    }
    let coherence = [Coherence::Kernel, Coherence::Engine];
    if let Some(coherence) = one_of("coherence", options.coherence, &coherence)? {
        builder = builder.coherence(coherence);
    }
    let faults = [Faults::Signals, Faults::Threads, Faults::Messages];
    if let Some(faults) = one_of("faults", options.faults, &faults)? {
        builder = builder.faults(faults);
    }
    if let Some(may) = one_of(
        "allow_kernel_maps",
        options.allow_kernel_maps,
        &[true, false],
    )? {
        builder = builder.allow_kernel_maps(may);
    }
    let on_truncate = [OnTruncate::Error, OnTruncate::Zeros];
    if let Some(on_truncate) = one_of("on_truncate", options.on_truncate, &on_truncate)? {
        builder = builder.on_truncate(on_truncate);
    }
    let fallback = [Fallback::Error, Fallback::Kernel];
    if let Some(fallback) = one_of("fallback", options.fallback, &fallback)? {
        builder = builder.fallback(fallback);
    }
    let ways = [
        AsyncReads::Auto,
        AsyncReads::IoSubmit,
        AsyncReads::IoUring,
        AsyncReads::Never,
    ];
    if let Some(way) = one_of("async_reads", options.async_reads, &ways)? {
        builder = builder.async_reads(way);
    }
    if options.reserved != 0 {
        return Err(not_known("reserved", options.reserved));
    }
    let compression = [Compression::None, Compression::Lz4];
    let compression = one_of("compression", options.compression, &compression)?;
    // SAFETY: the caller's.
    if let Some(directory) = unsafe { text(options.swap_directory) } {
        let mut swap = Swap::in_dir(OsStr::from_bytes(directory.to_bytes()));
        if options.swap_size != 0 {
            swap = swap.bytes(options.swap_size);
        }
        swap = swap.compression(compression.unwrap_or_default());
        builder = builder.swap(swap);
    }
    Ok(builder.trust_signal_handlers(options.trust_signal_handlers != 0))
}

/// # Safety
/// Null, or a string that lives as long as the answer is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
