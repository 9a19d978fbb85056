/*
 * softfault: memory maps larger than memory, served in user space under a fixed budget.
 *
 * The functions are mmap(2)'s and its siblings', with a prefix. docs/c.md is the manual; what holds for all of
 * them:
 *
 * Errors. A function that fails returns MAP_FAILED, -1 or NULL as its description says, and sets errno.
 * softfault_error() has a line of text that says more. errno is not changed otherwise.
 *
 * Threads. Each description says what may be called at the same time. No function is a cancellation point, and none
 * is async-signal-safe: do not call them in signal handlers. To touch a map in a signal handler is allowed.
 *
 * Faults. A touch of a page that is not in memory raises SIGBUS in the touching thread, which the library's handler
 * serves; a program that blocks SIGBUS in a thread must not touch maps there. A touch that cannot be served (the
 * read failed, the file was truncated, no memory is left) is a SIGBUS of the program's.
 *
 * System calls. The kernel does not call the handler: write(fd, map, n), with pages that are not in memory, fails with
 * EFAULT or is short. Hand memory to system calls between softfault_pin and softfault_unpin, or use
 * softfault_write_to and softfault_read_from. softfault_fault_in alone is enough only where nothing can evict the
 * pages meanwhile.
 *
 * fork. A child goes on with its parent's maps: private memory is its own from then on, files are the kernel's to
 * serve. Pins and locks are not inherited.
 */

#ifndef SOFTFAULT_H
#define SOFTFAULT_H

/* Written from the source by cbindgen; `cargo test -p softfault-c --test header` compares it. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/**
 * The version of the binary interface, which is in the library's soname too (libsoftfault.so.0). A program that was
 * compiled against one runs with every later release that has the same.
 */
#define SOFTFAULT_ABI_VERSION 0

/**
 * Files are read past the kernel's page cache.
 */
#define SOFTFAULT_READS_DIRECT 1

/**
 * Files are read through the kernel's page cache, where they stay.
 */
#define SOFTFAULT_READS_CACHED 2

/**
 * By what memory there is, file by file: the default.
 */
#define SOFTFAULT_READS_AUTO 3

/**
 * Maps that write to their file are the kernel's own, in no budget: the default.
 */
#define SOFTFAULT_COHERENCE_KERNEL 1

/**
 * They are the engine's, under its budget: others see what was written a few seconds later.
 */
#define SOFTFAULT_COHERENCE_ENGINE 2

/**
 * Faults are served in the thread that touches, by SIGBUS: the default.
 */
#define SOFTFAULT_FAULTS_SIGNALS 1

/**
 * Faults are served by threads of the engine.
 */
#define SOFTFAULT_FAULTS_THREADS 2

/**
 * A touch behind the end of a file that was truncated raises SIGBUS: the default.
 */
#define SOFTFAULT_ON_TRUNCATE_ERROR 1

/**
 * It finds zeros.
 */
#define SOFTFAULT_ON_TRUNCATE_ZEROS 2

/**
 * Where userfaultfd is closed, mapping fails: the default.
 */
#define SOFTFAULT_FALLBACK_ERROR 1

/**
 * The kernel maps there, without a budget.
 */
#define SOFTFAULT_FALLBACK_KERNEL 2

/**
 * Read-ahead goes by io_submit(2), or io_uring where that is closed: the default.
 */
#define SOFTFAULT_ASYNC_READS_AUTO 1

/**
 * By io_submit(2).
 */
#define SOFTFAULT_ASYNC_READS_IO_SUBMIT 2

/**
 * By io_uring.
 */
#define SOFTFAULT_ASYNC_READS_IO_URING 3

/**
 * There is none: each fault reads for itself.
 */
#define SOFTFAULT_ASYNC_READS_NEVER 4

/**
 * Pages go to swap as they are: the default.
 */
#define SOFTFAULT_COMPRESSION_NONE 1

/**
 * They are compressed.
 */
#define SOFTFAULT_COMPRESSION_LZ4 2

/**
 * Files that the page cache has, and small ones, may be the kernel's to serve, outside of the budget: the default of
 * SOFTFAULT_READS_AUTO.
 */
