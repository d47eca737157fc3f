/* Runs the network on samples for the ranges of its products' inputs, and both networks for the error of outputs. */
#include "launcher/cli/quantize/network.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/quantize/evaluate.h"
#include "launcher/cli/quantize/observer.h"
#include "launcher/cli/tensors/npy.h"

typedef struct product {
    trm_onnx_product of;
    int32_t observer; /* of its input */
} product;

typedef struct quantizing {
    const settings *all;
    bool (*stopped)(void);
    const char *from, *to;
    observer_rule rule;
    trm_onnx *model;
    product *products;
    int32_t n, n_observers;
    observer *observers;    /* [n_observers] */
    trm_onnx_scale *scales; /* [n] */
    struct dirent **samples;
    int n_samples;
    npy_array *inputs; /* of a sample */
    int32_t n_inputs;
    int64_t before, after;
    double worst;
    char *worst_name;
    double *signal, *noise; /* [outputs] of the networks' outputs: sums of squares */
    int32_t n_outputs;
} quantizing;

/* ---- samples ------------------------------------------------------------------------------------------------------
 */

static int is_sample(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static trm_status list_samples(quantizing *q)
{
    const char *path = settings_text(q->all, SETTING_SAMPLES);
    q->n_samples = scandir(path, &q->samples, is_sample, alphasort);
    if (q->n_samples < 0) {
        q->n_samples = 0;
        TRM_FAIL(TRM_ERROR_IO, "cannot read folder %s: %s", path, strerror(errno));
    }
    if (q->n_samples == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "folder %s has no samples, expected .npy files, or a folder for each with "
                 "a file for each input",
                 path);
    }
    q->n_inputs = trm_onnx_input_count(q->model);
    q->inputs = calloc((size_t)q->n_inputs + 1, sizeof(*q->inputs));
    if (q->inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the inputs of a network");
    }
    return TRM_OK;
}

static void drop_sample(quantizing *q)
{
    for (int32_t i = 0; i < q->n_inputs; i++) {
        free(q->inputs[i].data);
        q->inputs[i] = (npy_array){0};
    }
}

static trm_status read_sample(quantizing *q, int index)
{
    const char *folder = settings_text(q->all, SETTING_SAMPLES), *name = q->samples[index]->d_name;
    char path[4096];
    trm_onnx_port port;
    struct stat info;
    drop_sample(q);
    snprintf(path, sizeof(path), "%.3000s/%s", folder, name);
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (!is_folder && q->n_inputs != 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "sample %s is a file, the network has %d inputs: expected a folder with a "
                 ".npy file for each",
                 path, (int)q->n_inputs);
    }
    for (int32_t i = 0; i < q->n_inputs && trm_onnx_get_input(q->model, i, &port); i++) {
        if (is_folder) {
            snprintf(path, sizeof(path), "%.1500s/%.300s/%.300s.npy", folder, name, port.name);
        }
        TRM_TRY(npy_read(path, &q->inputs[i]));
        if (q->inputs[i].dtype != port.dtype) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sample %s is %s, input %s %s", path,
                     trm_dtype_name(q->inputs[i].dtype), port.name, trm_dtype_name(port.dtype));
        }
    }
    return TRM_OK;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------
 */

typedef struct running {
    trm_onnx *model; /* NULL: that of the caller */
    trm_world *world;
    trm_engine *engine;
    trm_context *context;
} running;

static void end_running(running *r)
{
    trm_context_destroy(r->context);
    trm_engine_destroy(r->engine);
    trm_world_close(r->world);
    trm_onnx_close(r->model);
}

static trm_status mark_inputs(const quantizing *q, trm_network *network)
{
    for (int32_t i = 0; i < q->n; i++) {
        const char *name = q->products[i].of.input;
        trm_tensor *tensor = trm_network_find_tensor(network, name);
        bool is_port = tensor == NULL;
        for (int32_t k = 0; !is_port && k < trm_network_output_count(network); k++) {
            is_port = trm_network_output(network, k) == tensor;
        }
        for (int32_t k = 0; !is_port && k < trm_network_input_count(network); k++) {
            is_port = trm_network_input(network, k) == tensor;
        }
        if (tensor == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s is not in the network: keep product %s", name,
                     q->products[i].of.output);
        }
        TRM_TRY(is_port ? TRM_OK : trm_network_mark_output(network, tensor));
    }
    return TRM_OK;
}

