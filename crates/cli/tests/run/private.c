/* Uses of private memory by programs: `private CASE FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "answers.h"

#define UNIT ((size_t)512 << 10)
#define PAGE 4096
#define ANON (32 * UNIT)
/* Four budgets. */
#define LARGE (64 * UNIT)
#define BOTH (PROT_READ | PROT_WRITE)

static void *map(size_t bytes, int protection, int flags, int of)
{
    void *mapped = mmap(NULL, bytes, protection, flags, of, 0);
    if (mapped == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        exit(3);
    }
    return mapped;
}

static uint64_t *anon(size_t bytes) { return map(bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1); }
static unsigned char *copy(void) { return map(size, BOTH, MAP_PRIVATE, fd); }

static void fill(uint64_t *words, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = word(i, seed);
}

/* Every word, by pages in an order that no read-ahead knows. */
static size_t wrong(const uint64_t *words, size_t bytes, uint64_t seed)
{
    size_t pages = bytes / PAGE, bad = 0;
    for (size_t p = 0; p < pages; p++) {
        size_t page = pages % 7 ? p * 7 % pages : p;
        for (size_t i = page * PAGE / 8; i < (page + 1) * PAGE / 8; i++)
            bad += words[i] != word(i, seed);
    }
    return bad;
}

static void check(const char *what, const void *words, size_t bytes, uint64_t seed)
{
    printf("%s: wrong %zu\n", what, wrong(words, bytes, seed));
}

static size_t nonzero(const void *at, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        count += ((const uint64_t *)at)[i] != 0;
    return count;
}

static void show(const char *what, const void *at, size_t count) { printf("%s %016llx\n", what, (unsigned long long)sum(at, count)); }

#include "touch.h"

static void pressure(void)
{
    uint64_t *words = anon(LARGE), *others = anon(8 * UNIT);
    printf("zeros %zu\n", nonzero(words, LARGE));
    fill(words, LARGE, 1);
    fill(others, 8 * UNIT, 2);
    check("first", words, LARGE, 1);
    check("others", others, 8 * UNIT, 2);
    for (size_t at = 0; at < LARGE / 8; at += 13 * PAGE / 8)
        words[at] = word(at, 3);
    size_t bad = 0;
    for (size_t at = 0; at < LARGE / 8; at += 13 * PAGE / 8)
        bad += words[at] != word(at, 3), words[at] = word(at, 1);
    printf("changed: wrong %zu\n", bad);
    check("again", words, LARGE, 1);
    answer("munmap", munmap(words, LARGE));
    answer("munmap", munmap(others, 8 * UNIT));
    words = anon(LARGE);
    printf("zeros again %zu\n", nonzero(words, LARGE));
}

