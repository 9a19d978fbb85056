/* A malloc of a program's own, which hands out memory of its own. */
#include <stddef.h>
#include <string.h>

static char all[64 << 20];
static size_t used;

void *malloc(size_t bytes)
{
    size_t at = __atomic_fetch_add(&used, (bytes + 31) / 16 * 16, __ATOMIC_RELAXED);
    if (at + bytes + 32 > sizeof all)
        return NULL;
    *(size_t *)(all + at) = bytes;
    return all + at + 16;
}

void free(void *memory) {}
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *memory, size_t bytes)
{
    void *fresh = malloc(bytes);
    if (fresh && memory) {
        size_t old = *(size_t *)((char *)memory - 16);
        memcpy(fresh, memory, old < bytes ? old : bytes);
    }
    return fresh;
}
