// A std::vector of more than the budget: an allocator over softfault's private memory.
//
//     allocator DIRECTORY MIB
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <softfault.h>
#include <stdexcept>
#include <sys/mman.h>
#include <vector>

// Frees an engine.
struct EngineDeleter {
	void operator()(softfault_engine *engine) const { softfault_engine_free(engine); }
};
using EnginePointer = std::unique_ptr<softfault_engine, EngineDeleter>;

// Large blocks for containers. Each is a map of its own: for vectors, not for nodes.
template <class T>
class SoftfaultAllocator {
public:
	using value_type = T;

	explicit SoftfaultAllocator(const softfault_engine *engine) noexcept : engine_(engine) {}
	template <class U>
	SoftfaultAllocator(const SoftfaultAllocator<U> &other) noexcept : engine_(other.engine()) {}

	T *allocate(std::size_t count)
	{
		if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
			throw std::bad_array_new_length();
		softfault_map_options options{};
		options.size = sizeof(options);
		options.engine = engine_;
		void *block = softfault_mmap_ex(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &options);
		if (block == MAP_FAILED)
			throw std::bad_alloc();
		return static_cast<T *>(block);
	}

	void deallocate(T *block, std::size_t count) noexcept { softfault_munmap(block, count * sizeof(T)); }

	const softfault_engine *engine() const noexcept { return engine_; }

private:
	const softfault_engine *engine_;
};

template <class T, class U>
bool operator==(const SoftfaultAllocator<T> &a, const SoftfaultAllocator<U> &b) noexcept
{
	return a.engine() == b.engine();
}

template <class T, class U>
bool operator!=(const SoftfaultAllocator<T> &a, const SoftfaultAllocator<U> &b) noexcept
{
	return !(a == b);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		std::fprintf(stderr, "usage: allocator DIRECTORY MIB\n");
		return 2;
	}
	const std::size_t memory = std::strtoull(argv[2], nullptr, 10) << 20;
	softfault_engine_options options{};
	options.size = sizeof(options);
	options.memory = memory;
	options.swap_directory = argv[1];
	options.swap_size = 16 * memory;
	const EnginePointer engine(softfault_engine_new(&options));
	if (!engine) {
		std::fprintf(stderr, "allocator: %s\n", softfault_error());
		return 1;
	}
	using Table = std::vector<std::uint64_t, SoftfaultAllocator<std::uint64_t>>;
	Table table{SoftfaultAllocator<std::uint64_t>(engine.get())};
	// It grows step by step, and moves each time.
	const std::size_t count = 2 * memory / sizeof(std::uint64_t);
	for (std::size_t i = 0; i < count; i++)
		table.push_back(i);
	const auto sum = std::accumulate(table.begin(), table.end(), std::uint64_t{0});
	std::printf("right: %s\n", sum == std::uint64_t(count) * (count - 1) / 2 ? "yes" : "no");

	struct softfault_stats stats{};
	stats.size = sizeof(stats);
	if (softfault_stats(engine.get(), &stats) == 0)
		std::printf("swapped: %s\n", stats.swap_pages_out > 0 ? "yes" : "no");
	return 0;
}
