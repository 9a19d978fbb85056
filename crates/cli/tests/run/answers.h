/* The file of a program with cases (run_case.h), and what the cases print. */
static const char *path;
static int fd;
static size_t size;

static void answer(const char *what, long answered)
{
    printf("%s %ld %s\n", what, answered, answered < 0 ? strerror(errno) : "");
    fflush(stdout);
}

static size_t sum(const unsigned char *bytes, size_t count)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all = all * 31 + bytes[i];
    return all;
}
