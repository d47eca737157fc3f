/*
 * Products and convolutions between DEQUANTIZE and QUANTIZE: the network before and after, and the numbers of both.
 * Scales are powers of two, so that nothing is rounded but to i8.
 */
#include "graph/check_pass.h"

#define RELU TRM_ACTIVATION_RELU

static trm_tensor *scalar(trm_network *network, const char *name, float value)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_F32, (trm_dims){.n = 0}, &value, &tensor));
    return tensor;
}

static trm_tensor *bytes(trm_network *network, const char *name, trm_dims dims, int8_t first)
{
    int8_t values[8192];
    trm_tensor *tensor = NULL;
    const int64_t count = trm_dims_count(&dims);
    assert_in_range(count, 0, 8192);
    for (int64_t i = 0; i < count; i++) {
        values[i] = (int8_t)(first == 0 ? 0 : first + (i * 7) % 13);
    }
    assert_ok(trm_network_add_constant(network, name, TRM_I8, dims, values, &tensor));
    return tensor;
}

static trm_tensor *quantize(trm_network *network, const char *name, trm_tensor *x, trm_tensor *scale, trm_tensor *zero)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_QUANTIZE, .quantize = {.to = TRM_I8}};
    return net_layer(network, name, desc, x, scale, zero, NULL);
}

static trm_tensor *dequantize(trm_network *network, const char *name, trm_tensor *x, trm_tensor *scale,
                              trm_tensor *zero, int32_t axis)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANTIZE, .quantize = {.axis = axis, .to = TRM_F32}};
    return net_layer(network, name, desc, x, scale, zero, NULL);
}

/* quantize, dequantize */
static trm_tensor *pair(trm_network *network, const char *name, trm_tensor *x, float scale)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.scale", name);
    trm_tensor *by = scalar(network, text, scale);
    snprintf(text, sizeof(text), "%s.numbers", name);
    return dequantize(network, name, quantize(network, text, x, by, NULL), by, NULL, 0);
}

static trm_tensor *powers(trm_network *network, const char *name, int64_t n)
{
    float values[64];
    trm_tensor *tensor = NULL;
    for (int64_t i = 0; i < n; i++) {
        values[i] = i % 2 == 0 ? 0.125f : 0.0625f;
    }
    assert_ok(trm_network_add_constant(network, name, TRM_F32, DIMS(n), values, &tensor));
    return tensor;
}

static trm_tensor *convolution(trm_network *network, const char *name, trm_tensor *x, int64_t outputs, int64_t channels,
                               int64_t kernel, trm_tensor *bias)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.w", name);
    trm_tensor *numbers = bytes(network, text, DIMS(outputs, channels, kernel, kernel), -6);
    snprintf(text, sizeof(text), "%s.w.scale", name);
    trm_tensor *scale = powers(network, text, outputs);
    snprintf(text, sizeof(text), "%s.w.floats", name);
    trm_tensor *w = dequantize(network, text, numbers, scale, bytes(network, "zeros", DIMS(outputs), 0), 0);
    const int32_t pad = (int32_t)kernel / 2;
    const trm_layer_desc desc = {
        .kind = TRM_LAYER_CONVOLUTION,
        .convolution = {
            .groups = 1, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .before = {pad, pad}, .after = {pad, pad}}};
    return net_layer(network, name, desc, x, w, bias, NULL);
}

static void a_product_takes_what_follows(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = pair(network, "x.in", net_input(network, "x", TRM_F32, DIMS(-1, 32)), 0.03125f);
    trm_tensor *w = dequantize(network, "w.floats", bytes(network, "w", DIMS(32, 3), -6), powers(network, "w.scale", 3),
                               bytes(network, "zeros", DIMS(3), 0), 1);
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL};
    trm_tensor *y = net_layer(network, "y", product, x, w, net_values(network, "b", DIMS(3)), NULL);
    y = pair(network, "z", net_unary(network, "positive", RELU, y), 0.25f);
    net_output(network, y);
    check_pass(network, trm_pass_fuse_int8,
               "x.in.numbers: i8 [?, 32] = quantize(x, x.in.scale) axis=0 to=i8\n"
               "w.1: i8 [3, 32] = transpose(w) perm=[1, 0]\n"
               "z.numbers.scale.1: f32 [3] = elementwise(w.scale, z.numbers.scale) op=mul\n"
               "z.numbers: i8 [?, 3] = int8_product(x.in.numbers, w.1, z.numbers.scale.1, b) activation=relu "
               "out_scale=0.25 out=i8\n"
               "z: f32 [?, 3] = dequantize(z.numbers, z.scale) axis=0 to=f32\n"
               "output z\n");
}

