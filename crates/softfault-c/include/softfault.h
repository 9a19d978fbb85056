/*
 * softfault: memory maps larger than memory, served in user space under a fixed budget.
 *
 * The functions are mmap(2) and its siblings, with a prefix. docs/c.md is the manual. Rules for all
 * functions:
 *
 * Errors. A function that fails returns MAP_FAILED, -1 or NULL as its description says, and sets errno.
 * softfault_error() returns a line of text with the reason. A function that succeeds does not change errno.
 *
 * Maps of the kernel's own are those of small files, writable shared maps, maps of files in a child of fork, and maps with
 * MAP_STACK or MAP_HUGETLB. Where the header says EFAULT for a range past the end of a file, or ENOSPC, the errno of such a map is
 * EIO (of softfault_mlock: ENOMEM): the kernel reports these errors and a failed read in the same way.
 *
 * Threads. Each description says which calls may be made at the same time. No function is a cancellation point, and none
 * is async-signal-safe but softfault_version and softfault_abi_version: do not call the others in signal handlers. A signal
 * handler may touch a map.
 *
 * Faults. A touch of a page that is not in memory raises SIGBUS in the touching thread. The library's handler
 * serves it. A thread that blocks SIGBUS must not touch maps. If a touch cannot be served (the
 * read failed, the file was truncated, no memory is left), the program gets the SIGBUS. With SOFTFAULT_FAULTS_THREADS or
 * SOFTFAULT_FAULTS_MESSAGES threads of the library serve faults, and there is no handler.
 *
 * System calls. The kernel does not call the handler: write(fd, map, n), with pages that are not in memory, fails with
 * EFAULT or writes fewer bytes. Pass memory to system calls between softfault_pin and softfault_unpin, or use
 * softfault_write_to and softfault_read_from. softfault_fault_in alone is enough only if nothing can evict the
 * pages meanwhile. With SOFTFAULT_FAULTS_MESSAGES every system call works.
 *
 * fork. A child has its parent's maps: it has its own copy of private memory, and the kernel serves its maps of
 * files. Pins and locks are not inherited. In a handler of pthread_atfork that was registered before the first softfault_mmap
 * of the process every function that can fail does nothing and sets errno to EBUSY, softfault_engine_free too; such a handler must not
 * touch maps, nor call functions in a process that has an engine and no map yet. Handlers that are registered later may call all
 * functions.
 */

#ifndef SOFTFAULT_H
#define SOFTFAULT_H

/* Written from the source by cbindgen; `cargo test -p softfault-c --test header` compares it. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct timespec;

/**
 * The version of the binary interface. It is also part of the library's soname (libsoftfault.so.0). A program
 * runs with every later release that has the same version of the interface.
 */
#define SOFTFAULT_ABI_VERSION 0

/**
 * Files are read past the kernel's page cache, with O_DIRECT.
 */
#define SOFTFAULT_READS_DIRECT 1

/**
 * Files are read through the kernel's page cache, where they stay.
 */
#define SOFTFAULT_READS_CACHED 2

/**
 * The engine decides for each file, by the free memory: the default.
 */
#define SOFTFAULT_READS_AUTO 3

/**
 * The kernel serves maps that write to their file, in no budget: the default.
 */
#define SOFTFAULT_COHERENCE_KERNEL 1

/**
 * The engine serves them, under its budget: other readers of the file see a write a few seconds later.
 */
#define SOFTFAULT_COHERENCE_ENGINE 2

/**
 * Faults are served in the touching thread, by SIGBUS: the default.
 */
#define SOFTFAULT_FAULTS_SIGNALS 1

/**
 * Faults are served by threads of the library; system calls on missing pages still fail.
 */
#define SOFTFAULT_FAULTS_THREADS 2

/**
 * The same, and system calls on missing pages wait for them. The system has to allow it: access to /dev/userfaultfd,
 * CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd=1.
 */
#define SOFTFAULT_FAULTS_MESSAGES 3

/**
 * A touch past the end of a truncated file raises SIGBUS: the default.
 */
#define SOFTFAULT_ON_TRUNCATE_ERROR 1

/**
 * A touch past the end of a truncated file reads zeros.
 */
#define SOFTFAULT_ON_TRUNCATE_ZEROS 2

/**
 * Mapping fails if the process may not use userfaultfd: the default.
 */
#define SOFTFAULT_FALLBACK_ERROR 1

/**
 * The kernel serves the maps then, without a budget.
 */
