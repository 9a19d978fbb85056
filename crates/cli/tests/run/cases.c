/* Uses of mappings of a file by programs: `cases CASE FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A case that is ended within has printed nothing. */
#define PRINTS_AT_EXIT
#include "answers.h"

extern char **environ;
static const size_t MIB = 1 << 20;

static void show(const char *what, const unsigned char *bytes, size_t count)
{
    printf("%s %016llx\n", what, (unsigned long long)sum(bytes, count));
}

static unsigned char *map(size_t bytes, int protection, int flags, off_t offset)
{
    unsigned char *mapped = mmap(NULL, bytes, protection, flags, fd, offset);
    if (mapped == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        exit(3);
    }
    return mapped;
}

static unsigned char *whole(void) { return map(size, PROT_READ, MAP_SHARED, 0); }

static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void on_fault(int signal) { caught = signal; siglongjmp(back, 1); }

static void catch_faults(void)
{
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static const char *touch(const volatile unsigned char *byte)
{
    caught = 0;
    if (sigsetjmp(back, 1) == 0)
        (void)*byte;
    return caught == 0 ? "there" : caught == SIGSEGV ? "SIGSEGV" : "SIGBUS";
}

static void whole_file(void) { show("whole", whole(), size); }

/* By a thread that goes on when the first has ended. */
static void *whole_by_another(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    whole_file();
    exit(0);
}

static void without_the_first(void)
{
    static pthread_t first, other;
    first = pthread_self();
    pthread_create(&other, NULL, whole_by_another, &first);
    pthread_exit(NULL);
}

static void parts(void)
{
    unsigned char *first = map(5 * MIB + 100, PROT_READ, MAP_SHARED, 3 * MIB);
    unsigned char *last = map(size - 20 * MIB, PROT_READ, MAP_PRIVATE, 20 * MIB);
    show("first", first, 5 * MIB + 100);
    show("last", last, size - 20 * MIB);
    answer("munmap", munmap(first, 5 * MIB + 100));
    show("last", last, size - 20 * MIB);
}

static void twice(void)
{
    unsigned char *one = whole(), *other = whole();
    printf("apart %d\n", one + size <= other || other + size <= one);
    answer("munmap", munmap(one, size));
    show("other", other, size);
}

static void past_end(void)
{
    unsigned char *mapped = map(size + 8 * MIB, PROT_READ, MAP_SHARED, 0);
    size_t end = (size + 4095) & ~(size_t)4095;
    catch_faults();
    show("file", mapped, size);
    printf("rest of the page %d\n", mapped[end - 1]);
    printf("behind %s\n", touch(mapped + end));
    printf("far behind %s\n", touch(mapped + size + 8 * MIB - 1));
}

static void unmap_parts(void)
{
    unsigned char *mapped = whole();
    show("before", mapped, size);
    answer("middle", munmap(mapped + 4 * MIB, 2 * MIB));
    catch_faults();
    printf("middle %s\n", touch(mapped + 5 * MIB));
    show("front", mapped, 4 * MIB);
    show("back", mapped + 6 * MIB, size - 6 * MIB);
    answer("all", munmap(mapped, size));
    printf("all %s\n", touch(mapped));
}

static void again(void)
{
    for (int i = 0; i < 20; i++) {
        unsigned char *mapped = whole();
        printf("%d ", mapped[(size_t)i * MIB]);
        answer("munmap", munmap(mapped, size));
    }
}

static void protect(void)
{
    unsigned char *mapped = whole();
    catch_faults();
    answer("the same", mprotect(mapped, size, PROT_READ));
    answer("to write", mprotect(mapped, 4096, PROT_READ | PROT_WRITE));
    answer("none", mprotect(mapped + MIB, MIB, PROT_NONE));
    printf("none %s\n", touch(mapped + MIB));
    answer("read", mprotect(mapped + MIB, MIB, PROT_READ));
    show("all", mapped, size);
}

static void write_to_private(void)
{
    unsigned char *mapped = map(size, PROT_READ, MAP_PRIVATE, 0);
    show("before", mapped, size);
    answer("to write", mprotect(mapped + MIB, MIB, PROT_READ | PROT_WRITE));
    memset(mapped + MIB, 7, MIB);
    show("after", mapped, size);
    show("file", whole(), size);
}

static void move(void)
{
    unsigned char *mapped = whole();
    unsigned char *moved = mremap(mapped, size, size - MIB, 0);
    printf("shrunk %d\n", moved == mapped);
    moved = mremap(moved, size - MIB, size + MIB, MREMAP_MAYMOVE);
    show("grown", moved, size);
    answer("munmap", munmap(moved, size + MIB));
}

static void fixed_over(void)
{
    unsigned char *mapped = whole();
    show("before", mapped, size);
    void *over = mmap(mapped + MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("over %d\n", over == mapped + MIB);
    memset(over, 9, MIB);
    show("after", mapped, size);
    answer("munmap", munmap(mapped, size));
}

static void advise(void)
{
    unsigned char *mapped = whole();
    answer("random", madvise(mapped, size, MADV_RANDOM));
    show("random", mapped, size);
    answer("sequential", madvise(mapped, size, MADV_SEQUENTIAL));
    answer("will need", madvise(mapped + MIB, MIB, MADV_WILLNEED));
    answer("do not need", madvise(mapped, size, MADV_DONTNEED));
    show("again", mapped, size);
    answer("populate", madvise(mapped, MIB, MADV_POPULATE_READ));
    answer("free", madvise(mapped, size, MADV_FREE));
    answer("posix", posix_madvise(mapped, size, POSIX_MADV_DONTNEED));
    answer("posix wrong", posix_madvise(mapped + 1, size, POSIX_MADV_RANDOM));
    answer("wrong", madvise(mapped + 1, MIB, MADV_RANDOM));
    answer("unknown", madvise(mapped, MIB, 12345));
    show("free", mapped, size);
}

static void lock(void)
{
    unsigned char *mapped = whole();
    unsigned char there[16];
    answer("mlock", mlock(mapped + 100, 60000));
    answer("mincore", mincore(mapped, 16 * 4096, there));
    int count = 0;
    for (int i = 0; i < 14; i++)
        count += there[i] & 1;
    printf("there %d\n", count);
    answer("munlock", munlock(mapped, 65536));
    answer("msync", msync(mapped, size, MS_SYNC));
    show("all", mapped, size);
}

static void calls(void)
{
    char name[] = "/tmp/softfault-run-XXXXXX";
    int out = mkstemp(name), ends[2];
    unlink(name);
    unsigned char *mapped = whole();
    printf("write %zd\n", write(out, mapped + 2 * MIB, MIB));
    printf("pwrite %zd\n", pwrite(out, mapped + 5 * MIB, MIB, MIB));
    struct iovec parts[3] = {{mapped + 9 * MIB, 5000}, {mapped + 7 * MIB, 5000}, {mapped + 8 * MIB + 1, 5000}};
    printf("writev %zd\n", writev(out, parts, 3));
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    printf("send %zd\n", send(ends[0], mapped + 10 * MIB, 3000, 0));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    printf("sendmsg %zd\n", sendmsg(ends[0], &message, 0));
    FILE *stream = fdopen(dup(out), "w");
    fseek(stream, 3 * MIB, SEEK_SET);
    printf("fwrite %zu\n", fwrite(mapped + 15 * MIB + 3, 1000, 1000, stream));
    answer("fclose", fclose(stream));
    answer("read into it", read(fd, mapped + 12 * MIB, 4096));
    answer("stat into it", fstat(fd, (struct stat *)(mapped + 13 * MIB)));
    answer("open", open((char *)mapped + 14 * MIB, O_RDONLY));
    unsigned char *copy = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE, out, 0);
    struct stat about;
    fstat(out, &about);
    printf("size %lld\n", (long long)about.st_size);
    show("copy", copy, about.st_size);
}

/* Calls that no library is in front of. */
static void raw_calls(void)
{
    char name[] = "/tmp/softfault-run-XXXXXX";
    int out = mkstemp(name);
    unlink(name);
    unsigned char *mapped = whole();
    printf("raw %ld\n", syscall(SYS_pwrite64, out, mapped + 11 * MIB, 4096, 0));
    unsigned char *copy = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, out, 0);
    show("copy", copy, 4096);
    printf("same %d\n", memcmp(copy, mapped + 11 * MIB, 4096) == 0);
}

