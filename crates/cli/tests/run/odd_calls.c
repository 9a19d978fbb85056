/* Lengths that nobody looks at, and a child of vfork that sets handlers and masks: `odd_calls FILE`. Prints the same under softfault and
   without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

#define BYTES ((size_t)16 << 20)
static void *const NOWHERE = (void *)8;

static void handle(int signal) {}

static void shown(void)
{
    struct sigaction usr, action;
    sigset_t set;
    sigaction(SIGBUS, NULL, &action), sigaction(SIGUSR1, NULL, &usr), sigprocmask(SIG_BLOCK, NULL, &set);
    printf("handler %d, blocked %d, in a handler %d\n", action.sa_handler == handle, sigismember(&set, SIGBUS), sigismember(&usr.sa_mask, SIGBUS));
}

int main(int count, char **arguments)
{
    char buffer[16];
    int pair[2], listens = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {AF_UNIX, "\0softfault-odd-calls"};
    socklen_t len = sizeof at;
    volatile unsigned char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, open(arguments[1], O_RDONLY), 0);
    if (mapped == MAP_FAILED)
        return 2;
    unsigned sum = mapped[0];
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "softfault-odd-calls-%d", getpid());
    bind(listens, (void *)&at, len), listen(listens, 5);
    for (int i = 0; i < 3; i++) {
        close(other), other = socket(AF_UNIX, SOCK_STREAM, 0);
        connect(other, (void *)&at, len);
        struct sockaddr_un from;
        int accepted = i == 0 ? accept(listens, NULL, NOWHERE) : i == 1 ? accept4(listens, NULL, NOWHERE, 0) : accept(listens, (void *)&from, NOWHERE);
        answer("accept", accepted < 0 ? -1 : 0);
    }
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (int i = 0; i < 2; i++) {
        send(pair[0], "hello", 5, 0);
        answer("recvfrom", recvfrom(pair[1], buffer, sizeof buffer, 0, NULL, i ? NOWHERE : NULL));
    }
    struct iovec vector = {buffer, 1};
    answer("readv", readv(pair[0], &vector, -1));
    answer("writev", writev(pair[0], &vector, -1));
    answer("pwritev", pwritev(memfd_create("file", 0), &vector, -2, 0));
    answer("pwritev2", pwritev2(memfd_create("file", 0), &vector, -1, 0, 0));
    answer("getsockopt", getsockopt(pair[0], SOL_SOCKET, SO_TYPE, buffer, NOWHERE));
    sigset_t set, none;
    sigemptyset(&none), sigemptyset(&set), sigaddset(&set, SIGBUS);
    struct sigaction action = {.sa_handler = handle, .sa_mask = set}, usual = {.sa_handler = SIG_DFL};
    signal(SIGBUS, handle);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    shown();
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        sigaction(SIGUSR1, &usual, NULL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        sum += mapped[BYTES / 2];
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    shown();
    fflush(stdout);
    /* A child with memory of its own sets its own. */
    if ((child = fork()) == 0) {
        signal(SIGBUS, SIG_DFL);
        sigaction(SIGUSR1, &usual, NULL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        shown();
        return 0;
    }
    waitpid(child, &status, 0);
    shown();
    printf("%u\n", sum);
    return 0;
}
