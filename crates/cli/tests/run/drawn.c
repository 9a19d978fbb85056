/* Calls that a seed draws, on memory and files that they share: `drawn DIRECTORY SEED CALLS` makes files in the directory, and
   prints the answer of each call and the sum of the bytes that it left. Nothing that it prints depends on where memory is, on
   which pages are in memory, or on time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define BOTH (PROT_READ | PROT_WRITE)
#define SLOTS 10
#define FILES 3
#define PAGES 1536

/* A part of the address space that this program got by a call: pages, of which some were given back. */
static struct slot {
    unsigned char *start;
    size_t pages;
    unsigned char gone[PAGES];
    /* All of it is what one call mapped. */
    int is_whole;
} slots[SLOTS];

/* Those that are mapped, and one that is written to. */
static int files[FILES + 1];
static int moves_several;
static const size_t SIZES[FILES] = {5 * 1024 * 1024 + 100, 2 * 1024 * 1024, 3 * PAGE + 1};
static unsigned long long state;
static sigjmp_buf back;
static volatile sig_atomic_t guarded;
static unsigned char buffer[64 * 4096];

static unsigned long draw(unsigned long below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned long)(state >> 33) % below;
}

/* Written at once: a child has nothing of it in a buffer. */
static void say(const char *format, ...)
{
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(1, line, length) != length)
        _exit(3);
}

static void answer(const char *what, struct slot *slot, size_t page, size_t pages, long answered)
{
    int error = errno;
    say("%s %d+%zu..%zu: %ld %d\n", what, (int)(slot - slots), page, page + pages, answered, answered < 0 ? error : 0);
}

static void caught(int signal)
{
    if (!guarded) {
        say("signal %d outside of a touch\n", signal);
        _exit(4);
    }
    siglongjmp(back, signal);
}

/* Reads a word of the page, or writes one; answers with the signal, if there was one. */
static int touch(unsigned char *at, int writes, unsigned long *value)
{
    int signal = sigsetjmp(back, 1);
    if (signal == 0) {
        guarded = 1;
        if (writes)
            *(volatile unsigned long *)at = *value;
        else
            for (size_t i = 0; i < PAGE / sizeof *value; i += 37)
                *value = *value * 31 + ((volatile unsigned long *)at)[i];
    }
    guarded = 0;
    return signal;
}

static unsigned long sum(struct slot *slot)
{
    unsigned long all = 0;
    for (size_t page = 0; page < slot->pages; page++)
        if (!slot->gone[page]) {
            unsigned long value = page;
            int signal = touch(slot->start + page * PAGE, 0, &value);
            all = all * 1000003 + (signal ? (unsigned long)signal : value);
        }
    return all;
}

static void sums(const char *who)
{
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++)
        if (slot->pages)
            say("%s sum %d: %016lx\n", who, (int)(slot - slots), sum(slot));
}

/* A run of pages of the slot that are still there; false if the one that was drawn is not. */
static int part(struct slot *slot, size_t *page, size_t *pages)
{
    *page = draw(slot->pages);
    size_t most = draw(2) ? 1 + draw(64) : 1 + draw(slot->pages);
    for (*pages = 0; *pages < most && *page + *pages < slot->pages && !slot->gone[*page + *pages];)
        ++*pages;
    return *pages > 0;
}

