/*
 * Asynchronous write protection of userfaultfd (UFFD_FEATURE_WP_ASYNC, Linux 6.7), as a window of a writable map would use it. The
 * third part needs process_madvise(2) with MADV_DONTNEED (Linux 6.13).
 *
 *   cc -O2 -pthread -o wp_async docs/probes/wp_async.c && ./wp_async
 *
 * 1. A page that PAGEMAP_SCAN finds not written to, and that is unmapped then, while a thread writes to it: stores that are lost.
 * 2. The same, moved away by UFFDIO_MOVE instead: no store is lost, but nothing says whether the moved page was written to.
 * 3. Costs: the first write to a protected page of both kinds; taking scattered pages out by one process_madvise(2), and one by one
 *    by UFFDIO_MOVE, alone and beside a second thread of the process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 4096UL
#define BATCH 256UL
/* In no header before Linux 6.7 and 6.8. */
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#define _UFFDIO_MOVE 5
struct uffdio_move { uint64_t dst, src, len, mode; int64_t move; };
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#endif
#ifndef PAGEMAP_SCAN
#define PAGE_IS_WRITTEN (1 << 1)
#define PAGE_IS_PRESENT (1 << 3)
#define PM_SCAN_WP_MATCHING 1
#define PM_SCAN_CHECK_WPASYNC 2
struct page_region { uint64_t start, end, categories; };
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask, category_anyof_mask,
        return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int userfaultfd(uint64_t features)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
        fail("userfaultfd");
    return fd;
}

