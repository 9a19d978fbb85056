/* Calls with pointers to where nothing is: the kernel answers EFAULT. `pointers FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)16 << 20)

static int pair[2], through[2], file, null, written;
static unsigned char *mapped, *memory;
static const char *where;

static void say(const char *what, long answer)
{
    printf("%s, %s: %ld %s\n", where, what, answer, answer < 0 ? strerror(errno) : "");
    fflush(stdout);
}

/* A message is there, so that a call does not wait. */
static int full(void)
{
    char old[100];
    recv(pair[1], old, sizeof old, MSG_DONTWAIT);
    send(pair[0], "hello", 5, 0);
    return pair[1];
}

static void arguments(void *at)
{
    pid_t child = fork();
    int status;
    char *name[] = {"true", NULL};
    if (child == 0) {
        execve("/bin/true", at, environ);
        say("execve, arguments", -1);
        execve("/bin/true", name, at);
        say("execve, environment", -1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    say("child", status);
}

/* Bytes that are written or sent, a page in front of them that is not in memory, and strings. */
static void bytes(void *at)
{
    unsigned char *cold = memory + (1 << 20);
    struct iovec two[2] = {{cold, 4096}, {at, 100}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    memset(cold, 1, 4096);
    say("write", write(through[1], at, 100));
    say("write to a file", write(written, at, 100));
    say("pwrite", pwrite(written, at, 100, 0));
    madvise(cold, 4096, MADV_PAGEOUT);
    say("writev", writev(written, two, 2));
    madvise(cold, 4096, MADV_PAGEOUT);
    say("sendmsg, the second", sendmsg(pair[0], &message, MSG_DONTWAIT));
    say("send", send(pair[0], at, 100, MSG_DONTWAIT));
    say("connect", connect(pair[0], at, 100));
    say("setsockopt", setsockopt(pair[0], SOL_SOCKET, SO_RCVBUF, at, 8));
    say("epoll_ctl", epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, pair[0], at));
    say("open", open(at, O_RDONLY));
    say("rename", rename(at, at));
}

static void all(const char *at_what, void *at)
{
    struct iovec one = {memory, 100}, bad = {at, 100};
    struct msghdr message = {.msg_iov = at, .msg_iovlen = 1};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    struct pollfd poll = {.fd = -1};
    struct epoll_event event;
    struct timespec none = {0, 0};
    fd_set set;
    FD_ZERO(&set);
    where = at_what;
    say("setrlimit", setrlimit(RLIMIT_FSIZE, at));
    say("prlimit", prlimit(0, RLIMIT_FSIZE, at, NULL));
    say("SYS_setrlimit", syscall(SYS_setrlimit, RLIMIT_FSIZE, at));
    say("SYS_prlimit64", syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, at, NULL));
    say("sigaltstack", sigaltstack(at, NULL));
    say("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, at, NULL));
    say("nanosleep", nanosleep(at, NULL));
    say("readv", readv(file, at, 2));
    say("preadv", preadv(file, at, 2, 0));
    say("preadv2", preadv2(file, at, 2, 0, 0));
    say("SYS_readv", syscall(SYS_readv, file, at, 2));
    say("readv, buffer", readv(file, &bad, 1));
    say("writev", writev(null, at, 2));
    say("pwritev", pwritev(file, at, 2, 0));
    say("vmsplice", vmsplice(pair[0], at, 1, 0) < 0);
    say("sendmsg", sendmsg(pair[0], at, 0));
    say("sendmsg, vectors", sendmsg(pair[0], &message, 0));
    say("sendmmsg", sendmmsg(pair[0], at, 2, 0));
    say("sendmmsg, vectors", sendmmsg(pair[0], messages, 2, 0));
    say("recvmsg", recvmsg(full(), at, MSG_DONTWAIT));
    say("recvmsg, vectors", recvmsg(full(), &message, MSG_DONTWAIT));
    say("recvmmsg", recvmmsg(full(), at, 2, MSG_DONTWAIT, NULL));
    say("recvmmsg, vectors", recvmmsg(full(), messages, 2, MSG_DONTWAIT, NULL));
    say("recvmmsg, time", recvmmsg(full(), messages, 1, MSG_DONTWAIT, at));
    say("recvfrom, length", recvfrom(full(), memory, 5, MSG_DONTWAIT, (void *)(memory + 4096), at));
    say("getsockopt, length", getsockopt(pair[0], SOL_SOCKET, SO_TYPE, memory, at));
    say("process_vm_readv", process_vm_readv(getpid(), at, 1, &one, 1, 0));
    say("process_vm_writev", process_vm_writev(getpid(), at, 1, &one, 1, 0));
    say("process_vm_writev, to", process_vm_writev(getpid(), &one, 1, at, 1, 0));
    say("sigsuspend", sigsuspend(at));
    say("ppoll", ppoll(&poll, 1, &none, at));
    say("pselect", pselect(0, &set, NULL, NULL, &none, at));
    say("epoll_pwait", epoll_pwait(epoll_create1(0), &event, 1, 0, at));
    say("sigtimedwait", sigtimedwait(at, NULL, &none));
    say("SYS_clone3", syscall(SYS_clone3, at, 88));
    arguments(at);
    bytes(at);
}

int main(int count, char **arguments)
{
    file = open(arguments[1], O_RDONLY), null = open("/dev/null", O_RDWR);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), pipe(through), written = memfd_create("written", 0);
    mapped = mmap(NULL, BYTES + 4 * 4096, PROT_READ, MAP_PRIVATE, file, 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = mapped[0];
    unsigned char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    all("low", (void *)8);
    /* Far from where the kernel puts mappings: a hole between them may be filled meanwhile. */
    all("nothing mapped", (void *)0x123456789000);
    all("half of it readable", pages + 4096 - 4);
    all("not readable", pages + 4096);
    all("the kernel's", (void *)-4096);
    /* Next to memory that is served, in its mappings. */
    munmap(memory + BYTES / 2, 4096);
    mprotect(memory + BYTES / 4, 4096, PROT_NONE);
    /* A buffer that reaches into nothing goes to the kernel as it is. */
    memory[BYTES / 2 - 4] = 1;
    all("unmapped part", memory + BYTES / 2);
    all("half of it unmapped", memory + BYTES / 2 - 4);
    all("protected part", memory + BYTES / 4);
    all("behind the file", mapped + BYTES);
    return 0;
}
