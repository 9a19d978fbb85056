/* Random calls on private memory, whose every page is known: `random SEED OPERATIONS FILE`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MOST 3072 /* pages of a region */
#define REGIONS 4

struct page { unsigned char mapped, protection, of_file; unsigned version; };
static struct region { unsigned char *start; size_t pages; int is_file, cut; struct page page[MOST]; } regions[REGIONS];
static uint64_t state;
static unsigned versions, operation;
static int fd;
static unsigned char *file, buffer[PAGE * 64];
static size_t file_pages;

static size_t below(size_t most)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % most;
}

static void fail(const char *what, struct region *r, size_t page)
{
    printf("operation %u: %s, region %d page %zu: %s\n", operation, what, (int)(r - regions), page, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static uint64_t word(size_t page, unsigned version, size_t at) { return ((uint64_t)version << 32 | page << 9 | at) * 0x9E3779B97F4A7C15u; }

static void write_page(struct region *r, size_t page)
{
    uint64_t *words = (uint64_t *)(r->start + page * PAGE);
    r->page[page].version = ++versions;
    for (size_t at = 0; at < PAGE / 8; at += 37)
        words[at] = word(page, versions, at);
}

static int is_right(struct region *r, size_t page)
{
    uint64_t *words = (uint64_t *)(r->start + page * PAGE), *of_file = (uint64_t *)(file + page * PAGE);
    struct page *p = &r->page[page];
    for (size_t at = 0; at < PAGE / 8; at += 37)
        if (words[at] != (p->version ? word(page, p->version, at) : p->of_file ? of_file[at] : 0))
            return 0;
    return 1;
}

static void check(struct region *r, size_t from, size_t to)
{
    for (size_t page = from; page < to; page++)
        if (r->page[page].mapped && r->page[page].protection & PROT_READ && !is_right(r, page))
            fail("wrong bytes", r, page);
}

static void make(struct region *r)
{
    r->is_file = below(3) == 0;
    r->pages = r->is_file ? file_pages : 512 + below(MOST - 512);
    r->cut = 0;
    int flags = MAP_PRIVATE | (r->is_file ? 0 : MAP_ANONYMOUS);
    /* Some is reserved first, and comes to be used part by part. */
    int protection = !r->is_file && below(2) ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (protection == PROT_NONE)
        r->pages = MOST, r->cut = 1;
    r->start = mmap(NULL, r->pages * PAGE, protection, flags, r->is_file ? fd : -1, 0);
    if (r->start == MAP_FAILED)
        fail("mmap", r, 0);
    for (size_t page = 0; page < r->pages; page++)
        r->page[page] = (struct page){1, protection, r->is_file, 0};
}

/* True if all pages of a range are mapped. */
static int is_mapped(struct region *r, size_t from, size_t to)
{
    for (size_t page = from; page < to; page++)
        if (!r->page[page].mapped)
            return 0;
    return 1;
}

static void grow(struct region *r)
{
    size_t pages = r->pages + below(512);
    if (r->cut || r->is_file || pages > MOST)
        return;
    r->start = mremap(r->start, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    if (r->start == MAP_FAILED)
        fail("mremap", r, 0);
    for (; r->pages < pages; r->pages++)
        r->page[r->pages] = (struct page){1, PROT_READ | PROT_WRITE, 0, 0};
}

static void operate(int may_fork)
{
    struct region *r = &regions[below(REGIONS)];
    size_t from = below(r->pages), to = from + 1 + below(below(4) ? 40 : 1000), bytes;
    if (to > r->pages)
        to = r->pages;
    unsigned char *at = r->start + from * PAGE;
    bytes = (to - from) * PAGE;
    static const int PROTECTIONS[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
    static const int ADVICE[] = {MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL, MADV_NOHUGEPAGE};
    int all = is_mapped(r, from, to), protection = PROTECTIONS[below(4)];
    switch (below(40)) {
    case 0:
        check(r, 0, r->pages);
        /* An unmapped range may be somebody else's. */
        for (size_t page = 0, end; page < r->pages; page = end + 1) {
            for (end = page; end < r->pages && r->page[end].mapped;)
                end++;
            if (end > page && munmap(r->start + page * PAGE, (end - page) * PAGE))
                fail("munmap of all", r, page);
        }
        make(r);
        break;
    case 1:
        if (all && munmap(at, bytes))
            fail("munmap", r, from);
        for (size_t page = from; all && page < to; page++)
            r->page[page].mapped = 0;
        r->cut |= all;
        break;
    case 2:
        if (all && mprotect(at, bytes, protection))
            fail("mprotect", r, from);
        for (size_t page = from; all && page < to; page++)
            r->page[page].protection = protection;
        r->cut |= all;
        break;
    case 3: case 4:
        if (all && madvise(at, bytes, MADV_DONTNEED))
            fail("madvise", r, from);
        for (size_t page = from; all && page < to; page++)
            r->page[page].version = 0;
        break;
    case 5:
        if (all && mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
            fail("MAP_FIXED", r, from);
        for (size_t page = from; all && page < to; page++)
            r->page[page] = (struct page){1, PROT_READ | PROT_WRITE, 0, 0};
        r->cut |= all;
        break;
    case 6:
        grow(r);
        break;
    case 7:
        /* Pages that may not be read are locked, too, although that is an error. */
        if (all && to - from < 64) {
            (void)mlock(at, bytes);
            if (munlock(at, bytes))
                fail("munlock", r, from);
        }
        r->cut = 1;
        break;
    case 8:
        if (may_fork) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                for (int i = 0; i < REGIONS; i++)
                    check(&regions[i], 0, regions[i].pages);
                for (int i = 0; i < 100; i++)
                    operate(0);
                for (int i = 0; i < REGIONS; i++)
                    check(&regions[i], 0, regions[i].pages);
                _exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status)
                fail("a child", r, status);
        }
        break;
    case 9: case 10: case 11:
        if (all && madvise(at, bytes, ADVICE[below(7)]) && errno != EINVAL)
            fail("advice", r, from);
        /* The kernel moves one mapping at a time, and advice splits its own. */
        r->cut = 1;
        break;
    case 12: case 13:
        /* A call reads the bytes there, and writes them elsewhere. */
        to = from + 64 < to ? from + 64 : to;
        for (size_t page = from; page < to; page++)
            all &= r->page[page].mapped && r->page[page].protection == (PROT_READ | PROT_WRITE);
        if (all && (pwrite(STDERR_FILENO + 1, r->start + from * PAGE, (to - from) * PAGE, 0) < 0 ||
                    pread(STDERR_FILENO + 1, buffer, (to - from) * PAGE, 0) < 0 ||
                    memcmp(buffer, r->start + from * PAGE, (to - from) * PAGE) ||
                    pread(STDERR_FILENO + 1, r->start + from * PAGE, (to - from) * PAGE, 0) < 0))
            fail("a call", r, from);
        break;
    case 14: case 15: case 16: case 17: case 18: case 19: case 20: case 21:
        check(r, from, to);
        break;
    case 22:
        if (all && mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != at)
            fail("a reservation", r, from);
        for (size_t page = from; all && page < to; page++)
            r->page[page] = (struct page){1, PROT_NONE, 0, 0};
        r->cut |= all;
        break;
    default:
        for (size_t page = from; page < to; page++)
            if (r->page[page].mapped && r->page[page].protection & PROT_WRITE)
                write_page(r, page);
    }
}

int main(int count, char **arguments)
{
    struct stat about;
    char name[] = "/tmp/softfault-run-XXXXXX";
    if (count < 4)
        return 2;
    /* The first number that is free. */
    if (mkstemp(name) != STDERR_FILENO + 1)
        return 2;
    unlink(name);
    state = atoi(arguments[1]) * 0x9E3779B97F4A7C15u + 1;
    fd = open(arguments[3], O_RDONLY);
    if (fd < 0 || fstat(fd, &about) < 0)
        return 2;
    file_pages = about.st_size / PAGE < MOST ? about.st_size / PAGE : MOST;
    file = malloc(file_pages * PAGE);
    if (pread(fd, file, file_pages * PAGE, 0) != (ssize_t)(file_pages * PAGE))
        return 2;
    for (int i = 0; i < REGIONS; i++)
        make(&regions[i]);
    for (unsigned operations = atoi(arguments[2]); operation < operations; operation++)
        operate(1);
    for (int i = 0; i < REGIONS; i++)
        check(&regions[i], 0, regions[i].pages);
    printf("done %u\n", operation);
    return 0;
}
