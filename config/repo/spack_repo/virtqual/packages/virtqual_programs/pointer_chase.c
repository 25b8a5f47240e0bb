/* pointer_chase: time of a dependent load over working sets of rising size, with pages of one size.
 *
 *     pointer_chase 4K|THP|2M|1G LOADS BYTES...
 *
 * Each working set is mapped and filled anew.  Its cache lines form one random cycle (Sattolo 1986), the same in
 * each run, so that no prefetcher foresees the next line and nearly each load misses the TLB once the set exceeds
 * its reach.  So many loads are timed nine times in a row.  One line of output for each size: bytes, loads, ns a
 * load (the median), and the pages that the kernel gave, as /proc/self/smaps says: KiB a page, and KiB of the set
 * in huge pages.  The last line has a checksum of the lines
 * before it (FNV-1a, 32 bits).
 *
 * Copyright the virtqual authors.  SPDX-License-Identifier: BSD-3-Clause
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "report.h"

#define LINE 64
#define HUGE_2M ((size_t)1 << 21)
#define MAP_HUGE_LOG2 26
/* Loads of one statement: a compiler that keeps the pointer in memory does so once for all of them. */
#define LOAD4(p) (*(void **)*(void **)*(void **)*(void **)(p))
#define LOAD16(p) LOAD4(LOAD4(LOAD4(LOAD4(p))))
#define UNROLLED 16
#define TIMES 9

/* xorshift64 (Marsaglia 2003): the same numbers in each run. */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static char *map_pages(const char *pages, size_t bytes, void **start, size_t *length)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, advice = -1;
    char *set;
    *length = bytes;
    if (!strcmp(pages, "2M") || !strcmp(pages, "1G")) {
        int log2 = pages[0] == '2' ? 21 : 30;
        flags |= MAP_HUGETLB | log2 << MAP_HUGE_LOG2;
        *length = (bytes + ((size_t)1 << log2) - 1) >> log2 << log2;
    } else if (!strcmp(pages, "THP")) {
        advice = MADV_HUGEPAGE;
        *length = (bytes + 2 * HUGE_2M - 1) / HUGE_2M * HUGE_2M;
    } else if (!strcmp(pages, "4K"))
        advice = MADV_NOHUGEPAGE;
    else {
        fprintf(stderr, "pointer_chase: pages of %s; there are 4K, THP, 2M and 1G\n", pages);
        exit(2);
    }
    *start = mmap(NULL, *length, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (*start == MAP_FAILED)
        fail("pointer_chase", "mmap");
    set = *start;
    if (advice == MADV_HUGEPAGE)
        set = (char *)(((uintptr_t)set + HUGE_2M - 1) / HUGE_2M * HUGE_2M);
    /* A kernel without transparent huge pages has pages of 4 KiB anyway. */
    if (advice >= 0 && madvise(*start, *length, advice) && errno != EINVAL)
        fail("pointer_chase", "madvise");
    return set;
}

/* The size of a page, and how much of the mapping is in transparent or reserved huge pages, in KiB. */
static void read_smaps(const void *start, long *page, long *huge)
{
    char line[512];
    unsigned long from, to;
    long value;
    int inside = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (!smaps)
        fail("pointer_chase", "/proc/self/smaps");
    *page = *huge = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= (uintptr_t)start && (uintptr_t)start < to;
        else if (inside && sscanf(line, "KernelPageSize: %ld kB", &value) == 1)
            *page = value;
        else if (inside && (sscanf(line, "AnonHugePages: %ld kB", &value) == 1 ||
                            sscanf(line, "Private_Hugetlb: %ld kB", &value) == 1))
            *huge += value;
    }
    fclose(smaps);
}

static int compare(const void *a, const void *b)
{
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

static void chase(const char *pages, size_t bytes, size_t loads)
{
    size_t lines = bytes / LINE, i, length;
    uint64_t state = 88172645463325252ULL;
    long page, huge;
    double began, took[TIMES];
    int time;
    void *start, *p;
    char *set = map_pages(pages, bytes, &start, &length);
    /* The pointers of the cycle are a permutation: exchanged line by line, they need no second array. */
    for (i = 0; i < lines; i++)
        *(void **)(set + i * LINE) = set + i * LINE;
    for (i = lines - 1; i > 0; i--) {
        size_t j = draw(&state) % i;
        void *other = *(void **)(set + j * LINE);
        *(void **)(set + j * LINE) = *(void **)(set + i * LINE);
        *(void **)(set + i * LINE) = other;
    }
    read_smaps(set, &page, &huge);
    /* Up to one round first: caches and TLB hold what they can of the set. */
    p = set;
    for (i = 0; i < lines && i < loads; i += UNROLLED)
        p = LOAD16(p);
    for (time = 0; time < TIMES; time++) {
        began = now();
        for (i = 0; i < loads; i += UNROLLED)
            p = LOAD16(p);
        took[time] = now() - began;
    }
    qsort(took, TIMES, sizeof *took, compare);
    if ((char *)p < set || (char *)p >= set + bytes) {
        fprintf(stderr, "pointer_chase: the chase left its set\n");
        exit(1);
    }
    say("%zu %zu %.3f %ld %ld\n", bytes, loads, 1e9 * took[TIMES / 2] / loads, page, huge);
    fflush(stdout);
    munmap(start, length);
}

int main(int count, char **arguments)
{
    size_t loads;
    int i;
    if (count < 4) {
        fprintf(stderr, "usage: pointer_chase 4K|THP|2M|1G LOADS BYTES...\n");
        return 2;
    }
    loads = strtoull(arguments[2], NULL, 10) / UNROLLED * UNROLLED;
    say("pointer_chase 1.0 pages %s\n", arguments[1]);
    for (i = 3; i < count; i++) {
        size_t bytes = strtoull(arguments[i], NULL, 10);
        if (bytes < 2 * LINE || bytes % LINE || loads == 0) {
            fprintf(stderr, "pointer_chase: %s bytes, %s loads\n", arguments[i], arguments[2]);
            return 2;
        }
        chase(arguments[1], bytes, loads);
    }
    return say_end();
}