static void kept_errno(void)
{
    errno = 1234;
    unsigned char *mapped = whole();
    printf("mmap %d\n", errno);
    madvise(mapped, size, MADV_RANDOM);
    munmap(mapped, size);
    printf("munmap %d\n", errno);
    answer("no file", mmap(NULL, MIB, PROT_READ, MAP_SHARED, 9999, 0) == MAP_FAILED ? -1 : 0);
    answer("odd offset", mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 77) == MAP_FAILED ? -1 : 0);
    answer("no length", mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    answer("odd munmap", munmap((char *)1, 4096));
}

static void wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
}

static void forks(void)
{
    unsigned char *mapped = whole(), *part = map(MIB, PROT_READ, MAP_PRIVATE, MIB);
    show("parent", mapped, 2 * MIB);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        show("child", mapped, size);
        show("child's part", part, MIB);
        answer("munmap", munmap(mapped, size));
        show("child's own", whole(), size);
        fflush(stdout);
        _exit(5);
    }
    wait_for(child);
    show("parent", mapped, size);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        /* A private mapping may be written to, and a shared one by a descriptor for reading may not. */
        answer("private", mprotect(part, MIB, PROT_READ | PROT_WRITE));
        part[1] = 77;
        show("private", part, MIB);
        answer("shared", mprotect(mapped, MIB, PROT_READ | PROT_WRITE));
        fflush(stdout);
        _exit(8);
    }
    wait_for(child);
    show("parent's part", part, MIB);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "cases", "whole", path, NULL);
        _exit(6);
    }
    wait_for(child);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "cases", "whole", path, NULL);
        _exit(7);
    }
    wait_for(child);
    char *arguments[] = {"cases", "parts", (char *)path, NULL};
    posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    wait_for(child);
    show("parent", mapped, size);
}

