//! Large blocks of malloc(3): each is a mapping that was taken, of its own.
//!
//! The C library maps such a block inside itself, where no hook is. So `hooks/malloc.rs` asks here first. A block begins
//! with a page, which blocks of the C library's do not unless they are asked to: so `free` knows most of those that are not
//! ours by their addresses alone, and the rest by the bitmap of taken memory (`marked.rs`).

use crate::block_list::{self, Blocks, lock};
use crate::decide::{self, Call, PAGE};
use crate::{call, change, declined, give, heap, inside, marked, private_calls, table, take};
use libc::c_void;

/// A block of at least so many bytes, all of them zeros, at a multiple of a power of two. `None`: the C library is to give
/// it.
#[cold]
pub fn allocate(bytes: usize, align: usize) -> Option<*mut c_void> {
    if heap::is_held() {
        return None;
    }
    let errno = call::errno();
    let more = align.saturating_sub(PAGE);
    let wanted = Call {
        bytes: bytes.checked_add(more)?,
        protection: libc::PROT_READ | libc::PROT_WRITE,
        flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        fd: -1,
        offset: 0,
    };
    let taken = match decide::decide_anonymous(&wanted) {
        Ok(Some(room)) => {
            let _inside = inside::enter()?;
            if !give::leave_stack() {
                return None;
            }
            let mut table = table::lock();
            take::take_block(&mut table, room).map(|start| {
                let block = start.next_multiple_of(align);
                lock().mappings.insert(block, start..start + room);
                block
            })
        }
        Ok(None) => return None,
        Err(why) => Err(why),
    };
    call::set_errno(errno);
    let taken = taken.map_err(|why| declined::declined(why, &Call { bytes, ..wanted }));
    taken.ok().map(|block| block as *mut c_void)
}

/// Bytes of a block from an address on; `None`: no block of ours begins there.
#[cold]
pub fn bytes_of(block: *mut c_void) -> Option<usize> {
    let bytes = |blocks: &Blocks| {
        let mapping = blocks.mappings.get(&(block as usize))?;
        Some(mapping.end - block as usize)
    };
    if heap::is_held() {
        return block_list::in_held(bytes);
    }
    let _inside = inside::enter();
    bytes(&lock())
}

/// Frees a block; false if none of ours begins there.
#[cold]
pub fn free(block: *mut c_void) -> bool {
    if heap::is_held() {
        // In a handler of a fork that was registered before ours: nothing can be taken out of the list, and the memory stays.
        return bytes_of(block).is_some();
    }
    let inside = inside::enter();
    let mut blocks = lock();
    let Some(mapping) = blocks.mappings.remove(&(block as usize)) else {
        return false;
    };
    blocks.later.push(mapping);
    drop(blocks);
    // In a handler of a fork the table is locked by this thread.
    if inside.is_none() || !give::leave_stack() {
        return true;
    }
    let mut table = table::lock();
    let all = core::mem::take(&mut lock().later);
    for mapping in all {
        // With its room to grow.
        let room = table.private.room_of(mapping.start);
        if change::unmap(&mut table, &mapping) != 0 {
            // It is there yet, and goes with a block that is freed later.
            lock().later.push(mapping);
            continue;
        }
        marked::mark(&mapping, false);
        if let Some(room) = room {
            marked::mark(&room, false);
        }
    }
    true
}

/// Lets a block have so many bytes, without a copy; where it is then. `None`: it is as it was.
#[cold]
pub fn resize(block: *mut c_void, bytes: usize) -> Option<*mut c_void> {
    let bytes = bytes.checked_next_multiple_of(PAGE)?;
    let start = block as usize;
    let _inside = inside::enter()?;
    if !give::leave_stack() {
        return None;
    }
    let mut table = table::lock();
    let mapping = lock().mappings.get(&start).cloned()?;
    if mapping.start != start {
        return None;
    }
    if bytes == mapping.len() {
        return Some(block);
    }
    let moved = private_calls::move_to(&mut table, &mapping, bytes, libc::MREMAP_MAYMOVE);
    let Some(Ok(moved)) = moved else {
        return None;
    };
    // Under the table's lock: nobody gets the old addresses before they are forgotten here.
    let mut blocks = lock();
    blocks.mappings.remove(&start);
    blocks.mappings.insert(moved, moved..moved + bytes);
    Some(moved as *mut c_void)
}
