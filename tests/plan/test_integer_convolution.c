/*
 * ConvInteger and QLinearConv against plain loops over whole numbers, bit by bit: one to three dimensions, groups,
 * strides, dilations, pads, signed and unsigned numbers, zero points of all kinds, sums of every size up to where they
 * are still whole in f32 and beyond. On the host, or on CUDA.
 */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "support/onnx_message.h"
#include "support/world.h"

enum { MOST_X = 40000, MOST_W = 12000, MOST_Y = 40000, ONNX_U8 = 2, ONNX_I8 = 3, ONNX_I32 = 6, ONNX_F32 = 1 };

/* x [batch, groups * channels, in ...], w [groups * outputs, channels, kernel ...] */
typedef struct problem {
    int32_t n; /* spatial axes */
    int64_t batch, groups, channels, outputs;
    int64_t in[3], kernel[3], stride[3], dilation[3], before[3], after[3], out[3];
    bool x_signed, w_signed, extreme;      /* extreme: numbers at the ends of their range, zero points at the other */
    bool x_zero, w_zero, by_channel;       /* zero points that are there; one per output channel */
    bool bias, scale_by_channel, y_signed; /* of QLinearConv */
} problem;

/* Of the problem that is run. Elements as they lie in 8 bits. */
static uint8_t x[MOST_X], w[MOST_W], x_zero, w_zeros[256], y_zero;
static int32_t sums[MOST_Y], bias[256];
static float x_scale, w_scales[256], y_scale;

static int32_t number(uint8_t byte, bool is_signed)
{
    return is_signed ? (int8_t)byte : byte;
}

static int64_t product(const int64_t *sizes, int32_t n)
{
    int64_t all = 1;
    for (int32_t i = 0; i < n; i++) {
        all *= sizes[i];
    }
    return all;
}

/* ---- problems ------------------------------------------------------------------------------------------- */

static int64_t between(uint64_t *random, int64_t least, int64_t most)
{
    return least + test_random_below(random, most - least + 1);
}

static bool flips(uint64_t *random)
{
    return test_random(random) % 2 == 0;
}

/* Output sizes; false if there is none, or it is too large. */
static bool size_output(problem *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const int64_t room = p->in[i] + p->before[i] + p->after[i] - p->dilation[i] * (p->kernel[i] - 1) - 1;
        if (room < 0) {
            return false;
        }
        p->out[i] = room / p->stride[i] + 1;
    }
    return p->batch * p->groups * p->channels * product(p->in, p->n) <= MOST_X &&
           p->groups * p->outputs * p->channels * product(p->kernel, p->n) <= MOST_W && p->groups * p->outputs <= 256 &&
           p->batch * p->groups * p->outputs * product(p->out, p->n) <= MOST_Y;
}

static problem random_problem(uint64_t *random)
{
    problem p;
    do {
        p = (problem){.n = (int32_t)between(random, 1, 3), .batch = between(random, 1, 2)};
        p.groups = flips(random) ? 1 : between(random, 2, 9);
        p.channels = p.groups > 1 && flips(random) ? 1 : between(random, 1, p.groups > 1 ? 5 : 40);
        p.outputs = between(random, 1, p.groups > 1 ? 4 : 40);
        for (int32_t i = 0; i < p.n; i++) {
            p.in[i] = between(random, 1, p.n == 1 ? 60 : p.n == 2 ? 19 : 9);
            p.kernel[i] = between(random, 1, p.n == 1 ? 9 : 5);
            p.stride[i] = between(random, 1, 3);
            p.dilation[i] = flips(random) ? 1 : between(random, 2, 3);
            p.before[i] = between(random, 0, p.kernel[i]);
            p.after[i] = between(random, 0, p.kernel[i]);
        }
        p.x_signed = flips(random);
        p.w_signed = flips(random);
        p.x_zero = flips(random);
        p.w_zero = flips(random);
        p.by_channel = flips(random);
        p.extreme = test_random(random) % 4 == 0;
        p.bias = flips(random);
        p.scale_by_channel = flips(random);
        p.y_signed = flips(random);
    } while (!size_output(&p));
    return p;
}

static uint8_t random_byte(uint64_t *random, bool is_signed, bool extreme)
{
    const uint8_t highest = is_signed ? 127 : 255, lowest = is_signed ? 128 : 0;
    return !extreme ? (uint8_t)test_random(random) : test_random(random) % 64 == 0 ? lowest : highest;
}

