/* Calls that hand memory to the kernel which is in a mapping, and not in memory: `calls DIRECTORY`. Each string and
   structure has a page of its own that nothing has touched. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;
#define SLOT (256 << 10)
#define MOST 200
static const struct sockaddr_un AT = {AF_UNIX, "socket"};
static const int YES = 1, SEVEN = 7;
static const struct epoll_event EVENT = {.events = EPOLLIN};
static const struct timespec SHORT[2] = {{0, 1000}, {5, 6}};
static const struct itimerspec TIMER = {{0, 0}, {100, 0}};
static const struct itimerval OLD_TIMER = {{0, 0}, {100, 0}};
static const struct rlimit LIMIT = {0, RLIM_INFINITY};
static const struct utimbuf STAMP = {12345, 54321};
static const struct timeval STAMPS[2] = {{11, 0}, {22, 0}};
static const struct { long type; char text[8]; } MESSAGE = {3, "message"};
static const struct sembuf UP = {0, 2, 0};
static const struct flock LOCK = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
static const unsigned short COUNTS[3] = {7, 8, 9};
static const struct sched_param RANK = {0};
static const struct mq_attr QUEUE = {.mq_maxmsg = 3, .mq_msgsize = 64};
static sigset_t USR;
static cpu_set_t cpus;
static char page[8192], lines[100000];

static struct { const void *bytes; size_t count; int used; } slots[MOST];
static int slots_used;
static char *mapped;

static void put(const void *bytes, size_t count)
{
    slots[slots_used].bytes = bytes;
    slots[slots_used++].count = count;
}

/* Where these bytes are that were put; each time another place. */
static void *cold(const void *bytes, size_t count)
{
    for (int i = 0; i < slots_used; i++)
        if (!slots[i].used && slots[i].count == count && !memcmp(slots[i].bytes, bytes, count)) {
            slots[i].used = 1;
            return mapped + (size_t)i * SLOT;
        }
    printf("not put: %s\n", (const char *)bytes);
    exit(9);
}
#define T(text) ((char *)cold(text, strlen(text) + 1))
#define B(what) cold(&what, sizeof what)

