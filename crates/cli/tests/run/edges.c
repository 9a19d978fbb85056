/* Calls at the edges of what is covered, with memory that is not there: `edges CASE`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define SLOT ((size_t)64 << 10)
#define BYTES ((size_t)32 << 20)
#define SHARED (MAP_SHARED | MAP_POPULATE)
#define BOTH (PROT_READ | PROT_WRITE)

static unsigned char *memory;
static size_t used;

/* These bytes, in a page of their own that is not in memory. */
static void *cold(const void *bytes, size_t count)
{
    unsigned char *place = memory + (used += SLOT);
    memcpy(place, bytes, count);
    madvise(place, SLOT, MADV_PAGEOUT);
    return place;
}
#define T(text) ((char *)cold(text, strlen(text) + 1))

static void ends(const char *what, pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s %x\n", what, status);
    fflush(stdout);
}
#define CHILD(what, act) \
    do { \
        fflush(stdout); \
        pid_t child = fork(); \
        if (child == 0) { \
            act; \
            printf("%s: %s\n", what, strerror(errno)), fflush(stdout), _exit(3); \
        } \
        ends(what, child); \
    } while (0)

static void lists(void)
{
    CHILD("execl", execl(T("/bin/echo"), T("echo"), T("1"), T("2"), T("3"), T("4"), T("5"), T("6"), T("7"), T("8"), NULL));
    CHILD("of one", execl(T("/bin/echo"), T("echo"), NULL));
    CHILD("of five", execl(T("/bin/echo"), T("echo"), T("1"), T("2"), T("3"), T("4"), NULL));
    CHILD("execlp", execlp(T("echo"), T("echo"), T("by the path"), NULL));
    char *own[] = {T("A=1"), T("B=2"), NULL};
    char **environment = cold(own, sizeof own);
    CHILD("execle", execle(T("/usr/bin/env"), T("env"), NULL, environment));
    CHILD("execle", execle(T("/bin/sh"), T("sh"), T("-c"), T("echo $A $0 $1 $2 $3"), T("0"), T("1"), T("2"), T("3"), NULL, environment));
    volatile long before = 11, after = 22;
    int answer = execl(T("/nowhere/at all"), T("nothing"), T("1"), T("2"), T("3"), T("4"), T("5"), T("6"), NULL);
    printf("%ld %d %s %ld\n", before, answer, strerror(errno), after);
    answer = execlp(T("nowhere at all"), T("nothing"), NULL);
    printf("%ld %d %s %ld\n", before, answer, strerror(errno), after);
}

static void names(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct gaicb one = {.ar_name = T("127.0.0.1"), .ar_service = T("80"), .ar_request = cold(&hints, sizeof hints)};
    struct gaicb *request = cold(&one, sizeof one), *two[2] = {request, NULL};
    int answer = getaddrinfo_a(GAI_WAIT, cold(two, sizeof two), 2, NULL);
    printf("getaddrinfo_a %d %d %d\n", answer, gai_error(request), request->ar_result->ai_family == AF_INET);
}

static void vectors(void)
{
    unsigned char *from = memory + BYTES / 2, *to = malloc(16 * PAGE);
    unsigned char *part = mmap(NULL, 16 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 16; i++)
            memset(from + i * PAGE, 'a' + i, PAGE);
        for (int i = round ? 1 : 0; i < 16; i += 2)
            madvise(from + i * PAGE, PAGE, MADV_PAGEOUT);
        struct iovec ours[2] = {{from, 30000}, {from + 30000, 35536}};
        struct iovec theirs[3] = {{to, 1000}, {to + 1000, 50000}, {to + 51000, 14536}};
        if (round == 2) {
            munmap(part + 8 * PAGE, 8 * PAGE);
            theirs[0] = (struct iovec){part, 16 * PAGE};
        }
        memset(to, 0, 16 * PAGE);
        ssize_t done = process_vm_writev(getpid(), ours, 2, theirs, round == 2 ? 1 : 3, 0);
        printf("%zd %d\n", done, memcmp(round == 2 ? part : to, from, done));
    }
    struct iovec none = {from, 100};
    ssize_t done = process_vm_writev(getpid(), &none, 1, &none, 1, 1);
    printf("%zd %s\n", done, strerror(errno));
}

