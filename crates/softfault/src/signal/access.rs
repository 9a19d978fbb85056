//! Whether a touch was a write, as the processor told the kernel.
//!
//! A write to a protected page that is taken for a read would be served for
//! ever: nothing is missing. So pages are protected only where this is known
//! (`uffd/mmu.rs`, `KNOWS_WRITES`).

use libc::ucontext_t;

/// Write access, in the page-fault error code of x86.
#[cfg(target_arch = "x86_64")]
const ERROR_CODE_WRITE: i64 = 1 << 1;

/// True if it was a write.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_write(context: &ucontext_t) -> bool {
    context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_CODE_WRITE != 0
}

/// True if it was a write.
#[cfg(target_arch = "aarch64")]
pub(crate) fn is_write(context: &ucontext_t) -> bool {
    // The records lie behind the registers, at a multiple of 16.
    let registers = core::mem::offset_of!(libc::mcontext_t, pstate) + size_of::<u64>();
    let start = registers.next_multiple_of(16);
    let context = &context.uc_mcontext;
    // SAFETY: the rest of the structure, of which all bytes are the kernel's.
    let records = unsafe {
        let start_of = core::ptr::from_ref(context).cast::<u8>().add(start);
        core::slice::from_raw_parts(start_of, size_of_val(context) - start)
    };
    esr::find(records).is_some_and(esr::is_write)
}

/// True if it was a write: not known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn is_write(_context: &ucontext_t) -> bool {
    // A write to a window that may only be read is a SIGSEGV anyway.
    false
}

/// The exception syndrome of aarch64, in a record of the signal frame
/// (`uapi/asm/sigcontext.h`, `asm/esr.h`).
#[cfg(any(target_arch = "aarch64", test))]
mod esr {
    const ESR_MAGIC: u32 = 0x4553_5201;
    /// Magic number and size.
    const HEAD: usize = 8;
    const CLASS_SHIFT: u32 = 26;
    const CLASS_MASK: u64 = 0x3f;
    /// A data abort of user mode.
    const DATA_ABORT: u64 = 0x24;
    const WRITE_NOT_READ: u64 = 1 << 6;
    /// Cache maintenance, which says it writes and does not.
    const CACHE_MAINTENANCE: u64 = 1 << 8;

    /// The syndrome. Records end with one that is all zero.
    pub fn find(mut records: &[u8]) -> Option<u64> {
        loop {
            let magic = u32::from_ne_bytes(*records.first_chunk()?);
            let size = u32::from_ne_bytes(*records.get(4..)?.first_chunk()?) as usize;
            if magic == ESR_MAGIC {
                return Some(u64::from_ne_bytes(*records.get(HEAD..)?.first_chunk()?));
            }
            if size < HEAD {
                return None;
            }
            records = records.get(size..)?;
        }
    }

    /// True if it says that the touch was a write.
    pub fn is_write(esr: u64) -> bool {
        esr >> CLASS_SHIFT & CLASS_MASK == DATA_ABORT
            && esr & WRITE_NOT_READ != 0
            && esr & CACHE_MAINTENANCE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::esr::{find, is_write};

    fn record(magic: u32, size: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = [magic.to_ne_bytes(), size.to_ne_bytes()].concat();
        bytes.extend_from_slice(rest);
        bytes.resize(size as usize, 0);
        bytes
    }

    #[test]
    fn the_syndrome_is_found_among_other_records() {
        let floats = record(0x4650_8001, 528, &[7; 520]);
        let esr = record(0x4553_5201, 16, &0x9200_0047_u64.to_ne_bytes());
        let end = record(0, 8, &[]);
        let all = [&floats[..], &esr, &end].concat();
        assert_eq!(find(&all), Some(0x9200_0047));
        assert_eq!(find(&[floats, end].concat()), None);
        assert_eq!(find(&all[..540]), None, "cut off");
        assert_eq!(find(&[]), None);
    }

    #[test]
    fn writes_are_told_from_reads() {
        // Permission fault, level 3, by a store and by a load.
        assert!(is_write(0x9200_004f));
        assert!(!is_write(0x9200_000f));
        // Translation fault by a store; cache maintenance; an instruction.
        assert!(is_write(0x9200_0047));
        assert!(!is_write(0x9200_0147));
        assert!(!is_write(0x8200_004f));
    }
}
