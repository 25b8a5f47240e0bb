/* What the programs of this directory share: their clock, and lines that end with a checksum (FNV-1a, 32 bits).
 *
 * Copyright the virtqual authors.  SPDX-License-Identifier: BSD-3-Clause
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t checksum = 2166136261u;

/* Print a line, which enters the checksum. */
static void say(const char *format, ...)
{
    char line[256], *c;
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    for (c = line; *c; c++)
        checksum = (checksum ^ (unsigned char)*c) * 16777619u;
    fputs(line, stdout);
}

/* Print the last line; return the program's exit code. */
static int say_end(void)
{
    printf("end %08x\n", (unsigned)checksum);
    return fflush(stdout) != 0;
}

/* End because a system call has failed. */
static void fail(const char *program, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, strerror(errno));
    exit(1);
}

/* Seconds of a clock that is never set. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
