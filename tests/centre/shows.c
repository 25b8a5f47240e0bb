/* What a node of the rehearsed centre shows of itself where a file cannot: its CPUs' time, and the cores that a task
 * is bound to.  Loaded into every process of a node by /etc/ld.so.preload; all else that a node shows is mounted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TICKS = 100 };

static int real_open(int where, const char *path, int flags, mode_t mode) {
    return (int)syscall(SYS_openat, where, path, flags, mode);
}

static double number_in(const char *path, double otherwise) {
    char text[64] = "";
    int file = real_open(AT_FDCWD, path, O_RDONLY, 0);
    if (file < 0) return otherwise;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? atof(text) : otherwise;
}

static int cpus(void) { return (int)number_in("/run/centre/cpus", 1); }

/* Idle but for what is stolen: runs of other nodes, which this machine bears, are none of this node's. */
static void write_stat(FILE *out) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    double all = (now.tv_sec + now.tv_nsec / 1e9) * TICKS * cpus();
    double stolen = all * number_in("/run/centre/steal", 0);
    fprintf(out, "cpu  0 0 0 %.0f 0 0 0 %.0f 0 0\n", all - stolen, stolen);
}

/* As Slurm would bind it: tasks of a step take cores one after the other. */
static void write_status(FILE *out) {
    const char *local = getenv("SLURM_LOCALID"), *each = getenv("SLURM_CPUS_PER_TASK");
    int first = 0, last = cpus() - 1, file = real_open(AT_FDCWD, "/proc/self/status", O_RDONLY, 0);
    if (local && each) {
        first = atoi(local) * atoi(each);
        last = first + atoi(each) - 1;
    }
    char text[8192], *rest = text, *line;
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    while ((line = strsep(&rest, "\n")) && (*line || rest)) {
        if (strncmp(line, "Cpus_allowed_list:", 18) == 0 && first == last)
            fprintf(out, "Cpus_allowed_list:\t%d\n", first);
        else if (strncmp(line, "Cpus_allowed_list:", 18) == 0)
            fprintf(out, "Cpus_allowed_list:\t%d-%d\n", first, last);
        else
            fprintf(out, "%s\n", line);
    }
}

static int shown(const char *path) {
    void (*write_it)(FILE *) = NULL;
    if (strcmp(path, "/proc/stat") == 0) write_it = write_stat;
    if (strcmp(path, "/proc/self/status") == 0) write_it = write_status;
    if (!write_it) return -1;
    int file = memfd_create("shown", 0);
    FILE *out = fdopen(dup(file), "w");
    write_it(out);
    fclose(out);
    lseek(file, 0, SEEK_SET);
    return file;
}

static int opened(int where, const char *path, int flags, mode_t mode) {
    int file = (flags & O_ACCMODE) == O_RDONLY ? shown(path) : -1;
    return file >= 0 ? file : real_open(where, path, flags, mode);
}

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int openat(int where, const char *path, int flags, ...) { MODE return opened(where, path, flags, mode); }
int openat64(int where, const char *path, int flags, ...) { MODE return opened(where, path, flags, mode); }

FILE *fopen(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "fopen");
    int file = *mode == 'r' ? shown(path) : -1;
    return file >= 0 ? fdopen(file, "r") : real(path, mode);
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }
