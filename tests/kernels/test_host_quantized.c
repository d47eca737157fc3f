/* Quantized weights on the host: every code is the number that it stands for, on each of the ways there are. */
#include <math.h>
#include <string.h>

#include "kernels/kernel.h"
#include "support/support.h"

#include "kernels/small_types.h"
#include "kernels/program.h"

#define ROWS     3 /* of x */
#define CODES    256
#define MOST_K   256
#define BF16_ONE 0x3f80

static float meaning(trm_dtype type, int32_t code)
{
    return type == TRM_F8E4M3 ? (float)trm_small_float_decode(type, (uint8_t)code)
           : type == TRM_I8   ? (float)(int8_t)code
                              : (float)((code & 15) - 8);
}

/* A weight row per code, the code in all columns; each row of x takes one column. */
static void check_codes(trm_stream *stream, trm_dtype type, trm_dtype x_type, int64_t k)
{
    static uint8_t weights[CODES * MOST_K], workspace[ROWS * MOST_K * sizeof(float)];
    static float x_floats[ROWS * MOST_K], out[ROWS * CODES];
    static uint16_t x_halves[ROWS * MOST_K];
    static const trm_kernel_table *const tables[] = {&trm_host_kernels};
    const int64_t columns = type == TRM_U8 ? k / 2 : k;
    float one = 1.0f;
    memset(x_floats, 0, sizeof(x_floats));
    memset(x_halves, 0, sizeof(x_halves));
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t column = (r * 37 + 1) % k;
        x_floats[r * k + column] = 1.0f;
        x_halves[r * k + column] = BF16_ONE;
    }
    for (int32_t code = 0; code < CODES; code++) {
        const int32_t pair = type == TRM_U8 ? (code & 15) * 17 : code;
        memset(weights + code * columns, pair, (size_t)columns);
    }
    const trm_layer_desc layer = {.kind = TRM_LAYER_DEQUANT_MATMUL, .dequant_matmul = {CODES, 0, TRM_F32}};
    trm_kernel_call call = {.layer = &layer, .n_inputs = 3, .n_outputs = 1, .stream = stream, .workspace = workspace};
    call.inputs[TRM_DEQUANT_MATMUL_X] =
        (trm_view){x_type == TRM_F32 ? (void *)x_floats : (void *)x_halves, x_type, {2, {ROWS, k}}};
    call.inputs[TRM_DEQUANT_MATMUL_WEIGHT] = (trm_view){weights, type, {2, {CODES, columns}}};
    call.inputs[TRM_DEQUANT_MATMUL_SCALE] = (trm_view){&one, TRM_F32, {2, {1, 1}}};
    call.outputs[0] = (trm_view){out, TRM_F32, {2, {ROWS, CODES}}};
    const trm_kernel *kernel = trm_kernel_find(tables, 1, TRM_BACKEND_HOST, &call);
    assert_non_null(kernel);
    call.workspace_size = kernel->workspace(&call);
    assert_true(call.workspace_size <= sizeof(workspace));
    assert_ok(trm_kernel_run(kernel, &call));
    for (int32_t i = 0; i < ROWS * CODES; i++) {
        const float expected = meaning(type, i % CODES);
        if (isnan(expected) ? !isnan(out[i]) : out[i] != expected) {
            fail_msg("%s, k %d, row %d: code %d is %g, expected %g", trm_dtype_name(type), (int)k, i / CODES, i % CODES,
                     (double)out[i], (double)expected);
        }
    }
}

static void codes_are_their_numbers(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_F8E4M3, TRM_I8, TRM_U8};
    static const int64_t sizes[] = {256, 192, 64, 50, 2}; /* in wide pieces, and not */
    trm_device *device;
    trm_stream *stream;
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 2, &device));
    assert_ok(trm_stream_create(device, &stream));
    for (int32_t t = 0; t < 3; t++) {
        for (int32_t s = 0; s < 5; s++) {
            check_codes(stream, types[t], TRM_BF16, sizes[s]);
            check_codes(stream, types[t], TRM_F32, sizes[s]);
        }
    }
    trm_stream_destroy(stream);
    trm_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_are_their_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
