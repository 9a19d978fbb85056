/* res_query(3) and its like, with messages and answers that are not in memory, and a server of our own: `resolver`. Prints the same
   under softfault and without. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <resolv.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT ((size_t)64 << 10)
#define BYTES ((size_t)32 << 20)

static unsigned char *memory;
static size_t used;
static struct sockaddr_in at = {.sin_family = AF_INET};

static void out(unsigned char *place)
{
    madvise((void *)((size_t)place & ~(SLOT - 1)), SLOT, MADV_PAGEOUT);
}

/* A place that is not in memory. A little of it is on a page by itself: the C library looks at the first bytes of an answer. */
static unsigned char *cold(void)
{
    unsigned char *place = memory + (used += SLOT);
    memset(place, 7, 8192);
    out(place);
    return place + 4096 - 14;
}

/* The address 127.1.2.3, for any name. */
static size_t reply(unsigned char *message, size_t bytes)
{
    static const unsigned char found[] = {0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 1, 2, 3};
    if (bytes < 12)
        return 0;
    message[2] |= 0x80, message[7] = 1, message[11] = 0;
    memcpy(message + bytes, found, sizeof found);
    return bytes + sizeof found;
}

static void serve(int datagrams, int listens)
{
    for (;;) {
        unsigned char message[4096];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        struct pollfd both[2] = {{datagrams, POLLIN}, {listens, POLLIN}};
        poll(both, 2, -1);
        if (both[0].revents) {
            ssize_t bytes = recvfrom(datagrams, message, 1000, 0, (void *)&from, &len);
            sendto(datagrams, message, reply(message, bytes), 0, (void *)&from, len);
        }
        if (both[1].revents) {
            int one = accept(listens, NULL, NULL);
            ssize_t bytes = recv(one, message, 2, MSG_WAITALL) == 2 ? recv(one, message + 2, message[0] << 8 | message[1], MSG_WAITALL) : -1;
            if (bytes > 0) {
                bytes = reply(message + 2, bytes);
                message[0] = bytes >> 8, message[1] = bytes;
                send(one, message, bytes + 2, 0);
            }
            close(one);
        }
    }
}

static void say(const char *what, int bytes, const unsigned char *to)
{
    printf("%s %d", what, bytes);
    for (int i = bytes - 4; bytes > 0 && i <= bytes; i++)
        printf(" %d", to[i]);
    printf("\n"), fflush(stdout);
}

static void prepare(res_state state)
{
    state->nscount = 1;
    state->nsaddr_list[0] = at;
    state->retrans = 2, state->retry = 1;
    state->options &= ~(RES_DNSRCH | RES_DEFNAMES);
}

int main(void)
{
    struct __res_state own = {0};
    unsigned char *to;
    socklen_t len = sizeof at;
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), listens = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listens, (void *)&at, len), getsockname(listens, (void *)&at, &len);
    if (bind(datagrams, (void *)&at, len) < 0 || listen(listens, 5) < 0)
        return 2;
    pid_t server = fork();
    if (server == 0)
        serve(datagrams, listens);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    res_init(), res_ninit(&own);
    prepare(&_res), prepare(&own);
    to = cold(), say("res_query", res_query("one.example", C_IN, T_A, to, 512), to);
    to = cold(), say("res_search", res_search("two.example", C_IN, T_A, to, 5000), to);
    to = cold(), say("res_querydomain", res_querydomain("three", "example", C_IN, T_A, to, 100), to);
    to = cold(), say("res_nquery", res_nquery(&own, "four.example", C_IN, T_A, to, 512), to);
    to = cold(), say("res_nsearch", res_nsearch(&own, "five.example", C_IN, T_A, to, 512), to);
    to = cold(), say("res_nquerydomain", res_nquerydomain(&own, "six", "example", C_IN, T_A, to, 512), to);
    for (int round = 0; round < 4; round++) {
        unsigned char *message = cold();
        int bytes = res_mkquery(QUERY, "seven.example", C_IN, T_A, NULL, 0, NULL, message, 512);
        out(message);
        to = cold();
        if (round % 2)
            say("res_nsend", res_nsend(&own, message, bytes, to, 512), to);
        else
            say("res_send", res_send(message, bytes, to, 512), to);
        /* Then by a stream. */
        if (round == 1)
            _res.options |= RES_USEVC, own.options |= RES_USEVC;
    }
    printf("behind %d\n", to[511]);
    kill(server, SIGKILL), waitpid(server, NULL, 0);
    return 0;
}
