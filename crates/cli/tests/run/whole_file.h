/* The file of a program with cases (run_case.h), mapped as a whole, and the sum of a byte of each of its pages. */
static const char *path;
static int fd;
static size_t size;

static unsigned char *map(void)
{
    unsigned char *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        _exit(3);
    return mapped;
}

static unsigned long sum(const unsigned char *bytes)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < size; i += 4096)
        sum = sum * 31 + bytes[i];
    return sum;
}
