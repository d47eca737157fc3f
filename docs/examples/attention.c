/*
 * The attention layer: grouped query heads, causal, with a window and a softcap. Once for whole sequences packed one
 * after the other, and once as in generation: token by token over a paged cache, which must give the same.
 *
 *   attention [cuda]
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

enum { TOKENS = 12, HEADS = 4, KV_HEADS = 2, DIM = 64, BLOCKS = 4, ROW = HEADS * DIM, KV_ROW = KV_HEADS * DIM };

static float q[TOKENS][ROW], k[TOKENS][KV_ROW], v[TOKENS][KV_ROW], packed[TOKENS][ROW], decoded[TOKENS][ROW];

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* Inputs have one row per token of a step; sequences lie one after the other, as sequence_starts says. With `cached`,
 * keys and values go to blocks of 16 tokens in two states, and the block table says which blocks a sequence has. */
static trm_status define(trm_network *network, bool cached)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = TRM_ATTENTION_PACKED_NHD,
                                         .causal = TRM_CAUSAL_LOWER_RIGHT,
                                         .window = 5,
                                         .softcap = 20.0f,
                                         .n_ranks = 1}};
    const trm_dims cache = {4, {BLOCKS, TRM_KV_BLOCK_SIZE, KV_HEADS, DIM}};
    trm_tensor *in[TRM_ATTENTION_INPUT_COUNT] = {NULL}, *out; /* NULL: not given */
    trm_status status;
    TRY(trm_network_add_input(network, "q", TRM_F32, (trm_dims){3, {-1, HEADS, DIM}}, &in[TRM_ATTENTION_Q]));
    TRY(trm_network_add_input(network, "k", TRM_F32, (trm_dims){3, {-1, KV_HEADS, DIM}}, &in[TRM_ATTENTION_K]));
    TRY(trm_network_add_input(network, "v", TRM_F32, (trm_dims){3, {-1, KV_HEADS, DIM}}, &in[TRM_ATTENTION_V]));
    TRY(trm_network_add_input(network, "starts", TRM_I32, (trm_dims){1, {-1}}, &in[TRM_ATTENTION_SEQUENCE_STARTS]));
    if (cached) {
        TRY(trm_network_add_input(network, "lengths", TRM_I32, (trm_dims){1, {-1}},
                                  &in[TRM_ATTENTION_SEQUENCE_LENGTHS]));
        TRY(trm_network_add_input(network, "blocks", TRM_I32, (trm_dims){2, {-1, BLOCKS}},
                                  &in[TRM_ATTENTION_BLOCK_TABLE]));
        TRY(trm_network_add_state(network, "keys", TRM_F32, cache, &in[TRM_ATTENTION_KEY_CACHE]));
        TRY(trm_network_add_state(network, "values", TRM_F32, cache, &in[TRM_ATTENTION_VALUE_CACHE]));
    }
    TRY(trm_network_add_layer(network, "out", &desc, in, TRM_ATTENTION_INPUT_COUNT, &out));
    TRY(trm_network_mark_output(network, out));
done:
    return status;
}

/* Attends for tokens first .. first + n - 1, which belong to sequences that begin at starts [n_starts - 1] of them. */
static trm_status step(trm_context *context, int32_t first, int32_t n, const int32_t *starts, int32_t n_starts,
                       float *to)
{
    trm_dims dims;
    const void *data;
    trm_status status;
    TRY(trm_context_set_input(context, "q", (trm_dims){3, {n, HEADS, DIM}}, q[first]));
    TRY(trm_context_set_input(context, "k", (trm_dims){3, {n, KV_HEADS, DIM}}, k[first]));
    TRY(trm_context_set_input(context, "v", (trm_dims){3, {n, KV_HEADS, DIM}}, v[first]));
    TRY(trm_context_set_input(context, "starts", (trm_dims){1, {n_starts}}, starts));
    TRY(trm_context_run(context));
    TRY(trm_context_output(context, "out", &dims, &data)); /* [n, HEADS, DIM] */
    memcpy(to, data, (size_t)n * ROW * sizeof(float));
done:
    return status;
}

/* One network from its definition to its results. */
static trm_status run(trm_world *world, trm_backend backend, bool cached)
{
    static const int32_t one[] = {0, 1}, all[] = {0, 4, TOKENS}; /* sequences of 4 and 8 tokens */
    static const int32_t tables[][BLOCKS] = {{2, 0, 0, 0}, {1, 0, 0, 0}};
    const trm_shape_bound bounds[] = {{.tensor = "q", .max = {3, {TOKENS, HEADS, DIM}}},
                                      {.tensor = "k", .max = {3, {TOKENS, KV_HEADS, DIM}}},
                                      {.tensor = "v", .max = {3, {TOKENS, KV_HEADS, DIM}}},
                                      {.tensor = "starts", .max = {1, {3}}},
                                      {.tensor = "lengths", .max = {1, {2}}},
                                      {.tensor = "blocks", .max = {2, {2, BLOCKS}}}};
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    how.backend = backend;
    how.bounds = bounds;
    how.n_bounds = cached ? 6 : 4;
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    trm_status status;
    TRY(trm_network_create(&network));
    TRY(define(network, cached));
    TRY(trm_build(network, &how, &plan));
    TRY(trm_engine_create(plan, world, NULL, NULL, &engine));
    TRY(trm_context_create(engine, &context));
    if (!cached) {
        TRY(step(context, 0, TOKENS, all, 3, packed[0]));
    }
    for (int32_t t = 0; cached && t < TOKENS; t++) { /* one token at a time, the first sequence first */
        int32_t sequence = t < all[1] ? 0 : 1, length = t - all[sequence] + 1;
        TRY(trm_context_set_input(context, "lengths", (trm_dims){1, {1}}, &length));
        TRY(trm_context_set_input(context, "blocks", (trm_dims){2, {1, BLOCKS}}, tables[sequence]));
        TRY(step(context, t, 1, one, 2, decoded[t]));
    }
done:
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    return status;
}

int main(int argc, char **argv)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = argc > 1 && strcmp(argv[1], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    trm_world *world = NULL;
    trm_status status;
    float worst = 0;
    for (int i = 0; i < TOKENS * ROW; i++) {
        q[i / ROW][i % ROW] = sinf(0.7f * (float)i);
    }
    for (int i = 0; i < TOKENS * KV_ROW; i++) {
        k[i / KV_ROW][i % KV_ROW] = cosf(0.3f * (float)i);
        v[i / KV_ROW][i % KV_ROW] = sinf(0.2f * (float)i);
    }
    TRY(trm_world_open(&where, &world));
    TRY(run(world, where.backend, false));
    TRY(run(world, where.backend, true));
    for (int t = 0; t < TOKENS; t++) {
        printf("token %2d: packed %9.6f %9.6f ... decoded %9.6f %9.6f ...\n", t, (double)packed[t][0],
               (double)packed[t][1], (double)decoded[t][0], (double)decoded[t][1]);
        for (int i = 0; i < ROW; i++) {
            worst = fmaxf(worst, fabsf(packed[t][i] - decoded[t][i]));
        }
    }
    printf("largest difference: %g: %s\n", (double)worst, worst < 1e-5f ? "equal" : "different");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "attention: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : worst < 1e-5f ? 0 : 1;
}
