/* Runs kernel cases on a device and compares. */
#include "support/kernel_case.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "graph/network.h"
#include "support/device.h"
#include "support/support.h"
#include "kernels/program.h"

#define GUARD 256 /* poisoned bytes behind each piece of memory */

/* Memory of one tensor on the device, and its host copy. */
typedef struct piece {
    size_t size; /* without the guard */
    void *device;
    uint8_t *before; /* host bytes that went up, with the guard */
    uint8_t *after;  /* host bytes that came back */
} piece;

typedef struct run_state {
    kernel_case_bench *bench;
    trm_stream *stream;
    const kernel_case *test;
    const trm_kernel *kernel;
    bool batch_invariant;
    double *inputs[TRM_MAX_LAYER_INPUTS];   /* values that go in; states: what is expected of them afterwards */
    double *outputs[TRM_MAX_LAYER_OUTPUTS]; /* expected, rounded to the type */
    piece input[TRM_MAX_LAYER_INPUTS], output[TRM_MAX_LAYER_OUTPUTS];
} run_state;

/* `value` rounded once, half to even, to a binary float of `mantissas` bits behind the leading one whose normal numbers
 * begin at 2^least. */
TEST_UNCHECKED static double nearest_binary(double value, int32_t mantissas, int32_t least)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const int32_t exponent = (int32_t)(bits >> 52 & 0x7ff) - 1023,
                  step = (exponent > least ? exponent : least) - mantissas;
    bits = (uint64_t)(step + 52 + 1023) << 52 | 1ull << 51;
    double grid; /* 1.5 * 2^(52 + step): a sum with it is a multiple of 2^step */
    memcpy(&grid, &bits, sizeof(grid));
    const double rounded = value + grid;
    return copysign(rounded - grid, value);
}

TEST_UNCHECKED static double nearest_16(double value, bool bf16)
{
    const double end = bf16 ? 0x1p128 : 0x1p16; /* stands for infinity */
    if (!(fabs(value) < end)) {
        return isnan(value) ? value : copysign(INFINITY, value);
    }
    const double rounded = bf16 ? nearest_binary(value, 7, -126) : nearest_binary(value, 10, -14);
    return fabs(rounded) == end ? copysign(INFINITY, value) : rounded;
}

/* Value of a code of a small float type: fields as the type's name says, by the bits they have. */
TEST_UNCHECKED static double small_value(trm_dtype dtype, int32_t code)
{
    if (dtype == TRM_F8E4M3) { /* of caches there are many; base_test_half knows them all */
        return (double)trm_f8e4m3_to_f32((uint8_t)code);
    }
    if (dtype == TRM_F8E8M0) {
        return code == 255 ? NAN : exp2(code - 127);
    }
    const char *name = trm_dtype_name(dtype); /* "f8e4m3fnuz" */
    const int32_t bits = name[1] - '0', exponents = name[3] - '0', mantissas = name[5] - '0';
    const bool unsigned_zero = strstr(name, "fnuz") != NULL;
    const int32_t exponent = code >> mantissas & ((1 << exponents) - 1), mantissa = code & ((1 << mantissas) - 1);
    const double sign = code >> (bits - 1) != 0 ? -1.0 : 1.0;
    if (unsigned_zero && code == 128) {
        return NAN;
    }
    if (dtype == TRM_F8E5M2 && exponent == 31) {
        return mantissa == 0 ? sign * INFINITY : NAN;
    }
    const int32_t bias = (1 << (exponents - 1)) - (unsigned_zero ? 0 : 1);
    const double fraction = (double)mantissa / (1 << mantissas);
    return sign * (exponent == 0 ? fraction * exp2(1 - bias) : (1.0 + fraction) * exp2(exponent - bias));
}

static bool is_small_float(trm_dtype dtype)
{
    return (dtype >= TRM_F8E4M3 && dtype <= TRM_F4E2M1) || dtype == TRM_F6E2M3 || dtype == TRM_F6E3M2;
}

