/* A filter of system calls that the program installs when memory was taken: `filtered CALL ACTION FILE`. Prints sums of the memory, again
   and again. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "answers.h"

int main(int count, char **arguments)
{
    struct stat about;
    unsigned call = atoi(arguments[1]), action = strtoul(arguments[2], NULL, 10);
    fd = open(arguments[3], O_RDONLY);
    if (fd < 0 || fstat(fd, &about) < 0)
        return 2;
    size = about.st_size;
    unsigned char *file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < size; i++)
        memory[i] = i * 7 + (i >> 12) * 13;
    printf("%zu %zu\n", sum(file, size), sum(memory, size));
    fflush(stdout);
    struct sock_filter filter[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call}, {BPF_RET | BPF_K, 0, 0, action}, {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {4, filter};
    /* For all threads: softfault's make most of the calls where faults are messages. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return 2;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < size; i += 4096)
            memory[i] += round;
        printf("%zu\n", sum(memory, size));
        fflush(stdout);
        printf("%zu\n", sum(file, size));
        fflush(stdout);
    }
    return 0;
}