/* The process has as many mappings as it may have when it touches what is in swap. */
static void no_mappings(void)
{
    uint64_t *words = anon(ANON);
    fill(words, ANON, 1);
    FILE *limit = fopen("/proc/sys/vm/max_map_count", "r");
    size_t most = 0;
    printf("limit %d\n", fscanf(limit, "%zu", &most));
    char *parts = map(2 * most * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    for (size_t at = 0; at < most && mprotect(parts + 2 * at * PAGE, PAGE, PROT_READ) == 0; at++)
        continue;
    int protections[] = {PROT_READ, PROT_WRITE}, turn = 0;
    while (mmap(NULL, PAGE, protections[turn++ & 1], MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        continue;
    printf("no more %s\n", strerror(errno));
    check("in swap", words, ANON, 1);
    fill(words, ANON, 2);
    check("again", words, ANON, 2);
}

static void calls(void)
{
    unsigned char *words = (unsigned char *)anon(ANON), *file = copy();
    char name[] = "/tmp/softfault-run-XXXXXX";
    int out = mkstemp(name), ends[2];
    unlink(name);
    size_t bytes = size < ANON ? size : ANON;
    printf("read %zd\n", read(fd, words, bytes));
    show("read", words, bytes);
    printf("raw %ld\n", syscall(SYS_pread64, fd, words + 3, 9 * UNIT, 0));
    show("raw", words, bytes);
    struct iovec parts[2] = {{words + 20 * UNIT + 5, 100000}, {words + 2 * UNIT + 1, 100000}};
    printf("preadv %zd\n", preadv(fd, parts, 2, 777));
    show("preadv", words, bytes);
    printf("write %zd\n", write(out, words, bytes));
    printf("pread %zd\n", pread(out, file + 100, 16 * UNIT, 0));
    show("file", file, size);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    printf("send %zd\n", send(ends[0], words + 7 * UNIT, 3000, 0));
    printf("recv %zd\n", recv(ends[1], words + 15 * UNIT, 4000, 0));
    show("recv", words + 15 * UNIT, 4000);
    answer("fstat", fstat(out, (struct stat *)(words + 11 * UNIT)));
    printf("size %d\n", ((struct stat *)(words + 11 * UNIT))->st_size == (off_t)bytes);
    answer("getcwd", getcwd((char *)words + 5 * UNIT, 4096) == NULL ? -1 : 0);
    int direct = open(path, O_RDONLY | O_DIRECT);
    for (size_t at = 0; direct >= 0 && at < 16 * UNIT; at += UNIT)
        if (pread(direct, words + at, UNIT, at) != (ssize_t)UNIT)
            printf("direct read at %zu\n", at);
    if (direct < 0)
        (void)!pread(fd, words, 16 * UNIT, 0);
    show("direct", words, 16 * UNIT);
}

/* Where a call puts something: a page of its own, which was written to and is not in memory. */
static unsigned char *cold;
static size_t next_cold;
static void *place(void)
{
    size_t at = next_cold++ * 37 % (LARGE / PAGE) * PAGE;
    return cold + at + PAGE - 8;
}

static void on_alarm(int signal) {}
static void *posts(void *count) { usleep(20000); sem_post(count); return NULL; }

/* Calls that take something away which would be lost, and calls that wait. */
static void receives(void)
{
    cold = (unsigned char *)anon(LARGE);
    int ends[2], *pair = place(), *status = place(), event = eventfd(0, 0), *more;
    memset(cold, 0x5A, LARGE);
    for (uint64_t i = 1; i < 200; i++) {
        uint64_t *count = place();
        if (write(event, &i, 8) != 8 || read(event, count, 8) != 8 || *count != i)
            printf("eventfd: %llu, not %llu\n", (unsigned long long)*count, (unsigned long long)i);
    }
    answer("pipe", pipe(pair));
    for (int i = 0; i < 200; i++) {
        char text[30], *to = place();
        int bytes = snprintf(text, sizeof text, "message %d", i);
        if (write(pair[1], text, bytes) != bytes || read(pair[0], to, 1000) != bytes || memcmp(text, to, bytes))
            printf("pipe: %d\n", i);
    }
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);
    for (int i = 0; i < 200; i++) {
        unsigned char *part[2] = {place(), place()};
        struct iovec vectors[2] = {{part[0], 5}, {part[1], 30}};
        struct msghdr *message = i % 2 ? place() : &(struct msghdr){0};
        *message = (struct msghdr){.msg_iov = vectors, .msg_iovlen = 2};
        if (send(ends[0], "0123456789", 10, 0) != 10 || recvmsg(ends[1], message, 0) != 10 || memcmp(part[0], "01234", 5) || memcmp(part[1], "56789", 5)
            || part[1][5] != 0x5A)
            printf("recvmsg: %d flags %x\n", i, message->msg_flags);
        memset(part[0], 0x5A, 5), memset(part[1], 0x5A, 5), memset(message, 0x5A, sizeof *message);
    }
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in *bound = place(), *from = place();
    socklen_t *len = place(), *from_len = place();
    bind(one, (void *)&own, sizeof own), bind(other, (void *)&own, sizeof own);
    *len = *from_len = sizeof own;
    answer("getsockname", getsockname(one, (void *)bound, len));
    printf("sendto %zd\n", sendto(other, "abc", 3, 0, (void *)bound, *len));
    printf("recvfrom %zd\n", recvfrom(one, place(), 100, 0, (void *)from, from_len));
    printf("from %u %d\n", *from_len, from->sin_family == AF_INET && from->sin_port != bound->sin_port);
    printf("trunc %zd\n", (sendto(other, "abcdef", 6, 0, (void *)bound, *len), recv(one, place(), 2, MSG_TRUNC)));
    more = place(), len = place(), *len = sizeof *more;
    answer("getsockopt", getsockopt(one, SOL_SOCKET, SO_TYPE, more, len));
    printf("type %d of %u\n", *more == SOCK_DGRAM, *len);
    for (int i = 0; i < 20; i++) {
        fflush(stdout);
        status = place();
        struct rusage *used = place();
        pid_t child = fork();
        if (child == 0)
            _exit(i + 1);
        if ((i % 3 == 0 ? waitpid(child, status, 0) : i % 3 == 1 ? wait4(child, status, 0, used) : wait(status)) != child || WEXITSTATUS(*status) != i + 1)
            printf("wait: %d\n", i);
    }
    sigset_t usr, *before = place(), *pending = place();
    siginfo_t *info = place();
    sigemptyset(&usr), sigaddset(&usr, SIGUSR2);
    answer("sigprocmask", sigprocmask(SIG_BLOCK, &usr, before));
    printf("before %d\n", sigismember(before, SIGUSR2));
    sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 77});
    answer("sigpending", sigpending(pending));
    printf("pending %d\n", sigismember(pending, SIGUSR2));
    printf("sigwaitinfo %d", sigwaitinfo(&usr, info) == SIGUSR2);
    printf(" %d\n", info->si_value.sival_int);
    struct pollfd *polled = place();
    *polled = (struct pollfd){.fd = pair[0], .events = POLLIN};
    answer("poll", poll(polled, 1, 10));
    (void)!write(pair[1], "x", 1);
    printf("poll %d %d\n", poll(polled, 1, 10), polled->revents);
    fd_set *set = place();
    FD_ZERO(set);
    FD_SET(pair[0], set);
    struct timeval *soon = place();
    *soon = (struct timeval){.tv_usec = 100};
    printf("select %d %d\n", select(pair[0] + 1, set, NULL, NULL, soon), FD_ISSET(pair[0], set));
    int many = epoll_create1(0);
    struct epoll_event *wanted = place(), *got = place();
    *wanted = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 99};
    answer("epoll_ctl", epoll_ctl(many, EPOLL_CTL_ADD, pair[0], wanted));
    printf("epoll_wait %d", epoll_wait(many, got, 5, 10));
    printf(" %d\n", (int)got->data.u64);
    int *waiting = place();
    answer("ioctl", ioctl(pair[0], FIONREAD, waiting));
    printf("waiting %d\n", *waiting);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    struct itimerval *timer = place(), *old = place();
    /* Again and again: the first may come before the sleep has begun. */
    *timer = (struct itimerval){{.tv_usec = 20000}, {.tv_usec = 20000}};
    answer("setitimer", setitimer(ITIMER_REAL, timer, old));
    struct timespec *time = place(), *left = place();
    *time = (struct timespec){.tv_sec = 5};
    answer("nanosleep", nanosleep(time, left));
    *timer = (struct itimerval){{0}};
    answer("setitimer", setitimer(ITIMER_REAL, timer, NULL));
    printf("left %d\n", left->tv_sec < 5 && left->tv_nsec < 1000000000);
    answer("clock", clock_gettime(CLOCK_PROCESS_CPUTIME_ID, place()));
    struct stat *about = place(), *same = place(), *third = place();
    printf("stat %d %d %d\n", stat(path, about), fstat(fd, same), fstatat(AT_FDCWD, path, third, 0));
    printf("size %d\n", about->st_size == (off_t)size && same->st_size == third->st_size);
    struct utsname *names = place();
    answer("uname", uname(names));
    printf("%d\n", names->sysname[0]);
    printf("getrandom %zd\n", getrandom(place(), 100, 0));
    FILE *file = fopen(path, "r");
    setvbuf(file, place(), _IOFBF, 65536);
    unsigned char *items = cold + 3 * PAGE + 7;
    printf("fread %zu\n", fread(items, 1000, 3000, file));
    show("fread", items, 3000000);
    fclose(file);
    off_t *at = place();
    *at = 1000;
    int out = memfd_create("out", 0);
    printf("sendfile %zd", sendfile(out, fd, at, 5000));
    printf(" %lld\n", (long long)*at);
    /* A call may not write to memory that is read-only. */
    mprotect(cold, LARGE, PROT_READ);
    answer("read only", read(fd, cold + 5 * PAGE, 100));
    answer("read only", fstat(fd, (struct stat *)(cold + 6 * PAGE)));
    mprotect(cold, LARGE, BOTH);
    sem_t *count = place();
    pthread_t thread;
    count = (sem_t *)((uintptr_t)count / 64 * 64);
    for (int i = 0; i < 3; i++) {
        sem_init(count, 0, 0);
        pthread_create(&thread, NULL, posts, count);
        answer("sem_wait", sem_wait(count));
        pthread_join(thread, NULL);
    }
}

ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
char *__getcwd_chk(char *, size_t, size_t);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);