/* What a new mapping is: private or shared memory, a file, or a reservation. */
static void *map(void *at, size_t pages, int flags, const char **what)
{
    int file = draw(FILES);
    off_t offset = draw(2) ? 0 : (off_t)(draw(SIZES[file] / PAGE + 1) * PAGE);
    switch (draw(8)) {
    case 0:
        *what = "reserve";
        return mmap(at, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    case 1:
        *what = "anonymous, read-only";
        return mmap(at, pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    case 2:
        *what = "file, private";
        return mmap(at, pages * PAGE, BOTH, MAP_PRIVATE | flags, files[file], offset);
    case 3:
        *what = "file, private, read-only";
        return mmap(at, pages * PAGE, PROT_READ, MAP_PRIVATE | flags, files[file], offset);
    case 4:
        *what = "file, shared";
        return mmap(at, pages * PAGE, PROT_READ, MAP_SHARED | flags, files[file], offset);
    case 5:
        *what = "file, shared, written to";
        return mmap(at, pages * PAGE, BOTH, MAP_SHARED | flags, files[file], offset);
    default:
        *what = "anonymous";
        return mmap(at, pages * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    }
}

static void map_new(struct slot *slot)
{
    const char *what;
    size_t pages = 1 + draw(draw(2) ? PAGES : 300);
    void *at = map(NULL, pages, 0, &what);
    answer(what, slot, 0, pages, at == MAP_FAILED ? -1 : 0);
    if (at != MAP_FAILED)
        *slot = (struct slot){.start = at, .pages = pages, .is_whole = 1};
}

static void map_over(struct slot *slot, size_t page, size_t pages)
{
    const char *what;
    /* With both flags nothing is replaced. */
    int how = draw(6) ? MAP_FIXED : MAP_FIXED | MAP_FIXED_NOREPLACE;
    void *at = map(slot->start + page * PAGE, pages, how, &what);
    answer(what, slot, page, pages, at == MAP_FAILED ? -1 : 0);
    if (how == MAP_FIXED)
        slot->is_whole = 0;
}

static void forget(struct slot *slot, size_t page, size_t pages)
{
    memset(slot->gone + page, 1, pages);
    while (slot->pages && slot->gone[slot->pages - 1])
        slot->pages--;
}

static void unmap(struct slot *slot, size_t page, size_t pages)
{
    if (!draw(3)) {
        page = 0;
        pages = slot->pages;
        for (size_t i = 0; i < pages; i++)
            if (slot->gone[i])
                return;
    }
    answer("munmap", slot, page, pages, munmap(slot->start + page * PAGE, pages * PAGE));
    forget(slot, page, pages);
}

/* True if the kernel moves what was mapped by several calls, as it does since Linux 6.17. */
static int can_move_several(void)
{
    unsigned char *pages = mmap(NULL, 4 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, PAGE, PROT_READ);
    void *moved = mremap(pages, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages + 2 * PAGE);
    munmap(pages, 4 * PAGE);
    return moved != MAP_FAILED;
}

/* Moves a part over a part of another slot, or gives it another length and makes a slot of it. */
static void move(struct slot *slot, size_t page, size_t pages)
{
    struct slot *to = &slots[draw(SLOTS)];
    unsigned char *from = slot->start + page * PAGE;
    if (!slot->is_whole && !moves_several)
        return;
    if (to->pages) {
        size_t there = draw(to->pages), length = 0;
        while (length < pages && there + length < to->pages && !to->gone[there + length])
            length++;
        if (!length || to == slot)
            return;
        void *at = mremap(from, length * PAGE, length * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to->start + there * PAGE);
        answer("mremap over", slot, page, length, at == MAP_FAILED ? -1 : 0);
        to->is_whole = 0;
        if (at != MAP_FAILED)
            forget(slot, page, length);
        return;
    }
    /* What was mapped by several calls the kernel refuses to make longer, if it did not merge them: nobody can know. */
    size_t length = slot->is_whole ? 1 + draw(2 * pages) : 1 + draw(pages);
    if (length > PAGES)
        length = PAGES;
    void *at = mremap(from, pages * PAGE, length * PAGE, MREMAP_MAYMOVE);
    answer("mremap", slot, page, pages, at == MAP_FAILED ? -1 : (long)length);
    if (at == MAP_FAILED)
        return;
    *to = (struct slot){.start = at, .pages = length, .is_whole = slot->is_whole};
    forget(slot, page, pages);
}

static void protect(struct slot *slot, size_t page, size_t pages)
{
    static const int HOW[] = {BOTH, BOTH, PROT_READ, PROT_NONE};
    int how = HOW[draw(4)];
    char what[20];
    snprintf(what, sizeof what, "mprotect %d", how);
    int refused = mprotect(slot->start + page * PAGE, pages * PAGE, how);
    answer(what, slot, page, pages, refused);
    /* Up to where it was done before a file said no is not asked. */
    if (refused)
        mprotect(slot->start + page * PAGE, pages * PAGE, PROT_READ);
    slot->is_whole = 0;
}

static void advise(struct slot *slot, size_t page, size_t pages)
{
    static const int ADVICE[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_WILLNEED, MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL,
                                 MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
                                 MADV_DONTDUMP, MADV_WIPEONFORK, MADV_KEEPONFORK};
    int advice = ADVICE[draw(sizeof ADVICE / sizeof *ADVICE)];
    char what[20];
    snprintf(what, sizeof what, "madvise %d", advice);
    answer(what, slot, page, pages, madvise(slot->start + page * PAGE, pages * PAGE, advice));
    slot->is_whole = 0;
}

static void write_words(struct slot *slot, size_t page, size_t pages)
{
    unsigned long signals = 0;
    for (size_t i = page; i < page + pages; i++) {
        unsigned long value = draw(1 << 30);
        signals = signals * 31 + touch(slot->start + i * PAGE + 8 * (value % 500), 1, &value);
    }
    say("write %d+%zu..%zu: %lx\n", (int)(slot - slots), page, page + pages, signals);
}

static void read_words(struct slot *slot, size_t page, size_t pages)
{
    unsigned long all = 0;
    for (size_t i = page; i < page + pages; i++) {
        unsigned long value = i;
        int signal = touch(slot->start + i * PAGE, 0, &value);
        all = all * 1000003 + (signal ? (unsigned long)signal : value);
    }
    say("read %d+%zu..%zu: %016lx\n", (int)(slot - slots), page, page + pages, all);
}

/* The system reads a file into the memory, or writes the memory to one. */
static void transfer(struct slot *slot, size_t page, size_t pages)
{
    /* Not from the file that memory is written to of: what is read of it then depends on what was copied before. */
    int from = files[draw(2) * 2], to = files[FILES];
    size_t within = draw(PAGE), bytes = pages * PAGE - within;
    unsigned char *at = slot->start + page * PAGE + within;
    struct iovec parts[] = {{buffer, 100}, {at, bytes / 2}, {at + bytes / 2, bytes - bytes / 2}};
    off_t offset = draw(700) * 1000;
    switch (draw(4)) {
    case 0:
        answer("pread", slot, page, pages, pread(from, at, bytes, offset));
        break;
    case 1:
        answer("preadv", slot, page, pages, preadv(from, parts, 3, offset));
        break;
    case 2:
        answer("pwrite", slot, page, pages, pwrite(to, at, bytes, offset));
        break;
    default:
        answer("pwritev", slot, page, pages, pwritev(to, parts, 3, offset));
    }
}

/* Bytes through a pipe, in both directions. From a pipe they go to one page: of several, some of which may not be written to, the
   kernel counts those that fill a page of the pipe. */
static void by_pipe(struct slot *slot, size_t page, size_t pages)
{
    int ends[2];
    /* No more than a pipe has at least. */
    size_t within = draw(PAGE), most = (pages > 2 ? 2 : pages) * PAGE - within;
    unsigned char *at = slot->start + page * PAGE + within;
    if (pipe(ends) < 0)
        _exit(3);
    if (draw(2)) {
        answer("to a pipe", slot, page, pages, write(ends[1], at, 1 + draw(most)));
    } else {
        size_t bytes = 1 + draw(PAGE - within);
        if (write(ends[1], buffer, bytes) != (ssize_t)bytes)
            _exit(3);
        answer("from a pipe", slot, page, pages, read(ends[0], at, bytes));
    }
    close(ends[0]);
    close(ends[1]);
}

static void have_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        sums("child");
        for (int i = 0; i < 5; i++) {
            struct slot *slot = &slots[draw(SLOTS)];
            size_t page, pages;
            if (slot->pages && part(slot, &page, &pages))
                write_words(slot, page, pages);
        }
        sums("child");
        _exit(0);
    }
    int status = 0;
    if (child > 0)
        waitpid(child, &status, 0);
    say("child: %x\n", child > 0 ? status : -1);
}

static void make_files(void)
{
    for (int file = 0; file <= FILES; file++) {
        char name[20];
        snprintf(name, sizeof name, "drawn-%d", file);
        files[file] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (size_t at = 0; file < FILES && at < SIZES[file]; at += sizeof buffer) {
            size_t left = SIZES[file] - at, bytes = left < sizeof buffer ? left : sizeof buffer;
            for (size_t i = 0; i < bytes; i++)
                buffer[i] = (at + i) * 2654435761u >> 13;
            if (write(files[file], buffer, bytes) != (ssize_t)bytes)
                _exit(2);
        }
        /* What is stored behind the end of a file is there until the kernel writes the page back. So those that end within a page
           are only read. */
        if (file < FILES && SIZES[file] % PAGE) {
            close(files[file]);
            files[file] = open(name, O_RDONLY);
        }
    }
}

static void sum_files(void)
{
    for (int file = 0; file <= FILES; file++) {
        unsigned long all = 0;
        ssize_t has;
        for (off_t at = 0; (has = pread(files[file], buffer, sizeof buffer, at)) > 0; at += has)
            for (ssize_t i = 0; i < has; i++)
                all = all * 31 + buffer[i];
        say("file %d: %016lx\n", file, all);
    }
}

static void (*const CALLS[])(struct slot *, size_t, size_t) = {
    map_over, unmap, move, protect, protect, advise, advise, write_words, write_words, read_words, transfer, transfer, by_pipe,
};

int main(int count, char **arguments)
{
    struct sigaction action = {.sa_handler = caught, .sa_flags = SA_NODEFER};
    if (count < 4 || chdir(arguments[1]) < 0)
        return 2;
    state = strtoull(arguments[2], NULL, 10);
    draw(1);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    make_files();
    moves_several = can_move_several();
    /* Something that is taken. */
    void *at = mmap(NULL, PAGES * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    slots[0] = (struct slot){.start = at, .pages = PAGES, .is_whole = 1};
    for (long left = strtol(arguments[3], NULL, 10); left > 0; left--) {
        struct slot *slot = &slots[draw(SLOTS)];
        size_t page, pages;
        if (!draw(15))
            have_child();
        else if (!draw(20))
            sums("parent");
        else if (!slot->pages)
            map_new(slot);
        else if (part(slot, &page, &pages))
            CALLS[draw(sizeof CALLS / sizeof *CALLS)](slot, page, pages);
    }
    sums("parent");
    sum_files();
    return 0;
}