#define SOFTFAULT_BY_KERNEL_YES 1

/**
 * The engine serves all files.
 */
#define SOFTFAULT_BY_KERNEL_NO 2

/**
 * Maps under one budget.
 */
struct softfault_engine;

/**
 * What an engine is to be. Set it to zero, then `size` and what you want: zero is the default of each.
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
   * What softfault_set_memory may ask for later. 0: the machine's memory.
   */
  uint64_t most_memory;
  /**
   * An engine whose budget this one's memory counts against too; or NULL.
   */
  const struct softfault_engine *within;
  /**
   * A directory, in which private memory goes to a file without a name where it does not fit the budget. NULL: it
   * does not, and stays in memory.
   */
  const char *swap_directory;
  /**
   * Bytes of memory that may be there. 0: four times the budget.
   */
  uint64_t swap_size;
  /**
   * Bytes of the largest file that is small, which the kernel maps by itself. 0: as SOFTFAULT_SMALL_MAPS says, or
   * 1 MiB. Negative: none is.
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
   * SOFTFAULT_BY_KERNEL_...
   */
  int by_kernel;
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
   * Not 0: maps although somebody has installed a handler of SIGBUS after the engine, which is known to pass on what
   * it does not know.
   */
  int trust_signal_handlers;
  /**
   * 0.
   */
  int reserved;
};

/**
 * What softfault_mmap_ex takes besides mmap's arguments. Set it to zero, then `size` and what you want.
 */
struct softfault_map_options {
  /**
   * sizeof(struct softfault_map_options).
   */
  size_t size;
  /**
   * The engine under whose budget the map is; NULL for the default engine.
   */
  const struct softfault_engine *engine;
};

/**
 * Numbers of an engine since it was made. Those of different fields need not belong to the same moment. The structure
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
  uint64_t memory_bytes;
  /**
   * Bytes charged to the budget now.
   */
  uint64_t resident_bytes;
  /**
   * The most that were charged at a time.
   */
  uint64_t peak_bytes;
  /**
   * Faults served.
   */
  uint64_t faults;
  /**
   * Faults that found their page cached.
   */
  uint64_t minor_faults;
  /**
   * Faults that had to read.
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
   * Those of them that were then touched.
   */
  uint64_t readahead_used;
  /**
   * Those that were dropped untouched.
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
   * Bytes that were asked of the kernel's page cache.
   */
  uint64_t read_cached_bytes;
  /**
   * Bytes that were read past it.
   */
  uint64_t read_direct_bytes;
  /**
   * Reads that failed.
   */
  uint64_t read_errors;
  /**
   * Bytes written to files over the engine that the files have not got yet.
   */
  uint64_t dirty_bytes;
  /**
   * Bytes written back to files.
   */
  uint64_t written_back_bytes;
  /**
   * Pages that could not be written back, each time.
   */
  uint64_t write_errors;
  /**
   * Mapped pages evicted.
   */
  uint64_t evicted;
  /**
   * Evicted pages that came back soon.
   */
  uint64_t refaults;
  /**
   * Files mapped now.
   */
  uint64_t windows;
  /**
   * Windows kept for files that nobody maps.
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
   * Small files that the kernel was let map, in the whole process.
   */
  uint64_t kernel_small_maps;
  /**
   * Writable maps of files that are the kernel's own, in the whole process.
   */
  uint64_t kernel_shared_maps;
  /**
   * Their bytes.
   */
  uint64_t kernel_shared_bytes;
  /**
   * Times that a file which the page cache had was given to the kernel, in the whole process.
   */
  uint64_t kernel_shown;
  /**
   * 1 if the kernel serves all maps, since userfaultfd is closed.
   */
  uint64_t kernel_fallback;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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
 * Makes an engine: a budget, and what its maps are to be.
 *
 * options may be NULL for the default of all. What it leaves at zero the environment may say, for reads, coherence,
 * faults, by_kernel and small_maps (docs/c.md); SOFTFAULT_MEMORY and SOFTFAULT_SWAP are the default engine's only. The
 * strings are not used any more when this returns. The first engine of a process installs a handler of SIGBUS.
 *
 * Returns the engine, for softfault_engine_free, or NULL with errno:
 *   E2BIG       options says something that this release does not know
 *   EINVAL      options->size is none that the structure has had, or a field is none of its values, or the budget is
 *               below 8 MiB, or there is no such policy, or faults or the policy of locks are others than those of the
 *               process's first engine
 *   ENOMEM      the machine, or the enclosing budget, has not that much memory
 *   EOPNOTSUPP  userfaultfd is closed to this process
 *   and what making a file in the directory of swap answers.
 *
 * Any threads may call this at the same time.
 */
