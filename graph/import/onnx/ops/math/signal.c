/* Signals: transforms, windows, filters; and random numbers. */
#include "graph/import/onnx/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- transforms ---------------------------------------------------------------------------------- */

static trm_tensor *transform(trm_onnx_node *node, trm_tensor *x, trm_fourier_params params)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_FOURIER, .fourier = params};
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

/* The axis is an attribute before opset 20, an input after. */
static void import_dft(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const int64_t axis = node->opset < 20 ? trm_onnx_int(node, "axis", 1) : trm_onnx_input_int(node, 2, -2);
    trm_fourier_params params = {.axis = trm_onnx_axis(node, axis, x->dims.n)};
    params.inverse = trm_onnx_flag(node, "inverse", false);
    params.onesided = trm_onnx_flag(node, "onesided", false);
    params.length = trm_onnx_input_int(node, 1, 0);
    if (node->inputs[1] != NULL && params.length < 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "dft_length is %lld, expected at least 1",
                      (long long)params.length);
    }
    trm_onnx_set(node, 0, transform(node, x, params));
}

/* Frames of the signal [batch, length, parts], gathered into [batch, frames, frame_length, parts], by the window, and
 * transformed. */
static void import_stft(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *window = node->inputs[2];
    if (x->dims.n == 2) { /* older files have no last axis */
        const int32_t last = 2;
        x = trm_onnx_unsqueeze(node, x, &last, 1);
    }
    const int64_t step = trm_onnx_input_int(node, 1, 1);
    const int64_t normal = window != NULL && window->dims.n == 1 ? window->dims.d[0] : x->dims.d[1];
    const int64_t length = trm_onnx_input_int(node, 3, normal);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (x->dims.n != 3 || step < 1 || length < 1) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "signal of %d dimensions, frame_step %lld and frame_length %lld, expected 3 and known numbers of "
                      "at least 1",
                      (int)x->dims.n, (long long)step, (long long)length);
        return;
    }
    /* Starts of frames: 0, step, ... up to the signal's length - frame_length. */
    const trm_onnx_dim one = trm_onnx_dim_known(1);
    trm_onnx_dim frames =
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, trm_onnx_dim_of(node, x, 1), trm_onnx_dim_known(length));
    frames = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, frames, trm_onnx_dim_known(step));
    frames = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, frames, one);
    const int32_t first = 0, second = 1;
    trm_tensor *count = trm_onnx_squeeze(node, trm_onnx_shape(node, &frames, 1), &first, 1);
    const trm_layer_desc range = {.kind = TRM_LAYER_RANGE};
    trm_tensor *starts = trm_onnx_add(node, &range, trm_onnx_i64(node, 0), count, trm_onnx_i64(node, 1), NULL);
    starts = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, starts, (double)step);
    trm_tensor *inside =
        trm_onnx_add(node, &range, trm_onnx_i64(node, 0), trm_onnx_i64(node, length), trm_onnx_i64(node, 1), NULL);
    trm_tensor *places = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_unsqueeze(node, starts, &second, 1),
                                              trm_onnx_unsqueeze(node, inside, &first, 1));
    trm_tensor *y = trm_onnx_gather(node, x, places, 1);
    if (window != NULL) {
        y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, y, trm_onnx_unsqueeze(node, window, &second, 1));
    }
    const trm_fourier_params params = {.axis = 2, .onesided = trm_onnx_flag(node, "onesided", true)};
    trm_onnx_set(node, 0, transform(node, y, params));
}

/* ---- windows and filters -------------------------------------------------------------------------- */

/* a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n), n the size, or one less of a symmetric window. */
typedef enum window_form { HANN, HAMMING, BLACKMAN } window_form;

