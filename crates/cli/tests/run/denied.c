/* Calls on taken memory, for which the kernel refuses one call of softfault's: `denied CASE FILE`. A call that is refused has changed
   nothing, and one that is done is done whole. The filter's calls are none that the program makes alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "answers.h"
#include "touch.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)

/* From here on this thread's calls of that number are ENOMEM whose argument of this place is so large. */
static void refuse(unsigned call, unsigned place, unsigned value)
{
    unsigned at = offsetof(struct seccomp_data, args) + 8 * place;
    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, at}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOMEM}, {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {6, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        exit(3);
}

/* From here on the process has hardly more addresses than now. */
static void limit_addresses(size_t more)
{
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%lu", &pages) != 1)
        exit(3);
    fclose(statm);
    struct rlimit limit = {pages * PAGE + more, pages * PAGE + more};
    if (setrlimit(RLIMIT_AS, &limit) < 0)
        exit(3);
}

static unsigned char *anon(size_t bytes) { return mmap(NULL, bytes, BOTH, OWN, -1, 0); }

static void fill(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = i * 7 + (i >> 12) * 13 + 1;
}

static size_t wrong(const unsigned char *bytes, size_t from, size_t to)
{
    size_t bad = 0;
    for (size_t i = from; i < to; i++)
        bad += bytes[i] != (unsigned char)(i * 7 + (i >> 12) * 13 + 1);
    return bad;
}

/* Memory that is only read grows, and has to move for it: it cannot be made read-only where it is then. */
static void grows(void)
{
    unsigned char *bytes = anon(8 * MIB);
    fill(bytes, 8 * MIB);
    answer("mprotect", mprotect(bytes, 8 * MIB, PROT_READ));
    refuse(SYS_mprotect, 2, PROT_READ);
    unsigned char *longer = mremap(bytes, 8 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    if (longer != MAP_FAILED)
        bytes = longer;
    printf("wrong %zu\n", wrong(bytes, 0, 8 * MIB));
    answer("munmap", munmap(bytes, longer == MAP_FAILED ? 8 * MIB : 64 * MIB));
    printf("%s\n", touch(bytes, 0));
}

/* Taken memory and three pages in front of it are unmapped by one call, which cannot unmap these. */
static void unmaps_both(unsigned char *taken, size_t bytes, size_t (*bad)(const unsigned char *))
{
    unsigned char *plain = mmap(taken - 3 * PAGE, 3 * PAGE, BOTH, OWN | MAP_FIXED_NOREPLACE, -1, 0);
    if (plain != taken - 3 * PAGE)
        exit(3);
    memset(plain, 9, 3 * PAGE);
    refuse(SYS_munmap, 1, 3 * PAGE);
    int done = munmap(plain, 3 * PAGE + bytes);
    size_t wrong = done < 0 && errno != ENOMEM;
    if (done < 0)
        wrong += plain[0] != 9 || bad(taken) != 0;
    else
        wrong += strcmp(touch(plain, 0), "SIGSEGV") != 0 || strcmp(touch(taken, 0), "SIGSEGV") != 0;
    printf("wrong %zu\n", wrong);
}

static size_t bad_memory(const unsigned char *bytes) { return wrong(bytes, 0, 8 * MIB); }

static void unmaps_memory(void)
{
    unsigned char *bytes = anon(8 * MIB);
    fill(bytes, 8 * MIB);
    unmaps_both(bytes, 8 * MIB, bad_memory);
}

static size_t bad_file(const unsigned char *bytes)
{
    static unsigned char page[4096];
    size_t bad = 0;
    for (size_t at = 0; at < size; at += PAGE) {
        size_t count = pread(fd, page, PAGE, at);
        bad += memcmp(bytes + at, page, count) != 0;
    }
    return bad;
}

static void unmaps_file(void)
{
    unmaps_both(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), size, bad_file);
}

/* There are no addresses for a second mapping as large as that which takes the place of another. */
static void fixed(void)
{
    unsigned char *bytes = anon(32 * MIB);
    fill(bytes, 32 * MIB);
    limit_addresses(4 * MIB);
    answer("mmap", mmap(bytes + MIB, 30 * MIB, PROT_READ, OWN | MAP_FIXED, -1, 0) == bytes + MIB ? 0 : -1);
    size_t zeros = 0;
    for (size_t i = MIB; i < 31 * MIB; i++)
        zeros += bytes[i] == 0;
    printf("zeros %zu, wrong %zu\n", zeros, wrong(bytes, 0, MIB) + wrong(bytes, 31 * MIB, 32 * MIB));
    /* Refused, it replaces nothing. */
    answer("mmap", mmap(bytes + 31 * MIB, MIB, PROT_READ, OWN | MAP_FIXED | MAP_HUGETLB | 63u << MAP_HUGE_SHIFT, -1, 0) == MAP_FAILED ? 0 : -1);
    answer("mmap", mmap(bytes + 31 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED ? 0 : -1);
    printf("wrong %zu\n", wrong(bytes, 31 * MIB, 32 * MIB));
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"grows", grows}, {"unmaps-memory", unmaps_memory}, {"unmaps-file", unmaps_file}, {"fixed", fixed},
};
#include "run_case.h"