struct softfault_engine *softfault_engine_new(const struct softfault_engine_options *options);

/**
 * Lets go of an engine. It lives as long as its maps do. NULL is nothing.
 *
 * Any threads may call this at the same time, for different engines; and while others call functions on maps
 * of this one. Nobody uses the pointer any more.
 */
void softfault_engine_free(struct softfault_engine *engine);

/**
 * Changes an engine's budget, and evicts down to it. NULL is the default engine.
 *
 * Without swap, private memory that was written to cannot be evicted, and stays charged.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the budget is below 8 MiB, or above the engine's most_memory
 *   ENOMEM  the enclosing budget, or the machine, has not that much memory; or maps, pins and private memory hold more
 *           than so small a budget leaves to faults
 *
 * Any threads may call this at the same time, and while others use its maps.
 */
int softfault_set_memory(const struct softfault_engine *engine,
                         uint64_t bytes);

/**
 * Maps a file, or memory, over the process's default engine; mmap(2).
 *
 * Pages are read when they are touched, past the kernel's page cache or through it, and never more of them are
 * resident than the engine's budget (SOFTFAULT_MEMORY; without it a quarter of the machine's memory). The map
 * stays when the file is closed.
 *
 * addr is a hint, and is not taken, but for
 *   MAP_FIXED with MAP_PRIVATE|MAP_ANONYMOUS: the pages there become zeros that may be used as prot says. All of them are
 *     of maps of private anonymous memory, or were until softfault_munmap, and stay in those maps and under their
 *     engines. Pins and locks of them end;
 *   MAP_FIXED_NOREPLACE with the same: where all of the pages were of such maps, and none is.
 *
 * length is rounded up to whole pages. What is behind the end of the file in its last page is zero; a touch
 * of a later page raises SIGBUS.
 *
 * prot is PROT_READ, or PROT_READ|PROT_WRITE; PROT_WRITE alone means both.
 *
 * flags is one of
 *   MAP_SHARED (or MAP_SHARED_VALIDATE) of a file. Read-only, it is the engine's: a page shows what the file had when
 *     it was read, until it is evicted. Two such maps of one file may have the same addresses: softfault_munmap is
 *     called for each. Writable, it is the kernel's own mapping, in no budget, or the engine's where its coherence
 *     is SOFTFAULT_COHERENCE_ENGINE;
 *   MAP_PRIVATE of a file: what is written is this map's alone, counts against the budget, and goes to swap where
 *     the engine has some;
 *   MAP_PRIVATE|MAP_ANONYMOUS: zeros until written, which then count and go to swap likewise. fd and offset are
 *     not looked at;
 * and any of
 *   MAP_POPULATE: starts to bring it in, which cannot fail;
 *   MAP_LOCKED: as softfault_mlock of it, which can;
 *   MAP_STACK, MAP_HUGETLB (and MAP_HUGE_...) with MAP_ANONYMOUS: memory of the kernel's own, in no budget;
 *   MAP_NORESERVE, MAP_NONBLOCK, MAP_DENYWRITE, MAP_EXECUTABLE: nothing.
 *
 * offset is a multiple of the page size.
 *
 * Returns the first address, or MAP_FAILED with errno:
 *   EACCES      the file is not open as prot and flags need it
 *   EBADF       fd is no open file
 *   EBUSY       MAP_FIXED, and another call uses the pages
 *   EEXIST      MAP_FIXED_NOREPLACE, and some of the addresses are taken, whoever has them
 *   EINVAL      length is 0, offset (or addr, with MAP_FIXED) is no multiple of the page size, flags has neither MAP_SHARED nor MAP_PRIVATE,
 *               prot has unknown bits, or the environment says something that cannot be
 *   ENODEV      the file is none that can be mapped: a directory, a pipe, a socket, a character device
 *   ENOMEM      no address space, or the budget cannot hold the page tables of one more map, or, of MAP_LOCKED, the
 *               pages
 *   EOVERFLOW   offset is negative, or the map would reach past what a file can have
 *   EOPNOTSUPP  PROT_NONE, PROT_EXEC, MAP_GROWSDOWN, MAP_32BIT, MAP_SYNC, MAP_SHARED|MAP_ANONYMOUS, unknown flags;
 *               MAP_FIXED and MAP_FIXED_NOREPLACE of other memory, or over other pages: nothing is replaced; or
 *               userfaultfd is closed to this process
 *   and what reading the file's size or its file system may answer.
 *
 * Any threads may call this at the same time. A thread that blocks SIGBUS cannot map (EINVAL).
 */