/* Reads for which there is too little room end the process. */
static void checks_bounds(void)
{
    enum { ROOM = 2 << 20 };
    static char room[2 * ROOM];
    printf("__pread_chk %d", (int)__pread_chk(fd, room, ROOM, 0, ROOM));
    for (int function = 0; function < 2; function++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            close(2);
            if (function)
                __fread_chk(room, ROOM, 1, ROOM + 1, fdopen(fd, "r"));
            else
                __pread_chk(fd, room, ROOM + 1, 0, ROOM);
            _exit(1);
        }
        waitpid(child, &status, 0);
        printf(" %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    printf("\n");
}

/* What posix_spawn reads in a child, and with all signals blocked. */
static void spawns(int (*spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *))
{
    pid_t *child = place();
    char *path = strcpy(place(), "/usr/../bin/sh"), *arguments[] = {"sh", "-c", "exit 3", NULL};
    posix_spawn_file_actions_t *actions = place();
    posix_spawnattr_t *attributes = place();
    int status = 0;
    posix_spawn_file_actions_init(actions), posix_spawn_file_actions_addclose(actions, 0);
    posix_spawnattr_init(attributes), posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP);
    void *others = memset(anon(LARGE), 1, LARGE);
    int failed = spawn(child, path, actions, attributes, arguments, environ);
    printf("spawn %d", failed);
    if (!failed)
        printf(" %d", waitpid(*child, &status, 0) == *child && WEXITSTATUS(status) == 3);
    printf("\n");
    posix_spawn_file_actions_destroy(actions), posix_spawnattr_destroy(attributes);
    munmap(others, LARGE);
}