/* The nearest code of all, of two the even one; NaN for NaN, or what there is for it. */
TEST_UNCHECKED static int32_t nearest_small(trm_dtype dtype, double value)
{
    if (dtype == TRM_F8E4M3 && !isnan(value)) { /* whole caches and weights are made of it */
        return trm_f32_to_f8e4m3((float)nearest_binary(fmin(fmax(value, -448.0), 448.0), 3, -6));
    }
    const int32_t codes = dtype == TRM_F4E2M1 ? 16 : dtype == TRM_F6E2M3 || dtype == TRM_F6E3M2 ? 64 : 256;
    int32_t best = -1;
    value = dtype != TRM_F8E8M0 && fabs(value) > 1e6 ? copysign(1e6, value) : value; /* else all are equally far */
    for (int32_t code = 0; code < codes; code++) {
        const double v = small_value(dtype, code);
        if (isnan(value)) {
            best = isnan(v) || (best < 0 && v == 0.0 && signbit(v)) ? code : best;
            continue;
        }
        if (!isfinite(v) ||
            (dtype != TRM_F8E8M0 && (signbit(v) != 0) != (signbit(value) != 0) && (v != 0.0 || code == 0) &&
             !(code == 0 && strstr(trm_dtype_name(dtype), "fnuz") != NULL))) {
            continue;
        }
        const double far = fabs(v - value), best_far = best < 0 ? INFINITY : fabs(small_value(dtype, best) - value);
        if (best < 0 || far < best_far || (far == best_far && code % 2 == 0)) {
            best = code;
        }
    }
    return best;
}

static double clamp(double value, double low, double high)
{
    return isnan(value) ? 0.0 : value < low ? low : value > high ? high : trunc(value);
}

double kernel_case_round(trm_dtype dtype, double value)
{
    switch (dtype) {
    case TRM_F32:
        return (double)(float)value;
    case TRM_F16:
        return nearest_16(value, false);
    case TRM_BF16:
        return nearest_16(value, true);
    case TRM_I8:
        return clamp(value, INT8_MIN, INT8_MAX);
    case TRM_U8:
        return clamp(value, 0, UINT8_MAX);
    case TRM_I16:
        return clamp(value, INT16_MIN, INT16_MAX);
    case TRM_U16:
        return clamp(value, 0, UINT16_MAX);
    case TRM_I32:
        return clamp(value, INT32_MIN, INT32_MAX);
    case TRM_U32:
        return clamp(value, 0, UINT32_MAX);
    case TRM_I64:
        return clamp(value, -0x1p63, 0x1p63);
    case TRM_U64:
        return clamp(value, 0, 0x1p64);
    case TRM_BOOL:
        return value != 0.0;
    case TRM_I4:
        return clamp(value, -8, 7);
    case TRM_U4:
        return clamp(value, 0, 15);
    case TRM_I2:
        return clamp(value, -2, 1);
    case TRM_U2:
        return clamp(value, 0, 3);
    default:
        return is_small_float(dtype) ? small_value(dtype, nearest_small(dtype, value)) : value;
    }
}

/* Values come rounded to the type. */
static void put(trm_dtype dtype, void *data, int64_t i, double value)
{
    if (is_small_float(dtype)) {
        ((uint8_t *)data)[i] = (uint8_t)nearest_small(dtype, value);
        return;
    }
    switch (dtype) {
    case TRM_F32:
        ((float *)data)[i] = (float)value;
        break;
    case TRM_F16:
        ((uint16_t *)data)[i] = trm_f32_to_f16((float)value);
        break;
    case TRM_BF16:
        ((uint16_t *)data)[i] = trm_f32_to_bf16((float)value);
        break;
    case TRM_F64:
        ((double *)data)[i] = value;
        break;
    case TRM_I8:
    case TRM_I4:
    case TRM_I2:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case TRM_U8:
    case TRM_U4:
    case TRM_U2:
    case TRM_BOOL:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case TRM_I16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    case TRM_U16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        break;
    case TRM_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case TRM_U32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    case TRM_I64:
        ((int64_t *)data)[i] = value >= 0x1p63 ? INT64_MAX : (int64_t)value;
        break;
    default:
        ((uint64_t *)data)[i] = value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
        break;
    }
}

