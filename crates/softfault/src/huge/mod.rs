//! Shared memory of huge pages: a database's shared buffers, a snapshot under many guests.
//!
//! [`HugeMemory`] is a file without a name (`memfd_create`), of pages from the machine's
//! pool where it has one; any number of processes map it ([`HugeMap`]).
//!
//! ```text
//!   create   hugetlb memfd ─ no pool ─► memfd, transparent huge pages ─► memfd         backing
//!   map      at a multiple of 1 GiB if that long; the kernel reserves the pages there  place, map
//!            registered with userfaultfd for missing pages, SIGBUS mode                descriptor
//!   touch    missing: SIGBUS ─► which map: a table without a lock                      table
//!            ─► the kernel is asked for the page through a second mapping, the alias,
//!               which no userfaultfd knows; the touch is repeated, and maps it         fill
//! ```
//!
//! The kernel's own page tables stay, and so does its sharing of them: between mappings of one
//! file whose flags are alike, whole spans of 1 GiB have one table. Registration for write
//! protection or for minor faults would end that, one for missing pages does not.
//!
//! Why an alias and not `fallocate(2)`: a page that is asked for through a mapping is cleared under
//! the kernel's lock of this one page, where `fallocate` holds that of the file; it never comes
//! to lie past the end of a file that is truncated at the same time; and it is a huge page also
//! where transparent ones are for mappings only that have asked (`advise`). Kernels before
//! Linux 5.14 get `fallocate`.
//!
//! Pages are not asked for ahead: clearing one takes the kernel 100 to 400 µs, and all the
//! rest of the way 10 to 20.
//!
//! The code of a touch is in [`huge_faults`](crate::huge_faults), below the handler: `descriptor`, `table` and
//! `fill`. The making and dropping of memory and maps is here.
//!
//! A child of fork inherits the memory and its maps, without a userfaultfd: there the kernel serves
//! missing pages by itself, from the same pool. If it has none, our handler reports the reason, as
//! it does in the parent. Nothing here has a lock that a fork could leave behind.

mod anchor;
mod backing;
mod copy;
mod create;
mod machine;
mod map;
mod memory;
mod options;
mod place;
mod pool;
mod populate;

pub use create::HugeMemoryBuilder;
pub use map::HugeMap;
pub use memory::HugeMemory;
pub use options::HugeMapOptions;
