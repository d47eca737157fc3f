/* The queue of a network's requests and the threads that run them. */
#include "launcher/serve/network/served_network.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/trace.h"
#include "launcher/serve/network/infer.h"

#define MAX_COPIES    64  /* within the device that are waited for together */
#define SWEEP_SECONDS 0.1 /* between looks at waiting requests whose client may have left */

/* One context and its thread. */
typedef struct instance {
    served_network *owner;
    trm_context *context;
    pthread_t thread;
    bool started;
} instance;

struct served_network {
    served_options options;
    atomic_int references;
    served_port *inputs, *outputs; /* [n_inputs], [n_outputs] */
    int32_t n_inputs, n_outputs;
    instance *instances; /* [options.n_contexts] */
    pthread_t sweeper;
    bool sweeps;
    pthread_mutex_t lock;
    pthread_cond_t changed, sweep;
    /* Guarded by the lock: */
    infer_request *first, *last;
    network_stats stats;
    double next_sweep; /* when the sweeper wakes; INFINITY: at a signal */
    bool joins;        /* until a run shows that outputs do not keep the batch */
    bool draining, stopping;
};

static void wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, double until)
{
    struct timespec at = {.tv_sec = (time_t)until};
    at.tv_nsec = (long)((until - (double)at.tv_sec) * 1e9);
    (void)pthread_cond_timedwait(condition, lock, &at);
}

/* ---- the queue ------------------------------------------------------------------------------------------- */

/* Takes requests that expired, and those whose client left if `looks`, out of the queue, with their errors. Call with
 * the lock held. */
