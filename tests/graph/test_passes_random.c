/*
 * Property: passes do not change the numbers of any network. Random networks of the patterns passes look for, with near
 * misses of them, duplicates, dead parts and constant parts.
 */
#include "graph/compare.h"

#include <stdio.h>

#define NETWORKS     400
#define MOST_TENSORS 64
#define MOST_ROWS    7

static int32_t n_norms;   /* that became part of products */
static int32_t n_choices; /* of rows that moved */

typedef struct generator {
    trm_network *network;
    uint64_t random;
    trm_tensor *pool[MOST_TENSORS]; /* f32 [rows, width] */
    int32_t n;
} generator;

static int64_t below(generator *self, int64_t n)
{
    return test_random_below(&self->random, n);
}

static trm_tensor *pick(generator *self)
{
    /* Late tensors more often, so that networks are deep. */
    int64_t a = below(self, self->n), b = below(self, self->n);
    return self->pool[a > b ? a : b];
}

static int64_t width_of(const trm_tensor *tensor)
{
    return tensor->dims.d[tensor->dims.n - 1];
}

/* Another tensor of the same width, or the same one. */
static trm_tensor *pick_like(generator *self, trm_tensor *like)
{
    for (int32_t i = 0; i < 8; i++) {
        trm_tensor *tensor = pick(self);
        if (width_of(tensor) == width_of(like)) {
            return tensor;
        }
    }
    return like;
}

static void keep(generator *self, trm_tensor *tensor)
{
    if (self->n < MOST_TENSORS) {
        self->pool[self->n++] = tensor;
    }
}

/* A constant, sometimes a weight, sometimes the result of layers of constants; few seeds, so that some are equal. */
static trm_tensor *constant(generator *self, trm_dims dims)
{
    trm_network *network = self->network;
    trm_tensor *tensor =
        below(self, 2) == 0 ? net_values(network, "c", dims) : net_weight(network, "w", dims, (uint64_t)below(self, 3));
    if (dims.n == 2 && below(self, 4) == 0) {
        trm_layer_desc transpose = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{1, 0}}};
        tensor = net_layer(network, "t", transpose, tensor, NULL, NULL, NULL);
        assert_ok(trm_network_add_reshape(network, "r", tensor, dims, &tensor));
    }
    if (below(self, 4) == 0) {
        tensor = net_unary(network, "folded", TRM_ACTIVATION_TANH, tensor);
    }
    return tensor;
}

static trm_tensor *random_activation(generator *self, trm_tensor *x)
{
    static const trm_activation kinds[] = {TRM_ACTIVATION_SIGMOID, TRM_ACTIVATION_SIGMOID, TRM_ACTIVATION_SILU,
                                           TRM_ACTIVATION_GELU,    TRM_ACTIVATION_TANH,    TRM_ACTIVATION_RELU};
    return net_unary(self->network, "act", kinds[below(self, 6)], x);
}

/* A product with a quantized weight, of 8 or 4 bits, with scales by rows or by blocks. */
static trm_tensor *quantized_linear(generator *self, trm_tensor *x, int64_t width, trm_tensor *bias)
{
    static const int32_t blocks[] = {1, 1, 2, 4};
    const bool packed = below(self, 2) == 0;
    trm_layer_desc desc = {
        .kind = TRM_LAYER_DEQUANT_MATMUL,
        .dequant_matmul = {.block_n = blocks[below(self, 4)], .block_k = below(self, 2) == 0 ? 0 : 4}};
    const trm_dequant_matmul_params *p = &desc.dequant_matmul;
    const trm_dims dims = DIMS(width, packed ? width_of(x) / 2 : width_of(x));
    const trm_dims scales = DIMS(width / p->block_n, p->block_k == 0 ? 1 : width_of(x) / p->block_k);
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x}, *output = NULL;
    trm_weight *weights[2];
    assert_ok(trm_weight_random(packed ? TRM_U8 : TRM_I8, &dims, (uint64_t)below(self, 3), packed ? 127.5f : 0.0f,
                                packed ? 127.5f : 8.0f, &weights[0]));
    assert_ok(trm_weight_random(TRM_F32, &scales, (uint64_t)below(self, 3), 0.05f, 0.02f, &weights[1]));
    assert_ok(trm_network_add_weight(self->network, "q", weights[0], packed ? TRM_U8 : TRM_I8,
                                     &inputs[TRM_DEQUANT_MATMUL_WEIGHT]));
    assert_ok(trm_network_add_weight(self->network, "s", weights[1], TRM_F32, &inputs[TRM_DEQUANT_MATMUL_SCALE]));
    inputs[TRM_DEQUANT_MATMUL_BIAS] = bias;
    assert_ok(trm_network_add_layer(self->network, "qm", &desc, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, &output));
    return output;
}