static unsigned char *shared;
static uint64_t sums[100];
static void *reads(void *number)
{
    size_t at = (size_t)number;
    size_t part = size / 100;
    uint64_t hash = 0;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < 100; i += 7)
            hash = hash * 31 + shared[(at + i) % 100 * part + i];
    sums[at] = hash + sum(shared + at * part, part);
    return NULL;
}

static void threads(void)
{
    pthread_t all[100];
    shared = whole();
    for (size_t i = 0; i < 100; i++)
        pthread_create(&all[i], NULL, reads, (void *)i);
    for (size_t i = 0; i < 100; i++)
        pthread_join(all[i], NULL);
    show("sums", (unsigned char *)sums, sizeof sums);
}

/* Threads read while the rest of the mapping is changed. */
static volatile int done;
static void *reads_on(void *expected)
{
    uint64_t wrong = 0;
    while (!done)
        wrong += sum(shared, 2 * MIB) != *(uint64_t *)expected;
    return (void *)wrong;
}

static void change_under_readers(void)
{
    uint64_t wrong = 0;
    for (int round = 0; round < 10; round++) {
        pthread_t readers[3];
        shared = whole();
        uint64_t expected = sum(shared, 2 * MIB);
        done = 0;
        for (int i = 0; i < 3; i++)
            pthread_create(&readers[i], NULL, reads_on, &expected);
        usleep(2000);
        munmap(shared + 8 * MIB, MIB);
        usleep(2000);
        done = 1;
        for (int i = 0; i < 3; i++) {
            void *of_thread;
            pthread_join(readers[i], &of_thread);
            wrong += (uint64_t)of_thread;
        }
        munmap(shared, size);
    }
    printf("wrong %llu\n", (unsigned long long)wrong);
}

static void handlers(void)
{
    static unsigned char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, now;
    unsigned char *mapped = whole();
    sigaction(SIGBUS, &action, NULL);
    signal(SIGSEGV, SIG_DFL);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    show("masked", mapped, size);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    signal(SIGBUS, SIG_IGN);
    show("ignored", mapped + MIB, 2 * MIB);
    signal(SIGBUS, SIG_DFL);
    show("default", mapped + 3 * MIB, 2 * MIB);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_fault, .sa_mask = all}, NULL);
    sigaction(SIGUSR1, NULL, &now);
    printf("masks %d\n", sigismember(&now.sa_mask, SIGBUS));
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &all);
    printf("blocked %d\n", sigismember(&all, SIGBUS));
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &all);
    printf("unblocked %d\n", sigismember(&all, SIGBUS));
    signal(SIGBUS, SIG_IGN);
    sigaction(SIGBUS, NULL, &now);
    printf("still ignored %d\n", now.sa_handler == SIG_IGN);
    catch_faults();
    printf("nothing %s\n", touch(NULL));
    if (sigsetjmp(back, 1) == 0)
        raise(SIGBUS);
    printf("raised %d\n", caught == SIGBUS);
    show("all", mapped, size);
}

