/*
 * How ranks wait for each other: the clock, and the pause between two polls.
 */
#ifndef TRM_COLLECTIVES_WAIT_H
#define TRM_COLLECTIVES_WAIT_H

#include <sched.h>
#include <time.h>

/* Seconds of a clock that never runs backward. */
static inline double trm_wait_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds for which a wait yields before it sleeps: usually, and where there are more ranks than CPUs. A yield there
 * does not keep the CPU away from a peer, but takes a part of its time again and again. */
#define TRM_WAIT_YIELDS         500e-6
#define TRM_WAIT_CROWDED_YIELDS 50e-6

/* Pauses between two polls after `waited` seconds. Short waits yield the core, since there may be more ranks than
 * cores; long ones sleep an eighth of the time waited, so that sleeping adds at most an eighth. */
static inline void trm_wait_pause(double waited, double yields)
{
    if (waited < yields) {
        sched_yield();
        return;
    }
    double sleep = waited / 8 < 1e-3 ? waited / 8 : 1e-3;
    struct timespec time = {0, (long)(sleep * 1e9)};
    nanosleep(&time, NULL);
}

#endif