static double get(trm_dtype dtype, const void *data, int64_t i)
{
    if (is_small_float(dtype)) {
        return small_value(dtype, ((const uint8_t *)data)[i]);
    }
    switch (dtype) {
    case TRM_F32:
        return (double)((const float *)data)[i];
    case TRM_F16:
        return (double)trm_f16_to_f32(((const uint16_t *)data)[i]);
    case TRM_BF16:
        return (double)trm_bf16_to_f32(((const uint16_t *)data)[i]);
    case TRM_F64:
        return ((const double *)data)[i];
    case TRM_I8:
    case TRM_I4:
    case TRM_I2:
        return (double)((const int8_t *)data)[i];
    case TRM_U8:
    case TRM_U4:
    case TRM_U2:
    case TRM_BOOL:
        return (double)((const uint8_t *)data)[i];
    case TRM_I16:
        return (double)((const int16_t *)data)[i];
    case TRM_U16:
        return (double)((const uint16_t *)data)[i];
    case TRM_I32:
        return (double)((const int32_t *)data)[i];
    case TRM_U32:
        return (double)((const uint32_t *)data)[i];
    case TRM_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return (double)((const uint64_t *)data)[i];
    }
}

static bool is_floating(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64 || is_small_float(dtype);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size + 1);
    if (memory == NULL) {
        fail_msg("out of memory: %zu bytes", size);
    }
    return memory;
}

static void fail_case(run_state *run, const char *what)
{
    run->bench->failures++;
    print_error("%s: %s: %s\n", run->test->name, run->kernel != NULL ? run->kernel->name : "no kernel", what);
}

static double *make_values(const kernel_case_input *input, uint64_t *seed)
{
    const int64_t count = trm_dims_count(&input->dims);
    double *values = allocate((size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        const double unit = (double)(test_random(seed) >> 11) * 0x1p-53;
        double value = input->values != NULL ? input->values[i] : input->low + unit * (input->high - input->low);
        if (input->values == NULL && !is_floating(input->dtype)) {
            value = floor(input->low + unit * (input->high - input->low + 1.0));
        }
        values[i] = kernel_case_round(input->dtype, value);
    }
    return values;
}

static void make_piece(run_state *run, piece *p, size_t size)
{
    p->size = size;
    p->before = allocate(size + GUARD);
    p->after = allocate(size + GUARD);
    assert_ok(trm_device_alloc(run->bench->device, size + GUARD, &p->device));
}

static void free_piece(run_state *run, piece *p)
{
    free(p->before);
    free(p->after);
    if (p->device != NULL) {
        trm_device_free(run->bench->device, p->device);
    }
}

static void upload(run_state *run, piece *p, int poison)
{
    memset(p->before + p->size, poison, GUARD);
    assert_ok(trm_stream_upload(run->stream, p->device, p->before, p->size + GUARD));
}

static void download(run_state *run, piece *p)
{
    assert_ok(trm_stream_download(run->stream, p->after, p->device, p->size + GUARD));
}

static void round_all(trm_dtype dtype, double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = kernel_case_round(dtype, values[i]);
    }
}