#define SOFTFAULT_FALLBACK_KERNEL 2

/**
 * Read-ahead uses io_submit(2), or io_uring if io_submit is not available: the default.
 */
#define SOFTFAULT_ASYNC_READS_AUTO 1

/**
 * Read-ahead uses io_submit(2).
 */
#define SOFTFAULT_ASYNC_READS_IO_SUBMIT 2

/**
 * Read-ahead uses io_uring.
 */
#define SOFTFAULT_ASYNC_READS_IO_URING 3

/**
 * There is no read-ahead: each fault reads its own page.
 */
#define SOFTFAULT_ASYNC_READS_NEVER 4

/**
 * Pages are written to swap without compression: the default.
 */
#define SOFTFAULT_COMPRESSION_NONE 1

/**
 * Pages are compressed by lz4 before they are written to swap.
 */
#define SOFTFAULT_COMPRESSION_LZ4 2

/**
 * The kernel may serve small files, and files in the page cache, outside of the budget: the default with
 * SOFTFAULT_READS_AUTO.
 */
#define SOFTFAULT_ALLOW_KERNEL_MAPS_YES 1

/**
 * The engine serves all files.
 */
#define SOFTFAULT_ALLOW_KERNEL_MAPS_NO 2

/**
 * Maps under one budget.
 */
struct softfault_engine;

/**
 * Options of an engine. Set the structure to zero, then set `size` and the options that you want: zero is the default.
 */
struct softfault_engine_options {
  /**
   * sizeof(struct softfault_engine_options).
   */
  size_t size;
  /**
   * The budget: bytes that may be resident, page tables included, at least 8 MiB. 0: a quarter of the machine's
   * memory, or of its memory cgroup's limit.
   */
  uint64_t memory;
  /**
   * The largest budget that softfault_set_memory may set later. 0: the machine's memory.
   */
  uint64_t max_memory;
  /**
   * An outer engine: this engine's memory is charged to that engine's budget too. Or NULL.
   */
  const struct softfault_engine *within;
  /**
   * A directory for swap: private memory that does not fit the budget goes to a file without a name there. NULL: no
   * swap, and private memory stays in memory.
   */
  const char *swap_directory;
  /**
   * Size of swap, in bytes of memory. 0: four times the budget.
   */
  uint64_t swap_size;
  /**
   * Size in bytes of the largest small file. The kernel maps small files by itself. 0: the value of
   * SOFTFAULT_SMALL_MAPS, or 1 MiB. Negative: no file is small.
   */
  int64_t small_maps;
  /**
   * Policies other than the default, as text: "lock=rwsem+retry=mmap-lock" (docs/documents.md); or NULL.
   */
  const char *policies;
  /**
   * SOFTFAULT_READS_...
   */
  int reads;
  /**
   * SOFTFAULT_COHERENCE_...
   */
  int coherence;
  /**
   * SOFTFAULT_FAULTS_...
   */
  int faults;
  /**
   * SOFTFAULT_ALLOW_KERNEL_MAPS_...
   */
  int allow_kernel_maps;
  /**
   * SOFTFAULT_COMPRESSION_...
   */
  int compression;
  /**
   * SOFTFAULT_ON_TRUNCATE_...
   */
  int on_truncate;
  /**
   * SOFTFAULT_FALLBACK_...
   */
  int fallback;
  /**
   * SOFTFAULT_ASYNC_READS_...
   */
  int async_reads;
  /**
   * Not 0: allows maps although the program installed a SIGBUS handler after the engine was made. Set it only if that
   * handler passes on the signals that are not its own.
   */
  int trust_signal_handlers;
  /**
   * 0.
   */
  int reserved;
};

/**
 * Options of softfault_mmap_ex besides mmap's arguments. Set the structure to zero, then set `size` and the options
 * that you want.
 */
struct softfault_map_options {
  /**
   * sizeof(struct softfault_map_options).
   */
  size_t size;
  /**
   * The engine of the map, whose budget it counts against; NULL for the default engine.
   */
  const struct softfault_engine *engine;
};

/**
 * Counters of an engine since it was made. Different fields may be read at slightly different moments. The structure
 * grows with releases, at its end.
 */
