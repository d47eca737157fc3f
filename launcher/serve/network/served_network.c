/* The queue of a network's requests and the thread that runs them. */
#include "launcher/serve/network/served_network.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "launcher/serve/network/infer.h"

struct served_network {
    served_options options;
    served_port *inputs, *outputs; /* [n_inputs], [n_outputs] */
    int32_t n_inputs, n_outputs;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock: */
    infer_request *first, *last;
    int32_t waiting;
    bool running, draining, stopping;
};

static void *run_requests(void *user)
{
    served_network *n = user;
    pthread_mutex_lock(&n->lock);
    for (;;) {
        while (n->first == NULL && !n->stopping) {
            pthread_cond_wait(&n->changed, &n->lock);
        }
        infer_request *request = n->first;
        if (request == NULL) {
            break;
        }
        n->first = request->next;
        n->waiting--;
        n->running = true;
        const bool refused = n->stopping;
        pthread_mutex_unlock(&n->lock);
        if (refused) {
            api_fail(&request->error, 503, NULL, NULL, "the server is shutting down");
            request->failed = true;
        } else {
            infer_run(request, n->options.context);
        }
        infer_finish(request);
        pthread_mutex_lock(&n->lock);
        n->running = false;
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

static trm_status read_ports(const trm_network *network, bool inputs, served_port **ports, int32_t *count)
{
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
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s %s has type %s, which the protocol does not have",
                     inputs ? "input" : "output", port->name, trm_dtype_name(port->dtype));
        }
    }
    return TRM_OK;
}

trm_status served_create(const served_options *options, served_network **result)
{
    served_network *n = calloc(1, sizeof(*n));
    if (n == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the served network");
    }
    n->options = *options;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    trm_status status = read_ports(options->network, true, &n->inputs, &n->n_inputs);
    if (status == TRM_OK) {
        status = read_ports(options->network, false, &n->outputs, &n->n_outputs);
    }
    if (status == TRM_OK) {
        n->started = pthread_create(&n->thread, NULL, run_requests, n) == 0;
        status = n->started ? TRM_OK : trm_fail(TRM_ERROR_INTERNAL, "cannot start the network's thread");
    }
    if (status != TRM_OK) {
        served_destroy(n);
        return status;
    }
    *result = n;
    return TRM_OK;
}

void served_drain(served_network *n)
{
    pthread_mutex_lock(&n->lock);
    n->draining = true;
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
    const bool idle = n->first == NULL && !n->running;
    pthread_mutex_unlock(&n->lock);
    return idle;
}

void served_stop(served_network *n)
{
    if (n == NULL || !n->started) {
        return;
    }
    pthread_mutex_lock(&n->lock);
    n->draining = n->stopping = true;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
    pthread_join(n->thread, NULL);
    n->started = false;
}

void served_destroy(served_network *n)
{
    if (n == NULL) {
        return;
    }
    served_stop(n);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n->inputs);
    free(n->outputs);
    free(n);
}

const served_options *served_get_options(const served_network *n)
{
    return &n->options;
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

bool served_submit(served_network *n, infer_request *request, void (*wait)(void *user), void *user)
{
    pthread_mutex_lock(&n->lock);
    const bool taken = !n->draining && n->waiting < n->options.max_waiting;
    if (taken) {
        request->next = NULL;
        *(n->first == NULL ? &n->first : &n->last->next) = request;
        n->last = request;
        n->waiting++;
        wait(user); /* under the lock: the thread cannot answer before the connection waits */
        pthread_cond_signal(&n->changed);
    }
    pthread_mutex_unlock(&n->lock);
    return taken;
}
