/* Folders that trm_model_quantize writes: opened again, every weight has the bits that a model has whose weights are
 * quantized as they are read, for every golden and the shipped model, in every form. */
#include "support/support.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/network.h"
#include "kernels/kernel.h"
#include "support/hf_golden.h"

#define SHIPPED TRM_SOURCE_DIR "/configs/models/kjv-7m"

static const char *const forms[] = {"fp8",   "fp8-weights",  "fp8-block", "fp8-block-weights",
                                    "int8",  "int8-weights", "int4",      "int4-128",
                                    "nvfp4", "mxfp4"};

static void *elements(const trm_weight *weight, size_t *bytes)
{
    const trm_dims dims = trm_weight_dims(weight);
    const trm_dtype dtype = trm_weight_dtype(weight);
    *bytes = (size_t)trm_dims_count(&dims) * trm_dtype_size(dtype);
    void *read = malloc(*bytes + 1);
    assert_ok(trm_weight_read(weight, dtype, 0, (size_t)trm_dims_count(&dims), read));
    return read;
}

static void compare_weights(const char *what, const trm_tensor *a, const trm_tensor *b)
{
    size_t size, other_size;
    if (b == NULL || b->weight == NULL || a->dtype != b->dtype || !trm_dims_equal(&a->dims, &b->dims) ||
        trm_weight_dtype(a->weight) != trm_weight_dtype(b->weight)) {
        fail_msg("%s: weight %s has another form in the folder", what, a->name);
    }
    void *x = elements(a->weight, &size), *y = elements(b->weight, &other_size);
    if (size != other_size || memcmp(x, y, size) != 0) {
        fail_msg("%s: weight %s has other bits in the folder", what, a->name);
    }
    free(x);
    free(y);
}

/* Returns the number of products with quantized weights, and experts. */
static int compare_models(const char *what, const char *path, const char *weights, const char *folder)
{
    trm_model *online, *written;
    trm_network *a, *b;
    int quantized = 0;
    assert_ok(trm_model_open_quantized(path, weights, &online));
    assert_ok(trm_model_open(folder, &written));
    assert_ok(trm_model_build_network(online, TRM_DTYPE_NONE, &a));
    assert_ok(trm_model_build_network(written, TRM_DTYPE_NONE, &b));
    assert_int_equal(a->n_layers, b->n_layers);
    for (int32_t i = 0; i < a->n_layers; i++) {
        assert_int_equal(a->layers[i]->desc.kind, b->layers[i]->desc.kind);
        if (a->layers[i]->desc.kind == TRM_LAYER_DEQUANT_MATMUL) {
            assert_memory_equal(&a->layers[i]->desc.dequant_matmul, &b->layers[i]->desc.dequant_matmul,
                                sizeof(a->layers[i]->desc.dequant_matmul));
            quantized++;
        } else if (a->layers[i]->desc.kind == TRM_LAYER_EXPERTS) {
            quantized += a->layers[i]->inputs[TRM_EXPERTS_DOWN_SCALE] != NULL ? 1 : 0;
        }
    }
    for (int32_t i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i]->weight != NULL) {
            compare_weights(what, a->tensors[i], trm_network_find_tensor(b, a->tensors[i]->name));
        }
    }
    trm_network_destroy(a);
    trm_network_destroy(b);
    trm_model_close(online);
    trm_model_close(written);
    return quantized;
}

