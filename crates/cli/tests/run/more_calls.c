/* Calls of the C library that few programs make, on memory that is not there: `more_calls FILE`. Prints the same under softfault
 * and without. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define BYTES ((size_t)16 << 20)
#define KIB ((size_t)1 << 10)

typedef void (*handler)(int);
extern handler __sysv_signal(int, handler);
extern handler bsd_signal(int, handler);
extern ssize_t __read(int, void *, size_t);
extern ssize_t __write(int, const void *, size_t);
extern int __open(const char *, int, ...);
extern void __libc_free(void *);
extern void arc4random_buf(void *, size_t) __attribute__((weak));

static unsigned char *memory;

/* A part of the memory, in swap as far as there is some. */
static void *cold(size_t at, size_t bytes)
{
    void *place = memory + at;
    madvise((void *)((uintptr_t)place & ~(uintptr_t)(PAGE - 1)), (bytes + PAGE * 2 - 1) & ~(size_t)(PAGE - 1), MADV_PAGEOUT);
    return place;
}

static void fill(unsigned char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static size_t wrong(const unsigned char *at, size_t bytes, unsigned seed)
{
    size_t bad = 0;
    for (size_t i = 0; i < bytes; i++)
        bad += at[i] != (unsigned char)(i * 7 + i / 251 + seed);
    return bad;
}

static int temporary(void)
{
    char name[] = "/tmp/softfault-run-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    return fd;
}

static ssize_t finish(struct aiocb *request)
{
    const struct aiocb *one[] = {request};
    while (aio_error(request) == EINPROGRESS)
        aio_suspend(one, 1, NULL);
    return aio_return(request);
}

static void requests(void)
{
    int fd = temporary();
    size_t bytes = 300 * KIB;
    fill(memory + 1000, bytes, 1);
    struct aiocb *request = (struct aiocb *)(memory + (1 << 20));
    *request = (struct aiocb){.aio_fildes = fd, .aio_buf = memory + 1000, .aio_nbytes = bytes};
    cold(0, 2 << 20);
    int begun = aio_write(request);
    printf("aio_write %d %zd\n", begun, finish(request));
    *request = (struct aiocb){.aio_fildes = fd, .aio_buf = memory + (2 << 20) + 77, .aio_nbytes = bytes};
    cold(0, 4 << 20);
    begun = aio_read(request);
    printf("aio_read %d %zd\n", begun, finish(request));
    printf("wrong %zu\n", wrong(memory + (2 << 20) + 77, bytes, 1));
    struct aiocb *list[4];
    for (int i = 0; i < 4; i++) {
        list[i] = (struct aiocb *)(memory + (5 << 20) + i * 3 * PAGE);
        *list[i] = (struct aiocb){.aio_fildes = fd, .aio_buf = memory + (6 << 20) + i * 80 * KIB, .aio_nbytes = 70 * KIB, .aio_offset = i * 70 * KIB, .aio_lio_opcode = LIO_READ};
    }
    cold(5 << 20, 2 << 20);
    printf("lio_listio %d\n", lio_listio(LIO_WAIT, list, 4, NULL));
    size_t bad = 0;
    for (int i = 0; i < 4; i++)
        bad += memcmp(memory + (6 << 20) + i * 80 * KIB, memory + (2 << 20) + 77 + i * 70 * KIB, 70 * KIB) != 0;
    printf("wrong %zu\n", bad);
    close(fd);
}

static void streams(void)
{
    int fd = temporary();
    FILE *out = fdopen(dup(fd), "w"), *in;
    printf("setvbuf %d\n", setvbuf(out, cold(7 << 20, 64 * KIB), _IOFBF, 64 * KIB));
    unsigned char *bytes = memory + (8 << 20);
    fill(bytes, 800 * KIB, 2);
    cold(7 << 20, 2 << 20);
    size_t done = 0;
    while (done < 800 * KIB)
        done += fwrite(bytes + done, 1, 40, out);
    fclose(out);
    in = fdopen(fd, "r");
    rewind(in);
    setbuffer(in, cold(9 << 20, 20 * KIB), 20 * KIB);
    bytes = memory + (10 << 20);
    cold(10 << 20, 1 << 20);
    for (done = 0; done < 800 * KIB; done += 8)
        if (fread(bytes + done, 8, 1, in) != 1)
            break;
    printf("streams %zu, wrong %zu\n", done, wrong(bytes, 800 * KIB, 2));
    fclose(in);
}

static volatile int handled;
static void handle(int signal) { handled++; }

static size_t touches(void)
{
    size_t sum = 0;
    cold(0, BYTES);
    for (size_t i = 0; i < BYTES; i += PAGE)
        sum += memory[i] == 255;
    return sum > BYTES;
}

static void signals(void)
{
    handler before = sigset(SIGBUS, handle);
    printf("sigset %d %zu\n", before == SIG_DFL, touches());
    printf("handled %d\n", handled);
    raise(SIGBUS);
    printf("raised %d\n", handled);
    bsd_signal(SIGBUS, SIG_IGN);
    printf("bsd_signal %zu\n", touches());
    raise(SIGBUS);
    before = __sysv_signal(SIGBUS, handle);
    printf("sysv_signal %d %zu\n", before == SIG_IGN, touches());
    printf("handled %d\n", handled);
    raise(SIGBUS);
    printf("raised %d\n", handled);
    signal(SIGBUS, SIG_DFL);
    printf("sighold %d\n", sighold(SIGBUS));
    printf("held %zu\n", touches());
    printf("sigset %d\n", sigset(SIGBUS, SIG_DFL) == SIG_HOLD);
    printf("sigignore %d\n", sigignore(SIGBUS));
    printf("ignored %zu\n", touches());
    raise(SIGBUS);
    int mask = sigblock(sigmask(SIGBUS) | sigmask(SIGUSR1));
    printf("sigblock %d %zu\n", mask, touches());
    mask = sigsetmask(0);
    printf("sigsetmask %d %d\n", mask == (sigmask(SIGBUS) | sigmask(SIGUSR1)), siggetmask());
    signal(SIGBUS, SIG_DFL);
    printf("%zu\n", touches());
}

static void texts(const char *path)
{
    char *own = strcpy((char *)memory + (11 << 20), path);
    key_t plain = ftok(path, 7);
    printf("ftok %d\n", ftok(cold(11 << 20, PAGE), 7) == plain);
    strcpy((char *)memory + (11 << 20) + PAGE, "/usr");
    unsetenv("TMPDIR");
    char *name = tempnam(cold((11 << 20) + PAGE, PAGE), "soft");
    printf("tempnam %d\n", name != NULL && strncmp(name, "/usr/soft", 9) == 0);
    free(name);
    struct sigevent *about = (struct sigevent *)(memory + (11 << 20) + 2 * PAGE);
    memset(about, 0, sizeof *about);
    about->sigev_notify = SIGEV_NONE;
    timer_t *timer = (timer_t *)(memory + (11 << 20) + 4 * PAGE);
    cold(11 << 20, 8 * PAGE);
    int made = timer_create(CLOCK_MONOTONIC, about, timer);
    printf("timer %d %d\n", made, timer_delete(*timer));
    strcpy((char *)memory + (11 << 20) + 6 * PAGE, "/nowhere");
    errno = 0;
    quotactl(QCMD(Q_GETQUOTA, USRQUOTA), cold((11 << 20) + 6 * PAGE, PAGE), 0, cold((11 << 20) + 8 * PAGE, PAGE));
    int is = errno;
    quotactl(QCMD(Q_GETQUOTA, USRQUOTA), "/nowhere", 0, (char *)name);
    printf("quotactl %d\n", is == errno);
    int fd = __open(cold(11 << 20, PAGE), O_RDONLY), other = temporary();
    ssize_t got = __read(fd, cold(12 << 20, 9000), 9000);
    printf("names %zd %zd\n", got, __write(other, cold(12 << 20, 9000), 9000));
    ssize_t same = pread(other, memory + (12 << 20) + 16 * KIB, 9000, 0);
    printf("names %d\n", same == 9000 && memcmp(memory + (12 << 20), memory + (12 << 20) + 16 * KIB, 9000) == 0);
    close(fd), close(other);
    fd = open("/usr", O_RDONLY | O_DIRECTORY);
    off_t base = 0;
    printf("getdirentries %d\n", getdirentries(fd, cold(13 << 20, 8 * PAGE), 8 * PAGE, &base) > 0);
    close(fd);
    if (arc4random_buf) {
        memset(memory + (14 << 20), 0, 9000);
        arc4random_buf(cold(14 << 20, 9000), 9000);
        size_t zeros = 0;
        for (int i = 0; i < 9000; i++)
            zeros += memory[(14 << 20) + i] == 0;
        printf("random %d\n", zeros < 1000);
    } else
        printf("random 1\n");
    void *block = malloc((size_t)20 << 20);
    memset(block, 1, 1 << 20);
    __libc_free(block);
}

static void others(void)
{
    int segment = shmget(IPC_PRIVATE, 64 * KIB, IPC_CREAT | 0600);
    unsigned char *place = memory + (3 << 20);
    memset(place - PAGE, 5, 64 * KIB + 2 * PAGE);
    unsigned char *mapped = shmat(segment, place, SHM_REMAP);
    shmctl(segment, IPC_RMID, NULL);
    printf("shmat %d %d %d %d\n", mapped == place, mapped[100], place[-1], place[64 * KIB]);
    memset(mapped, 6, 64 * KIB);
    int last = mapped[64 * KIB - 1];
    printf("shmdt %d %d\n", last, shmdt(mapped));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    struct user_regs_struct *registers = cold(15 << 20, PAGE);
    siginfo_t *about = cold((15 << 20) + PAGE, PAGE);
    long got = ptrace(PTRACE_GETREGS, child, NULL, registers), told = ptrace(PTRACE_GETSIGINFO, child, NULL, about);
    printf("ptrace %ld %ld %d\n", got, told, about->si_signo == SIGSTOP);
    cold(15 << 20, 2 * PAGE);
    printf("ptrace %ld\n", ptrace(PTRACE_SETREGS, child, NULL, registers));
    ptrace(PTRACE_CONT, child, NULL, NULL);
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
}

int main(int count, char **arguments)
{
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count < 2 || memory == MAP_FAILED)
        return 2;
    fill(memory, BYTES, 3);
    requests();
    streams();
    signals();
    texts(arguments[1]);
    others();
    return 0;
}