static void prepare(void)
{
    static const char *const texts[] = {
        "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made",
        "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made",
        "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made", "made",
        "linked", "linked", "linked", "linked", "sym", "sym", "sym", "renamed", "renamed", "renamed", "again", "again", "third", "third",
        "dir", "dir", "dir", "dir", "fifo", "fifo", "user.a", "user.a", "user.a", "user.a", ".", ".", ".", ".", ".", "..",
        "/bin/echo", "/bin/echo", "/bin/echo", "/bin/echo", "echo", "echo", "echo", "arguments", "arguments", "arguments", "arguments",
        "arguments", "arguments", "arguments", "echo a command", "echo through a pipe", "a line by puts", "a line by fputs\n", "named", "named",
        "missing", "missing", "missing", "missing", "missing", "missing", "A=1", "A=1", "a\0",
        "fifo", "fifo", "fifo", ".", "/softfault-calls", "/softfault-calls", "/softfault-calls", "a thread",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put(texts[i], strlen(texts[i]) + 1);
    for (int i = 0; i < 5; i++)
        put(&AT, sizeof AT);
    put(&YES, sizeof YES), put(&YES, sizeof YES), put(&SEVEN, sizeof SEVEN);
    put(&EVENT, sizeof EVENT), put(SHORT, sizeof SHORT), put(&SHORT[0], sizeof SHORT[0]);
    put(&TIMER, sizeof TIMER), put(&OLD_TIMER, sizeof OLD_TIMER), put(&LIMIT, sizeof LIMIT), put(&STAMP, sizeof STAMP);
    put(STAMPS, sizeof STAMPS), put(&MESSAGE, sizeof MESSAGE), put(&UP, sizeof UP), put(&cpus, sizeof cpus);
    for (int i = 0; i < 12; i++)
        put(page, sizeof page);
    put(&STAMPS, sizeof STAMPS), put(&STAMPS, sizeof STAMPS), put(SHORT, sizeof SHORT), put(&cpus, sizeof cpus);
    for (int i = 0; i < 7; i++)
        put(&SHORT[0], sizeof SHORT[0]);
    put(&LOCK, sizeof LOCK), put(&UP, sizeof UP), put(&USR, sizeof USR), put(&USR, sizeof USR), put(COUNTS, sizeof COUNTS);
    put(&RANK, sizeof RANK), put(&RANK, sizeof RANK), put(&QUEUE, sizeof QUEUE);
    put(lines, sizeof lines), put(lines, sizeof lines);
}

static void say(const char *what, long answer)
{
    printf("%s %ld %s\n", what, answer, answer < 0 ? strerror(errno) : "");
    fflush(stdout);
}

static void ends(const char *what, pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    say(what, status);
}

static void paths(void)
{
    struct stat about;
    struct statx more;
    struct statfs of;
    struct statvfs others;
    char to[100];
    close(creat(T("made"), 0644));
    say("open", open(T("made"), O_RDONLY) > 0);
    say("openat", openat(AT_FDCWD, T("made"), O_RDONLY) > 0);
    say("fopen", fopen(T("made"), "r") != NULL);
    say("opendir", opendir(T(".")) != NULL);
    say("access", access(T("made"), R_OK));
    say("eaccess", eaccess(T("made"), R_OK));
    say("faccessat", faccessat(AT_FDCWD, T("made"), R_OK, 0));
    say("access missing", access(T("missing"), R_OK));
    say("stat", stat(T("made"), &about));
    say("lstat", lstat(T("made"), &about));
    say("fstatat", fstatat(AT_FDCWD, T("made"), &about, 0));
    say("statx", statx(AT_FDCWD, T("made"), 0, STATX_SIZE, &more));
    say("statfs", statfs(T("."), &of));
    say("statvfs", statvfs(T("."), &others));
    say("pathconf", pathconf(T("."), _PC_NAME_MAX));
    say("symlink", symlink(T("made"), T("sym")));
    say("readlink", readlink(T("sym"), to, sizeof to));
    say("readlinkat", readlinkat(AT_FDCWD, T("sym"), to, sizeof to));
    say("link", link(T("made"), T("linked")));
    say("linkat", linkat(AT_FDCWD, T("made"), AT_FDCWD, T("third"), 0));
    say("rename", rename(T("linked"), T("renamed")));
    say("renameat", renameat(AT_FDCWD, T("renamed"), AT_FDCWD, T("again")));
    say("renameat2", renameat2(AT_FDCWD, T("again"), AT_FDCWD, T("linked"), RENAME_NOREPLACE));
    say("unlink", unlink(T("linked")));
    say("unlinkat", unlinkat(AT_FDCWD, T("third"), 0));
    say("mkdir", mkdir(T("dir"), 0755));
    say("chdir", chdir(T("dir")));
    say("chdir", chdir(T("..")));
    say("rmdir", rmdir(T("dir")));
    say("mkdirat", mkdirat(AT_FDCWD, T("dir"), 0755));
    rmdir("dir");
    say("mkfifo", mkfifo(T("fifo"), 0644));
    say("remove", remove(T("fifo")));
    say("chmod", chmod(T("made"), 0600));
    say("fchmodat", fchmodat(AT_FDCWD, T("made"), 0644, 0));
    say("chown", chown(T("made"), -1, -1));
    say("lchown", lchown(T("made"), -1, -1));
    say("fchownat", fchownat(AT_FDCWD, T("made"), -1, -1, 0));
    say("truncate", truncate(T("made"), 77));
    say("utime", utime(T("made"), B(STAMP)));
    say("utimes", utimes(T("made"), B(STAMPS)));
    say("utimensat", utimensat(AT_FDCWD, T("made"), B(SHORT), 0));
    stat("made", &about);
    say("times", about.st_mtime);
    say("size", about.st_size);
    say("setxattr", setxattr(T("made"), T("user.a"), T("named"), 5, 0) == 0 || errno == ENOTSUP);
    say("getxattr", getxattr(T("made"), T("user.a"), to, sizeof to) > 0 || errno == ENOTSUP || errno == ENODATA);
    say("listxattr", listxattr(T("made"), to, sizeof to) >= 0 || errno == ENOTSUP);
    say("removexattr", removexattr(T("made"), T("user.a")) == 0 || errno == ENOTSUP || errno == ENODATA);
    int watch = inotify_init();
    say("inotify_add_watch", inotify_add_watch(watch, T("."), IN_CREATE) > 0);
    say("memfd_create", memfd_create(T("named"), 0) > 0);
}

static void arguments(void)
{
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0), datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
    say("bind", bind(listens, B(AT), sizeof AT));
    listen(listens, 5);
    say("connect", connect(other, B(AT), sizeof AT));
    say("sendto", sendto(datagrams, "x", 1, 0, B(AT), sizeof AT));
    say("setsockopt", setsockopt(other, SOL_SOCKET, SO_PASSCRED, B(YES), sizeof YES));
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    say("ioctl", ioctl(pair[0], FIONBIO, B(YES)));
    say("blocks", recv(pair[0], page, 1, 0));
    int poll = epoll_create1(0);
    say("epoll_ctl", epoll_ctl(poll, EPOLL_CTL_ADD, pair[0], B(EVENT)));
    say("timerfd_settime", timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, B(TIMER), NULL));
    say("setitimer", setitimer(ITIMER_REAL, B(OLD_TIMER), NULL));
    say("nanosleep", nanosleep(cold(&SHORT[0], sizeof SHORT[0]), NULL));
    say("setrlimit", setrlimit(RLIMIT_CORE, B(LIMIT)));
    say("sched_setaffinity", sched_setaffinity(0, sizeof cpus, B(cpus)));
    int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600);
    say("msgsnd", msgsnd(queue, B(MESSAGE), sizeof MESSAGE.text, 0));
    say("semop", semop(set, B(UP), 1));
    msgctl(queue, IPC_RMID, NULL), semctl(set, 0, IPC_RMID);
    struct iovec local = {B(page), sizeof page}, remote = {malloc(sizeof page), sizeof page};
    say("process_vm_writev", process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
    say("same", memcmp(remote.iov_base, page, sizeof page));
}

