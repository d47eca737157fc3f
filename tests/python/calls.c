/*
 * Microseconds of one run of a network of one layer: set an input, run, read the output. test_overhead.py compares the
 * same in Python.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <trireme/trireme.h>

enum { CALLS = 5000, ROUNDS = 7 };

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static trm_status call(trm_context *context, const float *x, float *y)
{
    trm_dims dims;
    const void *data;
    trm_status status = trm_context_set_input(context, "x", (trm_dims){2, {1, 4}}, x);
    status = status == TRM_OK ? trm_context_run(context) : status;
    status = status == TRM_OK ? trm_context_output(context, "y", &dims, &data) : status;
    if (status == TRM_OK) {
        memcpy(y, data, 4 * sizeof(*y));
    }
    return status;
}

int main(void)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_world *world = NULL;
    trm_network *network = NULL;
    trm_tensor *x, *y;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    const float in[4] = {1, -2, 3, -4};
    float out[4];
    double best = 1e9;
    where.backend = how.backend = TRM_BACKEND_HOST;
    bool made = trm_world_open(&where, &world) == TRM_OK && trm_network_create(&network) == TRM_OK &&
                trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {1, 4}}, &x) == TRM_OK &&
                trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y) == TRM_OK &&
                trm_network_mark_output(network, y) == TRM_OK && trm_build(network, &how, &plan) == TRM_OK &&
                trm_engine_create(plan, world, NULL, NULL, &engine) == TRM_OK &&
                trm_context_create(engine, &context) == TRM_OK;
    for (int round = 0; made && round < ROUNDS; round++) {
        const double began = seconds();
        for (int i = 0; made && i < CALLS; i++) {
            made = call(context, in, out) == TRM_OK && out[0] == 1 && out[3] == 0;
        }
        const double each = (seconds() - began) / CALLS * 1e6;
        best = each < best ? each : best;
    }
    if (made) {
        printf("%.3f\n", best);
    } else {
        fprintf(stderr, "calls: %s\n", trm_last_error());
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    trm_world_close(world);
    return made ? 0 : 1;
}
