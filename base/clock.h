/*
 * The time, for durations.
 */
#ifndef TRM_BASE_CLOCK_H
#define TRM_BASE_CLOCK_H

/* Seconds of a clock that only runs forward, from an unknown moment on. */
double trm_clock_seconds(void);
/* Seconds since this process was started, to a hundredth; 0 where the system does not tell. */
double trm_process_seconds(void);

#endif