static void fill(const problem *p, uint64_t *random)
{
    const int64_t n_x = p->batch * p->groups * p->channels * product(p->in, p->n);
    const int64_t n_w = p->groups * p->outputs * p->channels * product(p->kernel, p->n);
    for (int64_t i = 0; i < n_x; i++) {
        x[i] = random_byte(random, p->x_signed, p->extreme);
    }
    for (int64_t i = 0; i < n_w; i++) {
        w[i] = random_byte(random, p->w_signed, p->extreme);
    }
    x_zero = !p->x_zero ? 0 : p->extreme ? (p->x_signed ? 128 : 0) : (uint8_t)test_random(random);
    y_zero = (uint8_t)test_random(random);
    for (int64_t i = 0; i < p->groups * p->outputs; i++) {
        const uint8_t zero = p->extreme ? (p->w_signed ? 128 : 0) : (uint8_t)test_random(random);
        w_zeros[i] = !p->w_zero ? 0 : i == 0 || p->by_channel ? zero : w_zeros[0];
        bias[i] = p->bias ? (int32_t)between(random, -20000, 20000) : 0;
        w_scales[i] =
            i == 0 || p->scale_by_channel ? 0.001f + (float)(test_random(random) % 1000) * 1e-5f : w_scales[0];
    }
    x_scale = 0.01f + (float)(test_random(random) % 1000) * 1e-4f;
    y_scale = 0.05f + (float)(test_random(random) % 1000) * 1e-2f;
}

/* Fills `sums`; the largest that any order of additions may meet. */
static int64_t convolve(const problem *p)
{
    const int64_t inside = product(p->in, p->n), outside = product(p->out, p->n), taps = product(p->kernel, p->n);
    int64_t at = 0, largest = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t m = 0; m < p->groups * p->outputs; m++) {
            for (int64_t o = 0; o < outside; o++) {
                int64_t sum = 0, all = 0;
                for (int64_t c = 0; c < p->channels; c++) {
                    const uint8_t *from = x + (b * p->groups * p->channels + m / p->outputs * p->channels + c) * inside;
                    const uint8_t *weight = w + (m * p->channels + c) * taps;
                    for (int64_t t = 0; t < taps; t++) {
                        int64_t place = 0, step = 1, rest_o = o, rest_t = t;
                        bool is_inside = true;
                        for (int32_t i = p->n - 1; i >= 0; i--) {
                            const int64_t k = rest_o % p->out[i] * p->stride[i] - p->before[i] +
                                              rest_t % p->kernel[i] * p->dilation[i];
                            is_inside = is_inside && k >= 0 && k < p->in[i];
                            place += k * step;
                            step *= p->in[i];
                            rest_o /= p->out[i];
                            rest_t /= p->kernel[i];
                        }
                        if (is_inside) {
                            const int64_t one =
                                (int64_t)(number(from[place], p->x_signed) - number(x_zero, p->x_signed)) *
                                (number(weight[t], p->w_signed) - number(w_zeros[m], p->w_signed));
                            sum += one;
                            all += one < 0 ? -one : one;
                        }
                    }
                }
                sums[at++] = (int32_t)sum;
                largest = all > largest ? all : largest;
            }
        }
    }
    return largest;
}

/* ---- models --------------------------------------------------------------------------------------------- */

static void put_list(message *node, const char *name, const int64_t *first, const int64_t *second, int32_t n)
{
    message attribute = {0};
    put_text(&attribute, 1, name);
    for (int32_t i = 0; i < n; i++) {
        put_number(&attribute, 8, (uint64_t)first[i]);
    }
    for (int32_t i = 0; second != NULL && i < n; i++) {
        put_number(&attribute, 8, (uint64_t)second[i]);
    }
    put_number(&attribute, 20, 7);
    put_message(node, 5, &attribute);
}

static message operator_node(const problem *p, const char *text, const char *type)
{
    message made = {0}, groups = attribute("group", p->groups, NULL);
    char copy[128], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *name = strtok_r(rest, " ", &rest); name != NULL; name = strtok_r(rest, " ", &rest)) {
        put_text(&made, 1, strcmp(name, "-") == 0 ? "" : name);
    }
    put_text(&made, 2, "y");
    put_text(&made, 4, type);
    put_message(&made, 5, &groups);
    put_list(&made, "strides", p->stride, NULL, p->n);
    put_list(&made, "dilations", p->dilation, NULL, p->n);
    put_list(&made, "pads", p->before, p->after, p->n);
    return made;
}

static int type_of(bool is_signed)
{
    return is_signed ? ONNX_I8 : ONNX_U8;
}