void *softfault_mmap(void *addr,
                     size_t length,
                     int prot,
                     int flags,
                     int fd,
                     off_t offset);

/**
 * As softfault_mmap, with options: over which engine.
 *
 * options may be NULL. The engine may be freed before the map is unmapped: it lives as long as its maps.
 *
 * Returns the first address, or MAP_FAILED with errno as softfault_mmap, and:
 *   EINVAL      options->size is none that the structure has had
 *   E2BIG       options says something that this release does not know
 *   EOPNOTSUPP  the engine is that of the process's parent, and the map is of a shared file
 *
 * Any threads may call this at the same time, with the same options and engine too.
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
 * addr is a multiple of the page size; length is rounded up to whole pages. It may be a part of a map, or
 * several maps that lie side by side. Pins and locks of the pages end. What was written to a shared file is in the file
 * when this returns (not on its device: softfault_msync); the rest of what the map had is given back.
 *
 * Where several maps of one file show the same pages, each call takes them out of one.
 *
 * Nobody may use the pages afterwards. As long as something else of the same file, or of the same map, is mapped, the
 * addresses stay taken; a touch of them is then a signal or shows the file, and never other memory.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  addr is no multiple of the page size, length is 0, or some of the pages are not mapped by softfault:
 *           nothing is unmapped then
 *
 * Any threads may call this at the same time, while others call functions on the same map too: such a call ends
 * as if it had come before, or fails with ENOMEM. Whoever touches the pages at the same time has a bug, as with
 * munmap(2).
 */
int softfault_munmap(void *addr,
                     size_t length);

/**
 * Makes a map longer or shorter; mremap(2), without its fifth argument.
 *
 * What the map has stays, in memory or in swap, and is not copied; what is new is zeros, or what the file has
 * there. A part of a private map that grows becomes a map of its own, elsewhere; what it has in memory or in swap is
 * copied then. A read-only map of a shared file can grow to the end of the file, and stays where it is; a part of it cannot.
 *
 * old_address and old_size are the map's, in whole pages. flags is 0, or MREMAP_MAYMOVE: the map may move where its
 * place has no room. Locks go with it.
 *
 * Returns the address, or MAP_FAILED with errno:
 *   EBUSY       pages of the map are pinned, or another call uses it
 *   EFAULT      some of the old pages are not mapped by softfault; or they are to grow, and by softfault_mprotect only some
 *               of them may be written to
 *   EINVAL      old_address is no multiple of the page size, a size is 0, flags has unknown bits, or a shared file
 *               ends before
 *   ENOMEM      it cannot grow where it is, or there is no address space, or the budget cannot hold the move
 *   EOPNOTSUPP  MREMAP_FIXED, MREMAP_DONTUNMAP, or several maps, or a part of a map of a shared file or of one that the
 *               kernel serves, are to grow
 * The map is as it was then, but that it may have moved to an address that nobody knows if moving it back failed,
 * which is said by ENOTRECOVERABLE.
 *
 * Any threads may call this at the same time, of different maps. A call of another thread's on the map meanwhile
 * makes this fail with EBUSY, or fails with ENOMEM itself.
 */
void *softfault_mremap(void *old_address,
                       size_t old_size,
                       size_t new_size,
                       int flags);