static void remove_folder(const char *folder)
{
    char command[4200];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static bool count_layer(void *user, const trm_quantized_layer *layer)
{
    int *count = user;
    assert_true(layer->error > 0.0 && layer->error < 0.4);
    assert_true(layer->bytes_after < layer->bytes_before && layer->done <= layer->total);
    ++*count;
    return true;
}

/* What cannot be quantized is refused by name and leaves no folder; returns whether it was. */
static bool is_refused(const char *name, trm_status status)
{
    static const char *const causes[] = {"quantized already",
                                         "no layer to quantize",
                                         "of GPT2LMHeadModel are not supported",
                                         "do not fit its parts",
                                         "do not fit heads",
                                         "as blocks of weights have a scale each",
                                         "expected them to divide",
                                         "quantized in another way than those of the experts before it"};
    for (size_t i = 0; status != TRM_OK && i < sizeof(causes) / sizeof(causes[0]); i++) {
        if (strstr(trm_last_error(), causes[i]) != NULL) {
            return true;
        }
    }
    if (status != TRM_OK) {
        fail_msg("%s: %s", name, trm_last_error());
    }
    return false;
}

static int check_model(const char *name, const char *path, const char *weights)
{
    char folder[4096], what[256];
    struct stat info;
    int layers = 0;
    const trm_quantize_options options = {.size = sizeof(options), .on_layer = count_layer, .user = &layers};
    snprintf(folder, sizeof(folder), "%s/quantized", test_temporary_folder());
    snprintf(what, sizeof(what), "%s in %s", name, weights);
    if (is_refused(what, trm_model_quantize(path, weights, folder, &options))) {
        assert_int_not_equal(stat(folder, &info), 0);
        return 0;
    }
    assert_true(layers > 0);
    const int quantized = compare_models(what, path, weights, folder);
    remove_folder(folder);
    return quantized > 0 ? 1 : 0;
}

static void folders_have_the_bits_of_open_models(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        int written = check_model("kjv-7m", SHIPPED, forms[f]);
        assert_int_equal(written, 1);
        for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s", test_golden_folder(test_golden_name(i)));
            written += check_model(test_golden_name(i), path, forms[f]);
        }
        if (getenv("TRM_TEST_VERBOSE") != NULL) {
            print_message("%s: %d models\n", forms[f], written);
        }
        assert_true(written >= (strcmp(forms[f], "int4-128") == 0 ? 1 : 30)); /* goldens have few columns */
    }
}

static bool stop(void *user, const trm_quantized_layer *layer)
{
    (void)layer;
    return --*(int *)user > 0;
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *all = opendir(folder);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 ? 1 : 0;
    }
    closedir(all);
    return count;
}

static void stopped_calls_leave_nothing(void **state)
{
    (void)state;
    char parent[4096], folder[4200];
    int left = 3;
    const trm_quantize_options options = {.size = sizeof(options), .on_layer = stop, .user = &left};
    snprintf(parent, sizeof(parent), "%s/stopped", test_temporary_folder());
    snprintf(folder, sizeof(folder), "%s/new", parent);
    assert_int_equal(mkdir(parent, 0700), 0);
    assert_fails(trm_model_quantize(SHIPPED, "fp8", folder, &options), TRM_ERROR_CANCELLED, "quantizing was stopped");
    assert_int_equal(count_entries(parent), 0);
}

static bool has_no_down(void *user, const trm_quantized_layer *layer)
{
    (void)user;
    return strstr(layer->name, "down_proj") == NULL && strncmp(layer->name, "model.layers.1.", 15) != 0;
}

