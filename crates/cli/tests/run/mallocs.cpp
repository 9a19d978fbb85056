// What C++ allocates: containers that grow, and operator new of every kind.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct alignas(8192) Page { char bytes[8192]; };

int main()
{
    std::vector<uint64_t> words;
    for (uint64_t i = 0; i < 1500000; i++)
        words.push_back(i * i);
    size_t bad = 0;
    for (uint64_t i = 0; i < words.size(); i++)
        bad += words[i] != i * i;
    words.shrink_to_fit();
    std::string text(3 << 20, 'x');
    text.append(std::string(2 << 20, 'y'));
    std::unique_ptr<Page[]> pages(new Page[300]);
    for (int i = 0; i < 300; i++)
        pages[i].bytes[i] = i;
    for (int i = 0; i < 300; i++)
        bad += pages[i].bytes[i] != static_cast<char>(i);
    std::printf("wrong %zu, %zu, aligned %d\n", bad, text.find('y'), reinterpret_cast<uintptr_t>(pages.get()) % 8192 == 0);
    try {
        std::vector<char> all(size_t(1) << 45);
        std::printf("%p\n", static_cast<void *>(all.data()));
    } catch (const std::bad_alloc &) {
        std::printf("bad_alloc\n");
    }
    std::printf("%d\n", new (std::nothrow) char[size_t(1) << 45] == nullptr);
    std::vector<std::deque<std::string>> many(40);
    for (int i = 0; i < 40; i++)
        many[i].emplace_back((1 << 20) + i, static_cast<char>(i));
    for (int i = 0; i < 40; i++)
        bad += many[i][0].find_first_not_of(static_cast<char>(i)) != std::string::npos;
    std::printf("wrong %zu\n", bad);
}