/**
 * Says whether pages may be written to; mprotect(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages. It may be a part of a map, or several maps
 * that lie side by side: private ones, or shared ones that the kernel serves. A call that changes nothing
 * succeeds for any range.
 *
 * prot is PROT_READ or PROT_READ|PROT_WRITE. A write to a page that may only be read raises SIGSEGV. Pins and locks stay.
 *
 * Returns 0, or -1 with errno:
 *   EACCES      a map is of a shared file, and was made to be read only
 *   EINVAL      addr is no multiple of the page size, or prot has unknown bits
 *   ENOMEM      some of the pages are not mapped by softfault; or there is no memory for what is to be known of more parts
 *   EOPNOTSUPP  PROT_NONE, PROT_EXEC, or a shared file that the engine writes to
 * Nothing is changed then, but that of several maps the first may have been, where there is no memory.
 *
 * Any threads may call this at the same time, on the same map too, while others call functions on it and touch it.
 */
int softfault_mprotect(void *addr,
                       size_t length,
                       int prot);

/**
 * Says what to expect of accesses to pages, or gives them up; madvise(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. advice is madvise(2)'s:
 *   MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL: how to read ahead. Of a shared file, all of its maps in the engine;
 *   MADV_WILLNEED: starts to read, as far as spare memory goes;
 *   MADV_COLD, MADV_PAGEOUT: private pages go soon, or now, to swap;
 *   MADV_POPULATE_READ, MADV_POPULATE_WRITE: brings pages in; what cannot be had is the error;
 *   MADV_DONTNEED: private pages are zeros, or the file's, again; what the engine has of a shared file is read
 *     again. MADV_FREE, MADV_REMOVE: as there;
 *   MADV_DONTFORK, MADV_DOFORK: whether a child of fork has it; of a file only;
 *   MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DODUMP: nothing where the engine serves
 *     the map. MADV_DONTDUMP, MADV_HWPOISON: of maps that the kernel serves only.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT      MADV_POPULATE_...: behind the end of the file
 *   EINVAL      addr is no multiple of the page size, advice is none of these, or MADV_DONTNEED or MADV_FREE of locked
 *               or pinned pages, or advice that this kind of map does not take
 *   ENOMEM      some of the pages are not mapped by softfault: nothing was done; or the budget cannot hold them
 *   EOPNOTSUPP  MADV_DONTFORK, MADV_DONTDUMP, MADV_HWPOISON of memory that the engine serves
 *   and, of MADV_POPULATE_..., the error of the read.
 *
 * Any threads may call this at the same time, on the same pages too.
 */
int softfault_madvise(void *addr,
                      size_t length,
                      int advice);

/**
 * Starts to read a range, as far as spare memory goes, and waits for nothing.
 *
 * addr and length need be no multiples of anything. It is MADV_WILLNEED by bytes.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault: nothing was done
 *
 * Any threads may call this at the same time, on the same range too.
 */
int softfault_prefetch(const void *addr, size_t length);

/**
 * Has what was written to a shared file reach its device; msync(2).
 *
 * addr is a multiple of the page size; length is rounded up to whole pages, and may be 0. flags is MS_SYNC: it is on
 * the device when this returns; or MS_ASYNC: that is begun; either with MS_INVALIDATE, which is nothing: maps of one
 * engine see each other's writes. Of private maps nothing is to be done.
 *
 * Returns 0, or -1 with errno:
 *   EBUSY   MS_INVALIDATE, and pages of the range are locked
 *   EINVAL  addr is no multiple of the page size, or flags has unknown bits, or both of MS_SYNC and MS_ASYNC
 *   EIO     (or ENOSPC and others) something could not be written, now or since the last call on this map
 *   ENOMEM  some of the pages are not mapped by softfault: nothing was done
 *
 * Any threads may call this at the same time, on the same pages too. It covers what was written before it is called.
 */
int softfault_msync(void *addr,
                    size_t length,
                    int flags);

