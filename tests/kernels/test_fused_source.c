/* Generated kernels compile: every operation on every type it has, where the run-time compiler is there. Without a GPU
 * nothing of them runs here; tests/kernels/gpu_fused.c runs them. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "support/support.h"

#include "kernels/fused/fused.h"

#if TRM_HAVE_CUDA
#include "kernels/fused/cuda.h"
#endif

static void names_are_different(void **state)
{
    (void)state;
    for (int32_t i = 0; i < TRM_FUSED_OP_COUNT; i++) {
        const char *name = trm_fused_op_name((trm_fused_op)i);
        assert_non_null(name);
        for (int32_t k = 0; k < i; k++) {
            assert_string_not_equal(name, trm_fused_op_name((trm_fused_op)k));
        }
    }
    assert_null(trm_fused_op_name(TRM_FUSED_OP_COUNT));
}

#if TRM_HAVE_CUDA
static bool is_float(trm_dtype dtype)
{
    return dtype <= TRM_F64;
}

/* Whether a layer of this operation takes inputs of the type, and which type it gives. */
static trm_dtype result_of(trm_fused_op op, trm_dtype in)
{
    if (op < TRM_FUSED_UNARY) {
        trm_elementwise_op e = (trm_elementwise_op)op;
        bool logical = e >= TRM_ELEMENTWISE_AND && e <= TRM_ELEMENTWISE_XOR;
        bool shift = e == TRM_ELEMENTWISE_SHIFT_LEFT || e == TRM_ELEMENTWISE_SHIFT_RIGHT;
        bool compares = e >= TRM_ELEMENTWISE_EQUAL && e <= TRM_ELEMENTWISE_GREATER_EQUAL;
        bool fits = in == TRM_BOOL ? logical || e == TRM_ELEMENTWISE_EQUAL : !is_float(in) || (!logical && !shift);
        return !fits ? TRM_DTYPE_NONE : compares ? TRM_BOOL : in;
    }
    if (op == TRM_FUSED_UNARY + TRM_UNARY_NOT) {
        return is_float(in) ? TRM_DTYPE_NONE : in;
    }
    if (op == TRM_FUSED_UNARY + TRM_UNARY_IS_NAN || op == TRM_FUSED_UNARY + TRM_UNARY_IS_INF) {
        return is_float(in) ? TRM_BOOL : TRM_DTYPE_NONE;
    }
    bool counts = op == TRM_FUSED_UNARY + TRM_UNARY_NEG || op == TRM_FUSED_UNARY + TRM_UNARY_ABS ||
                  op == TRM_FUSED_UNARY + TRM_UNARY_SIGN;
    return is_float(in) || (counts && in != TRM_BOOL) ? in : TRM_DTYPE_NONE;
}

static void compile(const trm_fused_elementwise_params *params, const trm_dtype *inputs, int32_t n_inputs)
{
    int32_t width = 0;
    void *image = NULL;
    size_t size = 0;
    char *source = trm_cuda_fused_source(params, inputs, n_inputs, &width);
    assert_non_null(source);
    assert_true(width == 2 || width == 4 || width == 8);
    if (trm_nvrtc_compile(source, 90, false, &image, &size) != TRM_OK) {
        fail_msg("%s\n%s", trm_last_error(), source);
    }
    assert_true(size > 0);
    free(image);
    free(source);
}

static void every_operation_compiles(void **state)
{
    (void)state;
    char why[512];
    if (!trm_fused_available(TRM_BACKEND_CUDA, why, sizeof(why))) {
        print_message("no run-time compiler: %s\n", why);
        return;
    }
    for (int32_t in = TRM_F32; in <= TRM_BOOL; in++) {
        const trm_dtype inputs[3] = {(trm_dtype)in, (trm_dtype)in, TRM_BOOL};
        trm_fused_elementwise_params p = {.n_outputs = 1};
        for (int32_t op = 0; op < TRM_FUSED_OP_COUNT; op++) {
            trm_fused_step step = {.op = (trm_fused_op)op, .b = 1, .alpha = 0.5f, .beta = 2};
            if (op == TRM_FUSED_SELECT) {
                step = (trm_fused_step){.op = TRM_FUSED_SELECT, .type = (trm_dtype)in, .a = 2, .b = 0, .c = 1};
            } else if (op == TRM_FUSED_VALUE) {
                step = (trm_fused_step){.op = TRM_FUSED_VALUE, .type = (trm_dtype)in, .alpha = 3};
            } else if (op == TRM_FUSED_CAST || op == TRM_FUSED_UNARY + TRM_UNARY_ACTIVATION) {
                continue;
            } else {
                step.type = result_of((trm_fused_op)op, (trm_dtype)in);
                if (step.type == TRM_DTYPE_NONE) {
                    continue;
                }
            }
            p.steps[p.n_steps] = step;
            p.outputs[0] = p.n_steps++;
            if (p.n_steps == TRM_MAX_FUSED_STEPS) {
                compile(&p, inputs, 3);
                p.n_steps = 0;
            }
        }
        for (int32_t to = TRM_F32; to <= TRM_BOOL && p.n_steps < TRM_MAX_FUSED_STEPS; to++) {
            if (trm_fused_can_cast((trm_dtype)in, (trm_dtype)to)) {
                p.steps[p.n_steps++] = (trm_fused_step){.op = TRM_FUSED_CAST, .type = (trm_dtype)to};
            }
        }
        p.outputs[0] = p.n_steps - 1;
        compile(&p, inputs, 3);
    }
}

