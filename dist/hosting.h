/*
 * Hosting: layers that the processors run, with the host kernels, on streamed weights where they lie in host memory.
 * Nothing is fetched for them, and the link goes on with the weights of others meanwhile. In small steps alone: there
 * these layers are bound by the reading of their weights, for which host memory is not much slower than the link.
 *
 * hosting_plan.c says which layers may be hosted and what they take, hosting_measure.c how fast processors are, and
 * hosting.c runs them.
 */
#ifndef TRM_DIST_HOSTING_H
#define TRM_DIST_HOSTING_H

#include "dist/plan.h"
#include "kernels/device.h"

struct trm_engine;
struct trm_streaming_plan;

/* Rows of a product's output, for the dims of its tensors [n_tensors]. */
int64_t trm_hosting_rows(const trm_layer *layer, const trm_dims *dims);
/* The call of a layer for so many rows of x, leading dims joined; no addresses. */
void trm_hosting_describe(const trm_layer *layer, const trm_dims *dims, int64_t rows, trm_kernel_call *call);
/* How fast layers are handed over to the processors and run by them. */
#define TRM_HOSTING_KINDS 4
typedef struct trm_hosting_rates {
    double host;     /* bytes of weights per second that they read while the link is busy, of layers like none below */
    double link;     /* bytes per second that the link brings meanwhile; 0: not known */
    double handover; /* seconds of a layer beyond that */
    struct {
        const trm_layer *layer; /* and all that are alike */
        double host;
    } kinds[TRM_HOSTING_KINDS];
    int32_t n_kinds;
} trm_hosting_rates;

/* Whether layers are of one kind and have weights of one type. */
bool trm_hosting_alike(const trm_layer *a, const trm_layer *b);
/* What is thought of them before they are measured. */
trm_hosting_rates trm_hosting_guess(const trm_plan *plan);
/* Fills in what processors take for each layer [n_layers], negative where they cannot run it, by its rates. */
void trm_hosting_estimate(const trm_plan *plan, const struct trm_streaming_plan *s, double *seconds);

/* Says what of a share processors do not compute, or that they compute nothing where they might (`auto`), of a plan
 * with a budget whose weights are where they lie; why they may not is told when the budget is set. */
void trm_hosting_report(const trm_plan *plan);

/* The processors of a rank as a device of their own; on the host backend the rank's device itself. */
typedef struct trm_host_crew {
    trm_device *own; /* NULL: it is the rank's */
    trm_stream *stream;
} trm_host_crew;

/* `threads`: of the pool, with who calls it. */
trm_status trm_host_crew_open(trm_device *device, int32_t threads, trm_host_crew *crew);
void trm_host_crew_close(trm_host_crew *crew);

/* Opens that of an engine, which has none yet or keeps it. */
trm_status trm_hosting_open_crew(struct trm_engine *engine);
/* Measures the rates on the rank's device and processors. hosting_measure.c */
trm_status trm_hosting_measure(struct trm_engine *engine, trm_hosting_rates *rates);

/* The hosted layers of a context. */
typedef struct trm_hosting trm_hosting;

/* For all layers that the engine's plan hosts, of any number of rows they may have. `made` is NULL where it hosts none.
 * What is captured refers to it. */
trm_status trm_hosting_create(struct trm_engine *engine, trm_hosting **made);
/* Nothing that refers to it may run any more. NULL is ignored. */
void trm_hosting_destroy(trm_hosting *hosting, trm_device *device);

/* Whether steps of these dims [n_tensors] have their hosted layers run by the processors. */
bool trm_hosting_suits(const trm_hosting *hosting, const trm_dims *dims);
/* The kernel that runs a layer for these dims, NULL where it is not hosted. */
const trm_kernel *trm_hosting_kernel(const trm_hosting *hosting, int32_t layer, const trm_dims *dims);
/* Enqueues a hosted layer: `call` is its call on the device, whose weights are in host memory. */
trm_status trm_hosting_run(trm_hosting *hosting, int32_t layer, const trm_kernel_call *call, const trm_dims *dims);
/* The first failure of a hosted layer since this was last asked; to be asked when a step has ended. NULL is OK. */
trm_status trm_hosting_status(trm_hosting *hosting);

#endif
