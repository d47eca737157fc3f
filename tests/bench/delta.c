/*
 * How fast a gated DeltaNet runs on CUDA device 0, in the sizes of Qwen3.5 on random data: the layer from the joined
 * product on, and each of its launches by itself. Likewise a selective scan, in the sizes of Granite 4 and Nemotron-H.
 *
 *   bench_delta [--json] [--kernel PART_OF_A_LAUNCH_NAME]
 *
 * Bytes are those of the states, read and written once; operations are those of the recurrence, 6 (of a scan 5) times
 * the matrix per token and head. Each figure is the median of several launches of a captured chain of calls.
 */
#include <stdio.h>

#include "base/error.h"
#include "bench/common.h"

#define CALLS     16
#define DIM       128
#define KEY_HEADS 16
#define TAPS      4
#define SCAN_ROWS 64 /* of a head's matrix with DIM columns */

typedef struct shape {
    const char *name;
    int32_t sequences, tokens, old, heads, versions; /* tokens: of each sequence, behind `old` others */
    int32_t groups;                                  /* of a scan; 0: a DeltaNet */
} shape;

static const shape shapes[] = {
    {"1 decodes", 1, 1, 500, 32, 1, 0},
    {"8 decode", 8, 1, 500, 32, 1, 0},
    {"32 decode", 32, 1, 500, 32, 1, 0},
    {"128 decode", 128, 1, 500, 32, 1, 0},
    {"32 decode, 64 heads", 32, 1, 500, 64, 1, 0},
    {"8 decode with 3 drafts", 8, 4, 500, 32, 4, 0},
    {"2k", 1, 2048, 0, 32, 1, 0},
    {"8k", 1, 8192, 0, 32, 1, 0},
    {"16 x 512", 16, 512, 0, 32, 1, 0},
    {"last 2k of 8k, 64 heads", 1, 2048, 6144, 64, 1, 0},
    {"scan, 1 decodes", 1, 1, 500, 128, 1, 1},
    {"scan, 32 decode", 32, 1, 500, 128, 1, 1},
    {"scan, 2k", 1, 2048, 0, 128, 1, 1},
    {"scan, 2k, 64 heads", 1, 2048, 0, 64, 1, 8},
    {"scan, 8k", 1, 8192, 0, 128, 1, 1},
};

typedef struct problem {
    trm_layer_desc layer;
    trm_kernel_call call;
} problem;

static double operations(const shape *s)
{
    return (s->groups > 0 ? 5.0 * SCAN_ROWS : 6.0 * DIM) * DIM * s->heads * s->sequences * s->tokens;
}

static double bytes(const shape *s)
{
    const int32_t written = s->tokens < s->versions ? s->tokens : s->versions, read = s->old > 0;
    return 4.0 * (s->groups > 0 ? SCAN_ROWS : DIM) * DIM * s->heads * s->sequences * (written + read);
}

/* Starts, lengths and slots. */
static trm_status add_sequences(const bench *b, const shape *s, trm_view *inputs)
{
    int32_t integers[256]; /* of 128 sequences */
    const trm_dims n = {1, {s->sequences}};
    for (int32_t i = 0; i <= s->sequences; i++) {
        integers[i] = i * s->tokens;
    }
    TRM_TRY(bench_add_integers(b, &inputs[0], (trm_dims){1, {s->sequences + 1}}, integers));
    for (int32_t i = 0; i < s->sequences; i++) {
        integers[i] = s->old + s->tokens;
    }
    TRM_TRY(bench_add_integers(b, &inputs[1], n, integers));
    for (int32_t i = 0; i < 2 * s->sequences; i++) {
        integers[i] = s->sequences - 1 - i / 2;
    }
    return bench_add_integers(b, &inputs[2], (trm_dims){2, {s->sequences, 2}}, integers);
}