/* Signals that the program waits for are its own, whoever sends them, while we wait for signals about the file. */
static void own_signals(void)
{
    enum { REAL_TIME = 64 };
    const struct timespec long_time = {10, 0};
    unsigned char *mapped = whole();
    sigset_t all;
    sigemptyset(&all);
    for (int signal = SIGRTMIN; signal <= REAL_TIME; signal++)
        sigaddset(&all, signal);
    sigprocmask(SIG_BLOCK, &all, NULL);
    show("mapped", mapped, size);
    for (int signal = SIGRTMIN; signal <= REAL_TIME; signal++) {
        siginfo_t about = {0};
        kill(getpid(), signal);
        usleep(1000);
        int taken = sigtimedwait(&all, &about, &long_time);
        printf("%d taken %d, of kill %d, by ourselves %d\n", signal, taken, about.si_code == SI_USER, about.si_pid == getpid());
        sigqueue(getpid(), signal, (union sigval){.sival_int = signal});
        usleep(1000);
        taken = sigtimedwait(&all, &about, &long_time);
        printf("%d taken %d, of sigqueue %d\n", signal, taken, about.si_code == SI_QUEUE);
    }
    fflush(stdout);
}

static void populated(void)
{
    enum { READ = 22, WRITE = 23, PAGE = 4096 };
    size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    unsigned char *mapped = map(size + 3 * PAGE, PROT_READ, MAP_PRIVATE, 0);
    answer("all of the file", madvise(mapped, pages, READ));
    answer("behind it", madvise(mapped, pages + PAGE, READ));
    answer("to write", madvise(mapped, PAGE, WRITE));
    show("read", mapped, size);
    answer("mprotect", mprotect(mapped, MIB, PROT_NONE));
    answer("protected", madvise(mapped, pages, READ));
    answer("not protected", madvise(mapped + MIB, pages - MIB, READ));
}

static void dies(void)
{
    show("before", whole(), size);
    fflush(stdout);
    raise(SIGTERM);
}

static void loads(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW);
    double (*root)(double) = library ? (double (*)(double))dlsym(library, "sqrt") : NULL;
    printf("dlopen %g\n", root ? root(2) : 0.0);
    show("whole", whole(), size);
    printf("dlclose %d\n", library ? dlclose(library) : 0);
}

static void declined(void)
{
    char small[] = "/tmp/softfault-run-XXXXXX";
    int other = mkstemp(small), writable = open(path, O_RDWR), pipes[2];
    unlink(small);
    answer("truncate", ftruncate(other, 65536));
    unsigned char *mapped = mmap(NULL, 65536, PROT_READ, MAP_SHARED, other, 0);
    show("small", mapped, 65536);
    show("small part", map(65536, PROT_READ, MAP_SHARED, MIB), 65536);
    mapped = mmap(NULL, MIB, PROT_READ, MAP_SHARED, other, 0);
    show("small file", mapped, 65536);
    show("written", mmap(NULL, size, PROT_READ, MAP_SHARED, writable, 0), size);
    show("shared", mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0), size);
    show("private", map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0), size);
    show("executable", map(MIB, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0), MIB);
    show("locked", map(MIB, PROT_READ, MAP_SHARED | MAP_LOCKED, 0), MIB);
    printf("none %d\n", map(MIB, PROT_NONE, MAP_SHARED, 0) != NULL);
    void *place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show("fixed", mmap(place, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0), size);
#ifdef MAP_32BIT
    show("low", map(MIB, PROT_READ, MAP_SHARED | MAP_32BIT, 0), MIB);
#endif
    int zero = open("/dev/zero", O_RDONLY);
    show("device", mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, zero, 0), MIB);
    answer("pipe", pipe(pipes));
    answer("of a pipe", mmap(NULL, MIB, PROT_READ, MAP_SHARED, pipes[0], 0) == MAP_FAILED ? -1 : 0);
}

static void shared_writable(void)
{
    show("shared", mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0), size);
}

static void fill(int to, size_t at, size_t bytes, int byte)
{
    unsigned char *some = malloc(bytes);
    memset(some, byte, bytes);
    if (pwrite(to, some, bytes, at) != (ssize_t)bytes)
        exit(4);
    free(some);
}

