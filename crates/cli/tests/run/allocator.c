/* A malloc of its own, as other preloads bring one: every block is a mapping, made and changed by the C library's names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* In front of each block: where its mapping begins, and its bytes. */
struct head { char *start; size_t mapped, bytes; };

void *memalign(size_t align, size_t bytes)
{
    if (align < 4096)
        align = 4096;
    size_t mapped = bytes + 2 * align;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = (char *)(((uintptr_t)start + sizeof(struct head) + align - 1) / align * align);
    ((struct head *)block)[-1] = (struct head){start, mapped, bytes};
    madvise(start, mapped, MADV_NOHUGEPAGE);
    return block;
}

void *malloc(size_t bytes) { return memalign(16, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

int posix_memalign(void **to, size_t align, size_t bytes)
{
    *to = memalign(align, bytes);
    return *to ? 0 : ENOMEM;
}

void free(void *block)
{
    int kept = errno;
    if (block) {
        struct head *head = (struct head *)block - 1;
        munmap(head->start, head->mapped);
    }
    errno = kept;
}

void *realloc(void *block, size_t bytes)
{
    void *other = malloc(bytes);
    if (block && other) {
        size_t had = ((struct head *)block)[-1].bytes;
        memcpy(other, block, had < bytes ? had : bytes);
        free(block);
    }
    return other;
}

size_t malloc_usable_size(void *block) { return block ? ((struct head *)block)[-1].bytes : 0; }
