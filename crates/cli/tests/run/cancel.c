/* Threads that are cancelled: `cancel FILE work`, `pending` or `calls`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNIT ((size_t)1 << 20)
#define BYTES (24 * UNIT)

static int file, null, ends[2], sockets[2], unnamed, polled, queue;
static unsigned char *mapped, *memory;
static atomic_int entered, left, touching, unwound, is_cancelled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t empty;
static char fifo[4096];

/* Which step the thread is within. */
static const char *volatile within = "none";
#define STEP(act) (within = #act, (act), within = "none")

static void on_unwinding(void *of)
{
    unwound++;
}

static void drop(void *of)
{
    void **own = of;
    if (*own != MAP_FAILED)
        munmap(*own, 4 * UNIT);
}

/* No call in it is a cancellation point but those at its end. */
static void *work(void *of)
{
    unsigned seed = (unsigned)(size_t)of;
    void *own = MAP_FAILED;
    pthread_cleanup_push(on_unwinding, NULL);
    pthread_cleanup_push(drop, &own);
    for (;;) {
        size_t at = rand_r(&seed) % (BYTES - 5 * UNIT) & ~4095UL;
        entered++;
        own = mmap(NULL, 4 * UNIT, PROT_READ, MAP_PRIVATE, file, at / UNIT * UNIT);
        (void)*(volatile unsigned char *)(own + UNIT), (void)mapped[at];
        madvise(own, UNIT, MADV_WILLNEED);
        memory[at]++;
        madvise(memory + at, UNIT, MADV_DONTNEED);
        mprotect(own, 4096, PROT_NONE);
        munmap(own, 4 * UNIT);
        own = mmap(NULL, 4 * UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(own, 1, 4096);
        left++;
        switch (rand_r(&seed) % 4) {
        case 0: pread(file, memory + at, 8192, 0); break;
        case 1: write(null, mapped + at, 8192); break;
        case 2: pwrite(null, memory + at, 100000, 0); break;
        case 3: pread(file, own + UNIT, 3 * UNIT, 0); break;
        }
        munmap(own, 4 * UNIT);
        own = MAP_FAILED;
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Of the asynchronous type only touches are allowed. */
static void *touches(void *of)
{
    unsigned seed = (unsigned)(size_t)of;
    unwound++;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    touching++;
    for (;;) {
        size_t at = rand_r(&seed) % BYTES;
        memory[at] = mapped[at];
    }
    return NULL;
}

static void rounds(const char *what, void *(*act)(void *), int count)
{
    unsigned seed = 1;
    int cancelled = 0;
    unwound = 0;
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        void *how;
        pthread_create(&thread, NULL, act, (void *)(size_t)(i + 1));
        struct timespec some = {0, rand_r(&seed) % 1000000};
        if (act == touches) {
            /* Within one of its first faults. */
            while (touching <= i)
                sched_yield();
            for (volatile int turns = rand_r(&seed) % 30000; turns > 0; turns--)
                ;
        } else {
            nanosleep(&some, NULL);
        }
        pthread_cancel(thread);
        pthread_join(thread, &how);
        cancelled += how == PTHREAD_CANCELED;
    }
    printf("%s: cancelled %d\n", what, cancelled);
    fflush(stdout);
}

/* Calls that wait for what never comes, with memory that is not there. */
static void *to(size_t at) { return memory + at * 8192; }
static void a_read(void) { read(ends[0], to(1), 100); }
static void a_large_read(void) { read(ends[0], to(2), 5000); }
static void a_readv(void)
{
    struct iovec two[2] = {{to(4), 10}, {to(5), 5000}};
    readv(ends[0], two, 2);
}
static void a_recv(void) { recv(sockets[0], to(6), 5000, 0); }
static void a_recvfrom(void)
{
    socklen_t *len = to(9);
    *len = 100;
    recvfrom(sockets[0], to(7), 5000, 0, to(8), len);
}
static void a_recvmsg(void)
{
    struct iovec one = {to(10), 5000};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = to(11), .msg_controllen = 500};
    recvmsg(sockets[0], &message, 0);
}
static void a_write(void)
{
    for (;;)
        write(ends[1], to(20), 100000);
}
static void an_accept(void)
{
    socklen_t *len = to(12);
    *len = 100;
    accept(unnamed, to(13), len);
}
static void a_poll(void)
{
    struct pollfd *one = to(14);
    one->fd = ends[0], one->events = POLLIN;
    poll(one, 1, -1);
}
static void a_ppoll(void)
{
    struct pollfd *one = to(15);
    one->fd = ends[0], one->events = POLLIN;
    ppoll(one, 1, NULL, NULL);
}
static void a_select(void)
{
    fd_set *set = to(16);
    FD_ZERO(set);
    FD_SET(ends[0], set);
    select(ends[0] + 1, set, NULL, NULL, NULL);
}
static void an_epoll_wait(void) { epoll_wait(polled, to(17), 4, -1); }
static void a_msgrcv(void) { msgrcv(queue, to(18), 5000, 0, 0); }
static void a_nanosleep(void)
{
    struct timespec *time = to(19);
    time->tv_sec = 1000;
    nanosleep(time, time + 1);
}
static void a_sem_wait(void) { sem_wait(&empty); }
static void unlock(void *of) { pthread_mutex_unlock(&lock); }
static void a_cond_wait(void)
{
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, NULL);
    for (;;)
        pthread_cond_wait(&never, &lock);
    pthread_cleanup_pop(0);
}
static void a_waitpid(void) { waitpid(-1, to(21), 0); }
static void a_sigwait(void)
{
    sigset_t set;
    int which;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigwait(&set, &which);
}
static void a_pause(void) { pause(); }
static void an_open(void) { open(fifo, O_RDONLY); }
static void a_lock(void)
{
    struct flock *all = to(22);
    memset(all, 0, sizeof *all);
    all->l_type = F_WRLCK;
    fcntl(file, F_SETLKW, all);
}
static void an_fread(void) { fread(to(24), 1, 6000, fdopen(ends[0], "r")); }
static void a_usleep(void) { usleep(999999999); }

