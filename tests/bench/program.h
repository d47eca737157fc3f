/*
 * What the benches of whole programs share: a clock, and an end with the cause where a call fails.
 */
#ifndef TRM_TESTS_BENCH_PROGRAM_H
#define TRM_TESTS_BENCH_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <trireme/trireme.h>

/* Seconds of a clock that only goes on. */
static inline double bench_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Ends the program with the status' exit code and one line of cause unless it is TRM_OK. */
static inline void bench_check(trm_status status, const char *what)
{
    if (status != TRM_OK) {
        fprintf(stderr, "%s: %s\n", what, trm_last_error());
        exit(trm_status_exit_code(status));
    }
}

#endif