/* A context for inputs of the dims of the sample that was read. */
static trm_status begin_running(const quantizing *q, trm_onnx *model, bool marks, running *r)
{
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    trm_onnx_input_dims dims[64];
    trm_onnx_port port;
    trm_network *network;
    trm_plan *plan;
    if (q->n_inputs > 64) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the network has %d inputs, expected at most 64", (int)q->n_inputs);
    }
    for (int32_t i = 0; i < q->n_inputs && trm_onnx_get_input(model, i, &port); i++) {
        dims[i] = (trm_onnx_input_dims){port.name, q->inputs[i].dims};
    }
    options.inputs = dims;
    options.n_inputs = q->n_inputs;
    TRM_TRY(evaluate_open_world(q->all, &build.backend, &r->world));
    TRM_TRY(trm_onnx_build_network(model, &options, &network));
    trm_status status = marks ? mark_inputs(q, network) : TRM_OK;
    status = status == TRM_OK ? trm_build(network, &build, &plan) : status;
    trm_network_destroy(network);
    TRM_TRY(status);
    TRM_TRY(trm_engine_create(plan, r->world, NULL, NULL, &r->engine));
    return trm_context_create(r->engine, &r->context);
}

static trm_status run_sample(quantizing *q, running *r, int index)
{
    trm_onnx_port port;
    if (q->stopped()) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "quantizing was stopped");
    }
    TRM_TRY(read_sample(q, index));
    for (int32_t i = 0; i < q->n_inputs && trm_onnx_get_input(q->model, i, &port); i++) {
        TRM_TRY(trm_context_set_input(r->context, port.name, q->inputs[i].dims, q->inputs[i].data));
    }
    return trm_context_run(r->context);
}

/* ---- ranges -------------------------------------------------------------------------------------------------------
 */

static trm_status observe(quantizing *q, running *r, bool counts)
{
    trm_onnx_port port;
    for (int32_t i = 0, next = 0; i < q->n; i++) {
        const char *name = q->products[i].of.input;
        const void *values = NULL;
        trm_dims dims;
        if (q->products[i].observer != next) {
            continue; /* that of a product before it */
        }
        for (int32_t k = 0; k < q->n_inputs && trm_onnx_get_input(q->model, k, &port); k++) {
            if (strcmp(port.name, name) == 0) {
                values = q->inputs[k].data;
                dims = q->inputs[k].dims;
            }
        }
        TRM_TRY(values == NULL ? trm_context_output(r->context, name, &dims, &values) : TRM_OK);
        int64_t count = 1;
        for (int32_t k = 0; k < dims.n; k++) {
            count *= dims.d[k];
        }
        observer *o = &q->observers[next++];
        if (counts) {
            observer_count(o, values, count);
        } else {
            observer_measure(o, values, count);
        }
        if (!isfinite(o->largest)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "tensor %s is not finite on the samples", name);
        }
    }
    return TRM_OK;
}

static trm_status calibrate(quantizing *q)
{
    running r = {0};
    q->observers = calloc((size_t)q->n_observers + 1, sizeof(*q->observers));
    if (q->observers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the ranges of %d tensors", (int)q->n_observers);
    }
    trm_status status = read_sample(q, 0);
    status = status == TRM_OK ? begin_running(q, q->model, true, &r) : status;
    for (int pass = 0; pass < (q->rule == OBSERVER_MINMAX ? 1 : 2); pass++) {
        for (int i = 0; status == TRM_OK && i < q->n_samples; i++) {
            status = run_sample(q, &r, i);
            status = status == TRM_OK ? observe(q, &r, pass == 1) : status;
        }
    }
    end_running(&r);
    for (int32_t i = 0; status == TRM_OK && i < q->n; i++) {
        q->scales[i].scale = observer_scale(&q->observers[q->products[i].observer], q->rule);
    }
    return status;
}

/* ---- the cache: a line "<scale> <tensor>" for each input
 * -------------------------------------------------------------- */