/* The same of calls that fewer programs make. */
static void receives_others(void)
{
    cold = (unsigned char *)anon(LARGE);
    memset(cold, 0x5A, LARGE);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (int i = 0; i < 50; i++) {
        char *to = place();
        if (write(pair[0], "message", 7) != 7 || __recvfrom_chk(pair[1], to, 100, 100, 0, NULL, NULL) != 7 || memcmp(to, "message", 7))
            printf("__recvfrom_chk: %d\n", i);
        uint64_t *value = place();
        int events = eventfd(i + 1, 0);
        if (eventfd_read(events, value) != 0 || *value != (uint64_t)i + 1)
            printf("eventfd_read: %d\n", i);
        close(events);
    }
    char *own = getcwd(NULL, 0), *wd = place(), *checked = place(), *exe = place();
    printf("getwd %d\n", getwd(wd) == wd && !strcmp(wd, own));
    printf("__getcwd_chk %d\n", __getcwd_chk(checked, 4096, 4096) == checked && !strcmp(checked, own));
    printf("__readlink_chk %d\n", __readlink_chk("/proc/self/exe", exe, 4096, 4096) > 0 && strstr(exe, "private") != NULL);
    struct pollfd *polled = place();
    *polled = (struct pollfd){.fd = pair[1], .events = POLLIN | POLLOUT};
    printf("__poll_chk %d", __poll_chk(polled, 1, 10, sizeof *polled));
    printf(" %d\n", polled->revents);
    struct flock *lock = place();
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    answer("fcntl", fcntl(fd, F_OFD_GETLK, lock));
    printf("nobody's %d\n", lock->l_type == F_UNLCK);
    int *owner = place();
    answer("fcntl", fcntl(pair[0], F_GETOWN_EX, owner));
    char *name = place(), *again = place();
    answer("prctl", prctl(PR_GET_NAME, name));
    answer("pthread_getname_np", pthread_getname_np(pthread_self(), again, 100));
    printf("%s %s\n", name, again);
    cpu_set_t *cpus = place();
    answer("pthread_getaffinity_np", pthread_getaffinity_np(pthread_self(), sizeof *cpus, cpus));
    printf("cpus %d\n", CPU_COUNT(cpus) > 0);
    int set = semget(IPC_PRIVATE, 3, 0600), shared = shmget(IPC_PRIVATE, 5000, 0600), queue = msgget(IPC_PRIVATE, 0600);
    unsigned short *counts = place();
    answer("semctl", semctl(set, 0, GETALL, counts));
    printf("counts %d %d %d\n", counts[0], counts[1], counts[2]);
    struct semid_ds *of_set = place();
    answer("semctl", semctl(set, 0, IPC_STAT, of_set));
    printf("semaphores %d\n", (int)of_set->sem_nsems);
    struct shmid_ds *of_shared = place();
    answer("shmctl", shmctl(shared, IPC_STAT, of_shared));
    printf("bytes %d\n", (int)of_shared->shm_segsz);
    struct msqid_ds *of_queue = place();
    answer("msgctl", msgctl(queue, IPC_STAT, of_queue));
    printf("messages %d\n", (int)of_queue->msg_qnum);
    semctl(set, 0, IPC_RMID), shmctl(shared, IPC_RMID, NULL), msgctl(queue, IPC_RMID, NULL);
    struct timeval *now = place();
    answer("gettimeofday", gettimeofday(now, NULL));
    printf("now %d\n", now->tv_sec > 1000000000 && now->tv_usec < 1000000);
    struct timespec *time = place(), *left = place();
    *time = (struct timespec){5, 0};
    setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 200000}, {.tv_usec = 200000}}, NULL);
    printf("clock_nanosleep %d", clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) == EINTR);
    setitimer(ITIMER_REAL, &(struct itimerval){{0}}, NULL);
    printf(" %d\n", left->tv_sec < 5 && left->tv_nsec < 1000000000);
    sigset_t *usr = place();
    int *number = place();
    sigemptyset(usr), sigaddset(usr, SIGUSR2);
    sigprocmask(SIG_BLOCK, usr, NULL), raise(SIGUSR2);
    answer("sigwait", sigwait(usr, number));
    printf("number %d\n", *number == SIGUSR2);
    unsigned char *there = place();
    long sound = sysconf(_SC_PAGESIZE);
    void *alone = map(3 * sound, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(alone, 1, 2 * sound);
    answer("mincore", mincore(alone, 3 * sound, there));
    printf("there %d %d %d\n", there[0] & 1, there[1] & 1, there[2] & 1);
    checks_bounds();
    spawns(posix_spawn), spawns(posix_spawnp);
}

static void wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    fflush(stdout);
}

static void forks(void)
{
    uint64_t *words = anon(ANON);
    unsigned char *file = copy();
    fill(words, ANON, 1);
    memset(file + 5 * UNIT, 7, 3 * UNIT);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check("child", words, ANON, 1);
        show("child's file", file, size);
        show("read only", map(size, PROT_READ, MAP_SHARED, fd), size);
        fill(words, ANON / 2, 2);
        memset(file, 1, UNIT);
        uint64_t *own = anon(16 * UNIT);
        fill(own, 16 * UNIT, 5);
        fflush(stdout);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            check("grandchild", words, ANON / 2, 2);
            check("child's own", own, 16 * UNIT, 5);
            answer("none", mprotect(words + ANON / 16, UNIT, PROT_NONE));
            answer("both", mprotect(words + ANON / 16, UNIT, BOTH));
            printf("%d\n", words[ANON / 16 + 5] == word(ANON / 16 + 5, 1));
            fflush(stdout);
            _exit(3);
        }
        wait_for(grandchild);
        check("child again", words, ANON / 2, 2);
        show("child's file again", file, size);
        answer("munmap", munmap(words, ANON));
        answer("munmap", munmap(file, size));
        fflush(stdout);
        _exit(5);
    }
    for (size_t i = 0; i < ANON / 8; i += 512)
        words[i] = word(i, 1);
    wait_for(child);
    check("parent", words, ANON, 1);
    show("parent's file", file, size);
    fflush(stdout);
    child = fork();
    if (child == 0)
        execl("/bin/true", "true", NULL);
    wait_for(child);
    child = vfork();
    if (child == 0) {
        words[100] = 9;
        _exit(words[101] == word(101, 1) ? 6 : 7);
    }
    wait_for(child);
    printf("vfork %d\n", words[100] == 9);
}

