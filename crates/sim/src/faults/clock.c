/* The wall clock of one process, moved by what a file says; its monotonic clock is left alone.
 *
 * Preloaded into a broker by the fault harness (clock.rs), which compiles it. The file that
 * FAULT_CLOCK names holds one signed number of microseconds in the machine's byte order, and
 * is read at each look at the clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *moved;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("FAULT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        moved = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int failed = real ? real(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    if (failed || !moved || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    long long by = *moved;
    time->tv_sec += by / 1000000;
    time->tv_nsec += by % 1000000 * 1000;
    if (time->tv_nsec < 0) {
        time->tv_nsec += 1000000000;
        time->tv_sec -= 1;
    } else if (time->tv_nsec >= 1000000000) {
        time->tv_nsec -= 1000000000;
        time->tv_sec += 1;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
