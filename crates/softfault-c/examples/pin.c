/* System calls on memory that may be elsewhere: copies a file to another one in two ways.
 *
 *     pin FROM TO
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <softfault.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "pin: %s: %s (%s)\n", what, strerror(errno), softfault_error());
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: pin FROM TO\n");
		return 2;
	}
	struct stat stat;
	int from = open(argv[1], O_RDONLY), to = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (from < 0 || to < 0 || fstat(from, &stat) < 0)
		die("open");
	size_t length = (size_t)stat.st_size, half = length / 2;
	struct softfault_engine_options options = {
		.size = sizeof(options),
		.memory = 16 << 20,
		/* All of it is the engine's, small as it may be. */
		.allow_kernel_maps = SOFTFAULT_ALLOW_KERNEL_MAPS_NO,
		.small_maps = -1,
	};
	struct softfault_engine *engine = softfault_engine_new(&options);
	struct softfault_map_options map_options = { .size = sizeof(map_options), .engine = engine };
	if (engine == NULL)
		die("no engine");
	uint8_t *map = softfault_mmap_ex(NULL, length, PROT_READ, MAP_SHARED, from, 0, &map_options);
	if (map == MAP_FAILED)
		die("mmap");

	/* The kernel reads no page that is not there. */
	if (write(to, map, half) != -1 || errno != EFAULT)
		die("cold memory was written");
	/* One way: keep it there for as long as the kernel looks. */
	for (size_t at = 0, step; at < half; at += step) {
		step = half - at < (1 << 20) ? half - at : 1 << 20;
		if (softfault_pin(map + at, step) < 0)
			die("softfault_pin");
		if (write(to, map + at, step) != (ssize_t)step)
			die("write");
		if (softfault_unpin(map + at, step) < 0)
			die("softfault_unpin");
	}
	/* Another: have it done. */
	if (softfault_write_to(to, map + half, length - half) != (ssize_t)(length - half))
		die("softfault_write_to");

	/* Into private memory, likewise. */
	uint8_t *copy = softfault_mmap_ex(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
					  &map_options);
	if (copy == MAP_FAILED)
		die("mmap");
	if (lseek(to, 0, SEEK_SET) != 0)
		die("lseek");
	if (softfault_pin(copy, 4096) < 0 || read(to, copy, 4096) != 4096 || softfault_unpin(copy, 4096) < 0)
		die("read");
	if (softfault_read_from(to, copy + 4096, length - 4096) != (ssize_t)(length - 4096))
		die("softfault_read_from");
	if (memcmp(map, copy, length) != 0)
		die("the copy is another");
	printf("copied %zu\n", length);
	softfault_munmap(copy, length);
	softfault_munmap(map, length);
	softfault_engine_free(engine);
	return 0;
}
