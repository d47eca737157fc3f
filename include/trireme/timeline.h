/*
 * Timelines: what the ranks do and when, as a file in the Trace Event Format, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing show. A process of the file is a rank, a thread a row: the steps or runs of a context, its layers,
 * its copies of streamed weights, the requests of a scheduler, and exchanges of host memory.
 *
 * Times of steps, layers and copies are measured on the device. A step that is launched as a captured graph is one
 * span; layers and copies are shown of steps that run layer by layer: on the host all, on a GPU those with layer times
 * (trm_context_set_layer_timing), the first of a prompt's form, and one in 64 of a generator.
 *
 * A process records one timeline at a time, in memory: the last TRM_TIMELINE_SPANS spans of each rank, about 64 bytes
 * each. Begin before you create engines and generators: those that exist already show no copies.
 */
#ifndef TRIREME_TIMELINE_H
#define TRIREME_TIMELINE_H

#include <trireme/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_TIMELINE_SPANS 524288

/* Begins to record, on every rank, and creates `path` on rank 0. Ranks measure how their clocks differ from that of
 * rank 0. Collective. Errors: IO (rank 0 cannot write the file), INVALID_ARGUMENT (this process records one already),
 * and UNSUPPORTED for a world of several ranks that cannot exchange host memory. */
TRM_API trm_status trm_timeline_begin(trm_world *world, const char *path);
/* Stops, gathers what all ranks recorded and writes the file. Does nothing if none is recorded. Collective. Error: IO.
 */
TRM_API trm_status trm_timeline_end(trm_world *world);
/* Writes what this rank recorded without the other ranks, when they cannot be asked: after a failure, or before a
 * signal ends the process. Rank 0 writes `path`, rank N `path`.rankN; rank 0 then takes in, and removes, the files of
 * ranks of this machine that come within half a second. Recording stops. Any thread, once. Does nothing if none is
 * recorded. */
TRM_API trm_status trm_timeline_save(void);

#ifdef __cplusplus
}
#endif
#endif
