/* Touches a byte: which signal comes, or that it is there. */
static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void on_fault(int signal) { caught = signal; siglongjmp(back, 1); }
static const char *touch(volatile void *byte, int write)
{
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    caught = 0;
    if (sigsetjmp(back, 1) == 0) {
        if (write)
            *(volatile char *)byte = 1;
        else
            (void)*(volatile char *)byte;
    }
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    return caught == 0 ? "there" : caught == SIGSEGV ? "SIGSEGV" : "SIGBUS";
}