/* Somebody else writes to the file, makes it shorter and longer, and replaces it, in rounds that the reader tells. */
static void writes(int rounds, int from, int to)
{
    char name[4096];
    for (int round = 0; round < rounds; round++) {
        char go;
        if (read(from, &go, 1) != 1)
            exit(0);
        if (round % 4 == 3)
            answer("truncate", truncate(path, 9 * MIB));
        int file = open(path, O_RDWR);
        if (round % 4 == 1 || round % 4 == 3)
            answer("ftruncate", ftruncate(file, size));
        fill(file, MIB, 6 * MIB, round);
        fill(file, 12 * MIB, 4096, round + 1);
        if (round % 4 == 2) {
            snprintf(name, sizeof name, "%s.new", path);
            int fresh = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
            answer("ftruncate", ftruncate(fresh, size));
            fill(fresh, MIB, 6 * MIB, round);
            close(fresh);
            answer("rename", rename(name, path));
        }
        close(file);
        fflush(stdout);
        if (write(to, &go, 1) != 1)
            exit(0);
    }
    exit(0);
}

static volatile int expected_byte;
static void *reads_others(void *nothing)
{
    /* Bytes that nobody writes to. */
    uint64_t wrong = 0;
    while (!done)
        wrong += shared[11 * MIB + 5] != expected_byte;
    return (void *)wrong;
}

static uint64_t differ(const unsigned char *these, const unsigned char *those)
{
    uint64_t differ = 0;
    if (memcmp(these, those, size) != 0)
        for (size_t at = 0; at < size; at++)
            differ += these[at] != those[at];
    return differ;
}

/* A file of the program's own has the number of the standard error. */
static void no_standard_error(void)
{
    char name[] = "/tmp/softfault-run-XXXXXX";
    struct stat about;
    close(2);
    int own = mkstemp(name);
    unlink(name);
    show("whole", whole(), size);
    fstat(own, &about);
    printf("%d has %lld\n", own, (long long)about.st_size);
}

/* The file of this name is open by the number of the standard error at the exit. */
static void own_file_by_its_number(void)
{
    close(2);
    if (open(getenv("OWN"), O_RDWR) != 2)
        exit(4);
    show("whole", whole(), size);
}

static void written(void)
{
    int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 12, ask[2], told[2];
    uint64_t wrong = 0;
    /* The file's expected bytes: every byte of it is compared before a round and after. */
    unsigned char *model = malloc(size);
    if (pread(fd, model, size, 0) != (ssize_t)size)
        exit(4);
    if (pipe(ask) || pipe(told))
        exit(4);
    if (fork() == 0) {
        close(ask[1]);
        writes(rounds, ask[0], told[1]);
    }
    for (int round = 0; round < rounds; round++) {
        char go = 0;
        pthread_t reader;
        void *of_thread;
        /* Mapped by a descriptor of the file that has the name now. */
        close(fd);
        fd = open(path, O_RDONLY);
        shared = whole();
        expected_byte = shared[11 * MIB + 5];
        done = round % 4 == 3;
        pthread_create(&reader, NULL, reads_others, NULL);
        wrong += differ(shared, model);
        if (write(ask[1], &go, 1) != 1 || read(told[0], &go, 1) != 1)
            exit(4);
        if (round % 4 == 3)
            memset(model + 9 * MIB, 0, size - 9 * MIB);
        memset(model + MIB, round, 6 * MIB);
        memset(model + 12 * MIB, round + 1, 4096);
        wrong += differ(shared, model);
        done = 1;
        pthread_join(reader, &of_thread);
        wrong += (uint64_t)of_thread;
        munmap(shared, size);
        if (round % 4 == 2) {
            /* The next file. */
            memset(model, 0, size);
            memset(model + MIB, round, 6 * MIB);
        }
    }
    printf("wrong %llu\n", (unsigned long long)wrong);
    fflush(stdout);
    wait(NULL);
}

static void writes_itself(void)
{
    unsigned char *mapped = whole(), *part = map(MIB, PROT_READ, MAP_PRIVATE, 2 * MIB);
    show("before", mapped, size);
    show("part", part, MIB);
    int file = open(path, O_RDWR);
    fill(file, MIB, 4 * MIB, 99);
    show("after", mapped, size);
    show("while open", whole(), size);
    close(file);
    show("closed", whole(), size);
}

