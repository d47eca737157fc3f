/*
 * The time, for durations.
 */
#ifndef TRM_BASE_CLOCK_H
#define TRM_BASE_CLOCK_H

/* Seconds of a clock that never runs backward, from an arbitrary start. */
double trm_clock_seconds(void);
/* Seconds since this process started, to a hundredth; 0 if the system does not say. */
double trm_process_seconds(void);

#endif