static const struct { const char *name; void (*act)(void); } CALLS[] = {
    {"read", a_read}, {"large read", a_large_read}, {"readv", a_readv}, {"recv", a_recv}, {"recvfrom", a_recvfrom},
    {"recvmsg", a_recvmsg}, {"accept", an_accept}, {"poll", a_poll}, {"ppoll", a_ppoll}, {"select", a_select},
    {"epoll_wait", an_epoll_wait}, {"msgrcv", a_msgrcv}, {"nanosleep", a_nanosleep}, {"sem_wait", a_sem_wait},
    {"pthread_cond_wait", a_cond_wait}, {"waitpid", a_waitpid}, {"sigwait", a_sigwait}, {"pause", a_pause},
    {"open", an_open}, {"fcntl", a_lock}, {"usleep", a_usleep}, {"fread", an_fread}, {"write", a_write},
};

static void *waits(void *of)
{
    pthread_cleanup_push(on_unwinding, NULL);
    for (;;)
        CALLS[(size_t)of].act();
    pthread_cleanup_pop(0);
    return NULL;
}

/* A thread that is cancelled, and has not come to a cancellation point: none of these calls is one, nor is a touch. */
static void *pending(void *path)
{
    pthread_cleanup_push(on_unwinding, NULL);
    while (!is_cancelled)
        ;
    STEP(mapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0));
    STEP((void)*(volatile unsigned char *)mapped);
    STEP(memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    STEP(memory[0] = 1);
    STEP(memset(memory, 1, BYTES));
    STEP(memcpy(memory, mapped, BYTES));
    STEP(memory = mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE));
    STEP(madvise(mapped, BYTES, MADV_WILLNEED));
    STEP(madvise(mapped, BYTES, MADV_DONTNEED));
    STEP(madvise(memory, UNIT, MADV_DONTNEED));
    STEP(madvise(memory + UNIT, UNIT, MADV_DONTFORK));
    STEP(mprotect(memory + 2 * UNIT, UNIT, PROT_READ));
    STEP(mprotect(mapped, UNIT, PROT_NONE));
    STEP(mlock(memory + 3 * UNIT, 4096));
    STEP(mmap(memory + 4 * UNIT, UNIT, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0));
    STEP(munmap(memory + 5 * UNIT, UNIT));
    STEP(munmap(memory, 2 * BYTES));
    STEP(munmap(mapped, BYTES));
    void *block;
    STEP(block = malloc(4 * UNIT));
    STEP(memset(block, 1, 4 * UNIT));
    STEP(block = realloc(block, 8 * UNIT));
    STEP(free(block));
    void *space;
    STEP(space = mmap(NULL, 8 * UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    STEP(mprotect(space, 4 * UNIT, PROT_READ | PROT_WRITE));
    STEP(memset(space, 1, 4 * UNIT));
    STEP(munmap(space, 8 * UNIT));
    pid_t child;
    STEP(child = fork());
    if (child == 0)
        _exit(0);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static void open_all(const char *path)
{
    file = open(path, O_RDONLY);
    null = open("/dev/null", O_RDWR);
    pipe(ends);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets);
    unnamed = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un { unsigned short family; char path[108]; } at = {AF_UNIX, {0}};
    bind(unnamed, (void *)&at, sizeof(short));
    listen(unnamed, 1);
    polled = epoll_create1(0);
    queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    sem_init(&empty, 0, 0);
    snprintf(fifo, sizeof fifo, "%s.%d", path, getpid());
    mkfifo(fifo, 0600);
}

static void map_all(void)
{
    mapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void calls(void)
{
    pid_t child = fork();
    for (; child == 0;)
        pause();
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        pthread_t thread;
        void *how;
        unwound = 0;
        pthread_create(&thread, NULL, waits, (void *)i);
        struct timespec some = {0, 20000000};
        nanosleep(&some, NULL);
        pthread_cancel(thread);
        pthread_join(thread, &how);
        printf("%s: %d %d\n", CALLS[i].name, how == PTHREAD_CANCELED, unwound);
        fflush(stdout);
    }
    kill(child, SIGKILL);
}

int main(int count, char **arguments)
{
    open_all(arguments[1]);
    if (strcmp(arguments[2], "pending") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, pending, arguments[1]);
        pthread_cancel(thread);
        is_cancelled = 1;
        pthread_join(thread, NULL);
        printf("unwound %d, within a call %s\n", unwound, within);
        map_all();
        printf("first %d\n", mapped[0]);
        msgctl(queue, IPC_RMID, NULL);
        unlink(fifo);
        return 0;
    }
    map_all();
    if (strcmp(arguments[2], "calls") == 0) {
        calls();
    } else {
        rounds("touches", touches, 1000);
        rounds("work", work, 1000);
        printf("unwound %d, within a call that is no cancellation point %d\n", unwound, entered - left);
        memset(memory, 2, BYTES);
        size_t wrong = 0;
        for (size_t i = 0; i < BYTES; i++)
            wrong += memory[i] != 2;
        printf("wrong %zu\n", wrong);
    }
    msgctl(queue, IPC_RMID, NULL);
    unlink(fifo);
    return 0;
}
