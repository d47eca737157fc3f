/*
 * Bandwidth probe: measures how fast copies, kernels and collectives move bytes, by events on a stream of its own.
 */
#ifndef TRM_DIST_PARALLEL_BANDWIDTH_PROBE_H
#define TRM_DIST_PARALLEL_BANDWIDTH_PROBE_H

#include "kernels/device/device.h"

typedef struct trm_bandwidth_probe {
    trm_stream *stream;
    trm_event *start, *end;
} trm_bandwidth_probe;

/* Initializes a zeroed probe; call fini even if it fails. */
trm_status trm_bandwidth_probe_init(trm_bandwidth_probe *probe, trm_device *device);
void trm_bandwidth_probe_fini(trm_bandwidth_probe *probe);
/* Begin and end enclose the work to time on the stream. */
trm_status trm_bandwidth_probe_begin(trm_bandwidth_probe *probe);
trm_status trm_bandwidth_probe_end(trm_bandwidth_probe *probe);
/* Bytes per second for `bytes`, once the end has passed; 0 if no time was measured. */
trm_status trm_bandwidth_probe_rate(const trm_bandwidth_probe *probe, double bytes, double *rate);

#endif
