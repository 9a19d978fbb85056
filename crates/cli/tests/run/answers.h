/* The file of a program with cases (run_case.h), what the cases print, and words that tell where they are. */
static const char *path;
static int fd;
static size_t size;

static void answer(const char *what, long answered)
{
    printf("%s %ld %s\n", what, answered, answered < 0 ? strerror(errno) : "");
#ifndef PRINTS_AT_EXIT
    fflush(stdout);
#endif
}

static size_t sum(const void *of, size_t count)
{
    const unsigned char *bytes = of;
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all = all * 31 + bytes[i];
    return all;
}

static uint64_t word(size_t at, uint64_t seed)
{
    uint64_t x = (at + 1) * 0x9E3779B97F4A7C15u ^ seed * 0xD1B54A32D192ED03u;
    return x ^ x >> 29;
}