static trm_status make_net(const bench *b, const shape *s, problem *p)
{
    const int64_t tokens = (int64_t)s->sequences * s->tokens, keys = KEY_HEADS * DIM, values = (int64_t)s->heads * DIM;
    const int64_t behind = 2 * keys + 2 * values, places = TAPS - 1 + s->versions - 1;
    trm_view *inputs = p->call.inputs;
    p->layer.kind = TRM_LAYER_DELTA_NET;
    p->layer.delta_net = (trm_delta_net_params){.key_heads = KEY_HEADS,
                                                .heads = s->heads,
                                                .key_dim = DIM,
                                                .value_dim = DIM,
                                                .z = (int32_t)(behind - values),
                                                .a = (int32_t)behind,
                                                .b = (int32_t)behind + s->heads,
                                                .activation = TRM_ACTIVATION_SILU,
                                                .gate = TRM_ACTIVATION_SILU,
                                                .eps = 1e-6f,
                                                .norm_eps = 1e-6f};
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    p->call.n_inputs = TRM_DELTA_NET_INPUT_COUNT;
    p->call.n_outputs = 1;
    p->call.constants =
        1u << TRM_DELTA_NET_SEQUENCE_STARTS | 1u << TRM_DELTA_NET_SEQUENCE_LENGTHS | 1u << TRM_DELTA_NET_SEQUENCE_SLOTS;
    const struct {
        trm_view *view;
        trm_dtype dtype;
        trm_dims dims;
    } floats[] = {
        {&inputs[TRM_DELTA_NET_X], TRM_BF16, {2, {tokens, behind + 2 * s->heads}}},
        {&inputs[TRM_DELTA_NET_Q_TAPS], TRM_BF16, {2, {keys, TAPS}}},
        {&inputs[TRM_DELTA_NET_K_TAPS], TRM_BF16, {2, {keys, TAPS}}},
        {&inputs[TRM_DELTA_NET_V_TAPS], TRM_BF16, {2, {values, TAPS}}},
        {&inputs[TRM_DELTA_NET_Q_CACHE], TRM_BF16, {3, {s->sequences, places, keys}}},
        {&inputs[TRM_DELTA_NET_K_CACHE], TRM_BF16, {3, {s->sequences, places, keys}}},
        {&inputs[TRM_DELTA_NET_V_CACHE], TRM_BF16, {3, {s->sequences, places, values}}},
        {&inputs[TRM_DELTA_NET_A_LOG], TRM_F32, {1, {s->heads}}},
        {&inputs[TRM_DELTA_NET_A_BIAS], TRM_F32, {1, {s->heads}}},
        {&inputs[TRM_DELTA_NET_STATE], TRM_F32, {5, {s->sequences, s->versions, s->heads, DIM, DIM}}},
        {&inputs[TRM_DELTA_NET_NORM], TRM_BF16, {1, {DIM}}},
        {&inputs[TRM_DELTA_NET_GATES], TRM_BF16, {2, {tokens, behind + 2 * s->heads}}},
        {&p->call.outputs[0], TRM_BF16, {2, {tokens, values}}},
    };
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        TRM_TRY(bench_add_floats(b, floats[i].view, floats[i].dtype, floats[i].dims, 1, i + 1));
    }
    return add_sequences(b, s, &inputs[TRM_DELTA_NET_SEQUENCE_STARTS]);
}

static trm_status make_scan(const bench *b, const shape *s, problem *p)
{
    const int64_t tokens = (int64_t)s->sequences * s->tokens;
    trm_view *inputs = p->call.inputs;
    p->layer.kind = TRM_LAYER_SELECTIVE_SCAN;
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    p->call.n_inputs = TRM_SELECTIVE_SCAN_INPUT_COUNT;
    p->call.n_outputs = 1;
    p->call.constants = 1u << TRM_SELECTIVE_SCAN_SEQUENCE_STARTS | 1u << TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS |
                        1u << TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS;
    const struct {
        trm_view *view;
        trm_dtype dtype;
        trm_dims dims;
    } floats[] = {
        {&inputs[TRM_SELECTIVE_SCAN_X], TRM_BF16, {3, {tokens, s->heads, SCAN_ROWS}}},
        {&inputs[TRM_SELECTIVE_SCAN_B], TRM_BF16, {3, {tokens, s->groups, DIM}}},
        {&inputs[TRM_SELECTIVE_SCAN_C], TRM_BF16, {3, {tokens, s->groups, DIM}}},
        {&inputs[TRM_SELECTIVE_SCAN_STEP], TRM_BF16, {2, {tokens, s->heads}}},
        {&inputs[TRM_SELECTIVE_SCAN_A_LOG], TRM_F32, {1, {s->heads}}},
        {&inputs[TRM_SELECTIVE_SCAN_STEP_BIAS], TRM_F32, {1, {s->heads}}},
        {&inputs[TRM_SELECTIVE_SCAN_SKIP], TRM_F32, {1, {s->heads}}},
        {&inputs[TRM_SELECTIVE_SCAN_STATE], TRM_F32, {5, {s->sequences, s->versions, s->heads, SCAN_ROWS, DIM}}},
        {&p->call.outputs[0], TRM_BF16, {3, {tokens, s->heads, SCAN_ROWS}}},
    };
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        TRM_TRY(bench_add_floats(b, floats[i].view, floats[i].dtype, floats[i].dims, 1, i + 1));
    }
    return add_sequences(b, s, &inputs[TRM_SELECTIVE_SCAN_SEQUENCE_STARTS]);
}

static trm_status run_call(bench *b, const shape *s, trm_kernel_call *call)
{
    bench_call what = {.name = s->name, .operations = operations(s), .bytes = bytes(s)};
    what.calls = CALLS;
    snprintf(what.fields, sizeof(what.fields), "\"sequences\": %d, \"tokens\": %d, \"heads\": %d", s->sequences,
             s->tokens, s->heads);
    return bench_time_launches(b, &trm_cuda_kernels, &what, call);
}

static trm_status run_all(bench *b)
{
    trm_status status = TRM_OK;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && status == TRM_OK; i++) {
        problem p = {0};
        status = shapes[i].groups > 0 ? make_scan(b, &shapes[i], &p) : make_net(b, &shapes[i], &p);
        status = status == TRM_OK ? run_call(b, &shapes[i], &p.call) : status;
        bench_free_call(b, &p.call);
    }
    return status;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_delta", .backend = TRM_BACKEND_CUDA};
    if (!bench_read_options(&b, argc, argv, "--kernel")) {
        return 2;
    }
    return bench_main(&b, BENCH_LAUNCHES_HEADING, run_all);
}
