//! Whole faults over the soft page tables, against changes of their
//! pages, under schedules that a seed draws.
//!
//! Each scenario is a list of operations for each thread, over a store whose
//! reads end at once, one by one as the schedule says, or when an operation says
//! so. The operations and the oracle are those of the plain runs and property
//! tests (`softfault_oracle::play_spaces`): the bytes that a touch shows must have been
//! there at some moment of it. At the end of each schedule everything is taken down:
//! nothing may be charged, no frame, folio, VMA or tree node in use. A wake-up
//! that is lost is a deadlock, or a timeout that ends while nobody else can run.
//!
//! Every schedule draws its scheduler: anybody at each point; whoever ran, mostly;
//! or PCT with one to four changes of priority, a depth of two to five
//! (`sync::explore`). It draws the policies too: all locks of VMAs, all three of
//! `RetryLock`, both of `RetryPin`. `MissAccounting` is the default.
//!
//! | file | a fault against | schedules | points each |
//! |---|---|---|---|
//! | `unmap` | `munmap` of its VMA and of a part, and the next map of the same place; a slot that another space takes, a frame that another page takes; the next window at its addresses | 20,000 | 1,242 |
//! | `remap` | `mremap`, at the old place and at the new one | 9,000 | 1,377 |
//! | `protect` | `mprotect`, and translations that cores have buffered | 9,000 | 1,467 |
//! | `advise` | `madvise`, which splits and merges; prefetch | 8,000 | 2,600 |
//! | `reclaim` | reclaim, too little memory, invalidate; pins against all of them | 18,000 | 2,740 |
//! | `truncate` | a file that becomes shorter and longer; reclaim against that; the first fault in a hole | 15,000 | 840 |
//! | `fork` | `fork`, and parent, child and grandchild afterwards | 19,000 | 1,181 |
//! | `freeze` | a fork of the process, which faults on files do not wait for | 3,000 | 1,981 |
//! | `budget` | a budget that changes; memory given back once, or given and taken; none left | 13,000 | 1,887 |
//! | `fault_in` | ranges brought in with reads in flight, against eviction, truncate, `munmap` and each other | 9,000 | 2,330 |
//! | `reads` | verbs that end before the read does | 8,000 | 517 |
//! | `huge` | unshare by others, truncate, hole punch, another fault, the beginning of sharing, fork, exit, `mremap`, `mprotect`; promises; lists that are drawn | 52,500 | 532 |
//! | `swap` | eviction, swap-in and clean drop of private memory, against each other and the verbs | 31,400 | 1,438 |
//! | `swap_fails` | a swap device that fails | 5,300 | 1,754 |
//! | `swap_fork` | slots that two sides of a fork have | 9,600 | 2,467 |
//! | `drawn` | all of it: lists of 3 to 6 operations, 2 to 4 threads, 1 or 2 spaces and their forks, with swap too | 26,000 | 3,164 |
//! | `writable` | a write against write-back, eviction, protection of the window, truncate, punch, flush, and another map of its page; bytes that others make longer or append; errors | 7,000 | 1,002 |
//! | | | **262,800** | 1,547 |
//!
//! All of them took 116 s on two cores that other builds shared. A point is
//! an access where somebody else could have run. Each run asserts how many
//! schedules it was.
//!
//! A schedule that fails prints its seed and the command that runs it again.
//!
//! ```text
//!   just shuttle 10_000_000       so many schedules of each scenario
//!   just shuttle-seed 4711 unmap::fault_against_unmap
//! ```

mod advise;
mod budget;
mod drawn;
mod fault_in;
mod fork;
mod found;
mod freeze;
mod huge;
mod protect;
mod reads;
mod reclaim;
mod remap;
mod scene;
mod swap;
mod swap_fails;
mod swap_fork;
mod truncate;
mod unmap;
mod writable;