/* Inputs and expected values. */
static void prepare(run_state *run, kernel_case_meaning meaning)
{
    const kernel_case *test = run->test;
    uint64_t seed = test_seed();
    for (const char *c = test->name; *c != '\0'; c++) {
        seed = seed * 31 + (uint64_t)*c;
    }
    for (int32_t i = 0; i < test->n_inputs; i++) {
        const kernel_case_input *input = &test->inputs[i];
        if (input->dtype == TRM_DTYPE_NONE) {
            continue;
        }
        const int64_t count = trm_dims_count(&input->dims);
        run->inputs[i] = make_values(input, &seed);
        make_piece(run, &run->input[i], (size_t)count * trm_dtype_size(input->dtype));
        for (int64_t j = 0; j < count; j++) {
            put(input->dtype, run->input[i].before, j, run->inputs[i][j]);
        }
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        const int64_t count = trm_dims_count(&test->outputs[i].dims);
        run->outputs[i] = allocate((size_t)count * sizeof(double));
        make_piece(run, &run->output[i], (size_t)count * trm_dtype_size(test->outputs[i].dtype));
    }
    meaning(test, run->inputs, run->outputs);
    for (int32_t i = 0; i < test->n_inputs; i++) {
        if (test->inputs[i].is_state) {
            round_all(test->inputs[i].dtype, run->inputs[i], trm_dims_count(&test->inputs[i].dims));
        }
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        round_all(test->outputs[i].dtype, run->outputs[i], kernel_case_used(&test->outputs[i]));
    }
}

static trm_kernel_call make_call(const run_state *run)
{
    const kernel_case *test = run->test;
    trm_kernel_call call = {
        .layer = &test->layer, .n_inputs = test->n_inputs, .n_outputs = test->n_outputs, .stream = run->stream};
    call.allow_tf32 = test->tf32;
    call.batch_invariant = run->batch_invariant;
    call.unread = test->unread;
    for (int32_t i = 0; i < test->n_inputs; i++) {
        const kernel_case_input *input = &test->inputs[i];
        call.inputs[i] = (trm_view){NULL, input->is_f4 ? TRM_F4E2M1 : input->dtype, input->dims};
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        call.outputs[i] = (trm_view){NULL, test->outputs[i].dtype, test->outputs[i].dims};
    }
    return call;
}

#define MOST_SPREADS 6.0 /* a value may be off by */

static void check_values(run_state *run, trm_dtype dtype, const void *bytes, const double *expected, int64_t count,
                         const char *what, int32_t index)
{
    /* Of the norm of all values, and of one value against its size or the root mean square. */
    const trm_dtype as = dtype == TRM_F32 && run->test->tf32 ? TRM_F16 : dtype;
    const double norm_limit = as == TRM_BF16 ? 4e-3 : as == TRM_F16 ? 6e-4 : as == TRM_F32 ? 2e-6 : 1e-14;
    const double one_limit = as == TRM_BF16 ? 9e-3 : as == TRM_F16 ? 1.2e-3 : as == TRM_F32 ? 1e-5 : 1e-13;
    const double factor = run->test->tolerance;
    double sum = 0.0, error = 0.0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(expected[i])) {
            sum += expected[i] * expected[i];
            finite++;
        }
    }
    const double rms = finite > 0 ? sqrt(sum / (double)finite) : 0.0;
    char text[256];
    for (int64_t i = 0; i < count; i++) {
        const double want = expected[i], found = get(dtype, bytes, i);
        bool right = isnan(want) ? isnan(found) : want == found;
        if (!right && isfinite(want) && isfinite(found) && factor > 0.0 && is_floating(dtype)) {
            error += (found - want) * (found - want);
            right = fabs(found - want) <= factor * one_limit * (fabs(want) + rms) + MOST_SPREADS * run->test->spread;
        }
        if (!right) {
            snprintf(text, sizeof(text), "%s %d, element %lld of %lld is %.9g, expected %.9g", what, (int)index,
                     (long long)i, (long long)count, found, want);
            fail_case(run, text);
            return;
        }
    }
    const double allowed = factor * norm_limit * sqrt(sum) + 2.0 * run->test->spread * sqrt((double)finite);
    if (sqrt(error) > allowed) {
        snprintf(text, sizeof(text), "%s %d is off by %.3g of its norm, allowed %.3g", what, (int)index,
                 sqrt(error / sum), allowed / sqrt(sum));
        fail_case(run, text);
    }
}

static bool guard_is_whole(const piece *p, int poison)
{
    for (size_t i = 0; i < GUARD; i++) {
        if (p->after[p->size + i] != (uint8_t)poison) {
            return false;
        }
    }
    return true;
}

