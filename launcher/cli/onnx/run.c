/* `trireme run NET.onnx` and NET.plan: one run on given inputs. Outputs are written to files or summarized, and
 * compared with references. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/element.h"
#include "launcher/cli/onnx/expect.h"

typedef struct output {
    const char *name;
    trm_dtype dtype;
    trm_dims dims;
    const void *data;
    size_t count, n_nan;
    double least, most, mean; /* of the values that are numbers */
} output;

static trm_status read_output(onnx_job *j, int32_t index, output *to)
{
    const trm_tensor *tensor = trm_network_output(j->shown, index);
    *to = (output){.name = trm_tensor_name(tensor), .dtype = trm_tensor_dtype(tensor), .count = 1};
    TRM_TRY(trm_context_output(j->context, to->name, &to->dims, &to->data));
    for (int32_t i = 0; i < to->dims.n; i++) {
        to->count *= (size_t)to->dims.d[i];
    }
    double sum = 0;
    size_t numbers = 0;
    for (size_t i = 0; i < to->count; i++) {
        double value = trm_element_as_double(to->dtype, to->data, i);
        if (isnan(value)) {
            to->n_nan++;
            continue;
        }
        to->least = numbers == 0 || value < to->least ? value : to->least;
        to->most = numbers == 0 || value > to->most ? value : to->most;
        sum += value;
        numbers++;
    }
    to->mean = numbers == 0 ? 0 : sum / (double)numbers;
    return TRM_OK;
}

static void print_output(const output *o, const char *file)
{
    char dims[160];
    onnx_dims_text(&o->dims, dims, sizeof(dims));
    printf("%s %s %s: min %.6g, mean %.6g, max %.6g", o->name, trm_dtype_name(o->dtype), dims, o->least, o->mean,
           o->most);
    if (o->n_nan > 0) {
        printf(", %zu NaN", o->n_nan);
    }
    if (file != NULL) {
        printf(", written to %s\n", file);
        return;
    }
    printf("\n ");
    for (size_t i = 0; i < o->count && i < 8; i++) {
        printf(" %.6g", trm_element_as_double(o->dtype, o->data, i));
    }
    printf("%s\n", o->count > 8 ? " ..." : "");
}

static void report_output(report *r, const output *o, const char *file)
{
    report_open(r, NULL, '{');
    report_text(r, "name", o->name);
    report_text(r, "dtype", trm_dtype_name(o->dtype));
    report_open(r, "dims", '[');
    for (int32_t i = 0; i < o->dims.n; i++) {
        report_integer(r, NULL, o->dims.d[i]);
    }
    report_close(r);
    report_number(r, "min", o->least);
    report_number(r, "mean", o->mean);
    report_number(r, "max", o->most);
    report_integer(r, "nan", (int64_t)o->n_nan);
    report_text(r, "file", file);
    report_close(r);
}

/* The file of an output, in `path` if it is one of --outputs; else NULL. */
static const char *file_of(const settings *all, int32_t index, const char *name, char *path, size_t size)
{
    const char *file = NULL, *folder = settings_text(all, SETTING_OUTPUTS);
    if (folder != NULL) {
        snprintf(path, size, "%s/output_%d.npy", folder, (int)index);
        file = path;
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_OUTPUT]; i++) {
        const char *found = onnx_assigned(all->lists[SETTING_OUTPUT][i], name);
        file = found != NULL ? found : file;
    }
    return file;
}

trm_status onnx_write_outputs(const onnx_job *j)
{
    const char *folder = settings_text(j->all, SETTING_OUTPUTS);
    if (folder != NULL && mkdir(folder, 0777) != 0 && errno != EEXIST) {
        TRM_FAIL(TRM_ERROR_IO, "cannot make folder %s: %s", folder, strerror(errno));
    }
    for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
        const trm_tensor *tensor = trm_network_output(j->shown, i);
        char path[4096];
        trm_dims dims;
        const void *data;
        const char *file = file_of(j->all, i, trm_tensor_name(tensor), path, sizeof(path));
        if (file != NULL) {
            TRM_TRY(trm_context_output(j->context, trm_tensor_name(tensor), &dims, &data));
            TRM_TRY(onnx_write_file(file, trm_tensor_dtype(tensor), &dims, data));
        }
    }
    return TRM_OK;
}

