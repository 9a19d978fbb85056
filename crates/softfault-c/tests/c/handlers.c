/* handlers: calls in handlers of fork that were registered before and after the first map. */

#define _DEFAULT_SOURCE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <softfault.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 16 * 4096 };

/* Of each handler, the error of a call: of prepare, in the parent, in the child. */
static int early[3], late[3];
static char *map;

/* The error of calls that look at the table, change it, and ask the library; 0 if none fails. */
static int calls(void)
{
	char byte = 7;
	int failed = softfault_pin(map, 4096) < 0 ? errno : 0;
	if (failed == 0)
		return softfault_unpin(map, 4096) < 0 || softfault_copy_in(map, &byte, 1) != 1 ? errno : 0;
	struct softfault_stats stats = { .size = sizeof(stats) };
	void *other = softfault_mmap(NULL, PAGES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (other != MAP_FAILED || errno != failed)
		return -1;
	if (softfault_munmap(map, PAGES) == 0 || errno != failed)
		return -1;
	if (softfault_stats(NULL, &stats) == 0 || errno != failed)
		return -1;
	return strstr(softfault_error(), "fork") == NULL ? -1 : failed;
}

static void early_prepare(void) { early[0] = map == NULL ? 0 : calls(); }
static void early_parent(void) { early[1] = map == NULL ? 0 : calls(); }
static void early_child(void) { early[2] = map == NULL ? 0 : calls(); }
static void late_prepare(void) { late[0] = calls(); }
static void late_parent(void) { late[1] = calls(); }
static void late_child(void) { late[2] = calls(); }

static const char *name(int error)
{
	return error == EBUSY ? "EBUSY" : error == 0 ? "0" : strerror(error);
}

static int in_child(void)
{
	/* The child's own, and its maps work after the handlers. */
	return early[2] == EBUSY ? calls() : -1;
}

/* Kills this process if a handler waits for ever: an alarm's signal would wait, too, for all are masked there. */
static void watch(void)
{
	pid_t program = getpid();
	if (fork() != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == program) {
		sleep(60);
		kill(program, SIGKILL);
	}
	_exit(0);
}

int main(void)
{
	watch();
	pthread_atfork(early_prepare, early_parent, early_child);
	map = softfault_mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		fprintf(stderr, "%s\n", softfault_error());
		return 1;
	}
	pthread_atfork(late_prepare, late_parent, late_child);
	int ends[2], status;
	if (pipe(ends) < 0)
		return 1;
	pid_t child = fork();
	if (child == 0) {
		int found[3] = { early[2], late[2], in_child() };
		_exit(write(ends[1], found, sizeof(found)) != sizeof(found));
	}
	int found[3];
	if (child < 0 || read(ends[0], found, sizeof(found)) != sizeof(found) || waitpid(child, &status, 0) < 0 || status != 0)
		return 1;
	printf("early: %s %s %s\n", name(early[0]), name(early[1]), name(found[0]));
	printf("late: %s %s %s\n", name(late[0]), name(late[1]), name(found[1]));
	printf("after: %s\n", name(found[2] != 0 ? found[2] : calls()));
	return 0;
}