/**
 * Brings pages into memory, where they stay until softfault_munlock or softfault_munmap; mlock(2).
 *
 * The pages are those that the range touches. Locks do not nest. Up to half of an engine's budget can be locked or
 * pinned; the process's RLIMIT_MEMLOCK matters only to maps that the kernel serves. System calls may use locked
 * pages. A child of fork inherits no lock.
 *
 * Returns 0, or -1 with errno; no page is locked then that was not before:
 *   EFAULT  some of the pages are behind the end of the file
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the pages are not mapped by softfault, or they are more than may be locked
 *   and the error of a read that has failed.
 *
 * Any threads may call this at the same time, on the same pages too.
 */
int softfault_mlock(const void *addr,
                    size_t length);

/**
 * Lets pages be evicted again that softfault_mlock has locked; munlock(2).
 *
 * The pages are those that the range touches; they need not be locked. Pins stay.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the pages are not mapped by softfault; or, where a part of what was locked by one call is to be
 *           unlocked while almost all that may be is locked or pinned, the part stays locked
 *
 * Any threads may call this at the same time, on the same pages too.
 */
int softfault_munlock(const void *addr,
                      size_t length);

/**
 * Brings a range into memory, as reads would, and waits until it is there. An error is a value here, and no signal.
 *
 * addr and length need be no multiples of anything. Nothing keeps the range: it may be evicted before the next
 * instruction. softfault_pin keeps.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  some of the range is behind the end of the file
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault, or the budget cannot hold a page of it
 *   and the error of a read that has failed.
 *
 * Any threads may call this at the same time, on the same range too. Signals are delivered meanwhile.
 */
int softfault_fault_in(const void *addr,
                       size_t length);

/**
 * Brings many ranges into memory, in any order and overlapping as they like, with as many reads in flight as a disk
 * likes, and waits until they are there or the deadline is over.
 *
 * ranges has count of them; results, where not NULL, has room for as many, and gets of each 0, if it is in memory, or
 * why its first page that is not cannot be had:
 *   EFAULT     behind the end of the file
 *   EINVAL     the range is longer than addresses go
 *   ENOMEM     not mapped by softfault, or the budget cannot hold it
 *   ETIMEDOUT  it was not in memory at the deadline
 *   or the error of its read.
 * One that cannot be had stops no other. Nothing keeps what was brought; if the ranges are larger than the budget,
 * the first are evicted before the last have come.
 *
 * deadline is a time of CLOCK_MONOTONIC, or NULL for none. Reads under way at the deadline are left; one that
 * this thread does itself, through the kernel's page cache, ends first.
 *
 * The ranges of all maps of an engine are read together, by one pass; engines one after the other. What the kernel
 * serves is asked of it before, and waited for at the end.
 *
 * Returns how many ranges are not in memory: 0 if all are; or -1 with errno, and nothing was done:
 *   EFAULT  ranges is NULL, and count is not 0
 *   EINVAL  count is more than fits an int, or deadline is no time
 *
 * Any threads may call this at the same time, on the same ranges too, with arrays of their own. Signals are
 * delivered meanwhile.
 */
int softfault_fault_in_many(const struct iovec *ranges,
                            size_t count,
                            const struct timespec *deadline,
                            int *results);

/**
 * Brings a range into memory and keeps it there until softfault_unpin: system calls may use it.
 *
 * addr and length need be no multiples of anything. The range is of one map. Where the map may be written to, system
 * calls may write to the range too. Pins nest: each is ended by a softfault_unpin of the same range, or by
 * softfault_munmap of any page of it. Up to half of an engine's budget can be locked or pinned; a pin of a file counts
 * for its pages, 32 more, and one for each 2 MiB. A child of fork inherits no pin.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  some of the range is behind the end of the file
 *   EINVAL  length is 0, the range is longer than addresses go, or is of several maps
 *   ENOMEM  some of the range is not mapped by softfault, or it is more than may be pinned
 *   and the error of a read that has failed.
 *
 * Any threads may call this at the same time, on the same range too.
 */
int softfault_pin(const void *addr,
                  size_t length);

/**
 * Ends a softfault_pin of the same range: its pages may be evicted again, if nothing else keeps them.
 *
 * Returns 0, or -1 with errno:
 *   EINVAL  the range is not pinned: no pin had the same addr and length, or each was ended already
 *   ENOMEM  addr is not mapped by softfault
 *
 * Any threads may call this at the same time, another one than has pinned it too.
 */
