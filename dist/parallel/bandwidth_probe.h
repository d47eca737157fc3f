/*
 * Measuring how fast copies, kernels and exchanges move bytes: a stream of their own and the events around what is
 * timed on it.
 */
#ifndef TRM_DIST_PARALLEL_BANDWIDTH_PROBE_H
#define TRM_DIST_PARALLEL_BANDWIDTH_PROBE_H

#include "kernels/device/device.h"

typedef struct trm_bandwidth_probe {
    trm_stream *stream;
    trm_event *start, *end;
} trm_bandwidth_probe;

/* Of a zeroed probe; what a failed one has made is for fini. */
trm_status trm_bandwidth_probe_init(trm_bandwidth_probe *probe, trm_device *device);
void trm_bandwidth_probe_fini(trm_bandwidth_probe *probe);
/* What is enqueued on the stream between the two is timed. */
trm_status trm_bandwidth_probe_begin(trm_bandwidth_probe *probe);
trm_status trm_bandwidth_probe_end(trm_bandwidth_probe *probe);
/* Bytes per second of so many, once the end has passed; 0 if no time was seen to pass. */
trm_status trm_bandwidth_probe_rate(const trm_bandwidth_probe *probe, double bytes, double *rate);

#endif