int __open_2(const char *, int);
int __openat_2(int, const char *, int);

static void others(void)
{
    say("__open_2", __open_2(T("made"), O_RDONLY) > 0);
    say("__openat_2", __openat_2(AT_FDCWD, T("made"), O_RDONLY) > 0);
    say("mkfifoat", mkfifoat(AT_FDCWD, T("fifo"), 0644));
    unlink("fifo");
    say("futimesat", futimesat(AT_FDCWD, T("made"), B(STAMPS)));
    int out = open("made", O_RDWR);
    say("futimes", futimes(out, B(STAMPS)));
    say("futimens", futimens(out, B(SHORT)));
    FILE *stream = fopen("made", "r");
    say("freopen", (stream = freopen(T("made"), "r+", stream)) != NULL);
    fclose(stream);
    struct dirent **names;
    say("scandir", scandir(T("."), &names, NULL, alphasort) > 2);
    say("fcntl", fcntl(out, F_SETLK, B(LOCK)));
    say("prctl", prctl(PR_SET_NAME, T("a thread")));
    char name[16];
    prctl(PR_GET_NAME, name);
    puts(name);
    int set = semget(IPC_PRIVATE, 3, 0600);
    say("semctl", semctl(set, 0, SETALL, cold(COUNTS, sizeof COUNTS)));
    say("semctl", semctl(set, 2, GETVAL));
    say("semtimedop", semtimedop(set, B(UP), 1, B(SHORT[0])));
    semctl(set, 0, IPC_RMID);
    say("signalfd", signalfd(-1, B(USR), 0) > 0);
    sigprocmask(SIG_BLOCK, &USR, NULL), raise(SIGUSR2);
    int number = 0;
    say("sigwait", sigwait(B(USR), &number));
    say("number", number == SIGUSR2);
    say("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, B(SHORT[0]), NULL));
    say("thrd_sleep", thrd_sleep(B(SHORT[0]), NULL));
    say("pthread_setaffinity_np", pthread_setaffinity_np(pthread_self(), sizeof cpus, B(cpus)));
    say("pthread_setschedparam", pthread_setschedparam(pthread_self(), SCHED_OTHER, B(RANK)));
    say("sched_setscheduler", sched_setscheduler(0, SCHED_OTHER, B(RANK)));
    struct pollfd none = {.fd = -1};
    say("ppoll", ppoll(&none, 1, B(SHORT[0]), NULL));
    struct epoll_event event;
    int poll = epoll_create1(0), waited = epoll_pwait2(poll, &event, 1, B(SHORT[0]), NULL);
    say("epoll_pwait2", waited == 0 || errno == ENOSYS);
    mqd_t queue = mq_open(T("/softfault-calls"), O_RDWR | O_CREAT, 0600, B(QUEUE));
    int has_queues = queue >= 0 || errno == ENOSYS || errno == EACCES || errno == EMFILE || errno == ENOSPC;
    say("mq_open", has_queues);
    say("mq_unlink", queue < 0 || mq_unlink(T("/softfault-calls")) == 0);
}

static void written(void)
{
    int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec parts[20];
    size_t all = 0;
    for (int i = 0; i < 20; i++) {
        char *from = i < 6 ? B(page) : page;
        parts[i] = (struct iovec){from, sizeof page};
        all += sizeof page;
    }
    /* The first is there, and others are not: the kernel would stop short. */
    (void)*(volatile char *)parts[0].iov_base;
    say("writev", writev(out, parts, 20) - (long)all);
    say("pwritev", pwritev(out, parts, 20, all) - (long)all);
    FILE *stream = fopen("stream", "w");
    say("fwrite", fwrite(B(lines), sizeof lines, 1, stream));
    say("fwrite", fwrite(B(lines), 3, sizeof lines / 3, stream));
    say("fputs", fputs(T("a line by fputs\n"), stream) >= 0);
    fclose(stream);
    say("puts", puts(T("a line by puts")) >= 0);
    struct stat about;
    stat("stream", &about);
    say("size", about.st_size);
    say("SYS_write", syscall(SYS_write, out, B(page), sizeof page));
    say("SYS_pwrite64", syscall(SYS_pwrite64, out, B(page), sizeof page, 4096));
    struct iovec one = {B(page), sizeof page};
    say("SYS_writev", syscall(SYS_writev, out, &one, 1));
    say("SYS_openat", syscall(SYS_openat, AT_FDCWD, T("made"), O_RDONLY) > 0);
    say("SYS_faccessat", syscall(SYS_faccessat, AT_FDCWD, T("missing"), R_OK));
    say("SYS_renameat2", syscall(SYS_renameat2, AT_FDCWD, T("made"), AT_FDCWD, T("renamed"), 0));
    rename("renamed", "made");
    say("SYS_connect", syscall(SYS_connect, socket(AF_UNIX, SOCK_STREAM, 0), B(AT), sizeof AT));
    say("SYS_setsockopt", syscall(SYS_setsockopt, socket(AF_INET, SOCK_STREAM, 0), SOL_SOCKET, SO_PRIORITY, B(SEVEN), sizeof SEVEN) == 0 || errno == EPERM);
}

static void programs(void)
{
    pid_t child;
    char *arguments[3] = {T("echo"), T("arguments"), NULL}, *environment[2] = {T("A=1"), NULL};
    int spawned = posix_spawn(&child, T("/bin/echo"), NULL, NULL, arguments, environment);
    ends("spawned", child);
    say("posix_spawn", spawned);
    if ((child = fork()) == 0) {
        mapped = mmap(NULL, (size_t)slots_used * SLOT, PROT_READ, MAP_SHARED, open("slots", O_RDONLY), 0);
        madvise(mapped, (size_t)slots_used * SLOT, MADV_RANDOM);
        char *own[3] = {T("echo"), T("arguments"), NULL}, *has[2] = {T("A=1"), NULL};
        execve(T("/bin/echo"), own, has);
        perror("execve");
        _exit(7);
    }
    ends("execve", child);
    if ((child = vfork()) == 0) {
        char *own[3] = {"echo", T("arguments"), NULL};
        execvp(T("echo"), own);
        _exit(7);
    }
    ends("execvp", child);
    say("system", system(T("echo a command")));
    char line[100] = "";
    FILE *pipe = popen(T("echo through a pipe"), "r");
    fgets(line, sizeof line, pipe);
    say(line, pclose(pipe));
    fflush(stdout);
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(memcmp(T("missing"), "missing", 8) == 0 ? 21 : 22);
    ends("SYS_clone", child);
}

/* The result of a call that no library is in front of. */
static void bare(void)
{
#ifdef __x86_64__
    long answer;
    register const char *path __asm__("rdi") = T("made");
    register long how __asm__("rsi") = R_OK;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_access), "r"(path), "r"(how) : "rcx", "r11", "memory");
    printf("%s\n", answer == -EFAULT ? "EFAULT" : "found");
#else
    printf("EFAULT\n");
#endif
}

int main(int count, char **arguments_)
{
    if (count < 2 || chdir(arguments_[1]) < 0)
        return 2;
    sched_getaffinity(0, sizeof cpus, &cpus);
    sigemptyset(&USR), sigaddset(&USR, SIGUSR2);
    memset(page, 'p', sizeof page);
    memset(lines, 'l', sizeof lines);
    prepare();
    int out = open("slots", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < slots_used; i++)
        if (pwrite(out, slots[i].bytes, slots[i].count, (off_t)i * SLOT) != (ssize_t)slots[i].count)
            return 3;
    ftruncate(out, (off_t)slots_used * SLOT);
    close(out);
    mapped = mmap(NULL, (size_t)slots_used * SLOT, PROT_READ, MAP_SHARED, open("slots", O_RDONLY), 0);
    madvise(mapped, (size_t)slots_used * SLOT, MADV_RANDOM);
    if (count > 2) {
        close(creat("made", 0644));
        bare();
        return 0;
    }
    paths();
    arguments();
    others();
    written();
    programs();
    return 0;
}
