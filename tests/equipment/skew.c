/* The wall clock of a process, moved by the offset that stands in a file: for tests of clock steps.
   Preloaded; SKEW_FILE names a file of 8 bytes, nanoseconds, which anybody may change at any time.
   The monotonic clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile const int64_t *offset;

__attribute__((constructor)) static void open_offset(void)
{
    const char *name = getenv("SKEW_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        offset = found;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t moved = now->tv_sec * SECOND + now->tv_nsec + *offset;
    now->tv_sec = moved / SECOND;
    now->tv_nsec = moved % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *also)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (also)
        *also = exact.tv_sec;
    return exact.tv_sec;
}

/* The kernel compares a deadline with the real clock: without this, a server whose clock is ahead would wait as
   much longer.  A deadline by the monotonic clock is small. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    int is_monotonic = until->tv_sec < SECOND;
    int64_t real = until->tv_sec * SECOND + until->tv_nsec - (offset && !is_monotonic ? *offset : 0);
    struct timespec deadline = {real / SECOND, real % SECOND};
    clockid_t clock = is_monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    return pthread_cond_clockwait(condition, mutex, clock, &deadline);
}