/* One run over outputs filled with `poison`. True if it ran. */
static bool run_once(run_state *run, trm_kernel_call *call, piece *workspace, int poison, bool tune)
{
    const kernel_case *test = run->test;
    for (int32_t i = 0; i < test->n_inputs; i++) {
        if (test->inputs[i].dtype != TRM_DTYPE_NONE) {
            upload(run, &run->input[i], poison);
            call->inputs[i].data = run->input[i].device;
            call->values[i] = (trm_layer_value_inputs(&test->layer) >> i & 1) != 0 ? run->input[i].before : NULL;
        }
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        memset(run->output[i].before, poison, run->output[i].size);
        call->outputs[i].data = run->output[i].device;
        if (test->in_place) {
            call->outputs[i].data = call->inputs[i].data;
        } else {
            upload(run, &run->output[i], poison);
        }
    }
    memset(workspace->before, poison, workspace->size);
    upload(run, workspace, poison);
    trm_status status = tune ? trm_kernel_tune(run->kernel, call, NULL) : TRM_OK;
    if (status == TRM_OK) {
        status = trm_kernel_run(run->kernel, call);
    }
    if (status == TRM_OK) {
        download(run, workspace);
        for (int32_t i = 0; i < test->n_inputs; i++) {
            if (test->inputs[i].dtype != TRM_DTYPE_NONE) {
                download(run, &run->input[i]);
            }
        }
        for (int32_t i = 0; i < test->n_outputs; i++) {
            download(run, &run->output[i]);
        }
        status = trm_stream_synchronize(run->stream);
    }
    if (status != TRM_OK) {
        char text[512];
        snprintf(text, sizeof(text), "failed: %s", trm_last_error());
        fail_case(run, text);
    }
    return status == TRM_OK;
}

static void check_run(run_state *run, const piece *workspace, int poison)
{
    const kernel_case *test = run->test;
    if (!guard_is_whole(workspace, poison)) {
        fail_case(run, "wrote behind the workspace");
    }
    for (int32_t i = 0; i < test->n_inputs; i++) {
        const kernel_case_input *input = &test->inputs[i];
        const piece *p = &run->input[i];
        if (input->dtype == TRM_DTYPE_NONE) {
            continue;
        }
        if (!guard_is_whole(p, poison)) {
            fail_case(run, "wrote behind an input");
        }
        if (input->is_state) {
            check_values(run, input->dtype, p->after, run->inputs[i], trm_dims_count(&input->dims), "state", i);
        } else if (memcmp(p->before, p->after, p->size) != 0) {
            fail_case(run, "changed an input");
        }
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        const kernel_case_output *output = &test->outputs[i];
        const piece *p = test->in_place ? &run->input[i] : &run->output[i];
        if (!guard_is_whole(p, poison)) {
            fail_case(run, "wrote behind an output");
        }
        if ((test->unread >> i & 1) == 0) {
            check_values(run, output->dtype, p->after, run->outputs[i], kernel_case_used(output), "output", i);
        }
    }
}

/* Fails if a byte of an output still holds the poison of either run. */
static void check_written(run_state *run, uint8_t *const *first, int poison_first, int poison_second)
{
    for (int32_t i = 0; !run->test->in_place && i < run->test->n_outputs; i++) {
        const size_t element = trm_dtype_size(run->test->outputs[i].dtype);
        const bool unread = (run->test->unread >> i & 1) != 0;
        const size_t used = unread ? 0 : (size_t)kernel_case_used(&run->test->outputs[i]) * element;
        for (size_t at = 0; at < used; at += element) {
            bool kept = true;
            for (size_t byte = at; byte < at + element; byte++) {
                kept = kept && first[i][byte] == poison_first && run->output[i].after[byte] == poison_second;
            }
            if (kept) {
                char text[96];
                snprintf(text, sizeof(text), "element %zu of output %d was not written", at / element, (int)i);
                fail_case(run, text);
                return;
            }
        }
    }
}