/* The one file of the cache. */
static void find_file(const char *cache, char *path, size_t size)
{
    char folder[1024];
    int32_t files = 0;
    snprintf(folder, sizeof(folder), "%s/trireme/kernels", cache);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", folder, entry->d_name);
            files++;
        }
    }
    closedir(entries);
    assert_int_equal(files, 1);
}

/* Sets byte `at` of a file, from its end if negative. */
static void write_byte(const char *path, long at, int byte)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fputc(byte, file), byte);
    assert_int_equal(fclose(file), 0);
}

static int32_t warnings;

static void count_warnings(void *user, trm_log_level level, const char *text)
{
    (void)user;
    warnings += level == TRM_LOG_WARNING && strstr(text, "is damaged") != NULL;
}

/* What was compiled is read again; a damaged file is compiled anew, and replaced. */
static void results_are_kept(void **state)
{
    (void)state;
    static const char source[] = "extern \"C\" __global__ void nothing(void)\n{\n}\n";
    char path[2048], cache[1024];
    void *first = NULL, *again = NULL;
    size_t first_size = 0, size = 0;
    if (!trm_fused_available(TRM_BACKEND_CUDA, NULL, 0)) {
        return;
    }
    snprintf(cache, sizeof(cache), "%s", test_temporary_folder());
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_ok(trm_nvrtc_compile(source, 90, false, &first, &first_size));
    find_file(cache, path, sizeof(path));
    for (int32_t damage = 0; damage < 4; damage++) {
        warnings = 0;
        trm_log_set(count_warnings, NULL, TRM_LOG_WARNING);
        if (damage == 1) {
            write_byte(path, 3, '!');
        } else if (damage == 2) {
            write_byte(path, -9, 0x5a);
        } else if (damage == 3) {
            assert_int_equal(truncate(path, 20), 0);
        }
        assert_ok(trm_nvrtc_compile(source, 90, false, &again, &size));
        trm_log_set(NULL, NULL, TRM_LOG_WARNING);
        assert_int_equal(warnings, damage > 0);
        assert_int_equal(size, first_size);
        assert_memory_equal(again, first, size);
        free(again);
        find_file(cache, path, sizeof(path));
    }
    free(first);
    assert_fails(trm_nvrtc_compile("this is no program", 90, false, &again, &size), TRM_ERROR_INTERNAL,
                 "cannot compile a kernel");
    setenv("XDG_CACHE_HOME", "/proc/none", 1); /* cannot be written: nothing is kept, and nothing fails */
    assert_ok(trm_nvrtc_compile(source, 90, false, &again, &size));
    free(again);
}

static void sources_of_plugins_include_the_toolkit(void **state)
{
    (void)state;
    static const char source[] =
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <stdint.h>\n"
        "extern \"C\" __global__ void twice(__half *x, __nv_bfloat16 *y, int64_t n)\n"
        "{\n    if (threadIdx.x < n) {\n        x[threadIdx.x] = __hadd(x[threadIdx.x], x[0]);\n"
        "        y[threadIdx.x] = __float2bfloat16(__bfloat162float(y[0]) * 2);\n    }\n}\n";
    void *image = NULL;
    size_t size = 0;
    if (!trm_fused_available(TRM_BACKEND_CUDA, NULL, 0) || access("/usr/local/cuda/include/cuda_fp16.h", R_OK) != 0) {
        return;
    }
    assert_ok(trm_nvrtc_compile(source, 90, true, &image, &size));
    free(image);
    assert_fails(trm_nvrtc_compile(source, 90, false, &image, &size), TRM_ERROR_INTERNAL, "cuda_fp16.h");
}
#endif

int main(void)
{
    setenv("XDG_CACHE_HOME", test_temporary_folder(), 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_different),
#if TRM_HAVE_CUDA
        cmocka_unit_test(every_operation_compiles),
        cmocka_unit_test(results_are_kept),
        cmocka_unit_test(sources_of_plugins_include_the_toolkit),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
