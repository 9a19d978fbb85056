/* The end of a program that has CASES, and a file with its path, descriptor and size: runs the case that is named. */
int main(int count, char **arguments)
{
    struct stat about;
    if (count < 3)
        return 2;
    path = arguments[2];
    fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &about) < 0)
        return 2;
    size = about.st_size;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        if (strcmp(CASES[i].name, arguments[1]) == 0) {
            CASES[i].run();
            return 0;
        }
    return 2;
}