/* Weights and parameters are constants; `quantized`: QLinearConv. */
static trm_plan *build(const problem *p, bool quantized)
{
    static char path[512];
    message graph = {0}, made;
    char inputs[128];
    const int64_t m = p->groups * p->outputs, one = 1;
    int64_t x_dims[5] = {p->batch, p->groups * p->channels}, w_dims[5] = {m, p->channels}, y_dims[5] = {p->batch, m};
    trm_onnx *model;
    trm_network *network;
    trm_plan *plan;
    memcpy(x_dims + 2, p->in, (size_t)p->n * sizeof(int64_t));
    memcpy(w_dims + 2, p->kernel, (size_t)p->n * sizeof(int64_t));
    memcpy(y_dims + 2, p->out, (size_t)p->n * sizeof(int64_t));
    const int64_t n_zeros = p->by_channel ? m : 1, n_scales = p->scale_by_channel ? m : 1;
    if (quantized) {
        snprintf(inputs, sizeof(inputs), "x xs xz w ws wz ys yz%s", p->bias ? " b" : "");
        made = operator_node(p, inputs, "QLinearConv");
        put_weight(&graph, "xs", ONNX_F32, 0, NULL, &x_scale, sizeof(x_scale));
        put_weight(&graph, "ws", ONNX_F32, n_scales > 1, &n_scales, w_scales, (size_t)n_scales * sizeof(float));
        put_weight(&graph, "ys", ONNX_F32, 1, &one, &y_scale, sizeof(y_scale));
        put_weight(&graph, "yz", type_of(p->y_signed), 0, NULL, &y_zero, 1);
        if (p->bias) {
            put_weight(&graph, "b", ONNX_I32, 1, &m, bias, (size_t)m * sizeof(int32_t));
        }
    } else {
        snprintf(inputs, sizeof(inputs), "x w %s %s", p->x_zero ? "xz" : "-", p->w_zero ? "wz" : "-");
        made = operator_node(p, inputs, "ConvInteger");
    }
    put_message(&graph, 1, &made);
    put_weight(&graph, "xz", type_of(p->x_signed), 0, NULL, &x_zero, 1);
    put_weight(&graph, "wz", type_of(p->w_signed), p->by_channel, &n_zeros, w_zeros, (size_t)n_zeros);
    put_weight(&graph, "w", type_of(p->w_signed), p->n + 2, w_dims, w,
               (size_t)(m * p->channels * product(p->kernel, p->n)));
    put_graph(&graph, 11, port("x", type_of(p->x_signed), p->n + 2, x_dims));
    put_graph(&graph, 12, port("y", quantized ? type_of(p->y_signed) : ONNX_I32, p->n + 2, y_dims));
    const message file = model_of(&graph);
    if (path[0] == '\0') {
        snprintf(path, sizeof(path), "%s/convolution.onnx", test_temporary_folder());
    }
    test_write_file(path, file.bytes, file.size);
    assert_ok(trm_onnx_open(path, &model));
    assert_ok(trm_onnx_build_network(model, NULL, &network));
    trm_onnx_close(model);
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return plan;
}

static const char *describe(const problem *p)
{
    static char text[512];
    int used =
        snprintf(text, sizeof(text),
                 "x %s w %s zero points %d %d%s, %lld groups of %lld -> %lld channels%s:", p->x_signed ? "i8" : "u8",
                 p->w_signed ? "i8" : "u8", p->x_zero, p->w_zero, p->by_channel ? " by channel" : "",
                 (long long)p->groups, (long long)p->channels, (long long)p->outputs, p->extreme ? ", extreme" : "");
    for (int32_t i = 0; i < p->n; i++) {
        used += snprintf(text + used, sizeof(text) - (size_t)used,
                         " in %lld kernel %lld stride %lld dilation %lld pads %lld %lld;", (long long)p->in[i],
                         (long long)p->kernel[i], (long long)p->stride[i], (long long)p->dilation[i],
                         (long long)p->before[i], (long long)p->after[i]);
    }
    return text;
}

/* What QLinearConv makes of a sum. */
static uint8_t quantized_sum(const problem *p, int64_t channel, int32_t sum)
{
    const double scale = (double)x_scale * (double)w_scales[channel];
    const float real = (float)(((double)sum + (double)bias[channel]) * scale);
    const float whole = rintf(real / y_scale) + (float)number(y_zero, p->y_signed);
    const float low = p->y_signed ? -128.0f : 0.0f, high = low + 255.0f;
    const float kept = whole < low ? low : whole > high ? high : whole;
    return (uint8_t)(int32_t)kept;
}

