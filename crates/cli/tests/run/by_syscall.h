/* In front of a program: its calls that change mappings, and those that read, are made by syscall(2). */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define mmap(at, bytes, use, flags, fd, from) \
    ((void *)syscall(SYS_mmap, (void *)(at), (size_t)(bytes), (long)(use), (long)(flags), (long)(fd), (off_t)(from)))
#define munmap(at, bytes) ((int)syscall(SYS_munmap, (void *)(at), (size_t)(bytes)))
#define mremap(at, old, new, ...) ((void *)syscall(SYS_mremap, (void *)(at), (size_t)(old), (size_t)(new), __VA_ARGS__))
#define mprotect(at, bytes, use) ((int)syscall(SYS_mprotect, (void *)(at), (size_t)(bytes), (long)(use)))
#define madvise(at, bytes, how) ((int)syscall(SYS_madvise, (void *)(at), (size_t)(bytes), (long)(how)))
#define mlock(at, bytes) ((int)syscall(SYS_mlock, (void *)(at), (size_t)(bytes)))
#define mlock2(at, bytes, how) ((int)syscall(SYS_mlock2, (void *)(at), (size_t)(bytes), (long)(how)))
#define ioctl(fd, request, with) ((int)syscall(SYS_ioctl, (long)(fd), (unsigned long)(request), (void *)(with)))
#define remap_file_pages(at, bytes, use, page, flags) \
    ((int)syscall(SYS_remap_file_pages, (void *)(at), (size_t)(bytes), (long)(use), (size_t)(page), (long)(flags)))
#define shmat(segment, at, flags) ((void *)syscall(SYS_shmat, (long)(segment), (void *)(at), (long)(flags)))

#define read(fd, to, bytes) syscall(SYS_read, (long)(fd), (void *)(to), (size_t)(bytes))
#define pread(fd, to, bytes, from) syscall(SYS_pread64, (long)(fd), (void *)(to), (size_t)(bytes), (off_t)(from))
#define readv(fd, vectors, count) syscall(SYS_readv, (long)(fd), (vectors), (long)(count))
#define preadv(fd, vectors, count, from) syscall(SYS_preadv, (long)(fd), (vectors), (long)(count), (off_t)(from), 0L)
#define write(fd, from, bytes) syscall(SYS_write, (long)(fd), (const void *)(from), (size_t)(bytes))
#define pwrite(fd, from, bytes, to) syscall(SYS_pwrite64, (long)(fd), (const void *)(from), (size_t)(bytes), (off_t)(to))
#define writev(fd, vectors, count) syscall(SYS_writev, (long)(fd), (vectors), (long)(count))
#define recvmsg(fd, message, flags) syscall(SYS_recvmsg, (long)(fd), (message), (long)(flags))
#define recvmmsg(fd, messages, count, flags, time) \
    ((int)syscall(SYS_recvmmsg, (long)(fd), (messages), (long)(count), (long)(flags), (void *)(time)))
#define recvfrom(fd, to, bytes, flags, from, len) \
    syscall(SYS_recvfrom, (long)(fd), (void *)(to), (size_t)(bytes), (long)(flags), (void *)(from), (void *)(len))