/* *found: the file is there, and has all. */
static trm_status read_cache(quantizing *q, const char *path, bool *found)
{
    char line[2048];
    FILE *file = fopen(path, "re");
    *found = false;
    if (file == NULL) {
        return errno == ENOENT ? TRM_OK : trm_fail(TRM_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char *name;
        const float scale = strtof(line, &name);
        line[strcspn(line, "\n")] = '\0';
        for (int32_t i = 0; i < q->n && *name == ' '; i++) {
            if (strcmp(name + 1, q->products[i].of.input) == 0) {
                q->scales[i].scale = scale;
            }
        }
    }
    fclose(file);
    for (int32_t i = 0; i < q->n; i++) {
        if (!(q->scales[i].scale > 0.0f)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "calibration cache %s has no scale for tensor %s: it is of another network, remove it", path,
                     q->products[i].of.input);
        }
    }
    *found = true;
    return TRM_OK;
}

static trm_status write_cache(const quantizing *q, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    for (int32_t i = 0, next = 0; i < q->n; i++) {
        if (q->products[i].observer == next) {
            fprintf(file, "%.9g %s\n", (double)q->scales[i].scale, q->products[i].of.input);
            next++;
        }
    }
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static trm_status find_scales(quantizing *q)
{
    const char *cache = settings_text(q->all, SETTING_CALIBRATION_CACHE);
    bool found = false;
    TRM_TRY(cache != NULL ? read_cache(q, cache, &found) : TRM_OK);
    if (found) {
        return TRM_OK;
    }
    if (q->n_samples == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "ranges of a network come of samples: give --samples");
    }
    TRM_TRY(calibrate(q));
    return cache != NULL ? write_cache(q, cache) : TRM_OK;
}

/* ---- the error of outputs -------------------------------------------------------------------------------------------
 */

static trm_status add_error(quantizing *q, running *before, running *after)
{
    trm_onnx_port port;
    for (int32_t i = 0; i < q->n_outputs && trm_onnx_get_output(q->model, i, &port); i++) {
        trm_dims dims, other;
        const void *x, *y;
        if (port.dtype != TRM_F32) {
            continue;
        }
        TRM_TRY(trm_context_output(before->context, port.name, &dims, &x));
        TRM_TRY(trm_context_output(after->context, port.name, &other, &y));
        int64_t count = 1;
        for (int32_t k = 0; k < dims.n; k++) {
            count *= dims.d[k];
        }
        for (int64_t k = 0; k < count && memcmp(&dims, &other, sizeof(dims)) == 0; k++) {
            const double a = (double)((const float *)x)[k], d = a - (double)((const float *)y)[k];
            q->signal[i] += a * a;
            q->noise[i] += d * d;
        }
    }
    return TRM_OK;
}

static trm_status compare(quantizing *q)
{
    running before = {0}, after = {0};
    q->n_outputs = trm_onnx_output_count(q->model);
    q->signal = calloc(2 * (size_t)q->n_outputs + 1, sizeof(*q->signal));
    if (q->signal == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the errors of %d outputs", (int)q->n_outputs);
    }
    q->noise = q->signal + q->n_outputs;
    trm_status status;
    TRM_TRY_GOTO(status, read_sample(q, 0), done);
    TRM_TRY_GOTO(status, trm_onnx_open(q->to, &after.model), done);
    TRM_TRY_GOTO(status, begin_running(q, q->model, false, &before), done);
    TRM_TRY_GOTO(status, begin_running(q, after.model, false, &after), done);
    for (int i = 0; status == TRM_OK && i < q->n_samples; i++) {
        status = run_sample(q, &before, i);
        status = status == TRM_OK ? run_sample(q, &after, i) : status;
        status = status == TRM_OK ? add_error(q, &before, &after) : status;
    }
done:
    end_running(&after);
    end_running(&before);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------------------------------
 */

static trm_status list_products(quantizing *q)
{
    trm_onnx_product found;
    int32_t n = 0;
    while (trm_onnx_get_product(q->model, n, &found)) {
        n++;
    }
    q->products = calloc((size_t)n + 1, sizeof(*q->products));
    q->scales = calloc((size_t)n + 1, sizeof(*q->scales));
    if (q->products == NULL || q->scales == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %d products", (int)n);
    }
    for (int32_t i = 0; i < n && trm_onnx_get_product(q->model, i, &found); i++) {
        bool kept = false;
        for (int32_t k = 0; k < q->all->list_counts[SETTING_KEEP]; k++) {
            kept = kept || fnmatch(q->all->lists[SETTING_KEEP][k], found.output, 0) == 0;
        }
        if (kept) {
            continue;
        }
        product *p = &q->products[q->n];
        *p = (product){found, q->n_observers};
        for (int32_t k = 0; k < q->n; k++) {
            p->observer = strcmp(q->products[k].of.input, found.input) == 0 ? q->products[k].observer : p->observer;
        }
        q->n_observers += p->observer == q->n_observers ? 1 : 0;
        q->scales[q->n++].output = found.output;
    }
    if (q->n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "network %s has no Conv, MatMul or Gemm with a weight of f32 to quantize",
                 q->from);
    }
    return TRM_OK;
}