trm_status onnx_unknown_output(const onnx_job *j, const char *option, const char *text)
{
    char names[256] = "";
    size_t used = 0;
    for (int32_t k = 0; k < trm_network_output_count(j->shown) && used < sizeof(names); k++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", k == 0 ? "" : ", ",
                                 trm_tensor_name(trm_network_output(j->shown, k)));
    }
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                    "--%s is \"%s\", expected NAME=FILE with an output of the model, its outputs are: %s", option, text,
                    names);
}

trm_status onnx_check_outputs(const onnx_job *j)
{
    for (int32_t i = 0; i < j->all->list_counts[SETTING_OUTPUT]; i++) {
        const char *text = j->all->lists[SETTING_OUTPUT][i];
        bool known = false;
        for (int32_t k = 0; k < trm_network_output_count(j->shown); k++) {
            const char *file = onnx_assigned(text, trm_tensor_name(trm_network_output(j->shown, k)));
            known = known || (file != NULL && file[0] != '\0');
        }
        TRM_TRY(known ? TRM_OK : onnx_unknown_output(j, "output", text));
    }
    return TRM_OK;
}

static trm_status show_outputs(onnx_job *j, const onnx_expect *expect)
{
    bool json = settings_flag(j->all, SETTING_JSON);
    report r;
    TRM_TRY(onnx_write_outputs(j));
    if (json) {
        report_begin(&r, stdout);
        report_text(&r, "model", j->all->operands[0]);
        report_open(&r, "outputs", '[');
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < trm_network_output_count(j->shown) && status == TRM_OK; i++) {
        output o;
        char path[4096];
        status = read_output(j, i, &o);
        const char *file = status == TRM_OK ? file_of(j->all, i, o.name, path, sizeof(path)) : NULL;
        if (status == TRM_OK && json) {
            report_output(&r, &o, file);
        } else if (status == TRM_OK && !(file != NULL && settings_flag(j->all, SETTING_QUIET))) {
            print_output(&o, file);
        }
    }
    if (json) {
        if (status == TRM_OK) {
            report_close(&r);
            onnx_expect_report(expect, &r);
        }
        report_end(&r);
    } else if (status == TRM_OK) {
        onnx_expect_print(expect, j->all);
    }
    return status;
}

/* Steps that fail on every rank with the same error: the model, the settings, the files. */
static trm_status prepare(onnx_job *j)
{
    TRM_TRY(onnx_open(j, j->all->operands[0], trm_world_size(j->job.world)));
    TRM_TRY(onnx_build(j, false));
    return onnx_check_outputs(j);
}

static trm_status run(onnx_job *j, onnx_expect *expect, bool *alike)
{
    *alike = true;
    TRM_TRY(trm_world_all_ok(j->job.world, prepare(j)));
    TRM_TRY(onnx_expect_open(expect, j));
    TRM_TRY(onnx_load(j));
    TRM_TRY(trm_world_all_ok(j->job.world, onnx_set_inputs(j, j->context)));
    *alike = false;
    TRM_TRY(onnx_tune(j));
    TRM_TRY(trm_context_run(j->context));
    TRM_TRY(onnx_expect_compare(expect, j, &j->context, 1));
    return j->job.is_leader ? show_outputs(j, expect) : TRM_OK;
}

int onnx_run_command(const settings *all)
{
    onnx_job j = {.all = all};
    onnx_expect expect = {0};
    bool alike = true;
    trm_status status = job_open_world(&j.job, all);
    if (status == TRM_OK) {
        status = run(&j, &expect, &alike);
    }
    if (status == TRM_OK || alike || j.n_ranks <= 1) { /* aborting a job ends the process at once */
        onnx_close(&j);
    }
    const bool holds = status != TRM_OK || onnx_expect_conclude(&expect, j.job.is_leader);
    onnx_expect_close(&expect);
    const int code = job_close(&j.job, status, alike);
    return holds ? code : trm_status_exit_code(TRM_ERROR_INTERNAL);
}
