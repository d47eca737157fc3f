/*
 * Failures of several contexts, on threads of their own, in one recorder: each thread serves its requests with a
 * context of one engine and goes on with the next after one that fails; what failed, where and why is read in another
 * thread, when there is time for it.
 *
 *   recorder
 */
#include <pthread.h>
#include <stdio.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

enum { THREADS = 3, REQUESTS = 6, MOST_ROWS = 4, COLUMNS = 8 };

/* y = softmax(x) of up to MOST_ROWS rows. */
static trm_status make_engine(trm_world *world, trm_engine **engine)
{
    trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {.axis = -1}};
    const trm_shape_bound bound = {.tensor = "x", .max = {2, {MOST_ROWS, COLUMNS}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_tensor *x, *y;
    trm_status status;
    options.bounds = &bound;
    options.n_bounds = 1;
    TRY(trm_network_create(&network));
    TRY(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, COLUMNS}}, &x));
    TRY(trm_network_add_layer(network, "y", &softmax, &x, 1, &y));
    TRY(trm_network_mark_output(network, y));
    TRY(trm_build(network, &options, &plan));
    TRY(trm_engine_create(plan, world, NULL, NULL, engine)); /* takes the plan over */
done:
    trm_network_destroy(network);
    return status;
}

typedef struct server {
    pthread_t thread;
    trm_context *context;
    int32_t served;
} server;

/* Requests of 1, 2, ... rows: the last two have more than the engine was built for. */
static void *serve(void *user)
{
    static const float x[(MOST_ROWS + 2) * COLUMNS];
    server *s = user;
    for (int32_t rows = 1; rows <= REQUESTS; rows++) {
        const trm_dims dims = {2, {rows, COLUMNS}};
        if (trm_context_set_input(s->context, "x", dims, x) == TRM_OK && trm_context_run(s->context) == TRM_OK) {
            s->served++;
        } /* else the recorder knows why */
    }
    return NULL;
}

int main(void)
{
    trm_world *world = NULL;
    trm_engine *engine = NULL;
    trm_recorder *recorder = NULL;
    server servers[THREADS] = {0};
    trm_recorded_error error;
    int32_t served = 0, failed = 0;
    trm_status status;
    TRY(trm_recorder_create(5, NULL, NULL, &recorder)); /* further failures are counted */
    TRY(trm_world_open(NULL, &world));
    TRY(make_engine(world, &engine));
    trm_engine_set_recorder(engine, recorder); /* of its contexts, too, as they have none of their own */
    for (int32_t i = 0; i < THREADS; i++) {
        TRY(trm_context_create(engine, &servers[i].context));
    }
    for (int32_t i = 0; i < THREADS; i++) {
        if (pthread_create(&servers[i].thread, NULL, serve, &servers[i]) != 0) {
            return 1;
        }
    }
    for (int32_t i = 0; i < THREADS; i++) {
        pthread_join(servers[i].thread, NULL);
        served += servers[i].served;
    }
    while (trm_recorder_take(recorder, &error)) {
        printf("failure %lld: %s: %s: %s\n", (long long)error.index, error.call, trm_status_name(error.status),
               error.message);
        failed++;
    }
    printf("%d requests served, %d failures, %lld of them only counted\n", (int)served,
           (int)(failed + trm_recorder_lost(recorder)), (long long)trm_recorder_lost(recorder));
done:
    if (status != TRM_OK) {
        fprintf(stderr, "recorder: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    for (int32_t i = 0; i < THREADS; i++) {
        trm_context_destroy(servers[i].context);
    }
    trm_engine_destroy(engine);
    trm_world_close(world);
    trm_recorder_destroy(recorder); /* behind all that it was given to */
    return trm_status_exit_code(status);
}