static bool take_layer(void *user, const trm_quantized_layer *layer)
{
    quantizing *q = user;
    q->before += layer->bytes_before;
    q->after += layer->bytes_after;
    if (layer->error >= q->worst) {
        free(q->worst_name);
        q->worst = layer->error;
        q->worst_name = strdup(layer->name);
    }
    return !q->stopped();
}

static void print_result(const quantizing *q)
{
    trm_onnx_port port;
    if (settings_flag(q->all, SETTING_JSON)) {
        report r;
        report_begin(&r, stdout);
        report_text(&r, "network", q->from);
        report_text(&r, "file", q->to);
        report_integer(&r, "products", q->n);
        report_integer(&r, "bytes_before", q->before);
        report_integer(&r, "bytes_after", q->after);
        report_number(&r, "largest_error", q->worst);
        report_open(&r, "outputs", '[');
        for (int32_t i = 0; i < q->n_outputs && trm_onnx_get_output(q->model, i, &port); i++) {
            report_open(&r, NULL, '{');
            report_text(&r, "name", port.name);
            report_number(&r, "error", q->signal[i] > 0.0 ? sqrt(q->noise[i] / q->signal[i]) : 0.0);
            report_close(&r);
        }
        report_close(&r);
        report_end(&r);
    } else if (!settings_flag(q->all, SETTING_QUIET)) {
        printf("%s: %d products in int8: %s became %s, largest error of a weight %s%% (%s)\n", q->to, (int)q->n,
               trm_size_text((double)q->before).text, trm_size_text((double)q->after).text,
               trm_number_text(100.0 * q->worst, 2).text, q->worst_name != NULL ? q->worst_name : "");
        for (int32_t i = 0; i < q->n_outputs && trm_onnx_get_output(q->model, i, &port); i++) {
            printf("output %s: error %s%% on %d samples\n", port.name,
                   trm_number_text(q->signal[i] > 0.0 ? 100.0 * sqrt(q->noise[i] / q->signal[i]) : 0.0, 3).text,
                   q->n_samples);
        }
    }
}

static trm_status run(quantizing *q)
{
    struct stat info;
    const char *to = settings_text(q->all, SETTING_TO), *rule = settings_text(q->all, SETTING_CALIBRATION);
    if (to == NULL || strcmp(to, "int8") != 0 || q->to == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "quantize of a network takes --to int8 and --out, the new file");
    }
    if (!observer_rule_named(rule, &q->rule)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--calibration is %s, expected minmax, percentile, mse or entropy", rule);
    }
    if (lstat(q->to, &info) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "file %s is there already, expected the name of a new one", q->to);
    }
    TRM_TRY(trm_onnx_open(q->from, &q->model));
    TRM_TRY(list_products(q));
    TRM_TRY(settings_text(q->all, SETTING_SAMPLES) != NULL ? list_samples(q) : TRM_OK);
    TRM_TRY(find_scales(q));
    TRM_TRY(trm_onnx_quantize(q->model, q->to, q->scales, q->n, take_layer, q));
    TRM_TRY(q->n_samples > 0 ? compare(q) : TRM_OK);
    print_result(q);
    return TRM_OK;
}

trm_status quantize_network(const settings *all, bool (*stopped)(void))
{
    quantizing q = {.all = all, .stopped = stopped, .from = all->operands[0], .to = settings_text(all, SETTING_OUT)};
    const trm_status status = run(&q);
    drop_sample(&q);
    for (int i = 0; i < q.n_samples; i++) {
        free(q.samples[i]);
    }
    free(q.samples);
    free(q.inputs);
    free(q.products);
    free(q.scales);
    free(q.observers);
    free(q.signal);
    free(q.worst_name);
    trm_onnx_close(q.model);
    return status;
}
