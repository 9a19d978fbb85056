/* Brings many scattered ranges of a file into memory by one call, with a deadline, and prints the first byte of each.
 *
 *     many FILE COUNT
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

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: many FILE COUNT\n");
		return 2;
	}
	struct stat stat;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &stat) < 0) {
		perror(argv[1]);
		return 1;
	}
	size_t length = (size_t)stat.st_size, count = strtoul(argv[2], NULL, 10);
	/* Over the default engine, which SOFTFAULT_MEMORY sets up. */
	uint8_t *map = softfault_mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		fprintf(stderr, "many: %s\n", softfault_error());
		return 1;
	}
	close(fd);

	struct iovec *ranges = calloc(count + 1, sizeof(*ranges));
	int *results = calloc(count + 1, sizeof(*results));
	if (ranges == NULL || results == NULL)
		return 1;
	for (size_t i = 0; i < count; i++) {
		ranges[i].iov_base = map + (i * 7919 * 4096 + i) % (length - 16);
		ranges[i].iov_len = 16;
	}
	/* One that nobody has mapped is an answer like the others. */
	ranges[count].iov_base = (void *)1;
	ranges[count].iov_len = 1;

	struct timespec deadline;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += 60;
	int missing = softfault_fault_in_many(ranges, count + 1, &deadline, results);
	if (missing < 0) {
		fprintf(stderr, "many: %s\n", softfault_error());
		return 1;
	}
	unsigned long sum = 0;
	for (size_t i = 0; i < count; i++) {
		if (results[i] != 0) {
			fprintf(stderr, "many: range %zu: %s\n", i, strerror(results[i]));
			return 1;
		}
		sum += *(uint8_t *)ranges[i].iov_base;
	}
	printf("missing %d, the last: %s\n", missing, results[count] == ENOMEM ? "ENOMEM" : "?");
	printf("sum %lu\n", sum);
	free(results);
	free(ranges);
	return softfault_munmap(map, length) < 0;
}
