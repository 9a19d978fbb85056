/* Private memory of four times the budget: pages that do not fit go to a swap file, and come back.
 *
 *     swap DIRECTORY MIB
 */
#define _GNU_SOURCE
#include <softfault.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void die(const char *what)
{
	fprintf(stderr, "swap: %s: %s\n", what, softfault_error());
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: swap DIRECTORY MIB\n");
		return 2;
	}
	size_t memory = strtoul(argv[2], NULL, 10) << 20, length = 4 * memory;
	struct softfault_engine_options options = {
		.size = sizeof(options),
		.memory = memory,
		.swap_directory = argv[1],
		.swap_size = 2 * length,
	};
	struct softfault_engine *engine = softfault_engine_new(&options);
	if (engine == NULL)
		die("no engine");
	struct softfault_map_options map_options = { .size = sizeof(map_options), .engine = engine };
	uint64_t *table = softfault_mmap_ex(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
					    -1, 0, &map_options);
	if (table == MAP_FAILED)
		die("no memory");

	size_t count = length / sizeof(*table);
	for (size_t i = 0; i < count; i += 512)
		table[i] = i * 2654435761u;
	/* Longer, with its contents. */
	uint64_t *longer = softfault_mremap(table, length, length + memory, MREMAP_MAYMOVE);
	if (longer == MAP_FAILED)
		die("mremap");
	for (size_t i = 0; i < count; i += 512)
		if (longer[i] != i * 2654435761u) {
			fprintf(stderr, "swap: a wrong word at %zu\n", i);
			return 1;
		}
	if (longer[count] != 0)
		return 1;

	struct softfault_stats stats = { .size = sizeof(stats) };
	if (softfault_stats(engine, &stats) < 0)
		die("no numbers");
	printf("swapped out: %s, in: %s\n", stats.swap_pages_out > 0 ? "yes" : "no",
	       stats.swap_pages_in > 0 ? "yes" : "no");
	printf("within the budget: %s\n", stats.peak_bytes <= memory ? "yes" : "no");
	if (softfault_munmap(longer, length + memory) < 0)
		die("munmap");
	softfault_engine_free(engine);
	return 0;
}