/* No more can be mapped, so that a child cannot have an engine of its own. */
static void forks_at_a_limit(void)
{
    const int limits[2] = {RLIMIT_DATA, RLIMIT_AS};
    for (int i = 0; i < 2; i++) {
        uint64_t *words = anon(ANON);
        fill(words, ANON, i);
        struct rlimit before, limit;
        getrlimit(limits[i], &before);
        limit = before;
        limit.rlim_cur = 4096;
        answer("setrlimit", setrlimit(limits[i], &limit));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            check("child", words, ANON, i);
            fflush(stdout);
            _exit(4);
        }
        wait_for(child);
        answer("setrlimit", setrlimit(limits[i], &before));
        check("parent", words, ANON, i);
        munmap(words, ANON);
    }
}

static void advise(void)
{
    uint64_t *words = anon(ANON);
    unsigned char *file = copy();
    fill(words, ANON, 1);
    answer("do not need", madvise(words, 20 * UNIT, MADV_DONTNEED));
    printf("zeros %zu\n", nonzero(words, 20 * UNIT));
    printf("rest %d\n", words[ANON / 8 - 1] == word(ANON / 8 - 1, 1));
    fill(words, ANON, 1);
    answer("free", madvise(words + UNIT, UNIT, MADV_FREE));
    fill(words, ANON, 2);
    check("written", words, ANON, 2);
    int all[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
                 MADV_DONTDUMP, MADV_DODUMP, MADV_DOFORK, MADV_KEEPONFORK, 12345};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        answer("advice", madvise(words, ANON, all[i]));
    answer("populate", madvise(words, ANON, MADV_POPULATE_WRITE));
    answer("odd", madvise((char *)words + 1, UNIT, MADV_DONTNEED));
    check("all", words, ANON, 2);
    memset(file + UNIT, 9, 4 * UNIT);
    answer("of a file", madvise(file + 2 * UNIT, UNIT, MADV_DONTNEED));
    answer("free of a file", madvise(file, UNIT, MADV_FREE));
    show("file", file, size);
    answer("do not fork", madvise(words + 2 * UNIT, UNIT, MADV_WIPEONFORK));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(nonzero(words + 2 * UNIT, UNIT) == 0 && nonzero(words, 8 * UNIT) == UNIT ? 4 : 5);
    wait_for(child);
    check("in the end", words, ANON, 2);
}