/* Memory that is registered for both kinds of faults. */
static char *window(int fd)
{
    char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = {.range = {(uint64_t)at, PAGES * PAGE},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    madvise(at, PAGES * PAGE, MADV_NOHUGEPAGE);
    if (ioctl(fd, UFFDIO_REGISTER, &all) < 0)
        fail("UFFDIO_REGISTER");
    return at;
}

static void copy(int fd, char *to, const char *from, int protect)
{
    struct uffdio_copy one = {.dst = (uint64_t)to, .src = (uint64_t)from, .len = PAGE,
                              .mode = protect ? UFFDIO_COPY_MODE_WP : 0};
    if (ioctl(fd, UFFDIO_COPY, &one) < 0 && errno != EEXIST)
        fail("UFFDIO_COPY");
}

/* 0 if it has moved. Linux 6.18 says EEXIST of a page that it has moved, if the page's entry changed while it began. */
static int move(int fd, char *to, char *from)
{
    struct uffdio_move one = {.dst = (uint64_t)to, .src = (uint64_t)from, .len = PAGE};
    unsigned char there = 0;
    if (ioctl(fd, UFFDIO_MOVE, &one) == 0)
        return 0;
    return errno == EEXIST && mincore(to, PAGE, &there) == 0 && there ? 0 : -1;
}

/* 1 if the page is there and was written to since it was protected; it is protected again. */
static int written(int pagemap, const char *page)
{
    struct page_region found;
    struct pm_scan_arg scan = {.size = sizeof scan, .flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
                               .start = (uint64_t)page, .end = (uint64_t)page + PAGE, .vec = (uint64_t)&found, .vec_len = 1,
                               .category_mask = PAGE_IS_WRITTEN | PAGE_IS_PRESENT, .return_mask = PAGE_IS_WRITTEN};
    int count = ioctl(pagemap, PAGEMAP_SCAN, &scan);
    if (count < 0)
        fail("PAGEMAP_SCAN");
    return count > 0;
}

static double now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

/* The page's bytes as its store has them, and the faults of the thread that writes. */
static int async_fd;
static _Alignas(4096) char stored[PAGE];
static pthread_mutex_t folio = PTHREAD_MUTEX_INITIALIZER;
static char *page;
static atomic_ulong stores;
static atomic_int ends;

/* A missing page is read again, once nobody evicts it. */
static void missing(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    pthread_mutex_lock(&folio);
    copy(async_fd, page, stored, 1);
    pthread_mutex_unlock(&folio);
}

static void *counts(void *unused)
{
    (void)unused;
    volatile uint64_t *count = (volatile uint64_t *)page;
    while (!ends) {
        *count += 1;
        atomic_fetch_add(&stores, 1);
        for (volatile int pause = 0; pause < 200; pause++) {
        }
    }
    return NULL;
}

/* Evicts the page again and again: by a look and an unmap, or by a move. */
static void evict(int pagemap, int by_move, double micros)
{
    char *away = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t writer;
    memset(stored, 0, PAGE);
    madvise(page, PAGE, MADV_DONTNEED);
    stores = ends = 0;
    struct uffdio_register to = {.range = {(uint64_t)away, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    if (by_move && ioctl(async_fd, UFFDIO_REGISTER, &to) < 0)
        fail("UFFDIO_REGISTER");
    pthread_create(&writer, NULL, counts, NULL);
    unsigned long evicted = 0, looks = 0, says_written = 0;
    for (double end = now(CLOCK_MONOTONIC) + micros; now(CLOCK_MONOTONIC) < end;) {
        pthread_mutex_lock(&folio);
        looks++;
        if (!by_move) {
            if (written(pagemap, page)) {
                /* Protected since that look: these bytes are as of then, or newer. */
                memcpy(stored, page, PAGE);
                if (!written(pagemap, page)) {
                    madvise(page, PAGE, MADV_DONTNEED);
                    evicted++;
                }
            }
        } else if (move(async_fd, away, page) == 0) {
            says_written += written(pagemap, away);
            memcpy(stored, away, PAGE);
            madvise(away, PAGE, MADV_DONTNEED);
            evicted++;
        }
        pthread_mutex_unlock(&folio);
    }
    ends = 1;
    pthread_join(writer, NULL);
    unsigned long count = *(volatile uint64_t *)page;
    printf("%s: %lu evictions, %lu stores, of which %lu are lost", by_move ? "moved away     " : "look, and unmap", evicted,
           (unsigned long)stores, (unsigned long)stores - count);
    if (by_move)
        printf("; after the move %lu of %lu pages look written to", says_written, evicted);
    printf("\n");
}

static int sync_fd;

/* A write to a protected page. */
static void protected_page(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    struct uffdio_writeprotect open = {.range = {(uint64_t)info->si_addr & ~(PAGE - 1), PAGE}};
    if (ioctl(sync_fd, UFFDIO_WRITEPROTECT, &open) < 0)
        _exit(2);
}

static void *spins(void *unused)
{
    (void)unused;
    while (!ends) {
    }
    return NULL;
}

/* Pages of a window in an order that has none, present and protected. */
static char *order[PAGES];
static char *filled(int fd)
{
    char *at = window(fd);
    for (unsigned long i = 0; i < PAGES; i++) {
        order[i] = at + (i * 2654435761UL % PAGES) * PAGE;
        copy(fd, order[i], stored, 1);
    }
    return at;
}

static double writes(int fd)
{
    char *at = filled(fd);
    double begun = now(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned long i = 0; i < PAGES; i++)
        *(volatile char *)order[i] = 1;
    double took = now(CLOCK_THREAD_CPUTIME_ID) - begun;
    munmap(at, PAGES * PAGE);
    return took / PAGES;
}

static double unmaps(int fd)
{
    char *at = filled(fd);
    double begun = now(CLOCK_THREAD_CPUTIME_ID);
    struct iovec pages[BATCH];
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    for (unsigned long i = 0; i < PAGES; i += BATCH) {
        for (unsigned long j = 0; j < BATCH; j++)
            pages[j] = (struct iovec){order[i + j], PAGE};
        if (syscall(SYS_process_madvise, self, pages, BATCH, MADV_DONTNEED, 0) != (long)(BATCH * PAGE))
            fail("process_madvise");
    }
    double took = now(CLOCK_THREAD_CPUTIME_ID) - begun;
    close(self);
    munmap(at, PAGES * PAGE);
    return took / PAGES;
}

static double moves(int fd)
{
    char *at = filled(fd), *to = window(fd);
    double begun = now(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned long i = 0; i < PAGES; i++)
        if (move(fd, to + i * PAGE, order[i]) < 0)
            fail("UFFDIO_MOVE");
    double took = now(CLOCK_THREAD_CPUTIME_ID) - begun;
    /* Compared with what was read, and given back. */
    munmap(at, PAGES * PAGE);
    munmap(to, PAGES * PAGE);
    return took / PAGES;
}

static int by_size(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double (*cost)(int), int fd)
{
    double all[9];
    for (int i = 0; i < 9; i++)
        all[i] = cost(fd);
    qsort(all, 9, sizeof *all, by_size);
    return all[4];
}

int main(void)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t both = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MOVE | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    async_fd = userfaultfd(both | UFFD_FEATURE_WP_ASYNC);
    sync_fd = userfaultfd(both);
    struct sigaction action = {.sa_sigaction = missing, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    page = window(async_fd);
    evict(pagemap, 0, 3e6);
    evict(pagemap, 1, 3e6);
    action.sa_sigaction = protected_page;
    sigaction(SIGBUS, &action, NULL);
    for (int beside = 0; beside < 2; beside++) {
        pthread_t other;
        ends = 0;
        if (beside)
            pthread_create(&other, NULL, spins, NULL);
        printf("%s: us a page: first write %.2f by signal, %.2f asynchronous; unmapped %.2f by %lu at a time; moved away %.2f\n",
               beside ? "second thread" : "alone        ", median(writes, sync_fd), median(writes, async_fd),
               median(unmaps, async_fd), BATCH, median(moves, async_fd));
        ends = 1;
        if (beside)
            pthread_join(other, NULL);
    }
    return 0;
}