/* A block of a network for images: what is rounded before a sum, a sum with numbers, and the largest of numbers. */
static void convolutions_take_sums_and_pools_move(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = pair(network, "x.in", net_input(network, "x", TRM_F32, DIMS(2, 16, 4, 5)), 0.03125f);
    trm_tensor *a = convolution(network, "a", x, 16, 16, 3, net_values(network, "b", DIMS(16)));
    a = net_binary(network, "sum", TRM_ELEMENTWISE_ADD, pair(network, "rounded", a, 0.125f), x);
    a = pair(network, "a.out", net_unary(network, "positive", RELU, a), 0.25f);
    const trm_layer_desc pool = {
        .kind = TRM_LAYER_POOL,
        .pool = {.op = TRM_POOL_MAX, .kernel = {2, 2, 1}, .stride = {2, 2, 1}, .dilation = {1, 1, 1}}};
    a = pair(network, "pooled", net_layer(network, "pool", pool, a, NULL, NULL, NULL), 0.25f);
    net_output(network, convolution(network, "y", a, 4, 16, 1, NULL));
    check_pass(network, trm_pass_fuse_int8,
               "x.in.numbers: i8 [2, 16, 4, 5] = quantize(x, x.in.scale) axis=0 to=i8\n"
               "x.in.numbers.1: i8 [2, 4, 5, 16] = transpose(x.in.numbers) perm=[0, 2, 3, 1]\n"
               "a.w.1: i8 [16, 3, 3, 16] = transpose(a.w) perm=[0, 2, 3, 1]\n"
               "a.out.numbers.scale.1: f32 [16] = elementwise(a.w.scale, a.out.numbers.scale) op=mul\n"
               "x.in.numbers.2: i8 [2, 4, 5, 16] = transpose(x.in.numbers) perm=[0, 2, 3, 1]\n"
               "a.out.numbers.1: i8 [2, 4, 5, 16] = int8_product(x.in.numbers.1, a.w.1, a.out.numbers.scale.1, b, "
               "x.in.numbers.2) before=[1, 1, 0] after=[1, 1, 0] activation=relu product_scale=0.125 "
               "residual_scale=0.03125 out_scale=0.25 out=i8\n"
               "a.out.numbers: i8 [2, 16, 4, 5] = transpose(a.out.numbers.1) perm=[0, 3, 1, 2]\n"
               "pool.1: i8 [2, 16, 2, 2] = pool(a.out.numbers) op=max kernel=[2, 2, 1] stride=[2, 2, 1]\n"
               "pool.1.1: i8 [2, 2, 2, 16] = transpose(pool.1) perm=[0, 2, 3, 1]\n"
               "y.w.1: i8 [4, 1, 1, 16] = transpose(y.w) perm=[0, 2, 3, 1]\n"
               "y.scale.1: f32 [4] = elementwise(y.w.scale, y.scale) op=mul\n"
               "y.1: f32 [2, 2, 2, 4] = int8_product(pool.1.1, y.w.1, y.scale.1) out=f32\n"
               "y: f32 [2, 4, 2, 2] = transpose(y.1) perm=[0, 3, 1, 2]\n"
               "output y\n");
}

/* As onnxruntime's quantizer leaves it: rounded before the activation, too. */
static void an_activation_moves_before_rounding(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = pair(network, "x.in", net_input(network, "x", TRM_F32, DIMS(3, 32)), 0.03125f);
    trm_tensor *w =
        dequantize(network, "w.floats", bytes(network, "w", DIMS(4, 32), -6), powers(network, "w.scale", 4), NULL, 0);
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_tensor *y = pair(network, "y", net_layer(network, "product", product, x, w, NULL, NULL), 0.25f);
    net_output(network, pair(network, "z", net_unary(network, "positive", RELU, y), 0.25f));
    check_pass(network, trm_pass_fuse_int8,
               "x.in.numbers: i8 [3, 32] = quantize(x, x.in.scale) axis=0 to=i8\n"
               "y.numbers.1.scale.1: f32 [4] = elementwise(w.scale, y.numbers.1.scale) op=mul\n"
               "y.numbers.1: i8 [3, 4] = int8_product(x.in.numbers, w, y.numbers.1.scale.1) activation=relu "
               "out_scale=0.25 out=i8\n"
               "z: f32 [3, 4] = dequantize(y.numbers.1, z.scale) axis=0 to=f32\n"
               "output z\n");
}

static void numbers_are_made_before_a_pool(void **state)
{
    (void)state;
    trm_network *network = net_create();
    const trm_layer_desc pool = {
        .kind = TRM_LAYER_POOL,
        .pool = {.op = TRM_POOL_MAX, .kernel = {2, 2, 1}, .stride = {2, 2, 1}, .dilation = {1, 1, 1}, .before = {1}}};
    trm_tensor *x = net_unary(network, "silu", TRM_ACTIVATION_SILU, net_input(network, "x", TRM_F32, DIMS(2, 3, 5, 4)));
    net_output(network, pair(network, "y", net_layer(network, "pool", pool, x, NULL, NULL, NULL), 0.25f));
    check_pass(network, trm_pass_fuse_int8,
               "silu: f32 [2, 3, 5, 4] = unary(x) op=activation activation=silu\n"
               "y.numbers.1: i8 [2, 3, 5, 4] = quantize(silu, y.scale) axis=0 to=i8\n"
               "y.numbers: i8 [2, 3, 3, 2] = pool(y.numbers.1) op=max kernel=[2, 2, 1] stride=[2, 2, 1] "
               "before=[1, 0, 0]\n"
               "y: f32 [2, 3, 3, 2] = dequantize(y.numbers, y.scale) axis=0 to=f32\n"
               "output y\n");
}