static void unmap_parts(void)
{
    uint64_t *words = anon(ANON);
    unsigned char *bytes = (unsigned char *)words, *file = copy();
    fill(words, ANON, 1);
    answer("front", munmap(bytes, UNIT));
    answer("middle", munmap(bytes + 9 * UNIT, 3 * UNIT));
    answer("again", munmap(bytes + 9 * UNIT, UNIT));
    printf("%s %s\n", touch(bytes, 0), touch(bytes + 10 * UNIT, 1));
    void *fixed = mmap(bytes + 10 * UNIT, UNIT, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("place %d\n", fixed == bytes + 10 * UNIT);
    printf("zeros %zu\n", nonzero(fixed, UNIT));
    memset(fixed, 5, UNIT);
    answer("protect", mprotect(bytes, UNIT, BOTH));
    answer("advise", madvise(bytes + 9 * UNIT, UNIT, MADV_DONTNEED));
    size_t bad = 0;
    for (size_t i = UNIT / 8; i < ANON / 8; i++)
        if (i < 9 * UNIT / 8 || i >= 12 * UNIT / 8)
            bad += words[i] != word(i, 1);
    printf("wrong %zu\n", bad);
    show("fixed", fixed, UNIT);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        show("fixed", fixed, UNIT);
        printf("%s %d\n", touch(bytes + 9 * UNIT, 0), words[UNIT / 8] == word(UNIT / 8, 1));
        answer("all", munmap(bytes, ANON));
        printf("%s\n", touch(fixed, 0));
        fflush(stdout);
        _exit(1);
    }
    wait_for(child);
    memset(file, 3, 2 * UNIT);
    answer("file", munmap(file + UNIT, 20 * UNIT));
    show("file", file, UNIT);
    show("file", file + 21 * UNIT, size - 21 * UNIT);
    answer("all", munmap(bytes, ANON));
    printf("%s %s\n", touch(bytes + UNIT, 0), touch(fixed, 0));
    answer("file", munmap(file, size));
    /* Where something was, something else may be at once. */
    words = anon(ANON);
    fill(words, ANON, 3);
    munmap(words, ANON);
    uint64_t *over = mmap(words, ANON, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("over %d, zeros %zu\n", over == words, nonzero(over, ANON));
    fill(over, ANON, 4);
    uint64_t *another = anon(ANON);
    fill(another, ANON, 5);
    check("over", over, ANON, 4);
    check("another", another, ANON, 5);
}

static void protect(void)
{
    uint64_t *words = anon(ANON);
    unsigned char *bytes = (unsigned char *)words, *file = copy();
    fill(words, ANON, 1);
    answer("read", mprotect(words, ANON, PROT_READ));
    printf("%s %s\n", touch(words, 0), touch(words + 100, 1));
    check("read", words, ANON, 1);
    answer("both", mprotect(words, ANON, BOTH));
    fill(words, ANON, 2);
    answer("guard", mprotect(bytes + 3 * UNIT, PAGE, PROT_NONE));
    answer("part", mprotect(bytes + 20 * UNIT, UNIT, PROT_READ));
    printf("%s %s %s\n", touch(bytes + 3 * UNIT, 0), touch(bytes + 20 * UNIT, 0), touch(bytes + 20 * UNIT, 1));
    answer("back", mprotect(bytes, ANON, BOTH));
    check("all", words, ANON, 2);
    fill(words, ANON, 3);
    check("written", words, ANON, 3);
    memset(file + 4 * UNIT + 77, 6, 3 * UNIT);
    answer("file", mprotect(file + 5 * UNIT, 4 * UNIT, PROT_READ));
    show("file", file, size);
    printf("%s %s\n", touch(file + 5 * UNIT, 1), touch(file + 10 * UNIT, 1));
    answer("file", mprotect(file, size, BOTH));
    memset(file + 6 * UNIT, 8, UNIT);
    show("file", file, size);
}

static void fixed_over(void)
{
    uint64_t *words = anon(ANON);
    unsigned char *bytes = (unsigned char *)words;
    fill(words, ANON, 1);
    answer("bad", mmap(bytes, UNIT, PROT_READ, MAP_SHARED | MAP_FIXED, 9999, 0) == MAP_FAILED ? -1 : 0);
    check("all", words, ANON, 1);
    void *over = mmap(bytes + 4 * UNIT, 2 * UNIT, PROT_READ, MAP_SHARED | MAP_FIXED, fd, UNIT);
    printf("over %d\n", over == bytes + 4 * UNIT);
    show("over", over, 2 * UNIT);
    over = mmap(bytes + 8 * UNIT, 2 * UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    printf("none %s\n", touch(over, 0));
    answer("both", mprotect(over, 2 * UNIT, BOTH));
    printf("zeros %zu\n", nonzero(over, 2 * UNIT));
    size_t bad = 0;
    for (size_t i = 0; i < ANON / 8; i++)
        if (i / (2 * UNIT / 8) != 2 && i / (2 * UNIT / 8) != 4)
            bad += words[i] != word(i, 1);
    printf("wrong %zu\n", bad);
    answer("all", munmap(bytes, ANON));
}

static void move(void)
{
    size_t bytes = 16 * UNIT;
    uint64_t *words = anon(bytes);
    fill(words, bytes, 1);
    for (int i = 0; i < 3; i++) {
        uint64_t *moved = mremap(words, bytes, bytes + 4 * UNIT, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            exit(4);
        if (moved != words && touch(words, 0)[0] == 't')
            printf("still there\n");
        words = moved;
        check("grown", words, bytes, 1);
        printf("zeros %zu\n", nonzero(words + bytes / 8, 4 * UNIT));
        bytes += 4 * UNIT;
        fill(words, bytes, 1);
    }
    printf("shrunk %d\n", mremap(words, bytes, bytes - 10 * UNIT, 0) == words);
    bytes -= 10 * UNIT;
    printf("%s\n", touch(words + bytes / 8, 0));
    check("shrunk", words, bytes, 1);
    uint64_t *moved = mremap(words, bytes, bytes + UNIT, MREMAP_MAYMOVE);
    check("grown", moved, bytes, 1);
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    words = anon(bytes);
    fill(words, bytes, 2);
    moved = mremap(words, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    printf("fixed %d %s\n", moved == place, touch(words, 0));
    check("fixed", moved, bytes, 2);
    unsigned char *file = copy();
    memset(file + 2 * UNIT, 9, 5 * UNIT);
    unsigned char *longer = mremap(file, size, size + 2 * UNIT, MREMAP_MAYMOVE);
    show("file", longer, size);
    printf("behind %s\n", touch(longer + size + UNIT, 0));
}

static void lock(void)
{
    uint64_t *words = anon(ANON);
    fill(words, ANON, 1);
    answer("mlock", mlock((char *)words + 5 * UNIT + 9, 100000));
    answer("munlock", munlock((char *)words + 5 * UNIT, 200000));
    answer("msync", msync(words, ANON, MS_SYNC));
    check("all", words, ANON, 1);
}

static uint64_t *shared;
static volatile int done;
static void *own_slice(void *number)
{
    size_t bytes = ANON / 16, bad = 0;
    uint64_t *slice = shared + (size_t)number * bytes / 8;
    for (uint64_t round = 1; round < 4; round++) {
        fill(slice, bytes, round + (size_t)number);
        bad += wrong(slice, bytes, round + (size_t)number);
    }
    return (void *)bad;
}

static void threads(void)
{
    pthread_t all[16];
    size_t bad = 0;
    void *of_thread;
    shared = anon(ANON);
    for (size_t i = 0; i < 16; i++)
        pthread_create(&all[i], NULL, own_slice, (void *)i);
    for (size_t i = 0; i < 16; i++)
        pthread_join(all[i], &of_thread), bad += (size_t)of_thread;
    printf("wrong %zu\n", bad);
}

/* Counts in every page, again and again: a lost write is a wrong count. */
static void *counts(void *number)
{
    size_t rounds = 0;
    do {
        rounds++;
        for (size_t page = 0; page < ANON / PAGE; page += 3)
            shared[page * PAGE / 8 + (size_t)number]++;
    } while (!done);
    return (void *)rounds;
}

static void change_under_writers(void)
{
    size_t bad = 0;
    for (int round = 0; round < 2; round++) {
        pthread_t writers[3];
        void *rounds;
        shared = round % 2 ? (uint64_t *)copy() : anon(ANON);
        size_t bytes = round % 2 ? size / PAGE * PAGE : ANON;
        for (size_t page = 0; page < ANON / PAGE; page++)
            for (int i = 0; i < 3 && page * PAGE < bytes; i++)
                shared[page * PAGE / 8 + i] = 0;
        uint64_t *all = shared;
        if (bytes < ANON)
            shared = NULL;
        done = shared == NULL;
        if (shared == NULL) {
            /* A file is shorter: one writer of its pages, while they are handed over. */
            for (size_t at = 0; at < bytes; at += 2 * UNIT) {
                for (size_t page = at; page < bytes; page += PAGE)
                    all[page / 8]++;
                mlock((char *)all + at, 8192);
            }
            for (size_t page = 0; page < bytes; page += PAGE)
                bad += all[page / 8] != page / (2 * UNIT) + 1;
            continue;
        }
        for (size_t i = 0; i < 3; i++)
            pthread_create(&writers[i], NULL, counts, (void *)i);
        for (size_t at = 0; at < ANON; at += 4 * UNIT)
            mlock((char *)all + at, at ? 4 * UNIT : 65536), munlock((char *)all + at, 4 * UNIT);
        done = 1;
        for (size_t i = 0; i < 3; i++) {
            pthread_join(writers[i], &rounds);
            for (size_t page = 0; page < ANON / PAGE; page += 3)
                bad += all[page * PAGE / 8 + i] != (size_t)rounds;
        }
    }
    printf("wrong %zu\n", bad);
}

/* Writes cold memory to a stream, a few bytes at a time: they are copied while it is locked. */
static void *writes_a_stream(void *null)
{
    size_t written = 0;
    for (size_t page = 0; !done; page = (page + 37) % (ANON / PAGE))
        written += fwrite(shared + page * (PAGE / 8), 1, 64, null) != 64;
    return (void *)written;
}

/* Reads a line that is a block of its own, which grows while the stream is locked. */
static void *reads_a_stream(void *text)
{
    size_t wrong = 0;
    while (!done) {
        FILE *from = fmemopen(text, 3 << 20, "r");
        char *line = NULL;
        size_t size = 0;
        wrong += getdelim(&line, &size, 'z', from) != 3 << 20;
        fclose(from);
        free(line);
    }
    return (void *)wrong;
}

static void *flushes_all(void *none)
{
    while (!done)
        fflush(NULL);
    return none;
}

/* fork(3) locks the list of streams, too. */
static void streams(void)
{
    static char text[3 << 20];
    FILE *null = fopen("/dev/null", "w");
    pthread_t all[3];
    size_t bad = 0;
    alarm(150);
    memset(text, 'x', sizeof text);
    shared = anon(ANON);
    fill(shared, ANON, 1);
    fflush(stdout);
    pthread_create(&all[0], NULL, writes_a_stream, null);
    pthread_create(&all[1], NULL, reads_a_stream, text);
    pthread_create(&all[2], NULL, flushes_all, NULL);
    for (int round = 0; round < 60; round++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            FILE *again = fopen("/dev/null", "w");
            _exit(fprintf(again, "%d", 7) == 1 && fflush(NULL) == 0 ? 4 : 5);
        }
        waitpid(child, &status, 0);
        bad += WEXITSTATUS(status) != 4;
    }
    done = 1;
    for (int i = 0; i < 3; i++) {
        void *of_thread;
        pthread_join(all[i], &of_thread);
        bad += (size_t)of_thread;
    }
    check("parent", shared, ANON, 1);
    printf("wrong %zu\n", bad);
}

/* A thread whose stack is memory that was taken. */
static void *on_stack(void *at)
{
    unsigned char local[200000];
    memset(local, 3, sizeof local);
    uint64_t *words = anon(ANON);
    fill(words, ANON, 1);
    answer("munmap", munmap(words, ANON / 2));
    check("rest", words + ANON / 16, 0, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(nonzero(words + ANON / 16, ANON / 2) == ANON / 16 ? 2 : 1);
    wait_for(child);
    show("local", local, sizeof local);
    return NULL;
}

static void on_alternate(int signal)
{
    uint64_t *words = anon(ANON);
    words[5] = 5;
    answer("in a handler", munmap(words, ANON));
}

static void stacks(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    unsigned char *stack = (unsigned char *)anon(ANON);
    memset(stack, 1, ANON);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, ANON);
    pthread_create(&thread, &attributes, on_stack, stack);
    pthread_join(thread, NULL);
    stack_t alternate = {.ss_sp = anon(ANON), .ss_size = ANON};
    memset(alternate.ss_sp, 1, ANON);
    fill(anon(ANON), ANON, 1);
    answer("sigaltstack", sigaltstack(&alternate, NULL));
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_alternate, .sa_flags = SA_ONSTACK}, NULL);
    raise(SIGUSR1);
}

/* Another writes to the file while some pages of it were written to here. */
static void written(void)
{
    unsigned char *file = copy();
    memset(file + UNIT, 1, 2 * UNIT);
    uint64_t before = sum(file + 10 * UNIT, UNIT);
    fflush(stdout);
    if (fork() == 0) {
        int other = open(path, O_RDWR);
        unsigned char *some = malloc(4 * UNIT);
        memset(some, 2, 4 * UNIT);
        _exit(pwrite(other, some, 4 * UNIT, 0) == 4 * UNIT ? 0 : 1);
    }
    wait_for(-1);
    size_t bad = 0;
    for (size_t at = 0; at < 4 * UNIT; at++)
        bad += file[at] != (at < UNIT || at >= 3 * UNIT ? 2 : 1);
    printf("wrong %zu, rest %d\n", bad, sum(file + 10 * UNIT, UNIT) == before);
    file[0] = 77;
    file[2 * UNIT] = 78;
    show("all", file, size);
}

static void declined(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *mapped;
    map(UNIT, BOTH, flags, -1);
    memset(map(ANON, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1), 1, ANON);
    map(ANON, PROT_NONE, flags | MAP_NORESERVE, -1);
    memset(map(ANON, BOTH, flags | MAP_STACK | MAP_NORESERVE, -1), 1, UNIT);
    memset(map(ANON, BOTH, flags | MAP_GROWSDOWN, -1), 1, UNIT);
    mapped = map(ANON, PROT_READ, flags, -1);
    mapped = mmap(mapped, ANON, BOTH, flags | MAP_FIXED, -1, 0);
    memset(mapped, 1, ANON);
    map(ANON, BOTH | PROT_EXEC, flags, -1);
    map(1024 * UNIT, BOTH, flags | MAP_NORESERVE, -1);
    show("private", copy(), size);
    mapped = anon(ANON);
    printf("%zu\n", nonzero(mapped, ANON));
}

/* More mappings, and a larger one, than there is room for tables. */
static void tables(void)
{
    enum { MANY = 1000 };
    static unsigned char *mapped[MANY];
    size_t large = 16384 * UNIT, right = 0;
    for (int round = 0; round < 2; round++) {
        for (int number = 0; number < MANY; number++) {
            mapped[number] = (unsigned char *)anon(2 * UNIT);
            memset(mapped[number], number + round, PAGE);
        }
        for (int number = 0; number < MANY; number++) {
            right += mapped[number][PAGE - 1] == (unsigned char)(number + round) && !mapped[number][PAGE];
            munmap(mapped[number], 2 * UNIT);
        }
    }
    /* Parts of a reservation: their tables lie together. */
    unsigned char *reserved = map(260 * UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    unsigned char *parts = (unsigned char *)(((uintptr_t)reserved + 4 * UNIT - 1) & -(4 * UNIT));
    mprotect(parts, UNIT, BOTH);
    for (int number = 0; number < MANY; number++) {
        mprotect(parts + UNIT + number * UNIT / 4, UNIT / 8, BOTH);
        parts[UNIT + number * UNIT / 4] = number;
    }
    for (int number = 0; number < MANY; number++)
        right += parts[UNIT + number * UNIT / 4] == (unsigned char)number;
    munmap(reserved, 260 * UNIT);
    unsigned char *one = (unsigned char *)anon(large);
    for (size_t at = 0; at < large; at += 4 * UNIT)
        one[at] = at / UNIT + 1;
    for (size_t at = 0; at < large; at += 4 * UNIT)
        right += one[at] == (unsigned char)(at / UNIT + 1);
    printf("right %zu\n", right);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"pressure", pressure}, {"calls", calls}, {"receives", receives}, {"receives-others", receives_others}, {"forks", forks}, {"advise", advise}, {"unmap-parts", unmap_parts},
    {"protect", protect}, {"fixed-over", fixed_over}, {"move", move}, {"lock", lock}, {"threads", threads},
    {"change-under-writers", change_under_writers}, {"stacks", stacks}, {"written", written}, {"declined", declined},
    {"no-mappings", no_mappings}, {"streams", streams}, {"forks-at-a-limit", forks_at_a_limit}, {"tables", tables},
};

#include "run_case.h"