/* Children that run no handlers: they read their parent's mapping, and a mapping of their own. */
static const unsigned char *of_parent;

static int bare_child(void *own)
{
    int right = memcmp(of_parent + 3 * MIB, (unsigned char *)own + 3 * MIB, MIB) == 0;
    unsigned char *mapped = whole();
    right = right && memcmp(of_parent + 9 * MIB, mapped + 9 * MIB, 9 * MIB) == 0;
    right = right && munmap(mapped, size) == 0;
    if (fork() == 0)
        _exit(memcmp(of_parent + 20 * MIB, (unsigned char *)own + 20 * MIB, MIB) == 0 ? 9 : 10);
    int status;
    wait(&status);
    return right && WIFEXITED(status) && WEXITSTATUS(status) == 9 ? 11 : 12;
}

static int reading_child(void *own) { return memcmp(of_parent, own, size) == 0 ? 13 : 14; }

static void *copy;
static void by_signal(int signal)
{
    (void)signal;
    pid_t (*bare)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    pid_t child = bare ? bare() : fork();
    if (child == 0)
        _exit(bare_child(copy));
    int status;
    waitpid(child, &status, 0);
    printf("in a handler %d\n", WEXITSTATUS(status));
}

static atomic_int reading;
static void *reads_parents(void *unused)
{
    uint64_t all = 0;
    for (size_t at = 0; reading; at = (at + 123 * 4096) % size)
        all += of_parent[at];
    return (void *)(uintptr_t)(all & 0);
}

static void bare_forks(void)
{
    of_parent = whole();
    copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t done = 0; done < size; done += 1 << 16)
        if (pread(fd, (char *)copy + done, 1 << 16, done) <= 0)
            exit(4);
    reading = 1;
    pthread_t reader;
    pthread_create(&reader, NULL, reads_parents, NULL);
    pid_t (*bare)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    char *stack = malloc(1 << 18);
    for (int round = 0; round < 3; round++) {
        fflush(stdout);
        pid_t child = bare ? bare() : fork();
        if (child == 0)
            _exit(bare_child(copy));
        wait_for(child);
        child = clone(bare_child, stack + (1 << 18), SIGCHLD, copy);
        wait_for(child);
    }
    /* A child that shares its parent's memory. */
    pid_t child_of_clone = clone(reading_child, stack + (1 << 18), CLONE_VM | CLONE_VFORK | SIGCHLD, copy);
    wait_for(child_of_clone);
    signal(SIGUSR1, by_signal);
    raise(SIGUSR1);
    reading = 0;
    pthread_join(reader, NULL);
    show("parent", of_parent, size);
}

/* The first mapping of the process, while a fork has begun. */
static atomic_int fork_has_begun;
static void *maps_first(void *unused)
{
    while (!fork_has_begun)
        sched_yield();
    return (void *)whole();
}

static pthread_t first;
static void begins(void)
{
    fork_has_begun = 1;
    pthread_join(first, (void **)&of_parent);
}

static void fork_beside_first(void)
{
    pthread_atfork(begins, NULL, NULL);
    pthread_create(&first, NULL, maps_first, NULL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        show("child", of_parent, size);
        fflush(stdout);
        _exit(7);
    }
    wait_for(child);
    show("parent", of_parent, size);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"whole", whole_file}, {"without-the-first", without_the_first}, {"parts", parts}, {"twice", twice}, {"past-end", past_end},
    {"unmap-parts", unmap_parts}, {"again", again}, {"protect", protect}, {"write-to-private", write_to_private},
    {"move", move}, {"fixed-over", fixed_over}, {"advise", advise}, {"lock", lock}, {"calls", calls}, {"raw", raw_calls},
    {"errno", kept_errno}, {"forks", forks}, {"bare-forks", bare_forks},
    {"fork-beside-first", fork_beside_first}, {"threads", threads}, {"change-under-readers", change_under_readers},
    {"handlers", handlers}, {"own-signals", own_signals}, {"populated", populated}, {"dies", dies}, {"loads", loads}, {"declined", declined}, {"shared-writable", shared_writable},
    {"written", written}, {"writes-itself", writes_itself},
    {"no-standard-error", no_standard_error}, {"own-file-by-its-number", own_file_by_its_number},
};

#include "run_case.h"
