/* Sums the bytes of a file that may be larger than memory, under a budget.
 *
 *     sum FILE MIB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <softfault.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "sum: %s: %s\n", what, softfault_error());
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: sum FILE MIB\n");
		return 2;
	}
	struct softfault_engine_options options = {
		.size = sizeof(options),
		.memory = strtoull(argv[2], NULL, 10) << 20,
		.reads = SOFTFAULT_READS_DIRECT,
	};
	struct softfault_engine *engine = softfault_engine_new(&options);
	if (engine == NULL)
		die("no engine");

	struct stat stat;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &stat) < 0) {
		perror(argv[1]);
		return 1;
	}
	struct softfault_map_options map_options = { .size = sizeof(map_options), .engine = engine };
	size_t length = (size_t)stat.st_size;
	const uint8_t *map = softfault_mmap_ex(NULL, length, PROT_READ, MAP_SHARED, fd, 0, &map_options);
	if (map == MAP_FAILED)
		die(argv[1]);
	/* The map stays. */
	close(fd);

	uint64_t sum = 0;
	for (size_t at = 0; at < length; at++)
		sum += map[at];

	struct softfault_stats stats = { .size = sizeof(stats) };
	if (softfault_stats(engine, &stats) < 0)
		die("no numbers");
	printf("sum %" PRIu64 "\n", sum);
	printf("peak %" PRIu64 " of %" PRIu64 "\n", stats.peak_bytes, stats.budget_bytes);
	printf("faults %s\n", stats.faults > 0 ? "yes" : "no");

	if (softfault_munmap((void *)map, length) < 0)
		die("munmap");
	softfault_engine_free(engine);
	return 0;
}