/* tunes: with the engines that timing finds best, which must be exact, too. */
static void check(const problem *p, bool quantized, bool tunes)
{
    trm_engine *engine;
    trm_context *context = test_open_context(build(p, quantized), &engine);
    const int64_t m = p->groups * p->outputs, outside = product(p->out, p->n), count = p->batch * m * outside;
    trm_dims dims = {p->n + 2, {p->batch, p->groups * p->channels}}, out;
    const void *data;
    memcpy(dims.d + 2, p->in, (size_t)p->n * sizeof(int64_t));
    assert_ok(trm_context_set_input(context, "x", dims, x));
    assert_ok(tunes ? trm_context_tune(context, NULL) : TRM_OK);
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &out, &data));
    assert_int_equal(trm_dims_count(&out), count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t channel = i / outside % m;
        const int32_t expected = quantized ? number(quantized_sum(p, channel, sums[i]), p->y_signed) : sums[i];
        const int32_t found = quantized ? number(((const uint8_t *)data)[i], p->y_signed) : ((const int32_t *)data)[i];
        if (found != expected) {
            fail_msg("%s %s element %lld is %d, expected %d", quantized ? "QLinearConv" : "ConvInteger", describe(p),
                     (long long)i, (int)found, (int)expected);
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static void random_problems(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    const int32_t count = test_is_brief() ? 12 : 120;
    for (int32_t i = 0; i < count; i++) {
        problem p = random_problem(&random);
        fill(&p, &random);
        const int64_t largest = convolve(&p);
        check(&p, false, i % 20 == 0);
        if (largest < 1 << 24) { /* else sums in f32 are not whole: ConvInteger's are */
            check(&p, true, i % 20 == 0);
        }
    }
}

/* Shapes of networks, for which libraries have engines that transform: 3 x 3 and 5 x 5 of stride 1. */
static void shapes_of_networks(void **state)
{
    (void)state;
    static const problem shapes[] = {
        {.n = 2, .channels = 32, .outputs = 32, .in = {17, 16}, .kernel = {3, 3}, .before = {1, 1}, .after = {1, 1}},
        {.n = 2, .channels = 16, .outputs = 24, .in = {14, 15}, .kernel = {5, 5}, .before = {2, 2}, .after = {2, 2}},
        {.n = 2, .channels = 3, .outputs = 32, .in = {33, 31}, .kernel = {7, 7}, .before = {3, 3}, .after = {3, 3}},
        {.n = 2, .channels = 48, .outputs = 24, .in = {12, 13}, .kernel = {3, 3}, .before = {1, 1}, .after = {1, 1}},
        {.n = 2, .channels = 128, .outputs = 64, .in = {7, 7}, .kernel = {1, 1}},
        {.n = 1, .channels = 64, .outputs = 32, .in = {50}, .kernel = {3}, .before = {1}, .after = {1}},
        {.n = 3,
         .channels = 8,
         .outputs = 16,
         .in = {8, 9, 7},
         .kernel = {3, 3, 3},
         .before = {1, 1, 1},
         .after = {1, 1, 1}},
    };
    uint64_t random = test_seed();
    int32_t beyond = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int32_t kind = 0; kind < (test_is_brief() ? 1 : 4); kind++) {
            problem p = shapes[i];
            p.batch = p.groups = 1;
            for (int32_t k = 0; k < 3; k++) {
                p.stride[k] = p.dilation[k] = 1;
            }
            p.x_zero = p.w_zero = true;
            p.x_signed = kind % 2 == 1;
            p.w_signed = kind < 2;
            p.by_channel = p.scale_by_channel = p.bias = kind > 1;
            p.extreme = kind % 2 == 0;
            assert_true(size_output(&p));
            fill(&p, &random);
            const int64_t largest = convolve(&p);
            check(&p, false, kind > 1);
            if (largest < 1 << 24) {
                check(&p, true, kind > 1);
            }
            beyond += largest >= 1 << 24;
        }
    }
    assert_true(beyond > 0);
}

/* More products than two parts in f32 bear: 4113 of 255 times 255. */
static void sums_of_many_products(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    problem p = {.n = 1, .batch = 1, .groups = 1, .channels = 4113, .outputs = 2, .extreme = true};
    p.in[0] = 3;
    p.kernel[0] = p.stride[0] = p.dilation[0] = 1;
    for (p.channels = 4112; p.channels <= 4113; p.channels++) {
        assert_true(size_output(&p));
        fill(&p, &random);
        memset(x, 255, sizeof(x));
        memset(w, 255, sizeof(w));
        assert_true(convolve(&p) == p.channels * 255 * 255);
        check(&p, false, false);
    }
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems),
        cmocka_unit_test(shapes_of_networks),
        cmocka_unit_test(sums_of_many_products),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