static void import_window(trm_onnx_node *node)
{
    static const double terms[][3] = {
        [HANN] = {0.5, 0.5, 0.0}, [HAMMING] = {25.0 / 46.0, 21.0 / 46.0, 0.0}, [BLACKMAN] = {0.42, 0.5, 0.08}};
    const double *a = terms[node->row->data];
    const trm_dtype to = trm_onnx_type(node, "output_datatype", TRM_F32);
    trm_tensor *size = node->inputs[0];
    if (size->dims.n == 1) {
        const int32_t first = 0;
        size = trm_onnx_squeeze(node, size, &first, 1);
    }
    const trm_layer_desc range = {.kind = TRM_LAYER_RANGE};
    trm_tensor *i = trm_onnx_add(node, &range, trm_onnx_scalar(node, size->dtype, 0.0), size,
                                 trm_onnx_scalar(node, size->dtype, 1.0), NULL);
    size = trm_onnx_cast(node, size, TRM_F64);
    trm_tensor *n = trm_onnx_flag(node, "periodic", true)
                        ? size
                        : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_SUB, size, 1.0);
    trm_tensor *turn =
        trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, i, TRM_F64), 2.0 * acos(-1.0));
    turn = trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, turn, n);
    trm_tensor *y =
        trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, trm_onnx_unary(node, TRM_UNARY_COS, turn), -a[1]);
    y = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, y, a[0]);
    if (a[2] != 0.0) {
        trm_tensor *twice = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, turn, 2.0);
        twice = trm_onnx_unary(node, TRM_UNARY_COS, twice);
        twice = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, twice, a[2]);
        y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, twice);
    }
    trm_onnx_set(node, 0, trm_onnx_cast(node, y, to));
}

/* Triangles from the bin of one mel frequency over the next one's to that of the one after. */
static void fill_triangle(double *weights, int64_t bins, int64_t columns, int64_t column, const int64_t *edges)
{
    const int64_t low = edges[0], centre = edges[1], high = edges[2];
    for (int64_t j = low; j <= centre && j < bins; j++) {
        weights[j * columns + column] = centre == low ? 1.0 : (double)(j - low) / (double)(centre - low);
    }
    for (int64_t j = centre; high > centre && j < high && j < bins; j++) {
        weights[j * columns + column] = (double)(high - j) / (double)(high - centre);
    }
}

static void import_mel_weights(trm_onnx_node *node)
{
    const int64_t mels = trm_onnx_input_int(node, 0, 0), length = trm_onnx_input_int(node, 1, 0);
    const int64_t rate = trm_onnx_input_int(node, 2, 0), bins = length / 2 + 1;
    const double low = trm_onnx_input_float(node, 3, 0.0), high = trm_onnx_input_float(node, 4, 0.0);
    const trm_dtype to = trm_onnx_type(node, "output_datatype", TRM_F32);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (mels < 1 || mels > 65536 || length < 1 || length > 1 << 24 || bins * mels > 1 << 26 || rate < 1 ||
        !(low >= 0.0) || !(high >= low) || !(high < 1e12)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "cannot make a filter of %lld mel bins, %lld points, rate %lld, from %g to %g Hz",
                      (long long)mels, (long long)length, (long long)rate, low, high);
        return;
    }
    double *weights = calloc((size_t)(bins * mels), sizeof(double));
    int64_t *edges = calloc((size_t)mels + 2, sizeof(int64_t));
    if (weights == NULL || edges == NULL) {
        trm_onnx_fail(node, TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld weights", (long long)(bins * mels));
    } else {
        const double from = 2595.0 * log1p(low / 700.0) / log(10.0), till = 2595.0 * log1p(high / 700.0) / log(10.0);
        const double step = (till - from) / (double)(mels + 2);
        for (int64_t i = 0; i < mels + 2; i++) {
            const double hertz = 700.0 * expm1((from + step * (double)i) / 2595.0 * log(10.0));
            edges[i] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
        }
        for (int64_t i = 0; i < mels; i++) {
            fill_triangle(weights, bins, mels, i, edges + i);
        }
        const trm_dims dims = {2, {bins, mels}};
        trm_onnx_set(node, 0, trm_onnx_cast(node, trm_onnx_constant(node, TRM_F64, dims, weights), to));
    }
    free(weights);
    free(edges);
}

