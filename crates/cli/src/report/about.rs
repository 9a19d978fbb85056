//! The workloads in words.

/// The memory accesses of each workload, for a reader that does not know it.
const ABOUT: &[(&str, &str)] = &[
    (
        "sparse",
        "A small part of a file's pages is touched, each once or drawn at random, in one of several orders. Read-ahead has to \
         guess the next page, and every wrong guess is read from the disk.",
    ),
    (
        "random",
        "Threads touch uniformly random pages of one file for a fixed time. pread has no cache: as many \
         threads read the page of each touch with O_DIRECT, where the others find a part of the file in memory.",
    ),
    (
        "many",
        "Scattered pages of one file are brought in by one call, by one thread, cold and once they are there. The kernel \
         has calls for 1,024 pages each: those that start the reads of cold pages, then those that wait. pread reads them with O_DIRECT, by 32 threads.",
    ),
    (
        "scan",
        "The whole file is read in order: cold, warm (a second pass over the same map) and remapped (a \
         fresh map). The kernel does this well.",
    ),
    (
        "thrash",
        "Each thread maps a file of its own, touches every page and unmaps it, again and again; together \
         the files are larger than the memory. Of holes softfault pages nothing, since a hole costs it no memory: \
         those rows are no race, but the cost of reclaim to the kernel. pread-cached reads into a cache of the \
         budget's size.",
    ),
    (
        "warm-start",
        "A program's start: threads map, fault and read many files of mixed size while memory is short, and \
         one of them has high priority. A thread that waits for a lock waits for its holders.",
    ),
    (
        "pft",
        "Threads populate anonymous memory, each a range of its own or all of them one that they share: \
         nothing but faults.",
    ),
    (
        "orders",
        "Pages of a file once each, in the orders of programs that go through all of a part and not one page after the \
         other: shuffled within windows, in blocks from behind, with gaps, in several streams.",
    ),
    ("spf", "Many threads map and touch small ranges in a loop."),
    (
        "loops",
        "Threads do one verb on small ranges: mmap, mmap and touch, unmap of untouched and of touched ranges, touch. Only the \
         verb is measured; a round is a range.",
    ),
    (
        "anon",
        "Threads read and write 8 bytes at random places of anonymous memory four times the budget: pages without \
         room go to swap. direct is a page read or written on the disk for every access; LRU is the share that an exact \
         LRU of the budget's size would have found in memory over the same accesses.",
    ),
    (
        "swap-retry",
        "Background threads touch pages that are in swap, while one thread maps and unmaps and one forks: the \
         cost, to threads that need mmap_lock, of a fault that comes back from waiting for swap.",
    ),
    (
        "snapshot",
        "Threads write anonymous memory four times the budget, the process forks, and the child reads all of it \
         as it was at that moment: how long the parent's threads stand still.",
    ),
    (
        "hugetlb",
        "Processes map one file of huge pages, touch each page and unmap, again and again. kernel-parked keeps the page \
         tables by a mapping that stays, as softfault does; without one the last to unmap takes them along.",
    ),
    (
        "storm",
        "One thread maps and unmaps in a loop while others fault on random pages of files: how far each \
         keeps the other waiting.",
    ),
];

/// The description of `workload`; `None` of one that is not known here.
pub fn about(workload: &str) -> Option<&'static str> {
    let known = ABOUT.iter().find(|(name, _)| *name == workload);
    known.map(|(_, about)| *about)
}
