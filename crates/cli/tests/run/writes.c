/* Calls that write more than memory has room for, and that the kernel stops half-way: `writes FILE`, with a line for each; `writes
   FILE all` writes all of it by each of some calls. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
static char *mapped, *plain;
static size_t bytes;
static int with[2];

/* A MiB that nothing has touched yet, but for its first 256 KiB. */
static size_t fresh(void)
{
    static size_t at;
    for (size_t i = 0; i < 64; i++)
        (void)*(volatile char *)(mapped + at * MIB + i * 4096);
    return at++ * MIB;
}

static void pair(int domain, int to[2])
{
    if (domain == AF_UNIX) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, to);
        return;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listens = socket(AF_INET, SOCK_STREAM, 0);
    bind(listens, (void *)&at, len), listen(listens, 1), getsockname(listens, (void *)&at, &len);
    connect(to[0] = socket(AF_INET, SOCK_STREAM, 0), (void *)&at, len);
    to[1] = accept(listens, NULL, NULL);
    close(listens);
}

struct reader { int fd, descriptors; const char *expected; size_t most; pthread_t thread; };

/* Reads all, compares it, and counts the descriptors that come with it. */
static void *reads(void *of)
{
    struct reader *about = of;
    static __thread char buffer[1 << 16];
    size_t done = 0;
    for (;;) {
        char control[200];
        struct iovec one = {buffer, sizeof buffer};
        struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(about->fd, &message, 0);
        if (got < 0 && errno == ENOTSOCK)
            got = read(about->fd, buffer, sizeof buffer);
        else if (got > 0 && CMSG_FIRSTHDR(&message))
            about->descriptors++;
        if (got <= 0)
            return (void *)done;
        if (done + got > about->most || memcmp(about->expected + done, buffer, got))
            return (void *)-1;
        done += got;
    }
}

static ssize_t by_sendmsg(int fd, char *from, size_t count, int number)
{
    char control[CMSG_SPACE(sizeof(int))] = "";
    struct iovec two[2] = {{from, 5000}, {from + 5000, count - 5000}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    if (number & 1) {
        message.msg_control = control, message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &with[0], sizeof(int));
    }
    if (number & 2)
        return syscall(SYS_sendmsg, fd, &message, 0);
    if (number & 4) {
        struct mmsghdr messages[1] = {{message}};
        int sent = sendmmsg(fd, messages, 1, 0);
        return sent == 1 ? messages[0].msg_len : sent;
    }
    return sendmsg(fd, &message, 0);
}

static ssize_t by(int how, int fd, char *from, size_t count)
{
    struct iovec two[2] = {{from, 5000}, {from + 5000, count - 5000}};
    switch (how) {
    case 0: return send(fd, from, count, 0);
    case 1: return sendto(fd, from, count, 0, NULL, 0);
    case 2: return write(fd, from, count);
    case 3: return writev(fd, two, 2);
    case 4: return by_sendmsg(fd, from, count, 0);
    case 5: return by_sendmsg(fd, from, count, 2);
    case 6: return by_sendmsg(fd, from, count, 4);
    case 7: return syscall(SYS_sendto, fd, from, count, 0, NULL, 0);
    case 8: return syscall(SYS_writev, fd, two, 2);
    default: return by_sendmsg(fd, from, count, 1);
    }
}

static void one(const char *name, int how, int fds[2], size_t at, size_t count)
{
    struct reader about = {fds[1], 0, plain + at, count};
    void *got;
    pthread_create(&about.thread, NULL, reads, &about);
    ssize_t answer = by(how, fds[0], mapped + at, count);
    close(fds[0]);
    pthread_join(about.thread, &got);
    close(fds[1]);
    printf("%s %d: %zd, got %zd, with %d\n", name, how, answer, (ssize_t)got, about.descriptors);
    fflush(stdout);
}

static void handle(int signal) {}

/* A write that nobody reads is interrupted. The first of its bytes are in memory, or all. */
static void interrupted(int fd, int how, int touched)
{
    size_t at = fresh();
    for (size_t i = 0; touched && i < MIB; i += 4096)
        (void)*(volatile char *)(mapped + at + i);
    /* Again and again: the first may come before the call has begun to wait. */
    struct itimerval soon = {{0, 200000}, {0, 200000}}, none = {};
    setitimer(ITIMER_REAL, &soon, NULL);
    ssize_t answer = by(how, fd, mapped + at, MIB);
    setitimer(ITIMER_REAL, &none, NULL);
    printf("interrupted: %d\n", answer > 0 && answer < (ssize_t)MIB);
    fflush(stdout);
}

static void short_ones(void)
{
    int fds[2];
    for (int how = 0; how < 10; how++)
        pair(AF_UNIX, fds), one("unix", how, fds, fresh(), MIB);
    for (int how = 0; how < 3; how++)
        pair(AF_INET, fds), one("inet", how, fds, fresh(), MIB);
    for (int how = 2; how < 4; how++)
        pipe(fds), pair(AF_UNIX, with), one("pipe", how, (int[]){fds[1], fds[0]}, fresh(), MIB);
    pair(AF_UNIX, fds);
    size_t at = fresh();
    ssize_t answer = send(fds[0], mapped + at, MIB, MSG_DONTWAIT);
    printf("does not wait: %d\n", answer > 0 && answer < (ssize_t)MIB);
    answer = send(fds[0], mapped + at, MIB, MSG_DONTWAIT);
    printf("does not wait: %zd %d\n", answer, errno == EAGAIN);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGALRM, &action, NULL);
    for (int touched = 0; touched < 2; touched++) {
        pipe(fds), interrupted(fds[1], 2, touched);
        pair(AF_UNIX, fds), interrupted(fds[0], 0, touched);
        pair(AF_UNIX, fds), interrupted(fds[0], 4, touched);
    }
}

static void all(void)
{
    int fds[2];
    for (int how = 0; how < 5; how++)
        pair(AF_UNIX, fds), one("all", how, fds, 0, bytes);
    pipe(fds), one("all", 3, (int[]){fds[1], fds[0]}, 0, bytes);
    FILE *stream = tmpfile();
    printf("file %zd\n", by(3, fileno(stream), mapped, bytes));
}

int main(int count, char **arguments)
{
    struct stat about;
    int fd = open(arguments[1], O_RDONLY);
    if (count < 2 || fd < 0 || fstat(fd, &about) < 0)
        return 2;
    bytes = about.st_size;
    mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    plain = malloc(bytes);
    if (count > 2)
        madvise(mapped, bytes, MADV_SEQUENTIAL);
    else
        madvise(mapped, bytes, MADV_RANDOM);
    for (size_t done = 0; done < bytes;)
        done += pread(fd, plain + done, bytes - done, done);
    pair(AF_UNIX, with);
    count > 2 ? all() : short_ones();
    return 0;
}