static trm_tensor *random_linear(generator *self, trm_tensor *x)
{
    static const int64_t widths[] = {4, 8, 8, 8};
    int64_t width = widths[below(self, 4)];
    trm_tensor *bias = below(self, 3) == 0 ? constant(self, DIMS(width)) : NULL, *output = NULL;
    if (below(self, 4) == 0) {
        return quantized_linear(self, x, width, bias);
    }
    assert_ok(
        trm_network_add_matmul(self->network, "mm", x, constant(self, DIMS(width, width_of(x))), bias, true, &output));
    return output;
}

static void add_gated(generator *self, trm_tensor *x)
{
    trm_tensor *gate = random_linear(self, x), *up = random_linear(self, x);
    if (width_of(gate) != width_of(up)) {
        return;
    }
    trm_tensor *activated = random_activation(self, gate);
    if (below(self, 4) == 0) {
        keep(self, activated); /* a second reader */
    }
    keep(self, below(self, 2) == 0 ? net_binary(self->network, "mul", TRM_ELEMENTWISE_MUL, activated, up)
                                   : net_binary(self->network, "mul", TRM_ELEMENTWISE_MUL, up, activated));
}

static void add_residual(generator *self, trm_tensor *x)
{
    trm_tensor *sum = net_binary(self->network, "add", TRM_ELEMENTWISE_ADD, x, pick_like(self, x));
    trm_tensor *norm = net_norm(self->network, "norm", sum, constant(self, DIMS(width_of(x))));
    switch (below(self, 3)) {
    case 0:
        keep(self, norm);
        break;
    case 1:
        add_gated(self, norm);
        break;
    default:
        keep(self, random_linear(self, norm));
        break;
    }
    if (below(self, 2) == 0) {
        keep(self, sum);
    }
}

static void add_moved(generator *self, trm_tensor *x)
{
    trm_network *network = self->network;
    trm_tensor *moved = NULL;
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {-1, 0, 4, 1}};
    trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT, .concat = {-1}};
    switch (below(self, 3)) {
    case 0: /* there and back */
        assert_ok(trm_network_add_reshape(network, "r", x, DIMS(0, 2, -1), &moved));
        moved = net_layer(network, "soft", (trm_layer_desc){.kind = TRM_LAYER_SOFTMAX, .softmax = {-1}}, moved, NULL,
                          NULL, NULL);
        assert_ok(trm_network_add_reshape(network, "r", moved, DIMS(-1, width_of(x)), &moved));
        break;
    case 1:
        moved = net_layer(network, "slice", slice, x, NULL, NULL, NULL);
        break;
    default:
        moved = net_layer(network, "slice", slice, x, NULL, NULL, NULL);
        moved = net_layer(network, "concat", concat, moved, moved, NULL, NULL);
        break;
    }
    keep(self, moved);
}

/* Some rows of a tensor. An index may be out of range. Of several rows the sum is kept, so that all tensors are of one
 * row or of as many as the inputs. */