static int ends_of[2];

static void send_later(int count, int ms)
{
    if (fork() == 0) {
        for (int i = 0; i < count; i++) {
            usleep(ms * 1000);
            send(ends_of[1], "later", 5, 0);
        }
        _exit(0);
    }
}

/* So many messages are there, others come after so many milliseconds each; how many are wanted. */
static void receive(const char *what, int there, int later, int wanted, int flags, struct timespec *time)
{
    struct mmsghdr all[8] = {0};
    struct iovec one[8];
    for (int i = 0; i < there; i++)
        send(ends_of[1], "there", 5, 0);
    for (int i = 0; i < 8; i++) {
        one[i] = (struct iovec){cold("", 1), 100};
        all[i].msg_hdr.msg_iov = &one[i], all[i].msg_hdr.msg_iovlen = 1;
    }
    if (later)
        send_later(later, 150);
    struct timespec *place = time ? cold(time, sizeof *time) : NULL;
    int got = recvmmsg(ends_of[0], all, wanted, flags, place);
    printf("%s %d %s\n", what, got, got < 0 ? strerror(errno) : "");
    for (int i = 0; i < got; i++)
        printf(" %u %.5s", all[i].msg_len, (char *)one[i].iov_base);
    if (got > 0 && place)
        printf(" left %d", place->tv_sec > 0 || place->tv_nsec > 0);
    printf("\n");
    fflush(stdout);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    char byte[10];
    while (recv(ends_of[0], byte, sizeof byte, MSG_DONTWAIT) > 0)
        ;
}

static void messages(void)
{
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends_of);
    struct timespec tenth = {0, 100000000}, long_time = {1000, 0}, none = {0, 0}, wrong = {0, 1000000000}, before = {-1, 0};
    receive("all there", 3, 0, 3, 0, NULL);
    receive("waits for the rest", 1, 2, 3, 0, NULL);
    receive("waits for one", 2, 1, 3, MSG_WAITFORONE, NULL);
    receive("waits for the first", 0, 2, 2, MSG_WAITFORONE, NULL);
    receive("does not wait", 2, 0, 4, MSG_DONTWAIT, NULL);
    receive("has time", 2, 1, 3, 0, &long_time);
    receive("has none when the third comes", 2, 2, 4, 0, &tenth);
    receive("has none", 2, 0, 2, 0, &none);
    receive("wrong", 1, 0, 1, 0, &wrong);
    receive("wrong", 1, 0, 1, 0, &before);
    receive("nothing", 1, 0, 0, 0, &tenth);
    receive("nothing there", 0, 0, 2, MSG_DONTWAIT, &tenth);
}

static size_t wrong_in(const unsigned char *bytes, size_t count, int value)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += bytes[i] != value;
    return wrong;
}

/* Bytes of a socket, of which some or all are dropped, or stay: a buffer that is not written to is as it was. */
static void dropped_by(int sender, int receiver, size_t count)
{
    static const int FLAGS[] = {MSG_TRUNC, MSG_PEEK, MSG_PEEK | MSG_TRUNC, MSG_WAITALL};
    static char sent[4096];
    unsigned char *buffer = memory + (used += SLOT);
    memset(sent, 'q', sizeof sent);
    for (int how = 0; how < 3; how++)
        for (int i = 0; i < 4; i++) {
            send(sender, sent, count, 0);
            struct pollfd come = {receiver, POLLIN};
            poll(&come, 1, -1);
            memset(buffer, 7, 2 * PAGE);
            madvise(buffer, SLOT, MADV_PAGEOUT);
            struct iovec parts[] = {{buffer + 5, 20}, {buffer + PAGE, count - 20}};
            struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
            long got = how == 0 ? recv(receiver, buffer + 5, count, FLAGS[i]) : how == 1 ? recvmsg(receiver, &message, FLAGS[i]) : syscall(SYS_recvfrom, receiver, buffer + 5, count - 10, FLAGS[i], NULL, NULL);
            printf("%ld, %zu %zu, %x\n", got, wrong_in(buffer, PAGE, 7), wrong_in(buffer + PAGE, PAGE, 7), message.msg_flags);
            while (recv(receiver, sent, sizeof sent, MSG_DONTWAIT) > 0)
                ;
        }
}

