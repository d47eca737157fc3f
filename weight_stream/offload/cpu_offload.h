/*
 * CPU offload: the CPU runs layers with the host kernels on streamed weights in host memory. Nothing is copied for
 * them, and the link copies the weights of other layers meanwhile. Only in small steps, where these layers are bound by
 * reading weights, for which host memory is not much slower than the link.
 *
 * cpu_offload_plan.c decides which layers can be offloaded and estimates them, cpu_offload_measure.c measures the CPU,
 * cpu_offload.c runs the layers.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_CPU_OFFLOAD_H
#define TRM_WEIGHT_STREAM_OFFLOAD_CPU_OFFLOAD_H

#include "dist/parallel/world.h"
#include "dist/plan/plan.h"
#include "dist/plan/streaming_plan.h"
#include "kernels/program.h"

/* Rows of a product's output, for the dims of its tensors [n_tensors]. */
int64_t trm_cpu_offload_rows(const trm_layer *layer, const trm_dims *dims);
/* The call of a layer for this many rows of x, leading dims joined, without addresses. */
void trm_cpu_offload_describe(const trm_layer *layer, const trm_dims *dims, int64_t rows, trm_kernel_call *call);
/* Whether layers have the same kind and type of weights. */
bool trm_cpu_offload_alike(const trm_layer *a, const trm_layer *b);
/* Rates assumed before measuring. */
trm_cpu_offload_rates trm_cpu_offload_guess(const trm_plan *plan);
/* Fills in the CPU's seconds for each layer [n_layers] by its rates; negative if it cannot run the layer. */
void trm_cpu_offload_estimate(const trm_plan *plan, const trm_streaming_plan *s, double *seconds);

/* Logs which part of a share the CPU does not compute, or that `auto` computes nothing, for a plan with a budget whose
 * weights are placed. Why CPU offload is impossible is reported when the budget is set. */
void trm_cpu_offload_report(const trm_plan *plan);

/* The CPU of a rank as a device; on the host backend the rank's device itself. */
typedef struct trm_offload_device {
    trm_device *own; /* NULL: the rank's device */
    trm_stream *stream;
} trm_offload_device;

/* `threads`: of the pool, including the caller. */
trm_status trm_offload_device_open(trm_device *device, int32_t threads, trm_offload_device *offload_device);
void trm_offload_device_close(trm_offload_device *offload_device);

/* Parts of an engine that its offloaded layers use, which outlive them. */
typedef struct trm_offload_site {
    trm_plan *plan;
    trm_world *world;
    const struct trm_weight_residency *places;
    trm_offload_device *device;
} trm_offload_site;

/* Opens that of an engine, which has none yet or keeps it. */
trm_status trm_cpu_offload_open_device(const trm_offload_site *site);
/* Measures the rates on the rank's device and CPU. cpu_offload_measure.c */
trm_status trm_cpu_offload_measure(const trm_offload_site *site, trm_cpu_offload_rates *rates);

/* The offloaded layers of a context. */
typedef struct trm_cpu_offload trm_cpu_offload;

/* Creates it for all offloaded layers of the engine's plan, for any number of rows. *made is NULL if there are none.
 * Captured runs refer to it. */
trm_status trm_cpu_offload_create(const trm_offload_site *site, trm_cpu_offload **made);
/* Nothing that refers to it may run anymore. Ignores NULL. */
void trm_cpu_offload_destroy(trm_cpu_offload *offload, trm_device *device);

/* Whether the CPU runs offloaded layers in steps of these dims [n_tensors]. */
bool trm_cpu_offload_suits(const trm_cpu_offload *offload, const trm_dims *dims);
/* The kernel that runs a layer for these dims; NULL if it is not offloaded. */
const trm_kernel *trm_cpu_offload_kernel(const trm_cpu_offload *offload, int32_t layer, const trm_dims *dims);
/* Appends the launches of an offloaded layer: copies to memory that the CPU sees, its task, and copies back. `call` is
 * its call on the device, whose weights are in host memory. */
trm_status trm_cpu_offload_prepare(trm_cpu_offload *offload, int32_t layer, const trm_kernel_call *call,
                                   const trm_dims *dims, trm_program *program);
/* The first failure of an offloaded layer since the last call; call it after each step. NULL is OK. */
trm_status trm_cpu_offload_status(trm_cpu_offload *offload);

#endif
