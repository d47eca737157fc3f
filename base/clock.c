/* The clocks of the system. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double trm_clock_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double trm_process_seconds(void)
{
    /* field 22 of proc(5), in ticks since the system was started; field 2, a name in brackets, may have spaces */
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    size_t size = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    text[size] = '\0';
    const char *at = strrchr(text, ')');
    unsigned long long start;
    if (at == NULL ||
        sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start) !=
            1) {
        return 0;
    }
    double seconds = seconds_of(CLOCK_BOOTTIME) - (double)start / (double)sysconf(_SC_CLK_TCK);
    return seconds > 0 ? seconds : 0;
}
