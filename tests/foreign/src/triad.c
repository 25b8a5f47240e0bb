/* Prints the rate of a = b + s * c. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int count, char **words)
{
    long elements = count > 1 ? atol(words[1]) : 100000, rounds = 200;
    double *a = calloc(elements, 8), *b = calloc(elements, 8), *c = calloc(elements, 8);
    for (long i = 0; i < elements; i++)
        b[i] = i, c[i] = 1;
    double begin = now();
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < elements; i++)
            a[i] = b[i] + round * c[i];
    printf("Triad: %.1f MB/s\n", 24e-6 * elements * rounds / (now() - begin));
    if (a[elements - 1] == elements - 1 + rounds - 1)
        puts("Solution Validates");
    return 0;
}