static void run_kernel(run_state *run)
{
    enum { FIRST = 0xa5, SECOND = 0x5a };
    trm_kernel_call call = make_call(run);
    piece workspace = {.size = 0};
    call.workspace_size = run->kernel->workspace != NULL ? run->kernel->workspace(&call) : 0;
    make_piece(run, &workspace, call.workspace_size);
    call.workspace = workspace.device;
    uint8_t *first[TRM_MAX_LAYER_OUTPUTS] = {NULL};
    const int32_t failures = run->bench->failures;
    if (run_once(run, &call, &workspace, FIRST, TEST_SANITIZED)) {
        check_run(run, &workspace, FIRST);
        for (int32_t i = 0; i < run->test->n_outputs; i++) {
            first[i] = allocate(run->output[i].size);
            memcpy(first[i], run->output[i].after, run->output[i].size);
        }
        if (!TEST_SANITIZED && failures == run->bench->failures && run_once(run, &call, &workspace, SECOND, true)) {
            check_run(run, &workspace, SECOND);
            check_written(run, first, FIRST, SECOND);
        }
    }
    for (int32_t i = 0; i < run->test->n_outputs; i++) {
        free(first[i]);
    }
    free_piece(run, &workspace);
    run->bench->runs++;
}

/* Whether CUDA has kernels of their own for calls that are batch invariant. */
static bool has_invariant(trm_layer_kind kind)
{
    return kind == TRM_LAYER_MATMUL || kind == TRM_LAYER_MATMUL_GLU || kind == TRM_LAYER_ATTENTION ||
           kind == TRM_LAYER_QKV_ATTENTION;
}

/* Where each case runs once only, half of them run alone and half with the pool. By a hash, as cases come from nested
 * loops: by turns, all that an inner loop of even length makes of a type would be on one stream. */
static uint32_t stream_of_case(int32_t n)
{
    const uint32_t mixed = (uint32_t)n * 2654435761u;
    return (mixed ^ mixed >> 15) * 2246822519u >> 31;
}

void kernel_case_run(kernel_case_bench *bench, const kernel_case *test, kernel_case_meaning meaning)
{
    if (!test_in_part(bench->named++)) {
        return;
    }
    run_state run = {.bench = bench, .test = test};
    prepare(&run, meaning);
    const trm_backend backend = trm_device_backend(bench->device);
    const int32_t runs = bench->runs, modes = backend == TRM_BACKEND_CUDA && has_invariant(test->layer.kind) ? 2 : 1;
    const int32_t count = bench->table->count;
    for (int32_t i = 0; i < 2 * modes * count; i++) {
        run.kernel = &bench->table->kernels[i % count];
        run.batch_invariant = i / count % modes == 1;
        run.stream = bench->streams[i / count / modes];
        if (TEST_SANITIZED && bench->streams[1] != NULL && run.stream != bench->streams[stream_of_case(bench->named)]) {
            continue;
        }
        const trm_kernel_call call = make_call(&run);
        if (run.stream != NULL && run.kernel->kind == test->layer.kind && run.kernel->backend == backend &&
            run.kernel->accepts(&call)) {
            run_kernel(&run);
        }
    }
    if (runs == bench->runs) {
        run.kernel = NULL;
        fail_case(&run, "no kernel accepts it");
    }
    bench->cases++;
    for (int32_t i = 0; i < test->n_inputs; i++) {
        free(run.inputs[i]);
        free_piece(&run, &run.input[i]);
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        free(run.outputs[i]);
        free_piece(&run, &run.output[i]);
    }
}

void kernel_cases_check(const trm_kernel_table *table, void (*cases)(kernel_case_bench *bench))
{
    kernel_case_bench bench = {.device = test_device, .streams = {test_stream, test_pool_stream}, .table = table};
    cases(&bench);
    print_message("%d cases, %d runs, %d failures\n", (int)bench.cases, (int)bench.runs, (int)bench.failures);
    assert_true(bench.cases > 0);
    assert_int_equal(bench.failures, 0);
}