/* As q, k and v of a norm have it: numbers are made with the norm, and three products are one. */
static void a_norm_quantizes_and_products_join(void **state)
{
    (void)state;
    trm_network *network = net_create();
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.op = TRM_NORM_RMS}};
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 32));
    trm_tensor *normed = net_layer(network, "norm", norm, x, net_values(network, "g", DIMS(32)), NULL, NULL);
    trm_tensor *floats = pair(network, "in", normed, 0.03125f);
    for (int32_t i = 0; i < 2; i++) {
        trm_tensor *w = dequantize(network, i == 0 ? "w0.floats" : "w1.floats",
                                   bytes(network, i == 0 ? "w0" : "w1", DIMS(32, 32), (int8_t)(-6 + i)),
                                   powers(network, i == 0 ? "s0" : "s1", 32), NULL, 0);
        net_output(network, net_layer(network, i == 0 ? "y0" : "y1", product, floats, w,
                                      net_values(network, i == 0 ? "b0" : "b1", DIMS(32)), NULL));
    }
    net_output(network, normed);
    check_pass(network, trm_pass_fuse_int8,
               "norm: f32 [?, 32], in.numbers: i8 [?, 32] = norm_quantize(x, g) op=rms eps=0 scale=0.03125\n"
               "y0.scale.1: f32 [32] = elementwise(s0, y0.scale) op=mul\n"
               "w0.1: i8 [64, 32] = concat(w0, w1) axis=0\n"
               "y1.scale.1: f32 [32] = elementwise(s1, y1.scale) op=mul\n"
               "y0.scale.1.1: f32 [64] = concat(y0.scale.1, y1.scale.1) axis=0\n"
               "b0.1: f32 [64] = concat(b0, b1) axis=0\n"
               "y0.1: f32 [2, ?, 32] = int8_product(in.numbers, w0.1, y0.scale.1.1, b0.1) out=f32 parts=2\n"
               "y0.2: f32 [1, ?, 32] = slice(y0.1) axis=0 end=1\n"
               "y0: f32 [?, 32] = reshape(y0.2) dims=[-1, 32] zero_is_zero\n"
               "y1.1: f32 [1, ?, 32] = slice(y0.1) axis=0 start=1 end=2\n"
               "y1: f32 [?, 32] = reshape(y1.1) dims=[-1, 32] zero_is_zero\n"
               "output y0\n"
               "output y1\n"
               "output norm\n");
}

static void attention_quantizes(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 5, 3, 8));
    const trm_layer_desc attention = {.kind = TRM_LAYER_ATTENTION,
                                      .attention = {.form = TRM_ATTENTION_PADDED_BNHD, .n_ranks = 1}};
    const trm_layer_desc flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {3, {2, 5, 24}}}};
    trm_tensor *y = net_layer(network, "heads", attention, x, x, x, NULL);
    net_output(network, pair(network, "y", net_layer(network, "rows", flat, y, NULL, NULL, NULL), 0.25f));
    check_pass(network, trm_pass_quantize_attention,
               "heads.1: i8 [2, 5, 3, 8] = attention_quantize(x, x, x, -, -, -, -, -, -, -, y.scale) form=padded_bnhd "
               "n_ranks=1\n"
               "y.numbers: i8 [2, 5, 24] = reshape(heads.1) dims=[2, 5, 24]\n"
               "y: f32 [2, 5, 24] = dequantize(y.numbers, y.scale) axis=0 to=f32\n"
               "output y\n");
}

/* What stays: a zero point, scales along what is summed, sizes that kernels do not take. */
static void others_stay(void **state)
{
    (void)state;
    for (int32_t what = 0; what < 3; what++) {
        trm_network *network = net_create();
        const int64_t k = what == 2 ? 24 : 32;
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3, k)), *scale = scalar(network, "scale", 0.25f);
        trm_tensor *zero = bytes(network, "zero", (trm_dims){.n = 0}, what == 0 ? 3 : 0);
        x = dequantize(network, "x.floats", quantize(network, "x.numbers", x, scale, zero), scale, zero, 0);
        trm_tensor *w = dequantize(network, "w.floats", bytes(network, "w", DIMS(k, k), -6),
                                   powers(network, "w.scale", k), NULL, what == 1 ? 0 : 1);
        const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL};
        net_output(network, net_layer(network, "y", product, x, w, NULL, NULL));
        check_pass(network, trm_pass_fuse_int8, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_takes_what_follows),
        cmocka_unit_test(convolutions_take_sums_and_pools_move),
        cmocka_unit_test(an_activation_moves_before_rounding),
        cmocka_unit_test(numbers_are_made_before_a_pool),
        cmocka_unit_test(a_norm_quantizes_and_products_join),
        cmocka_unit_test(attention_quantizes),
        cmocka_unit_test(others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