static infer_request *take_dropped(served_network *n, double now, bool looks)
{
    infer_request *dropped = NULL, **at = &n->first, *last = NULL;
    while (*at != NULL) {
        infer_request *request = *at;
        const bool expired = request->expires > 0 && now >= request->expires;
        if (!expired && !n->stopping && !(looks && request->client->is_gone(request))) {
            last = request;
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->next = dropped;
        dropped = request;
        request->failed = true;
        if (expired) {
            api_fail(&request->error, 504, NULL, NULL, "the request waited longer than its timeout of %.0f us",
                     (request->expires - request->queued) * 1e6);
        } else {
            api_fail(&request->error, n->stopping ? 503 : 499, NULL, NULL,
                     n->stopping ? "the server is shutting down" : "the client has left");
        }
        n->stats.expired += expired;
        n->stats.cancelled += !expired && !n->stopping;
        n->stats.waiting--;
        stats_add_duration(&n->stats.fail, now - request->queued);
    }
    n->last = last;
    return dropped;
}

static void finish_all(infer_request *list)
{
    while (list != NULL) {
        infer_request *next = list->next;
        list->client->finish(list);
        list = next;
    }
}

/* Whether two requests can run as one: they agree in all dims but the first. */
static bool fit(const served_network *n, const infer_request *a, const infer_request *b)
{
    for (int32_t i = 0; i < n->n_inputs; i++) {
        const trm_dims *x = &a->inputs[i].dims, *y = &b->inputs[i].dims;
        if (memcmp(x->d + 1, y->d + 1, (size_t)(x->n - 1) * sizeof(x->d[0])) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_preferred(const served_options *o, int64_t elements)
{
    bool found = false;
    for (int32_t i = 0; i < o->n_preferred; i++) {
        found = found || o->preferred[i] == elements;
    }
    return found;
}

/* How many of the first requests run together now; 0: none until *until. Call with the lock held. */
static int32_t choose_batch(const served_network *n, double now, double *until)
{
    const served_options *o = &n->options;
    int64_t elements = 0;
    int32_t count = 0, preferred = 0;
    bool full = false;
    if (!n->joins) {
        return 1;
    }
    for (const infer_request *r = n->first; r != NULL && !full; r = r->next) {
        if (elements + r->elements > o->max_batch || !fit(n, n->first, r)) {
            full = true;
            break;
        }
        elements += r->elements;
        count++;
        preferred = is_preferred(o, elements) ? count : preferred;
        full = elements == o->max_batch;
    }
    *until = n->first->queued + o->batch_seconds;
    return preferred > 0 ? preferred : full || n->draining || now >= *until ? count : 0;
}

/* Takes the next requests [*count] out of the queue, and waits for them. NULL: the network stops. Call with the lock
 * held. */
static infer_request *take_batch(served_network *n, int32_t *count)
{
    for (;;) {
        const double now = trm_clock_seconds();
        infer_request *dropped = take_dropped(n, now, false);
        double until = 0;
        if (dropped != NULL) {
            pthread_mutex_unlock(&n->lock);
            finish_all(dropped);
            pthread_mutex_lock(&n->lock);
            continue;
        }
        if (n->first == NULL && n->stopping) {
            return NULL;
        }
        *count = n->first != NULL ? choose_batch(n, now, &until) : 0;
        if (*count > 0) {
            break;
        }
        if (n->first == NULL) {
            pthread_cond_wait(&n->changed, &n->lock);
        } else {
            wait_until(&n->changed, &n->lock, until);
        }
    }
    infer_request *batch = n->first, *end = batch;
    for (int32_t i = 1; i < *count; i++) {
        end = end->next;
    }
    n->first = end->next;
    n->last = n->first == NULL ? NULL : n->last;
    end->next = NULL;
    n->stats.waiting -= *count;
    n->stats.running++;
    if (n->first != NULL) {
        pthread_cond_signal(&n->changed); /* another thread may run the rest */
    }
    return batch;
}

/* Drops waiting requests in time while all instances run. */
static void *sweep_queue(void *user)
{
    served_network *n = user;
    pthread_mutex_lock(&n->lock);
    while (!n->stopping) {
        const double now = trm_clock_seconds();
        double next = now + SWEEP_SECONDS;
        infer_request *dropped = take_dropped(n, now, true);
        if (dropped != NULL) {
            pthread_mutex_unlock(&n->lock);
            finish_all(dropped);
            pthread_mutex_lock(&n->lock);
            continue;
        }
        for (const infer_request *r = n->first; r != NULL; r = r->next) {
            next = r->expires > 0 && r->expires < next ? r->expires : next;
        }
        n->next_sweep = n->first == NULL ? INFINITY : next;
        if (n->first == NULL) {
            pthread_cond_wait(&n->sweep, &n->lock);
        } else {
            wait_until(&n->sweep, &n->lock, next);
        }
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

/* Copies the elements of one input of all requests to `to`, where the context reads them. */
static trm_status fill_input(instance *in, const infer_request *batch, int32_t index, bool on_device, char *to)
{
    trm_memory_copy copies[MAX_COPIES];
    int32_t n = 0;
    for (const infer_request *r = batch; r != NULL; r = r->next) {
        const infer_input *input = &r->inputs[index];
        if (on_device) {
            copies[n++] = (trm_memory_copy){to, input->source, input->bytes};
        } else if (input->region != NULL) {
            TRM_TRY(shared_read(input->region, input->region_offset, to, input->bytes));
        } else if (input->bytes > 0) {
            memcpy(to, input->data, input->bytes);
        }
        if (n == MAX_COPIES || (n > 0 && r->next == NULL)) {
            TRM_TRY(trm_memory_move(in->owner->options.world, copies, n));
            n = 0;
        }
        to += input->bytes;
    }
    return TRM_OK;
}

/* Sets one input of all requests. If the GPU can copy all parts, the CPU does not. */
static trm_status set_input(instance *in, infer_request *batch, int32_t index)
{
    const served_port *port = served_input(in->owner, index);
    trm_dims dims = batch->inputs[index].dims;
    bool on_device = port->dtype != TRM_BOOL, is_shared = false;
    size_t bytes = 0;
    int64_t elements = 0;
    void *memory;
    for (infer_request *r = batch; r != NULL; r = r->next) {
        infer_input *input = &r->inputs[index];
        input->source = input->region != NULL && on_device ? shared_source(input->region, input->region_offset) : NULL;
        is_shared = is_shared || input->region != NULL;
        on_device = input->source != NULL;
        bytes += input->bytes;
        elements += r->elements;
    }
    if (batch->next != NULL) {
        dims.d[0] = elements;
    }
    TRM_TRY(trm_context_map_input(in->context, port->name, dims, &on_device, &memory));
    TRM_TRY(fill_input(in, batch, index, on_device, memory));
    return is_shared ? infer_check_bool(port, memory, bytes) : TRM_OK; /* others were checked */
}

/* Lets the run of a request alone write its outputs into memory of the device. */
static trm_status bind_outputs(instance *in, infer_request *request, bool bind)
{
    for (int32_t i = 0; i < request->n_outputs; i++) {
        infer_output *output = &request->outputs[i];
        char *memory = output->region != NULL ? shared_device(output->region) : NULL;
        if (memory != NULL && output->region_size > 0) {
            output->is_written = bind || output->is_written;
            TRM_TRY(trm_context_bind_output(in->context, served_output(in->owner, output->index)->name,
                                            bind ? memory + output->region_offset : NULL, output->region_size));
        }
    }
    return TRM_OK;
}

/* Gives every request its part of the outputs. *kept: the outputs have the batch as their first dim. */
static trm_status cut_outputs(instance *in, infer_request *batch, int64_t elements, bool *kept)
{
    const bool joined = batch->next != NULL;
    int64_t at = 0;
    for (infer_request *r = batch; r != NULL; r = r->next) {
        for (int32_t i = 0; i < r->n_outputs; i++) {
            infer_output *output = &r->outputs[i];
            const served_port *port = served_output(in->owner, output->index);
            const void *data;
            TRM_TRY(trm_context_output(in->context, port->name, &output->dims, &data));
            if (joined && (output->dims.n < 1 || output->dims.d[0] != elements)) {
                *kept = false;
                return TRM_OK;
            }
            output->dims.d[0] = joined ? r->elements : output->dims.d[0];
            output->bytes = trm_dtype_size(port->dtype);
            for (int32_t k = 0; k < output->dims.n; k++) {
                output->bytes *= (size_t)output->dims.d[k];
            }
            const size_t row = joined ? output->bytes / (size_t)r->elements : 0;
            output->data = (const char *)data + (size_t)at * row;
        }
        at += r->elements;
    }
    return TRM_OK;
}

static trm_status run_context(instance *in, infer_request *batch)
{
    if (batch->next != NULL) {
        return trm_context_run(in->context);
    }
    trm_status status = bind_outputs(in, batch, true);
    status = status == TRM_OK ? trm_context_run(in->context) : status;
    const trm_status unbound = bind_outputs(in, batch, false);
    return status != TRM_OK ? status : unbound;
}

static trm_status run(instance *in, infer_request *batch, int64_t elements, run_times *times, bool *kept)
{
    const double began = trm_clock_seconds();
    TRM_TRY(trm_context_reset(in->context));
    for (int32_t i = 0; i < in->owner->n_inputs; i++) {
        TRM_TRY(set_input(in, batch, i));
    }
    const double set = trm_clock_seconds();
    TRM_TRY(run_context(in, batch));
    const double ran = trm_clock_seconds();
    TRM_TRY(cut_outputs(in, batch, elements, kept));
    for (infer_request *r = batch; r != NULL && *kept; r = r->next) {
        const trm_status status = r->client->write(r);
        if (status != TRM_OK) {
            r->failed = true;
            api_fail_status(&r->error, status, NULL);
        }
    }
    *times = (run_times){set - began, ran - set, trm_clock_seconds() - ran};
    return TRM_OK;
}

/* Adds a request that has run to the timeline. */
static void trace_request(const infer_request *r, double began, double ended)
{
    static atomic_ullong requests;
    const trm_trace_value values[] = {{.key = "batch", .number = r->elements},
                                      {.key = "failed", .text = r->failed ? "yes" : "no"},
                                      {.key = "traceparent", .text = r->trace.parent},
                                      {.key = "tracestate", .text = r->trace.state}};
    trm_trace_span span = {.category = "request",
                           .name = "request",
                           .begin = r->queued,
                           .seconds = ended - r->queued,
                           .row = trm_trace_row("requests"),
                           .id = atomic_fetch_add(&requests, 1) + 1,
                           .values = values,
                           .n_values = r->trace.parent[0] == '\0'  ? 2
                                       : r->trace.state[0] == '\0' ? 3
                                                                   : 4};
    trm_trace_add(&span);
    span.n_values = 0;
    span.name = "queued";
    span.seconds = began - r->queued;
    trm_trace_add(&span);
    span.name = "run";
    span.begin = began;
    span.seconds = ended - began;
    trm_trace_add(&span);
}

static void count_run(served_network *n, const infer_request *batch, int64_t elements, const run_times *times,
                      double began)
{
    const double now = trm_clock_seconds();
    int32_t count = 0;
    pthread_mutex_lock(&n->lock);
    for (const infer_request *r = batch; r != NULL; r = r->next) {
        if (trm_trace_is_on()) {
            trace_request(r, began, now);
        }
        if (r->failed) {
            stats_add_duration(&n->stats.fail, now - r->queued);
        } else {
            stats_add_duration(&n->stats.success, now - r->queued);
            stats_add_duration(&n->stats.queue, began - r->queued);
            count++;
        }
    }
    if (count > 0) {
        stats_add_run(&n->stats, times, elements, count);
    }
    pthread_mutex_unlock(&n->lock);
}

/* Runs requests as one. If that fails, each runs alone: only those that are wrong themselves fail. */
static void run_batch(instance *in, infer_request *batch)
{
    served_network *n = in->owner;
    run_times times = {0};
    bool kept = true;
    int64_t elements = 0;
    for (const infer_request *r = batch; r != NULL; r = r->next) {
        elements += r->elements;
    }
    const double began = trm_clock_seconds();
    const trm_status status = run(in, batch, elements, &times, &kept);
    if (batch->next != NULL && (status != TRM_OK || !kept)) {
        if (!kept) {
            pthread_mutex_lock(&n->lock);
            n->joins = false;
            pthread_mutex_unlock(&n->lock);
        }
        while (batch != NULL) {
            infer_request *next = batch->next;
            batch->next = NULL;
            run_batch(in, batch);
            batch = next;
        }
        return;
    }
    if (status != TRM_OK) {
        batch->failed = true;
        api_fail_status(&batch->error, status, NULL);
    }
    count_run(n, batch, elements, &times, began);
    finish_all(batch);
}

static void *run_requests(void *user)
{
    instance *in = user;
    served_network *n = in->owner;
    int32_t count;
    pthread_mutex_lock(&n->lock);
    for (infer_request *batch = take_batch(n, &count); batch != NULL; batch = take_batch(n, &count)) {
        pthread_mutex_unlock(&n->lock);
        run_batch(in, batch);
        pthread_mutex_lock(&n->lock);
        n->stats.running--;
    }
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------- */

static trm_status read_ports(const served_options *o, bool inputs, served_port **ports, int32_t *count)
{
    const trm_network *network = o->network;
    const char *kind = inputs ? "input" : "output";
    *count = inputs ? trm_network_input_count(network) : trm_network_output_count(network);
    *ports = calloc((size_t)*count + 1, sizeof(**ports));
    if (*ports == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d ports", *count);
    }
    for (int32_t i = 0; i < *count; i++) {
        const trm_tensor *tensor = inputs ? trm_network_input(network, i) : trm_network_output(network, i);
        served_port *port = &(*ports)[i];
        *port = (served_port){trm_tensor_name(tensor), trm_tensor_dtype(tensor), trm_tensor_dims(tensor)};
        if (infer_type_name(port->dtype) == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s %s has type %s, which the protocol does not have", kind, port->name,
                     trm_dtype_name(port->dtype));
        }
        if (o->max_batch > 0 && (port->dims.n < 1 || port->dims.d[0] >= 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "network %s has no batch: %s %s has no open first dim (--min-shapes and --max-shapes)", o->name,
                     kind, port->name);
        }
    }
    return TRM_OK;
}

static trm_status start_threads(served_network *n)
{
    n->instances = calloc((size_t)n->options.n_contexts, sizeof(*n->instances));
    if (n->instances == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d instances", n->options.n_contexts);
    }
    n->sweeps = pthread_create(&n->sweeper, NULL, sweep_queue, n) == 0;
    bool started = n->sweeps;
    for (int32_t i = 0; started && i < n->options.n_contexts; i++) {
        instance *in = &n->instances[i];
        *in = (instance){.owner = n, .context = n->options.contexts[i]};
        started = in->started = pthread_create(&in->thread, NULL, run_requests, in) == 0;
    }
    if (!started) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the threads of network %s", n->options.name);
    }
    return TRM_OK;
}

static void destroy(served_network *n)
{
    pthread_cond_destroy(&n->changed);
    pthread_cond_destroy(&n->sweep);
    pthread_mutex_destroy(&n->lock);
    free(n->instances);
    free(n->inputs);
    free(n->outputs);
    free(n);
}

trm_status served_create(const served_options *options, served_network **result)
{
    served_network *n = calloc(1, sizeof(*n));
    pthread_condattr_t attributes;
    if (n == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the served network");
    }
    n->options = *options;
    n->joins = options->joins;
    n->stats.instances = options->n_contexts;
    atomic_init(&n->references, 1);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, &attributes);
    pthread_cond_init(&n->sweep, &attributes);
    pthread_condattr_destroy(&attributes);
    trm_status status = read_ports(options, true, &n->inputs, &n->n_inputs);
    if (status == TRM_OK) {
        status = read_ports(options, false, &n->outputs, &n->n_outputs);
    }
    if (status == TRM_OK) {
        status = start_threads(n);
    }
    if (status != TRM_OK) {
        served_stop(n);
        destroy(n);
        return status;
    }
    *result = n;
    return TRM_OK;
}

served_network *served_retain(served_network *n)
{
    atomic_fetch_add(&n->references, 1);
    return n;
}

void served_release(served_network *n)
{
    if (n != NULL && atomic_fetch_sub(&n->references, 1) == 1) {
        void (*release)(void *) = n->options.release;
        void *user = n->options.user;
        destroy(n);
        if (release != NULL) {
            release(user);
        }
    }
}

void served_drain(served_network *n)
{
    pthread_mutex_lock(&n->lock);
    n->draining = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

bool served_is_ready(served_network *n)
{
    pthread_mutex_lock(&n->lock);
    const bool ready = !n->draining;
    pthread_mutex_unlock(&n->lock);
    return ready;
}

bool served_is_idle(served_network *n)
{
    pthread_mutex_lock(&n->lock);
    const bool idle = n->first == NULL && n->stats.running == 0;
    pthread_mutex_unlock(&n->lock);
    return idle;
}

void served_stop(served_network *n)
{
    if (n == NULL) {
        return;
    }
    pthread_mutex_lock(&n->lock);
    n->draining = n->stopping = true;
    pthread_cond_broadcast(&n->changed);
    pthread_cond_broadcast(&n->sweep);
    pthread_mutex_unlock(&n->lock);
    for (int32_t i = 0; n->instances != NULL && i < n->options.n_contexts; i++) {
        if (n->instances[i].started) {
            pthread_join(n->instances[i].thread, NULL);
            n->instances[i].started = false;
        }
    }
    if (n->sweeps) {
        pthread_join(n->sweeper, NULL);
        n->sweeps = false;
    }
}

const served_options *served_get_options(const served_network *n)
{
    return &n->options;
}

int32_t served_max_batch(const served_network *n)
{
    return n->options.max_batch;
}

int32_t served_input_count(const served_network *n)
{
    return n->n_inputs;
}

int32_t served_output_count(const served_network *n)
{
    return n->n_outputs;
}

const served_port *served_input(const served_network *n, int32_t index)
{
    return &n->inputs[index];
}

const served_port *served_output(const served_network *n, int32_t index)
{
    return &n->outputs[index];
}

void served_get_stats(served_network *n, network_stats *stats)
{
    pthread_mutex_lock(&n->lock);
    *stats = n->stats;
    pthread_mutex_unlock(&n->lock);
}

bool served_submit(served_network *n, infer_request *request, void (*wait)(void *user), void *user)
{
    pthread_mutex_lock(&n->lock);
    const bool taken = !n->draining && n->stats.waiting < n->options.max_waiting;
    if (taken) {
        const double seconds = request->queue_seconds > 0 ? request->queue_seconds : n->options.queue_seconds;
        request->queued = trm_clock_seconds();
        request->expires = seconds > 0 ? request->queued + seconds : 0;
        request->next = NULL;
        *(n->first == NULL ? &n->first : &n->last->next) = request;
        n->last = request;
        n->stats.waiting++;
        if (wait != NULL) {
            wait(user); /* under the lock: no thread can answer before the connection waits */
        }
        pthread_cond_signal(&n->changed);
        if (n->next_sweep == INFINITY || (request->expires > 0 && request->expires < n->next_sweep)) {
            pthread_cond_signal(&n->sweep);
        }
    } else {
        n->stats.refused++;
    }
    pthread_mutex_unlock(&n->lock);
    return taken;
}

bool served_accept(served_network *n, infer_request *request, void (*wait)(void *user), void *user, api_error *error)
{
    return served_submit(n, request, wait, user) ||
           api_fail(error, 503, NULL, NULL, "the network is %s, try again later",
                    served_is_ready(n) ? "at its limit of requests" : "being unloaded, or the server shuts down");
}