static void choose_from(generator *self, trm_tensor *rows)
{
    static const int64_t indices[] = {0, -1, 0, 2, -3, 1};
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER},
                         sum = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_SUM, 0, true}};
    trm_network *network = self->network;
    trm_tensor *by = NULL;
    if (below(self, 3) == 0) {
        const int64_t start = below(self, 4) - 3, step = 1 + below(self, 2);
        const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {0, start, INT64_MAX, step}};
        rows = net_layer(network, "rows", slice, rows, NULL, NULL, NULL);
    } else {
        const int64_t n = 1 + below(self, 3), first = below(self, 4);
        assert_ok(trm_network_add_constant(network, "i", TRM_I64, DIMS(n), &indices[first], &by));
        rows = net_layer(network, "rows", gather, rows, by, NULL, NULL);
    }
    keep(self, rows->dims.d[0] == 1 ? rows : net_layer(network, "sum", sum, rows, NULL, NULL, NULL));
}

/* Some rows of what is made row by row, mostly, or some and some others. */
static void add_choice(generator *self, trm_tensor *x)
{
    trm_network *network = self->network;
    trm_tensor *rows = random_linear(self, x);
    rows = below(self, 2) == 0 ? random_activation(self, rows) : random_linear(self, rows);
    if (width_of(rows) == width_of(x) && below(self, 2) == 0) {
        rows = net_binary(network, "add", TRM_ELEMENTWISE_ADD, rows, below(self, 2) == 0 ? x : pick_like(self, x));
    }
    if (below(self, 8) == 0) {
        keep(self, rows); /* others read them all */
    }
    int64_t n = below(self, 2) == 0 ? 1 : 1 + below(self, 3);
    for (int64_t i = 0; i < n; i++) {
        choose_from(self, rows);
    }
}

static void add_something(generator *self)
{
    trm_tensor *x = pick(self);
    switch (below(self, 9)) {
    case 0:
        keep(self, random_activation(self, x));
        break;
    case 1:
        keep(self, net_binary(self->network, "mul", TRM_ELEMENTWISE_MUL, x, random_activation(self, x)));
        break;
    case 2:
        keep(self, net_binary(self->network, "bin", (trm_elementwise_op)below(self, 3), x,
                              constant(self, DIMS(width_of(x)))));
        break;
    case 3:
        keep(self, random_activation(self, random_linear(self, x)));
        break;
    case 4:
        add_gated(self, x);
        break;
    case 5:
        add_residual(self, x);
        break;
    case 6:
        add_moved(self, x);
        break;
    case 7:
        add_choice(self, x);
        break;
    default:
        x = random_linear(self, x);
        keep(self, net_binary(self->network, "add", TRM_ELEMENTWISE_ADD, x, constant(self, DIMS(width_of(x)))));
        break;
    }
}

/* Adds a layer a second time, so that there is something in common. */
static void repeat_a_layer(generator *self)
{
    const trm_layer *layer = self->network->layers[below(self, self->network->n_layers)];
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    assert_ok(trm_network_add_layer(self->network, "again", &layer->desc, layer->inputs, layer->n_inputs, outputs));
    bool chooses = layer->desc.kind == TRM_LAYER_SLICE && layer->desc.slice.axis == 0; /* any number of rows */
    if (outputs[0]->dims.n == 2 && outputs[0]->dims.d[0] == -1 && !chooses) {
        keep(self, outputs[0]);
    }
}

static trm_network *random_network(uint64_t seed)
{
    generator self = {.network = net_create(), .random = seed};
    keep(&self, net_input(self.network, "x", TRM_F32, DIMS(-1, 8)));
    keep(&self, net_input(self.network, "y", TRM_F32, DIMS(below(&self, 2) == 0 ? -1 : MOST_ROWS, 8)));
    int64_t steps = 2 + below(&self, 12);
    for (int64_t i = 0; i < steps; i++) {
        add_something(&self);
        if (self.network->n_layers > 0 && below(&self, 4) == 0) {
            repeat_a_layer(&self);
        }
    }
    if (below(&self, 2) == 0) { /* a classifier of a row */
        add_choice(&self, pick(&self));
        net_output(self.network, self.pool[self.n - 1]);
    }
    int64_t n_outputs = 1 + below(&self, 3);
    for (int64_t i = 0; i < n_outputs; i++) {
        trm_tensor *tensor = pick(&self);
        if (!tensor->is_output) {
            net_output(self.network, tensor);
        }
    }
    return self.network;
}

