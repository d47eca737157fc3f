/*
 * Any network over several ranks: the same definition on every rank, a mesh, and the partitioner does the rest. Each
 * rank's part is printed; one tensor's sharding is pinned, the others are chosen.
 *
 *   mpirun -np 2 sharded [MESH [cuda]]        such as: mpirun -np 4 sharded tp=2,pp=2
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

enum { ROWS = 8, WIDTH = 512, WIDE = 2048, LAYERS = 2 };

static float x[ROWS][WIDTH], up[LAYERS][WIDE][WIDTH], down[LAYERS][WIDTH][WIDE];

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* LAYERS times y = x + tanh(x up') down'. Nothing here knows of ranks, but for the pin. */
static trm_status define(trm_network *network)
{
    trm_tensor *h, *first, *second, *wide, *active, *narrow;
    trm_status status;
    char name[32];
    TRY(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {ROWS, WIDTH}}, &h));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof(name), "up%d", i);
        TRY(trm_network_add_constant(network, name, TRM_F32, (trm_dims){2, {WIDE, WIDTH}}, up[i], &first));
        snprintf(name, sizeof(name), "down%d", i);
        TRY(trm_network_add_constant(network, name, TRM_F32, (trm_dims){2, {WIDTH, WIDE}}, down[i], &second));
        TRY(trm_network_add_matmul(network, "wide", h, first, NULL, true, &wide));
        TRY(trm_network_add_activation(network, "active", TRM_ACTIVATION_TANH, wide, &active));
        TRY(trm_network_add_matmul(network, "narrow", active, second, NULL, true, &narrow));
        TRY(trm_network_add_elementwise(network, "h", TRM_ELEMENTWISE_ADD, h, narrow, &h));
        if (i == 0) {
            TRY(trm_network_pin(network, first, "split 0")); /* a part of the rows on each rank of axis tp */
        }
    }
    TRY(trm_network_mark_output(network, h));
done:
    return status;
}

/* The largest difference between y and plain C. */
static float compare(const float *y)
{
    float worst = 0, h[WIDTH], next[WIDTH];
    for (int row = 0; row < ROWS; row++) {
        memcpy(h, x[row], sizeof(h));
        for (int layer = 0; layer < LAYERS; layer++) {
            memcpy(next, h, sizeof(h));
            for (int k = 0; k < WIDE; k++) {
                float sum = 0;
                for (int i = 0; i < WIDTH; i++) {
                    sum += h[i] * up[layer][k][i];
                }
                sum = tanhf(sum);
                for (int i = 0; i < WIDTH; i++) {
                    next[i] += sum * down[layer][i][k];
                }
            }
            memcpy(h, next, sizeof(h));
        }
        for (int i = 0; i < WIDTH; i++) {
            worst = fmaxf(worst, fabsf(h[i] - y[row * WIDTH + i]));
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = argc > 2 && strcmp(argv[2], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_world *world = NULL;
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    static float of_rank_0[ROWS * WIDTH];
    char *text = NULL;
    bool right = false;
    trm_dims dims;
    const void *y;
    trm_status status;
    for (int i = 0; i < LAYERS * WIDE * WIDTH; i++) { /* the same on every rank */
        up[i / (WIDE * WIDTH)][i / WIDTH % WIDE][i % WIDTH] = 0.1f * sinf(0.1f * (float)(i % 10007));
        down[i / (WIDE * WIDTH)][i / WIDE % WIDTH][i % WIDE] = 0.1f * cosf(0.1f * (float)(i % 9973));
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i / WIDTH][i % WIDTH] = cosf((float)i);
    }
    TRY(trm_world_open(&where, &world));
    how.backend = where.backend;
    how.rank = trm_world_rank(world);
    TRY(trm_mesh_parse(argc > 1 ? argv[1] : NULL, trm_world_size(world), &how.mesh));
    TRY(trm_network_create(&network));
    TRY(define(network));
    TRY(trm_build(network, &how, &plan));
    text = trm_plan_to_text(plan);
    printf("the network of rank %d:\n%s\n", (int)how.rank, text == NULL ? "" : text);
    TRY(trm_engine_create(plan, world, NULL, NULL, &engine));
    TRY(trm_context_create(engine, &context));
    TRY(trm_context_set_input(context, "x", (trm_dims){2, {ROWS, WIDTH}}, x));
    TRY(trm_context_run(context)); /* all ranks together */
    TRY(trm_context_output(context, "h.1", &dims, &y));
    memcpy(of_rank_0, y, sizeof(of_rank_0));
    TRY(trm_world_broadcast(world, of_rank_0, sizeof(of_rank_0), 0));
    right = memcmp(of_rank_0, y, sizeof(of_rank_0)) == 0 && compare(y) < 1e-3f;
    printf("rank %d of %d: largest difference to plain C: %g: %s\n", (int)how.rank, (int)trm_world_size(world),
           (double)compare(y), right ? "equal on all ranks" : "different");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "sharded: %s: %s\n", trm_status_name(status), trm_last_error());
        trm_world_abort(world, status);
    }
    trm_free(text);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : right ? 0 : 1;
}