/* ---- random numbers -------------------------------------------------------------------------------- */

/* The bits of the attribute; without it, a number of the node's own, so that nodes differ. */
static uint64_t seed_of(trm_onnx_node *node)
{
    if (trm_onnx_has(node, "seed")) {
        const float seed = trm_onnx_float(node, "seed", 0.0f);
        uint32_t bits;
        memcpy(&bits, &seed, sizeof(bits));
        return bits;
    }
    const char *label = node->label == NULL ? "" : node->label;
    return trm_hash_bytes(TRM_HASH_START, label, strlen(label)) >> 1; /* printed as a signed number */
}

static void add_random(trm_onnx_node *node, trm_layer_desc *desc, trm_tensor *input)
{
    desc->random.seed = seed_of(node);
    if (desc->random.op == TRM_RANDOM_UNIFORM) {
        desc->random.a = trm_onnx_float(node, "low", 0.0f);
        desc->random.b = trm_onnx_float(node, "high", 1.0f);
    } else if (desc->random.op == TRM_RANDOM_NORMAL) {
        desc->random.a = trm_onnx_float(node, "mean", 0.0f);
        desc->random.b = trm_onnx_float(node, "scale", 1.0f);
    }
    trm_onnx_set(node, 0, trm_onnx_add(node, desc, input, NULL, NULL, NULL));
}

static void import_random(trm_onnx_node *node)
{
    int64_t shape[TRM_MAX_DIMS];
    const int32_t n = trm_onnx_ints(node, "shape", shape, TRM_MAX_DIMS);
    trm_layer_desc desc = {.kind = TRM_LAYER_RANDOM, .random = {.op = (trm_random_op)node->row->data}};
    desc.random.to = trm_onnx_type(node, "dtype", TRM_F32);
    add_random(node, &desc, trm_onnx_i64s(node, shape, n < 0 ? 0 : n));
}

static void import_random_like(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_onnx_dim dims[TRM_MAX_DIMS];
    const int32_t n = trm_onnx_dims_of(node, x, dims);
    trm_layer_desc desc = {.kind = TRM_LAYER_RANDOM, .random = {.op = (trm_random_op)node->row->data}};
    desc.random.to = trm_onnx_type(node, "dtype", trm_dtype_is_float(x->dtype) ? x->dtype : TRM_F32);
    add_random(node, &desc, trm_onnx_shape(node, dims, n));
}

static void import_drawn(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const bool classes = (trm_random_op)node->row->data == TRM_RANDOM_MULTINOMIAL;
    trm_layer_desc desc = {.kind = TRM_LAYER_RANDOM, .random = {.op = (trm_random_op)node->row->data}};
    desc.random.to = trm_onnx_type(node, "dtype", classes ? TRM_I32 : x->dtype);
    desc.random.samples = classes ? trm_onnx_int(node, "sample_size", 1) : 0;
    add_random(node, &desc, x);
}

const trm_onnx_operator trm_onnx_ops_signal[] = {
    {"", "DFT", 17, 1, import_dft, 0},
    {"", "STFT", 17, 2, import_stft, 0},
    {"", "HannWindow", 17, 1, import_window, HANN},
    {"", "HammingWindow", 17, 1, import_window, HAMMING},
    {"", "BlackmanWindow", 17, 1, import_window, BLACKMAN},
    {"", "MelWeightMatrix", 17, 5, import_mel_weights, 0},
    {"", "RandomUniform", 1, 0, import_random, TRM_RANDOM_UNIFORM},
    {"", "RandomNormal", 1, 0, import_random, TRM_RANDOM_NORMAL},
    {"", "RandomUniformLike", 1, 1, import_random_like, TRM_RANDOM_UNIFORM},
    {"", "RandomNormalLike", 1, 1, import_random_like, TRM_RANDOM_NORMAL},
    {"", "Bernoulli", 15, 1, import_drawn, TRM_RANDOM_BERNOULLI},
    {"", "Multinomial", 7, 1, import_drawn, TRM_RANDOM_MULTINOMIAL},
    {0},
};
