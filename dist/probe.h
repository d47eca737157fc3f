/*
 * Measuring how fast copies, kernels and exchanges move bytes: a stream of their own and the events around what is
 * timed on it.
 */
#ifndef TRM_DIST_PROBE_H
#define TRM_DIST_PROBE_H

#include "kernels/device.h"

typedef struct trm_probe {
    trm_stream *stream;
    trm_event *start, *end;
} trm_probe;

/* Of a zeroed probe; what a failed one has made is for fini. */
trm_status trm_probe_init(trm_probe *probe, trm_device *device);
void trm_probe_fini(trm_probe *probe);
/* What is enqueued on the stream between the two is timed. */
trm_status trm_probe_begin(trm_probe *probe);
trm_status trm_probe_end(trm_probe *probe);
/* Bytes per second of so many, once the end has passed; 0 if no time was seen to pass. */
trm_status trm_probe_rate(const trm_probe *probe, double bytes, double *rate);

#endif
