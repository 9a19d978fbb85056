/* A library that a program loads and unloads, with softfault linked into it statically (PLUGIN); and that program. */

#define _DEFAULT_SOURCE
#include <stdio.h>

#ifdef PLUGIN

#include <softfault.h>
#include <sys/mman.h>

int touch(void);

int touch(void)
{
	char *map = softfault_mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		fprintf(stderr, "%s\n", softfault_error());
		return 0;
	}
	map[12345] = 7;
	return map[12345] == 7 && softfault_munmap(map, 1 << 20) == 0;
}

#else

#include <dlfcn.h>
#include <string.h>

int main(int argc, char **argv)
{
	int (*touch)(void);
	void *plugin = dlopen(argv[argc - 1], RTLD_NOW), *symbol;
	if (plugin == NULL || (symbol = dlsym(plugin, "touch")) == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	memcpy(&touch, &symbol, sizeof(touch));
	printf("touched: %s\n", touch() ? "yes" : "no");
	dlclose(plugin);
	printf("loaded: %s\n", dlopen(argv[argc - 1], RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
	return 0;
}

#endif