static void patterns_keep_layers(void **state)
{
    (void)state;
    static const char *const keep[] = {"*.down_proj", "model.layers.1.*"};
    char folder[4096];
    trm_model *model;
    trm_model_info info;
    const trm_quantize_options options = {.size = sizeof(options), .keep = keep, .n_keep = 2, .on_layer = has_no_down};
    snprintf(folder, sizeof(folder), "%s/kept", test_temporary_folder());
    assert_ok(trm_model_quantize(SHIPPED, "int4-128", folder, &options));
    assert_fails(trm_model_quantize(SHIPPED, "int4", folder, NULL), TRM_ERROR_INVALID_ARGUMENT, "is there already");
    assert_ok(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    assert_int_equal(info.parameters, 7344384);
    trm_model_close(model);
    assert_fails(trm_model_open_quantized(folder, "fp8", &model), TRM_ERROR_UNSUPPORTED, "are quantized already");
    assert_fails(trm_model_open_quantized(SHIPPED, "fp9", &model), TRM_ERROR_INVALID_ARGUMENT,
                 "no quantized weights fp9");
    assert_ok(trm_model_open_quantized(SHIPPED, "bf16", &model));
    trm_model_close(model);
    remove_folder(folder);
}

/* Factors that are powers of two round nothing. */
static void rescaled_weights_have_their_factors(void **state)
{
    (void)state;
    enum { WIDTH = 256, ROWS = 128 };
    static float columns[WIDTH], rows[ROWS], norm[WIDTH], before[ROWS * WIDTH], after[ROWS * WIDTH];
    const char *k = "model.layers.2.self_attn.k_proj.weight", *n = "model.layers.2.input_layernorm.weight";
    char folder[4096];
    trm_model *old, *new;
    trm_dims dims;
    for (int i = 0; i < WIDTH; i++) {
        columns[i] = ldexpf(1.0f, i % 5 - 2);
        rows[i % ROWS] = ldexpf(1.0f, i % ROWS % 3);
        norm[i] = 2.0f;
    }
    const trm_weight_factors factors[] = {
        {k, 1, WIDTH, columns, 0.0f}, {n, 0, WIDTH, norm, 1.0f}, {k, 0, ROWS, rows, 0.0f}};
    snprintf(folder, sizeof(folder), "%s/rescaled", test_temporary_folder());
    assert_ok(trm_model_rescale(SHIPPED, folder, factors, 3, NULL, NULL));
    assert_ok(trm_model_open(SHIPPED, &old));
    assert_ok(trm_model_open(folder, &new));
    assert_true(trm_model_weight_dims(new, k, &dims));
    assert_true(dims.n == 2 && dims.d[0] == ROWS && dims.d[1] == WIDTH);
    assert_ok(trm_model_read_weight(old, k, 0, ROWS * WIDTH, before));
    assert_ok(trm_model_read_weight(new, k, 0, ROWS * WIDTH, after));
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(after[i] == before[i] * rows[i / WIDTH] * columns[i % WIDTH]);
    }
    assert_ok(trm_model_read_weight(old, n, 0, WIDTH, before));
    assert_ok(trm_model_read_weight(new, n, 0, WIDTH, after));
    for (int i = 0; i < WIDTH; i++) { /* (w + 1) * 2 - 1, in bf16 */
        assert_true(fabsf(after[i] - (2.0f * before[i] + 1.0f)) <= 0x1p-8f * fabsf(after[i]));
    }
    for (int32_t i = 0; trm_model_weight_name(old, i) != NULL; i++) {
        const char *name = trm_model_weight_name(old, i);
        if (strcmp(name, k) != 0 && strcmp(name, n) != 0) {
            assert_true(trm_model_weight_dims(new, name, &dims));
            assert_ok(trm_model_read_weight(old, name, 0, 100, before));
            assert_ok(trm_model_read_weight(new, name, 0, 100, after));
            assert_memory_equal(before, after, 100 * sizeof(float));
        }
    }
    assert_fails(trm_model_read_weight(old, "none", 0, 1, before), TRM_ERROR_INVALID_ARGUMENT, "no weight none");
    assert_fails(trm_model_read_weight(old, n, 1, WIDTH, before), TRM_ERROR_INVALID_ARGUMENT,
                 "asked for 256 from 1 on");
    trm_model_close(old);
    trm_model_close(new);
    assert_fails(trm_model_rescale(SHIPPED, folder, factors, 3, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "is there already");
    remove_folder(folder);
    const trm_weight_factors wrong[] = {{k, 1, ROWS, columns, 0.0f}, {"none", 0, 1, columns, 0.0f}};
    assert_fails(trm_model_rescale(SHIPPED, folder, wrong, 1, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "has 128 factors for axis 1 of 2");
    assert_fails(trm_model_rescale(SHIPPED, folder, wrong + 1, 1, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "the model has no weight none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_have_the_bits_of_open_models),
        cmocka_unit_test(stopped_calls_leave_nothing),
        cmocka_unit_test(patterns_keep_layers),
        cmocka_unit_test(rescaled_weights_have_their_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
