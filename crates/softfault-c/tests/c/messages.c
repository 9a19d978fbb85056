/* messages FROM TO: copies a file by write(2), of memory that is not there. */

#include <errno.h>
#include <fcntl.h>
#include <softfault.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct softfault_engine_options options = {
		.size = sizeof(options),
		.memory = 16 << 20,
		.faults = SOFTFAULT_FAULTS_MESSAGES,
		.allow_kernel_maps = SOFTFAULT_ALLOW_KERNEL_MAPS_NO,
		.small_maps = -1,
	};
	struct softfault_engine *engine = softfault_engine_new(&options);
	struct softfault_map_options map_options = { .size = sizeof(map_options), .engine = engine };
	struct stat stat;
	int from = open(argv[1], O_RDONLY), to = open(argv[argc - 1], O_WRONLY);
	if (engine == NULL) {
		printf("closed: %s\n", softfault_error());
		return errno != EOPNOTSUPP;
	}
	if (from < 0 || to < 0 || fstat(from, &stat) < 0)
		return 1;
	const char *map = softfault_mmap_ex(NULL, stat.st_size, PROT_READ, MAP_SHARED, from, 0, &map_options);
	if (map == MAP_FAILED || write(to, map, stat.st_size) != stat.st_size)
		return 1;
	printf("copied\n");
	return 0;
}
