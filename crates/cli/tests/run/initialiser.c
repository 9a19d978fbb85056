/* A library that fills blocks of more than the budget while it is loaded. */
#include <stdint.h>
#include <stdlib.h>

#define WORDS ((size_t)12 << 17)
static uint64_t *words;

__attribute__((constructor)) static void starts(void)
{
    words = malloc(WORDS * 8);
    for (size_t i = 0; i < WORDS; i++)
        words[i] = i * 3;
}

size_t wrong_words(void)
{
    size_t bad = 0;
    for (size_t i = 0; i < WORDS; i++)
        bad += words[i] != i * 3;
    return bad;
}

__attribute__((destructor)) static void ends(void) { free(words); }