int softfault_unpin(const void *addr,
                    size_t length);

/**
 * Copies length bytes of a map to buffer. An error is a value here, and no signal.
 *
 * Returns how many bytes were copied, which are fewer only where the file has ended or an error came after some; or -1
 * with errno:
 *   EFAULT  behind the end of the file; or buffer is NULL, and length is not 0
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault, or the budget cannot hold a page of it
 *   and the error of a read that has failed.
 *
 * Any threads may call this at the same time, on the same range too, with buffers of their own.
 */
ssize_t softfault_read_at(const void *addr,
                          void *buffer,
                          size_t length);

/**
 * Copies length bytes from buffer to a map. An error is a value here, and no signal: where a store would raise
 * SIGBUS for a full disk, the end of the file or want of memory.
 *
 * Returns how many bytes were copied, which are fewer only where the map has ended or an error came after some; or
 * -1 with errno:
 *   EACCES  the map may only be read
 *   EFAULT  behind the end of the file; or buffer is NULL, and length is not 0
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault, or the budget cannot hold a page of it
 *   ENOSPC  the disk has no block for a hole of the file
 *   and the error of a read that has failed.
 *
 * Any threads may call this at the same time, on different ranges.
 */
ssize_t softfault_write_at(void *addr,
                           const void *buffer,
                           size_t length);

/**
 * Writes length bytes of a map to fd; write(2), of memory that need not be there.
 *
 * It goes on until all are written; on a socket or a pipe it blocks, unless fd is non-blocking.
 *
 * Returns how many bytes were written, which are fewer only where an error came after some, or the file that is mapped
 * has ended; or -1 with errno:
 *   EBADF   fd is no open file
 *   EFAULT  behind the end of the file
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault, or the budget cannot hold a page of it
 *   and what write(2) answers (EAGAIN, EPIPE, ...), or the error of a read that has failed. SIGPIPE is raised as
 *   there. EINTR is never answered.
 *
 * Any threads may call this at the same time, on the same range too.
 */
ssize_t softfault_write_to(int fd,
                           const void *addr,
                           size_t length);

/**
 * Fills length bytes of a map from fd; read(2), into memory that need not be there.
 *
 * It goes on until all are filled or fd has ended.
 *
 * Returns how many bytes were read, which are fewer only at the end of fd, or where an error came after some; or -1
 * with errno:
 *   EACCES  the map may only be read
 *   EBADF   fd is no open file
 *   EFAULT  behind the end of the file that is mapped
 *   EINVAL  the range is longer than addresses go
 *   ENOMEM  some of the range is not mapped by softfault, or the budget cannot hold a page of it
 *   and what read(2) answers (EAGAIN, ...). EINTR is never answered.
 *
 * Any threads may call this at the same time, on different ranges.
 */
ssize_t softfault_read_from(int fd,
                            void *addr,
                            size_t length);

/**
 * Fills stats, whose size the caller has set, with what happened in an engine; NULL is the default engine. In a child
 * of fork: what happened there.
 *
 * Of a structure that is larger than the library knows, the rest becomes zero; of one that is smaller, as an older
 * header had it, what it has is filled.
 *
 * Returns 0, or -1 with errno:
 *   EFAULT  stats is NULL
 *   EINVAL  stats->size is none that the structure has had
 *   and, of the default engine, why it cannot be made.
 *
 * Any threads may call this at the same time, with structures of their own.
 */
int softfault_stats(const struct softfault_engine *engine,
                    struct softfault_stats *stats);

/**
 * Says in a line of text why the calling thread's last softfault call failed.
 *
 * It is the text that belongs to errno: which argument was wrong, or what to do about a limit. It is in English,
 * ends in no newline, and is empty before the first failure.
 *
 * Never NULL. The text is valid until the calling thread's next softfault call that fails, or its end. Any thread
 * may call this at any time; it is about the calling thread.
 */
const char *softfault_error(void);

extern int pthread_setcancelstate(int state, int *before);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SOFTFAULT_H */
