/*
 * CPU offload: layers that the processors run, with the host kernels, on streamed weights where they lie in host
 * memory. Nothing is fetched for them, and the link goes on with the weights of others meanwhile. In small steps alone:
 * there these layers are bound by the reading of their weights, for which host memory is not much slower than the link.
 *
 * cpu_offload_plan.c says which layers may be offloaded and what they take, cpu_offload_measure.c how fast processors
 * are, and cpu_offload.c runs them.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_CPU_OFFLOAD_H
#define TRM_WEIGHT_STREAM_OFFLOAD_CPU_OFFLOAD_H

#include "dist/parallel/world.h"
#include "dist/plan/plan.h"
#include "dist/plan/streaming_plan.h"
#include "kernels/program.h"

/* Rows of a product's output, for the dims of its tensors [n_tensors]. */
int64_t trm_cpu_offload_rows(const trm_layer *layer, const trm_dims *dims);
/* The call of a layer for so many rows of x, leading dims joined; no addresses. */
void trm_cpu_offload_describe(const trm_layer *layer, const trm_dims *dims, int64_t rows, trm_kernel_call *call);
/* Whether layers are of one kind and have weights of one type. */
bool trm_cpu_offload_alike(const trm_layer *a, const trm_layer *b);
/* What is thought of them before they are measured. */
trm_cpu_offload_rates trm_cpu_offload_guess(const trm_plan *plan);
/* Fills in what processors take for each layer [n_layers], negative where they cannot run it, by its rates. */
void trm_cpu_offload_estimate(const trm_plan *plan, const trm_streaming_plan *s, double *seconds);

/* Says what of a share processors do not compute, or that they compute nothing where they might (`auto`), of a plan
 * with a budget whose weights are where they lie; why they may not is told when the budget is set. */
void trm_cpu_offload_report(const trm_plan *plan);

/* The processors of a rank as a device of their own; on the host backend the rank's device itself. */
typedef struct trm_offload_device {
    trm_device *own; /* NULL: it is the rank's */
    trm_stream *stream;
} trm_offload_device;

/* `threads`: of the pool, with who calls it. */
trm_status trm_offload_device_open(trm_device *device, int32_t threads, trm_offload_device *offload_device);
void trm_offload_device_close(trm_offload_device *offload_device);

/* Where the layers of an engine run that the CPU takes over: parts of the engine, which outlive it. */
typedef struct trm_offload_site {
    trm_plan *plan;
    trm_world *world;
    const struct trm_weight_residency *places;
    trm_offload_device *device;
} trm_offload_site;

/* Opens that of an engine, which has none yet or keeps it. */
trm_status trm_cpu_offload_open_device(const trm_offload_site *site);
/* Measures the rates on the rank's device and processors. cpu_offload_measure.c */
trm_status trm_cpu_offload_measure(const trm_offload_site *site, trm_cpu_offload_rates *rates);

/* The offloaded layers of a context. */
typedef struct trm_cpu_offload trm_cpu_offload;

/* For all layers that the engine's plan hosts, of any number of rows they may have. `made` is NULL where it hosts none.
 * What is captured refers to it. */
trm_status trm_cpu_offload_create(const trm_offload_site *site, trm_cpu_offload **made);
/* Nothing that refers to it may run any more. NULL is ignored. */
void trm_cpu_offload_destroy(trm_cpu_offload *offload, trm_device *device);

/* Whether steps of these dims [n_tensors] have their offloaded layers run by the processors. */
bool trm_cpu_offload_suits(const trm_cpu_offload *offload, const trm_dims *dims);
/* The kernel that runs a layer for these dims, NULL where it is not offloaded. */
const trm_kernel *trm_cpu_offload_kernel(const trm_cpu_offload *offload, int32_t layer, const trm_dims *dims);
/* Appends what runs an offloaded layer: copies to memory that processors see, their task, and copies back. `call` is
 * its call on the device, whose weights are in host memory. */
trm_status trm_cpu_offload_prepare(trm_cpu_offload *offload, int32_t layer, const trm_kernel_call *call,
                                   const trm_dims *dims, trm_program *program);
/* The first failure of a offloaded layer since this was last asked; to be asked when a step has ended. NULL is OK. */
trm_status trm_cpu_offload_status(trm_cpu_offload *offload);

#endif