struct softfault_stats {
  /**
   * sizeof(struct softfault_stats), set by the caller.
   */
  size_t size;
  /**
   * The budget.
   */
  uint64_t budget_bytes;
  /**
   * Bytes charged to the budget now.
   */
  uint64_t resident_bytes;
  /**
   * The largest number of bytes that were ever charged at once.
   */
  uint64_t peak_bytes;
  /**
   * Faults served.
   */
  uint64_t faults;
  /**
   * Minor faults: their page was cached.
   */
  uint64_t minor_faults;
  /**
   * Major faults: their page had to be read.
   */
  uint64_t major_faults;
  /**
   * Touches that could not be served, in the whole process.
   */
  uint64_t failed_touches;
  /**
   * Times that a fault waited for memory.
   */
  uint64_t memory_waits;
  /**
   * Pages read ahead.
   */
  uint64_t readahead_pages;
  /**
   * Pages of read-ahead that were touched later.
   */
  uint64_t readahead_used;
  /**
   * Pages of read-ahead that were dropped untouched.
   */
  uint64_t readahead_dropped;
  /**
   * Pages of anonymous memory filled at their first touch.
   */
  uint64_t anonymous_faults;
  /**
   * Bytes read from files.
   */
  uint64_t bytes_read;
  /**
   * Bytes read through the kernel's page cache.
   */
  uint64_t read_cached_bytes;
  /**
   * Bytes read past the page cache.
   */
  uint64_t read_direct_bytes;
  /**
   * Reads that failed.
   */
  uint64_t read_errors;
  /**
   * Dirty bytes: written by maps that the engine serves, and not yet written back to their files.
   */
  uint64_t dirty_bytes;
  /**
   * Bytes written back to files.
   */
  uint64_t written_back_bytes;
  /**
   * Failed write-backs, in pages; each attempt counts.
   */
  uint64_t write_errors;
  /**
   * Mapped pages evicted.
   */
  uint64_t evicted;
  /**
   * Refaults: evicted pages that were needed again soon.
   */
  uint64_t refaults;
  /**
   * Files mapped now.
   */
  uint64_t windows;
  /**
   * Windows kept for files that have no map.
   */
  uint64_t idle_windows;
  /**
   * Pages written to swap.
   */
  uint64_t swap_pages_out;
  /**
   * Pages that came back from swap.
   */
  uint64_t swap_pages_in;
  /**
   * Writes to swap that failed; their pages stayed.
   */
  uint64_t swap_write_errors;
  /**
   * Times that swap had no room for a page.
   */
  uint64_t swap_full;
  /**
   * Pages that are in swap.
   */
  uint64_t swap_slots_used;
  /**
   * Pages that swap has room for; 0 without swap.
   */
  uint64_t swap_slots_total;
  /**
   * Small files that the kernel has mapped, in the whole process.
   */
  uint64_t kernel_small_maps;
  /**
   * Writable maps of files that the kernel serves, in the whole process.
   */
  uint64_t kernel_shared_maps;
  /**
   * Their bytes.
   */
  uint64_t kernel_shared_bytes;
  /**
   * Times that the engine let the kernel serve a file that the page cache had, in the whole process.
   */
  uint64_t kernel_switches;
  /**
   * 1 if the kernel serves all maps, because the process may not use userfaultfd.
   */
  uint64_t kernel_fallback;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/**
 * The version of the library that is loaded, as text: "0.1.0".
 *
 * Never NULL and never freed. Any thread may call this at any time, in signal handlers too.
 */
const char *softfault_version(void);

/**
 * SOFTFAULT_ABI_VERSION as the library that is loaded was compiled with it.
 *
 * Any thread may call this at any time, in signal handlers too.
 */
int softfault_abi_version(void);

/**
 * Makes an engine: a budget, and options for its maps.
 *
 * options may be NULL: all defaults. The environment may set the fields reads, coherence,
 * faults, allow_kernel_maps and small_maps that are zero (docs/c.md); SOFTFAULT_MEMORY and SOFTFAULT_SWAP are for the default
 * engine only. The strings are not used after this returns. The first engine of a process installs a SIGBUS handler, unless
 * threads serve its faults.
 *
 * Returns the engine, for softfault_engine_free, or NULL with errno:
 *   E2BIG       options has a field that is set and that this release does not know
 *   EINVAL      options->size is not a size of this structure in any release, or a field has an invalid value, or the
 *               budget is below 8 MiB, or there is no such policy, or faults or the lock policies differ from those of
 *               the process's first engine
 *   ENOMEM      the machine, or the outer engine's budget, does not have that much memory
 *   EOPNOTSUPP  userfaultfd is closed to this process, or SOFTFAULT_FAULTS_MESSAGES is
 *   or an error of making a file in the swap directory.
 *
 * Several threads may call this at the same time.
 */
struct softfault_engine *softfault_engine_new(const struct softfault_engine_options *options);

/**
 * Releases an engine. The engine lives as long as its maps. Does nothing for NULL.
 *
 * Several threads may call this at the same time, for different engines, and while other threads call functions on maps
 * of this engine. The pointer must not be used afterwards.
 */
void softfault_engine_free(struct softfault_engine *engine);

/**
 * Changes an engine's budget, and evicts down to it. NULL is the default engine.
 *
 * Without swap, written pages of private memory cannot be evicted: if they do not fit the new budget, the call fails with ENOMEM, and the
 * budget stays as it was.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the budget is below 8 MiB, or above the engine's max_memory
 *   ENOMEM  the outer engine's budget, or the machine, does not have that much memory; or the budget is too small for the
 *           present maps, pins and private memory
 *
 * Several threads may call this at the same time, and while other threads use the engine's maps.
 */
int softfault_set_memory(const struct softfault_engine *engine,
                         uint64_t bytes);

/**
 * Maps a file, or memory, over the process's default engine; mmap(2).
 *
 * Pages are read when they are touched, past the kernel's page cache or through it. The resident pages that the engine serves
 * never exceed its budget (SOFTFAULT_MEMORY; without it a quarter of the machine's memory). The kernel serves small files, and
 * files in the page cache, outside of the budget, unless the engine's allow_kernel_maps or SOFTFAULT_ALLOW_KERNEL_MAPS=0
 * forbids it. The map stays when the file is closed.
 *
 * addr is a hint, and is ignored, except with
 *   MAP_FIXED with MAP_PRIVATE|MAP_ANONYMOUS: the pages there become zeros with the protection prot. All of them
 *     must belong to maps of private anonymous memory, or have belonged to such maps until softfault_munmap. They stay
 *     in those maps and under their engines. Pins and locks of the pages end;
 *   MAP_FIXED_NOREPLACE with the same flags: all of the pages must have belonged to such maps, and none may be mapped now.
 *
 * length is rounded up to whole pages. Bytes past the end of the file in its last page are zero; a touch
 * of a later page raises SIGBUS.
 *
 * prot is PROT_READ, or PROT_READ|PROT_WRITE; PROT_WRITE alone means both.
 *
 * flags is one of
 *   MAP_SHARED (or MAP_SHARED_VALIDATE) of a file. The engine serves a read-only map: a page shows the bytes that the
 *     file had when the page was read, until it is evicted. Two such maps of one file may have the same addresses: call
 *     softfault_munmap for each. A writable map is a mapping of the kernel, in no budget; if the engine's coherence
 *     is SOFTFAULT_COHERENCE_ENGINE, the engine serves it;
 *   MAP_PRIVATE of a file: written pages belong to this map only, count against the budget, and go to swap if
 *     the engine has some;
 *   MAP_PRIVATE|MAP_ANONYMOUS: zeros until written; written pages count against the budget and go to swap likewise. fd
 *     and offset are ignored;
 * and any of
 *   MAP_POPULATE: brings the pages of a private writable map in, and starts to read those of others; a failure is not
 *     reported;
 *   MAP_LOCKED: as softfault_mlock of the map; a failure is an error;
 *   MAP_STACK, MAP_HUGETLB (and MAP_HUGE_...) with MAP_ANONYMOUS: a mapping of the kernel, in no budget. With
 *     MAP_HUGETLB length is rounded up to whole huge pages, and only whole ones can be unmapped. So it is with a map of a
 *     file on hugetlbfs that the kernel serves, such as each one that can be written to;
 *   MAP_NORESERVE, MAP_NONBLOCK, MAP_DENYWRITE, MAP_EXECUTABLE: no effect.
 *
 * offset must be a multiple of the page size.
 *
 * Returns the first address, or MAP_FAILED with errno:
 *   EACCES      the file is not open for the accesses that prot and flags need
 *   EBADF       fd is no open file
 *   EBUSY       MAP_FIXED, and another call uses the pages: those that it does not use may be zeros by then, and pins and
 *               locks of the range may have ended. Or the file has grown beyond what the addresses of its present maps have room
 *               for: unmap them first. Or a SIGBUS handler is installed again and again after softfault's
 *   EEXIST      MAP_FIXED_NOREPLACE, and some of the addresses are in use, by softfault or by another mapping
 *   EINVAL      length is 0, offset (or addr, with MAP_FIXED) is no multiple of the page size, flags has neither
 *               MAP_SHARED nor MAP_PRIVATE, or MAP_HUGETLB without MAP_ANONYMOUS, prot has unknown bits, an environment
 *               variable has an invalid value, or this thread blocks SIGBUS
 *   ENODEV      the file cannot be mapped: a directory, a pipe, a socket, a character device
 *   ENOMEM      no address space, or the budget has no room for the page tables of one more map, or, with MAP_LOCKED,
 *               for the pages
 *   EOVERFLOW   offset is negative, or the map would end past the largest offset of a file
 *   EOPNOTSUPP  PROT_NONE, PROT_EXEC, MAP_GROWSDOWN, MAP_32BIT, MAP_SYNC, MAP_SHARED|MAP_ANONYMOUS, unknown flags;
 *               MAP_FIXED and MAP_FIXED_NOREPLACE for other memory, or over other pages: nothing is replaced; or
 *               userfaultfd is closed to this process
 *   or an error of reading the file's size or of its file system.
 *
 * Several threads may call this at the same time.
 */
void *softfault_mmap(void *addr,
                     size_t length,
                     int prot,
                     int flags,
                     int fd,
                     off_t offset);

/**
 * As softfault_mmap, with options: the engine of the map.
 *
 * options may be NULL. The engine may be freed before the map is unmapped: it lives as long as its maps.
 *
 * Returns the first address, or MAP_FAILED with errno as softfault_mmap, and:
 *   EINVAL      options->size is not a size of this structure in any release
 *   E2BIG       options has a field that is set and that this release does not know
 *   EOPNOTSUPP  the engine belongs to the process's parent, and the map is a shared map of a file
 *
 * Several threads may call this at the same time, also with the same options and engine.
 */
void *softfault_mmap_ex(void *addr,
                        size_t length,
                        int prot,
                        int flags,
                        int fd,
                        off_t offset,
                        const struct softfault_map_options *options);

/**
 * Unmaps pages that softfault_mmap has mapped; munmap(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages. The range may be a part of a map, or
 * several adjacent maps. Pins and locks of the pages end. Writes to a shared map of a file are in the file
 * when this returns, also if other maps still show them (for the device, and for errors, see softfault_msync). The memory of
 * pages that no other map shows is freed.
 *
 * If several maps of one file show the same pages, each call removes them from one map; from one that can be written to
 * only if no other has them.
 *
 * The pages must not be used afterwards. While other pages of the same file, or of the same map, are mapped, the
 * addresses stay reserved: a touch of them raises a signal or shows the file, and never other memory.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  addr is no multiple of the page size, length is 0, some of the pages are not mapped by softfault, or the
 *           range begins or ends within a huge page: nothing is unmapped then
 *
 * Several threads may call this at the same time, also while other threads call functions on the same map: such a call
 * ends as if it had come before, or fails with ENOMEM. The pages are freed when the last such call ends. A touch of
 * the pages at the same time is a bug of the program, as with munmap(2).
 */
int softfault_munmap(void *addr,
                     size_t length);

/**
 * Makes a map longer or shorter; mremap(2), without its fifth argument.
 *
 * Pages of the map stay in memory or in swap, and are not copied; new pages are zeros, or have the file's
 * bytes. A part of a private map that grows becomes a map of its own, at another address; its pages in memory or in swap
 * are copied then. A read-only shared map of a file can grow to the end that the file had when it was mapped first, and keeps its address; a part of it cannot grow.
 *
 * old_address and old_size are those of the map, or of a part of it, in whole pages; sizes of a map of huge pages are rounded up
 * to whole ones, and it cannot grow (EINVAL). flags is 0, or MREMAP_MAYMOVE: the map may move if
 * there is no room at its address. Locks move with it.
 *
 * Returns the address, or MAP_FAILED with errno:
 *   EBUSY       pages of the map are pinned (of a part that gets shorter: pages that would go and that no other map shows), or
 *               another call uses it
 *   EFAULT      some of the old pages are not mapped by softfault; or the range would grow, and softfault_mprotect has
 *               made only some of its pages writable
 *   EINVAL      old_address is no multiple of the page size (of a map of huge pages: of theirs), a size is 0, flags has
 *               unknown bits, the new range would end past the end of a shared file, or a map of huge pages would grow
 *   ENOMEM      the map cannot grow at its address, or there is no address space, or the budget has no room for the move
 *   EOPNOTSUPP  MREMAP_FIXED or MREMAP_DONTUNMAP; or growing several maps, a part of a shared map of a file, or a part
 *               of a map that the kernel serves
 *   ENOTRECOVERABLE  the map has moved to an unknown address, and could not be moved back
 * After every other error the map is unchanged.
 *
 * Several threads may call this at the same time, for different maps. If another thread calls a function on the map
 * meanwhile, this call fails with EBUSY, or the other one fails with ENOMEM.
 */
void *softfault_mremap(void *old_address,
                       size_t old_size,
                       size_t new_size,
                       int flags);

/**
 * Makes pages writable or read-only; mprotect(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages. The range may be a part of a map, or several
 * adjacent maps: private ones, or shared ones that the kernel serves. A call that changes nothing
 * succeeds for any range.
 *
 * prot is PROT_READ or PROT_READ|PROT_WRITE. A write to a read-only page raises SIGSEGV. Pins and locks stay.
 *
 * Returns 0, or -1 with errno:
 *   EACCES      a map is a shared map of a file, and was made read-only
 *   EINVAL      addr is no multiple of the page size, the range begins or ends within a huge page (MAP_HUGETLB), or
 *               prot has unknown bits
 *   ENOMEM      some of the pages are not mapped by softfault; or there is no memory to record more parts
 *   EOPNOTSUPP  PROT_NONE, PROT_EXEC, or a writable shared map of a file that the engine serves
 * After an error nothing is changed, with one exception: if memory is short, the first of several maps may have changed.
 *
 * Several threads may call this at the same time, also on the same map, and while others call functions on it and touch it.
 * But a thread that writes to pages while another makes them read-only gets SIGSEGV, also in softfault_copy_in and
 * softfault_read_from: let such calls end before.
 */
int softfault_mprotect(void *addr,
                       size_t length,
                       int prot);

/**
 * Gives advice about accesses to pages, or drops the pages; madvise(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. advice is one of madvise(2):
 *   MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL: how to read ahead. For a shared file: in all of its maps in the engine;
 *   MADV_WILLNEED: starts to read, as far as spare memory goes;
 *   MADV_COLD, MADV_PAGEOUT: private pages go to swap soon (COLD), or now (PAGEOUT);
 *   MADV_POPULATE_READ, MADV_POPULATE_WRITE: brings the pages in, or returns the error;
 *   MADV_DONTNEED: private pages are zeros again, or have the file's bytes; pages of a shared file that the engine
 *     serves are read again. MADV_FREE, MADV_REMOVE: as in madvise(2);
 *   MADV_DONTFORK, MADV_DOFORK: whether a child of fork inherits the map; for maps of files only;
 *   MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DODUMP: no effect if the engine serves
 *     the map. MADV_DONTDUMP, MADV_HWPOISON: only for maps that the kernel serves.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT      MADV_POPULATE_...: past the end of the file
 *   EINVAL      addr is no multiple of the page size, advice is none of these, or MADV_DONTNEED or MADV_FREE for locked
 *               pages or for private pages that are pinned, or advice that this kind of map does not take. Pinned pages of a
 *               shared file are read again when their last pin ends
 *   ENOMEM      some of the pages are not mapped by softfault: nothing was done; or the budget has no room for them
 *   EOPNOTSUPP  MADV_DONTFORK, MADV_DONTDUMP, MADV_HWPOISON for memory that the engine serves
 *   or, for MADV_POPULATE_..., the error of the read.
 *
 * Several threads may call this at the same time, also on the same pages.
 */
int softfault_madvise(void *addr,
                      size_t length,
                      int advice);

/**
 * Starts to read a range, as far as spare memory goes, and does not wait.
 *
 * addr and length may have any values. It is MADV_WILLNEED for a range of bytes.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault: nothing was done
 *
 * Several threads may call this at the same time, also on the same range.
 */
int softfault_prefetch(const void *addr, size_t length);

/**
 * Writes the dirty pages of a shared map to the file's device; msync(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. flags is MS_SYNC (the data is
 * on the device when this returns) or MS_ASYNC (starts to write). Both may have MS_INVALIDATE, which has no effect: maps
 * of one engine see each other's writes. On a map that only reads, it is for pages that other maps of the file have written to; bytes
 * that calls have written to a file that no map writes to are not brought to the device (msync(2) does): use fsync(2). For private maps
 * the call does nothing.
 *
 * Returns 0, or -1 with errno:
 *   EBUSY   MS_INVALIDATE, and pages of the range are locked
 *   EINVAL  addr is no multiple of the page size, or flags has unknown bits, or both of MS_SYNC and MS_ASYNC
 *   EIO     (or ENOSPC and others) a write failed, now or since the last call on this map
 *   ENOMEM  some of the pages are not mapped by softfault: nothing was done
 *
 * Several threads may call this at the same time, also on the same pages. It covers all writes made before the call.
 */
int softfault_msync(void *addr,
                    size_t length,
                    int flags);

/**
 * Brings pages into memory, where they stay until softfault_munlock or softfault_munmap; mlock(2).
 *
 * It locks every page that overlaps the range. Locks do not nest. Up to half of an engine's budget can be locked or
 * pinned; the process's RLIMIT_MEMLOCK matters only for maps that the kernel serves. System calls may use locked
 * pages. A child of fork inherits no lock.
 *
 * Returns 0, or -1 with errno; after an error no page is newly locked:
 *   EFAULT  some of the pages are past the end of the file
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the pages are not mapped by softfault, or they are more than may be locked; or, where the kernel serves
 *           the map, past the end of the file
 *   or the error of a failed read.
 *
 * Several threads may call this at the same time, also on the same pages.
 */
int softfault_mlock(const void *addr,
                    size_t length);

/**
 * Unlocks pages that softfault_mlock has locked: they may be evicted again; munlock(2).
 *
 * It unlocks every page that overlaps the range; the pages need not be locked. Pins stay.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the pages are not mapped by softfault; or the range is only a part of the range of one softfault_mlock
 *           call, and almost all memory that may be locked or pinned is so: then the part stays locked
 *
 * Several threads may call this at the same time, also on the same pages.
 */
int softfault_munlock(const void *addr,
                      size_t length);

/**
 * Brings a range into memory, as reads would, and waits until it is there. Errors are values here, not signals.
 *
 * addr and length may have any values. The range may be evicted again at once; softfault_pin keeps it.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  some of the range is past the end of the file
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
 *   or the error of a failed read.
 *
 * Several threads may call this at the same time, also on the same range. Signals are delivered meanwhile.
 */
int softfault_fault_in(const void *addr,
                       size_t length);

/**
 * Brings many ranges into memory, and waits until they are there or the deadline has passed. The ranges may be in any
 * order and may overlap. Many reads are in flight at a time, enough to keep the disk busy.
 *
 * ranges has count entries; results, if not NULL, has room for count entries. A result is 0 if the range is in memory,
 * or the error of its first page that could not be read:
 *   EFAULT     past the end of the file
 *   EINVAL     the range does not fit in the address space
 *   ENOMEM     not mapped by softfault, or the budget has no room for it
 *   ETIMEDOUT  it was not in memory at the deadline
 *   or the error of its read.
 * A range that fails does not stop the others. The pages may be evicted again; if the ranges are larger than the budget,
 * the first are evicted before the last are read.
 *
 * deadline is a time of CLOCK_MONOTONIC, or NULL for none. Reads under way at the deadline are abandoned; a read that
 * this thread does itself, through the kernel's page cache, is finished first.
 *
 * The reads of all maps of an engine are in flight together; several engines are served one after the other. Maps that
 * the kernel serves are requested first, and waited for at the end.
 *
 * Returns the number of ranges that are not in memory: 0 if all are; or -1 with errno, and nothing was done:
 *   EFAULT  ranges is NULL, and count is not 0
 *   EINVAL  count does not fit in an int, or deadline is not a valid time
 *
 * Several threads may call this at the same time, also on the same ranges, with arrays of their own. Signals are
 * delivered meanwhile.
 */
int softfault_fault_in_many(const struct iovec *ranges,
                            size_t count,
                            const struct timespec *deadline,
                            int *results);

/**
 * Brings a range into memory and keeps it there until softfault_unpin: system calls may use it.
 *
 * addr and length may have any values, within one map. If the map is writable, system
 * calls may write to the range too. Pins nest: a softfault_unpin of the same range ends one pin, and
 * softfault_munmap of any page of the range ends it too. Up to half of an engine's budget can be locked or pinned. A pin
 * of a file is charged for its pages, 32 more pages, and one page per 2 MiB. A child of fork inherits no pin.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  some of the range is past the end of the file
 *   EINVAL  length is 0, the range does not fit in the address space, or is not within one map
 *   ENOMEM  some of the range is not mapped by softfault, or it is more than may be pinned
 *   or the error of a failed read.
 *
 * Several threads may call this at the same time, also on the same range.
 */
int softfault_pin(const void *addr,
                  size_t length);

/**
 * Ends a softfault_pin of the same range: its pages may be evicted again, unless another pin or lock keeps them.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range is not pinned: no pin has the same addr and length, or all such pins were ended already
 *   ENOMEM  addr is not mapped by softfault
 *
 * Several threads may call this at the same time. It need not be the thread that pinned the range.
 */
int softfault_unpin(const void *addr,
                    size_t length);

/**
 * Copies length bytes of a map to buffer. Errors are values here, not signals.
 *
 * Returns the number of bytes copied, which is smaller only if the file has ended or an error came after some bytes; or
 * -1 with errno:
 *   EFAULT  past the end of the file; or buffer is NULL, and length is not 0
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
 *   or the error of a failed read.
 *
 * Several threads may call this at the same time, also on the same range, with buffers of their own.
 */
ssize_t softfault_copy_out(const void *addr,
                           void *buffer,
                           size_t length);

/**
 * Copies length bytes from buffer to a map. Errors are values here, not signals: a full disk, the end of the file, no
 * memory.
 *
 * Returns the number of bytes copied, which is smaller only if the file has ended or an error came after some bytes; or
 * -1 with errno:
 *   EACCES  the map is read-only
 *   EFAULT  past the end of the file; or buffer is NULL, and length is not 0
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
 *   ENOSPC  the disk has no block for a hole of the file
 *   or the error of a failed read.
 *
 * Several threads may call this at the same time, on different ranges.
 */
ssize_t softfault_copy_in(void *addr,
                          const void *buffer,
                          size_t length);

/**
 * Writes length bytes of a map to fd; write(2), for memory that need not be resident.
 *
 * It goes on until all bytes are written; on a socket or a pipe it blocks, unless fd is non-blocking.
 *
 * Returns the number of bytes written, which is smaller only if an error came after some bytes, or the mapped file has
 * ended; or -1 with errno:
 *   EBADF   fd is no open file
 *   EFAULT  past the end of the file
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
 *   or an error of write(2) (EAGAIN, EPIPE, ...), or the error of a failed read. SIGPIPE is raised as by
 *   write(2). The call never fails with EINTR.
 *
 * Several threads may call this at the same time, also on the same range.
 */
ssize_t softfault_write_to(int fd,
                           const void *addr,
                           size_t length);

/**
 * Fills length bytes of a map from fd; read(2), into memory that need not be resident.
 *
 * It goes on until all bytes are filled or fd has ended; on a socket or a pipe it blocks, unless fd is non-blocking.
 *
 * Returns the number of bytes read, which is smaller only at the end of fd, or if an error came after some bytes; or
 * -1 with errno:
 *   EACCES  the map is read-only
 *   EBADF   fd is no open file
 *   EFAULT  past the end of the file that is mapped
 *   EINVAL  the range does not fit in the address space
 *   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
 *   or an error of read(2) (EAGAIN, ...). The call never fails with EINTR.
 *
 * Several threads may call this at the same time, on different ranges.
 */
ssize_t softfault_read_from(int fd,
                            void *addr,
                            size_t length);

/**
 * Fills stats with the counters of an engine; the caller has set stats->size. NULL is the default engine. In a child
 * of fork: the counters of the child.
 *
 * If the structure is larger than the library's, the rest becomes zero; if it is smaller, as in an older
 * header, only its fields are filled.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  stats is NULL
 *   EINVAL  stats->size is not a size of this structure in any release
 *   or, for the default engine, the error of making it.
 *
 * Several threads may call this at the same time, with structures of their own.
 */
int softfault_stats(const struct softfault_engine *engine,
                    struct softfault_stats *stats);

/**
 * The reason why the calling thread's last softfault call failed, as a line of text.
 *
 * The text explains errno: the wrong argument, or the remedy for a limit. It is in English,
 * has no newline at its end, and is empty before the first failure.
 *
 * Never NULL. The text is valid until the calling thread's next softfault call that fails, or until the thread ends.
 * Any thread may call this at any time.
 */
const char *softfault_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif /* __cplusplus */

#endif  /* SOFTFAULT_H */