static void dropped(void)
{
    int listens = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0), pair[2];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    bind(listens, (void *)&at, bytes), listen(listens, 1), getsockname(listens, (void *)&at, &bytes);
    connect(sender, (void *)&at, bytes);
    int receiver = accept(listens, NULL, NULL);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (size_t count = 60; count <= 1020; count += 960) {
        dropped_by(sender, receiver, count);
        dropped_by(pair[0], pair[1], count);
    }
    /* More than comes at once, and more than there is room for. */
    unsigned char *buffer = memory + (used += SLOT);
    size_t nothing = 0;
    memset(buffer, 7, 4 << 20);
    madvise(buffer, 4 << 20, MADV_PAGEOUT);
    printf("random %zd\n", getrandom(buffer + 3, (4 << 20) - 3, 0));
    for (size_t at = 64; at < 4 << 20; at += 64)
        nothing += wrong_in(buffer + at, 64, 7) == 0;
    arc4random_buf(buffer, 4 << 20);
    mprotect(buffer + (2 << 20), PAGE, PROT_READ);
    printf("%zu, %zd\n", nothing, getrandom(buffer + (2 << 20) - 1000, 2000, 0));
    printf("%zd %s\n", getrandom(buffer + (2 << 20), 2000, 0), strerror(errno));
}

/* Memory that the kernel does not give: anonymous, and of a file that is long enough to be taken. */
static void nothing_given(void)
{
    char name[64];
    int made = memfd_create("long", 0), file;
    snprintf(name, sizeof name, "/proc/self/fd/%d", made);
    file = ftruncate(made, 8 << 20) == 0 ? open(name, O_RDONLY) : -1;
    close(made);
    static const size_t SIZES[] = {4 << 20, 4 << 20, (size_t)1 << 47, (size_t)1 << 50, (size_t)-PAGE, -1};
    memset(memory, 7, 4 << 20);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | (i == 1 ? MAP_FIXED : 0);
        void *mapped = mmap(memory, SIZES[i], BOTH, flags, -1, i < 2 ? 3 : 0);
        printf("%s, %zu wrong\n", mapped == MAP_FAILED ? strerror(errno) : "given", wrong_in(memory, 4 << 20, 7));
        if (i < 2)
            continue;
        mapped = mmap(NULL, SIZES[i], PROT_READ, MAP_PRIVATE, file, 0);
        printf("of a file: %s\n", mapped == MAP_FAILED ? strerror(errno) : "given");
    }
}

static int ring;
static struct io_uring_params about;
static unsigned char *submitted, *completed;
static struct io_uring_sqe *entries;