/* Numbers may differ by rounding, measured against the largest of the output. */
static void compare_networks(const trm_network *before, const trm_network *after, const int64_t *sizes, uint64_t seed)
{
    test_interpreter *first = run_network(before, sizes, seed), *second = run_network(after, sizes, seed);
    for (int32_t i = 0; i < before->n_outputs; i++) {
        trm_dims dims;
        assert_string_equal(before->outputs[i]->name, after->outputs[i]->name);
        const float *expected = test_interpreter_output(first, before->outputs[i]->name, &dims);
        const float *found = test_interpreter_output(second, before->outputs[i]->name, NULL);
        float largest = 1e-3f;
        for (int64_t j = 0; j < trm_dims_count(&dims); j++) {
            largest = fmaxf(largest, fabsf(expected[j]));
        }
        for (int64_t j = 0; j < trm_dims_count(&dims); j++) {
            if (!(fabsf(found[j] - expected[j]) <= 1e-4f * largest)) {
                char *texts[] = {trm_network_to_text(before), trm_network_to_text(after)};
                print_error("TRM_TEST_SEED=%llu\nbefore\n%safter\n%s", (unsigned long long)seed, texts[0], texts[1]);
                fail_msg("%s[%lld] is %g, expected %g", before->outputs[i]->name, (long long)j, (double)found[j],
                         (double)expected[j]);
            }
        }
    }
    test_interpreter_destroy(first);
    test_interpreter_destroy(second);
}

/* What a rank's network goes through, as dist/plan/plan.c has it. */
static void run_rank_passes(trm_network *network, bool cuda)
{
    assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    if (cuda) {
        assert_ok(trm_pass_layouts(network, true, NULL));
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    }
    assert_ok(trm_pass_fuse_norm_products(network, &n_norms));
    assert_ok(trm_pass_fuse_elementwise(network, NULL));
}

static int32_t check_stage(const trm_network *network, trm_pass_stage stage, bool cuda, uint64_t seed)
{
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    if (stage == TRM_PASSES_AFTER_PARTITION) {
        run_rank_passes(changed, cuda);
    } else {
        assert_ok(trm_pass_dead_code(changed, NULL));
        assert_ok(trm_pass_select_rows(changed, &n_choices));
        assert_ok(trm_run_passes(changed, stage));
    }
    assert_consistent(changed);
    /* Inputs of one row broadcast to the other's: what looks the same before a run need not be. */
    static const int64_t sizes[][2] = {{MOST_ROWS, MOST_ROWS}, {1, MOST_ROWS}, {MOST_ROWS, 1}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        compare_networks(network, changed, sizes[i], seed);
    }
    int32_t fewer = network->n_layers - changed->n_layers;
    trm_network_destroy(changed);
    return fewer;
}

static void passes_keep_the_numbers_of_random_networks(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    int64_t fewer = 0;
    for (uint64_t i = 0; i < NETWORKS; i++) {
        trm_network *network = random_network(seed + i);
        fewer += check_stage(network, TRM_PASSES_BEFORE_PARTITION, false, seed + i);
        fewer += check_stage(network, TRM_PASSES_AFTER_PARTITION, false, seed + i);
        fewer += check_stage(network, TRM_PASSES_AFTER_PARTITION, true, seed + i);
        trm_network_destroy(network);
    }
    /* The networks give the passes something to do. */
    assert_true(fewer > NETWORKS && n_norms > NETWORKS / 8 && n_choices > NETWORKS / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_keep_the_numbers_of_random_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
