/* Preloaded, it shows a process a wall clock that is fast by FAST_BY_SECONDS. Other clocks stay right. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += FAST_BY_SECONDS;
    return failed;
}

int gettimeofday(struct timeval *restrict of_day, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    of_day->tv_sec = now.tv_sec;
    of_day->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
