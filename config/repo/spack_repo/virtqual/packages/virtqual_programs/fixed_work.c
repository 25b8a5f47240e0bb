/* fixed_work: how much longer a fixed piece of work takes now and then, on each CPU at the same time.
 *
 *     fixed_work STEPS PIECES
 *
 * One thread on each core that the process may use, on its first CPU, times PIECES pieces of STEPS steps each
 * (fixed work quanta: Sottile and Minnich, Cluster 2004).  A piece that takes longer than the fastest one was
 * interrupted: by the kernel, by another process, or by the host of a virtual machine.  One line of output for each
 * CPU: its number, the least, mean and largest time of a piece in us; then the times of all CPUs together that one
 * piece in 1, 2, 5, 10, 20, 50 ... exceeds or equals.  The last line has a checksum of the lines before it (FNV-1a,
 * 32 bits).
 *
 * Copyright the virtqual authors.  SPDX-License-Identifier: BSD-3-Clause
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include "report.h"

static size_t steps, pieces;
static volatile uint64_t sink;

struct worker {
    pthread_t thread;
    int cpu;
    double *times;
};

/* xorshift64 (Marsaglia 2003): each step needs the one before, and no memory. */
static uint64_t work(uint64_t state)
{
    size_t i;
    for (i = 0; i < steps; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

static void *run(void *argument)
{
    struct worker *self = argument;
    uint64_t state = 88172645463325252ULL;
    double began, ended;
    cpu_set_t cpus;
    size_t i;
    CPU_ZERO(&cpus);
    CPU_SET(self->cpu, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus))
        fail("fixed_work", "sched_setaffinity");
    for (i = 0; i < pieces / 10 + 1; i++)
        state = work(state);
    began = now();
    for (i = 0; i < pieces; i++) {
        state = work(state);
        ended = now();
        self->times[i] = 1e6 * (ended - began);
        began = ended;
    }
    sink = state;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

/* Returns whether a CPU is the first hardware thread of its core, or the first one is not in the set. */
static int leads_core(int cpu, const cpu_set_t *cpus)
{
    char path[80];
    int first = cpu;
    FILE *file;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if ((file = fopen(path, "r"))) {
        if (fscanf(file, "%d", &first) != 1)
            first = cpu;
        fclose(file);
    }
    return first == cpu || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, cpus);
}

int main(int count, char **arguments)
{
    struct worker workers[CPU_SETSIZE];
    size_t total, i, one_in;
    double *times, sum;
    int cpu, used = 0;
    cpu_set_t cpus;
    if (count != 3 || !(steps = strtoull(arguments[1], NULL, 10)) || !(pieces = strtoull(arguments[2], NULL, 10))) {
        fprintf(stderr, "usage: fixed_work STEPS PIECES\n");
        return 2;
    }
    if (sched_getaffinity(0, sizeof cpus, &cpus))
        fail("fixed_work", "sched_getaffinity");
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus) && leads_core(cpu, &cpus))
            workers[used++].cpu = cpu;
    total = used * pieces;
    if (!(times = calloc(total, sizeof *times)))
        fail("fixed_work", "calloc");
    /* Each page is there before the first piece: a page fault would be taken for noise. */
    memset(times, 1, total * sizeof *times);
    for (cpu = 0; cpu < used; cpu++)
        workers[cpu].times = times + cpu * pieces;
    for (cpu = 0; cpu < used; cpu++)
        if ((errno = pthread_create(&workers[cpu].thread, NULL, run, &workers[cpu])))
            fail("fixed_work", "pthread_create");
    say("fixed_work 1.0 steps %zu pieces %zu cpus %d\n", steps, pieces, used);
    for (cpu = 0; cpu < used; cpu++) {
        pthread_join(workers[cpu].thread, NULL);
        for (sum = 0, i = 0; i < pieces; i++)
            sum += workers[cpu].times[i];
        qsort(workers[cpu].times, pieces, sizeof *times, compare);
        say("cpu %d %.3f %.3f %.3f\n", workers[cpu].cpu, workers[cpu].times[0], sum / pieces,
            workers[cpu].times[pieces - 1]);
    }
    qsort(times, total, sizeof *times, compare);
    /* 1, 2, 5, 10, 20, 50 ... */
    for (i = 0, one_in = 1; one_in <= total; one_in = one_in / (i % 3 == 1 ? 2 : 1) * (i % 3 == 1 ? 5 : 2), i++)
        say("one in %zu %.3f\n", one_in, times[total - total / one_in]);
    return say_end();
}