static int by_ring(int how, int fd, void *place)
{
    unsigned *tail = (void *)(submitted + about.sq_off.tail), *array = (void *)(submitted + about.sq_off.array);
    unsigned *head = (void *)(completed + about.cq_off.head), at = *tail % about.sq_entries;
    struct io_uring_cqe *done = (void *)(completed + about.cq_off.cqes);
    entries[at] = (struct io_uring_sqe){.opcode = how, .fd = fd, .addr = (size_t)place, .len = PAGE};
    array[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    int answer = done[*head % about.cq_entries].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return answer;
}

static void rings(void)
{
    ring = syscall(SYS_io_uring_setup, 8, &about);
    if (ring < 0) {
        printf("none\n");
        return;
    }
    submitted = mmap(NULL, about.sq_off.array + about.sq_entries * 4, BOTH, SHARED, ring, IORING_OFF_SQ_RING);
    completed = mmap(NULL, about.cq_off.cqes + about.cq_entries * 16, BOTH, SHARED, ring, IORING_OFF_CQ_RING);
    entries = mmap(NULL, about.sq_entries * sizeof *entries, BOTH, SHARED, ring, IORING_OFF_SQES);
    int file = memfd_create("file", 0);
    write(file, memory, PAGE);
    printf("read %d\n", by_ring(IORING_OP_READ, file, cold("x", 1)));
    printf("write %d\n", by_ring(IORING_OP_WRITE, file, cold("x", 1)));
    void *there = cold("x", 1);
    memset(there, 1, PAGE);
    printf("there %d\n", by_ring(IORING_OP_WRITE, file, there));
}

static void use(unsigned char *bytes)
{
    size_t wrong = 0;
    for (size_t at = 0; at < BYTES; at += PAGE)
        bytes[at] = at / PAGE % 251;
    for (size_t at = 0; at < BYTES; at += PAGE)
        wrong += bytes[at] != at / PAGE % 251;
    printf("wrong %zu\n", wrong);
    fflush(stdout);
}

/* A limit that is less than swap has, set while memory is in use; and raised again. */
static void file_size(void)
{
    struct rlimit low = {1000000, RLIM_INFINITY}, high = {RLIM_INFINITY, RLIM_INFINITY}, *before = cold(&low, sizeof low);
    use(memory);
    printf("prlimit %d\n", prlimit(0, RLIMIT_FSIZE, cold(&high, sizeof high), before));
    printf("before %d\n", before->rlim_cur == RLIM_INFINITY);
    use(memory);
    printf("setrlimit %d\n", setrlimit(RLIMIT_FSIZE, cold(&low, sizeof low)));
    use(memory);
    unsigned char *more = mmap(NULL, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    use(more);
    printf("syscall %ld\n", syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &high, before));
    printf("before %d\n", before->rlim_cur == 1000000);
    more = mmap(NULL, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    use(more);
}

/* A limit of a child that has its parent's memory for now is not its parent's. */
static void file_size_of_a_child(void)
{
    static const struct rlimit low = {1000000, RLIM_INFINITY};
    int status = 0;
    use(memory);
    pid_t child = vfork();
    if (child == 0)
        _exit(setrlimit(RLIMIT_FSIZE, &low) != 0 || prlimit(0, RLIMIT_FSIZE, &low, NULL) != 0);
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    use(memory);
}

static void *limits_all_threads(void *unused)
{
    static const struct rlimit low = {1000000, RLIM_INFINITY};
    printf("prlimit %d\n", prlimit(syscall(SYS_gettid), RLIMIT_FSIZE, &low, NULL));
    return NULL;
}

/* A limit is of the process, whichever of its threads has the number that is named. */
static void file_size_of_a_thread(void)
{
    pthread_t thread;
    use(memory);
    pthread_create(&thread, NULL, limits_all_threads, NULL);
    pthread_join(thread, NULL);
    use(memory);
}

/* One that the kernel refuses changes nothing. */
static void file_size_refused(void)
{
    static const struct rlimit low = {1000000, 10};
    use(memory);
    int answer = setrlimit(RLIMIT_FSIZE, &low);
    printf("setrlimit %d %s\n", answer, strerror(errno));
    answer = prlimit(0, RLIMIT_FSIZE, &low, NULL);
    printf("prlimit %d %s\n", answer, strerror(errno));
    use(memory);
}

#define POPULATE_READ 22
#define POPULATE_WRITE 23

static void populated(const char *what, void *start, size_t bytes)
{
    for (int how = POPULATE_READ; how <= POPULATE_WRITE; how++) {
        int answer = madvise(start, bytes, how);
        printf("%s %d: %d %s\n", what, how, answer, answer < 0 ? strerror(errno) : "");
    }
}

/* Parts of one mapping that different servers have, and that nobody has. */
static void populate(void)
{
    use(memory);
    populated("all", memory, BYTES);
    mlock(memory + BYTES / 2, PAGE);
    populated("a part is locked", memory, BYTES);
    mprotect(memory + BYTES / 4, PAGE, PROT_READ);
    populated("a part is read-only", memory, BYTES);
    populated("up to it", memory, BYTES / 4);
    populated("from it on", memory + BYTES / 4, PAGE * 2);
    mprotect(memory + BYTES / 8, PAGE, PROT_NONE);
    populated("a part is protected", memory, BYTES);
    munmap(memory + BYTES / 16, PAGE);
    populated("a part is unmapped", memory, BYTES);
    populated("behind it", memory + BYTES / 16 + PAGE, PAGE);
    populated("not a page", memory + 1, PAGE);
    populated("nothing", memory, 0);
    populated("all addresses", memory, -PAGE);
}

static volatile int is_populating, has_begun, changed;

static void *maps_beside(void *until)
{
    while (*(volatile int *)until == 0) {
        /* It has begun: its first page is in memory. */
        unsigned char there = 0;
        if (is_populating && !has_begun)
            has_begun = mincore(memory, PAGE, &there) == 0 && there & 1;
        void *more = mmap(NULL, 2 << 20, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(more, 2 << 20);
        if (is_populating && has_begun)
            changed++;
    }
    return NULL;
}

/* Other threads map while one waits for a populate: once of many times, at least, many times. */
static void populate_beside(void)
{
    /* The kernel's is soon over: the other thread may sleep for many of them, where the machine is busy. */
    enum { TIMES = 2000, MANY = 20 };
    int until = 0, most = 0;
    pthread_t thread;
    use(memory);
    pthread_create(&thread, NULL, maps_beside, &until);
    for (int i = 0; i < TIMES && most < MANY; i++) {
        madvise(memory, BYTES, MADV_DONTNEED);
        changed = 0, has_begun = 0, is_populating = 1;
        int answer = madvise(memory, BYTES, POPULATE_WRITE);
        is_populating = 0;
        most = changed > most ? changed : most;
        if (answer < 0)
            printf("populate: %s\n", strerror(errno));
    }
    until = 1;
    pthread_join(thread, NULL);
    printf("many %d\n", most >= MANY);
}

static unsigned char *growing;
static volatile int is_growing;

/* Messages into pages that are not in memory; how many are lost. */
static void *receives_beside(void *unused)
{
    enum { PAGES = 512 };
    unsigned char *pages = growing + BYTES / 4;
    long lost = 0;
    for (long i = 0; is_growing; i++) {
        unsigned char *place = pages + i % PAGES * PAGE;
        if (i % PAGES == 0)
            madvise(pages, PAGES * PAGE, MADV_PAGEOUT);
        send(ends_of[1], "message", 7, 0);
        lost += recv(ends_of[0], place, 7, MSG_DONTWAIT) != 7 || memcmp(place, "message", 7) != 0;
    }
    return (void *)lost;
}

/* Mappings that become longer where they are, beside a thread that uses them. */
static void grows(void)
{
    enum { TIMES = 8 };
    long all = 0;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends_of);
    for (int i = 0; i < TIMES; i++) {
        size_t bytes = BYTES / 2;
        void *lost;
        pthread_t thread;
        growing = mmap(NULL, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        growing = mremap(growing, bytes, bytes + PAGE, MREMAP_MAYMOVE);
        is_growing = 1;
        pthread_create(&thread, NULL, receives_beside, NULL);
        for (bytes += PAGE; bytes < BYTES; bytes += PAGE)
            if (mremap(growing, bytes, bytes + PAGE, 0) == MAP_FAILED)
                break;
        is_growing = 0;
        pthread_join(thread, &lost);
        all += (long)lost;
        munmap(growing, bytes);
    }
    printf("lost %ld\n", all);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"lists", lists}, {"names", names}, {"vectors", vectors}, {"messages", messages}, {"dropped", dropped}, {"nothing-given", nothing_given}, {"rings", rings}, {"file-size", file_size},
    {"file-size-of-a-child", file_size_of_a_child}, {"file-size-of-a-thread", file_size_of_a_thread},
    {"grows", grows}, {"file-size-refused", file_size_refused}, {"populate", populate}, {"populate-beside", populate_beside},
};

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    if (strcmp(arguments[1], "descriptors") == 0) {
        struct rlimit few = {6, 6};
        setrlimit(RLIMIT_NOFILE, &few);
    }
    memory = mmap(NULL, BYTES, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        if (strcmp(CASES[i].name, arguments[1]) == 0)
            CASES[i].run();
    if (strcmp(arguments[1], "descriptors") == 0) {
        int opened = 0;
        use(memory);
        while (open("/dev/null", O_RDONLY) >= 0)
            opened++;
        printf("opened %d\n", opened);
        for (int fd = 3; fd < 6; fd++)
            close(fd);
    }
    return 0;
}
