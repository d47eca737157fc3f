/* `trireme quantize`: a model folder with quantized weights. The library writes it; here are what chooses its numbers,
 * progress and reports. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/temporary.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/quantize/beside.h"
#include "launcher/cli/quantize/factors.h"
#include "launcher/cli/quantize/method.h"
#include "launcher/cli/quantize/network.h"
#include "launcher/cli/quantize/rounding.h"
#include "launcher/cli/quantize/samples.h"
#include "launcher/cli/quantize/summary.h"

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

typedef struct quantizing {
    const settings *all;
    quantize_method method;
    quantize_summary summary;
    samples samples;
    rounding rounding;
    trm_pool *pool;
    trm_temporary made; /* the folder that the rescaled model is in */
    const char *doing;  /* what progress is of */
    trm_status held;    /* the failure of a callback that cannot return it */
} quantizing;

/* ---- progress --------------------------------------------------------------------------------------------------- */

static void show(const quantizing *q, int64_t done, int64_t total, const char *what)
{
    if (!settings_flag(q->all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s: %3d%%%s%s\033[K", q->doing, (int)(100.0 * (double)done / (double)total),
                what != NULL ? ", " : "", what != NULL ? what : "");
        fflush(stderr);
    }
}

static bool tick(void *user, int64_t done, int64_t total)
{
    show(user, done, total, NULL);
    return interrupted == 0;
}

/* The square of the error of a layer's outputs over that of the outputs, as far as columns are independent. */
static trm_status find_output_error(quantizing *q, const trm_quantized_layer *layer, double *error)
{
    char weight[512];
    const sample_stats *stats;
    double difference = 0.0, square = 0.0;
    *error = -1.0;
    snprintf(weight, sizeof(weight), "%s.weight", layer->name);
    TRM_TRY(samples_stats(&q->samples, weight, &stats));
    if (stats == NULL || stats->columns != layer->columns) {
        return TRM_OK;
    }
    for (int64_t c = 0; c < layer->columns; c++) {
        difference += layer->differences[c] * stats->square[c];
        square += layer->squares[c] * stats->square[c];
    }
    *error = square > 0.0 ? sqrt(difference / square) : 0.0;
    return TRM_OK;
}

static bool take_layer(void *user, const trm_quantized_layer *layer)
{
    quantizing *q = user;
    double error;
    q->held = find_output_error(q, layer, &error);
    if (q->held == TRM_OK && !quantize_summary_add(&q->summary, layer, error)) {
        q->held = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for the report");
    }
    show(q, layer->done, layer->total, layer->name);
    return interrupted == 0 && q->held == TRM_OK;
}

static trm_status choose(void *user, const trm_quantize_choice *choice)
{
    quantizing *q = user;
    return interrupted != 0 ? trm_fail(TRM_ERROR_CANCELLED, "quantizing was stopped")
                            : rounding_choose(&q->rounding, choice);
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static trm_status take_samples(quantizing *q)
{
    TRM_TRY(samples_open(&q->samples, q->all, q->summary.model, q->summary.weights, q->summary.folder));
    if (settings_text(q->all, SETTING_SAMPLES) == NULL) {
        return TRM_OK;
    }
    q->doing = "sampling";
    TRM_TRY(samples_collect(&q->samples, q->all, q->summary.model, tick, q));
    q->summary.samples = q->samples.n;
    return TRM_OK;
}

/* Puts factors on weights; *folder becomes that of the rescaled model. */
static trm_status rescale(quantizing *q, const char **folder, char path[600])
{
    char parent[512];
    factor_list factors;
    const factor_options options = {.form = q->method.form,
                                    .smooth = q->method.smooth,
                                    .alpha = settings_number(q->all, SETTING_ALPHA),
                                    .pool = q->pool,
                                    .tick = tick,
                                    .user = q};
    q->doing = "choosing factors";
    trm_status status = factors_choose(&q->samples, &options, &factors);
    q->summary.rescaled = factors.groups;
    TRM_TRY_GOTO(status, status, done);
    if (factors.n == 0) {
        TRM_TRY_GOTO(status,
                     trm_fail(TRM_ERROR_UNSUPPORTED, "%s finds no layers whose input comes from a norm%s",
                              q->method.smooth ? "smoothquant" : "awq", q->method.smooth ? "" : " or a linear layer"),
                     done);
    }
    beside_parent(q->summary.folder, parent);
    TRM_TRY_GOTO(status, trm_temporary_create(parent, ".trireme-rescaled", &q->made), done);
    snprintf(path, 600, "%s/model", q->made.path);
    q->doing = "rescaling";
    status = trm_model_rescale(q->summary.model, path, factors.list, factors.n, tick, q);
    *folder = path;
done:
    factor_list_fini(&factors);
    return status;
}

static trm_status write_folder(quantizing *q, const char *from)
{
    const settings *all = q->all;
    const bool is_chosen = q->method.gptq || q->method.clip;
    const trm_quantize_options options = {.size = sizeof(options),
                                          .keep = all->lists[SETTING_KEEP],
                                          .n_keep = all->list_counts[SETTING_KEEP],
                                          .on_layer = take_layer,
                                          .choose = is_chosen ? choose : NULL,
                                          .user = q,
                                          .choose_scales = q->method.clip};
    q->doing = "quantizing";
    q->rounding = (rounding){
        .s = &q->samples, .pool = q->pool, .gptq = q->method.gptq, .clip = q->method.clip, .keeps_q = q->method.awq};
    trm_status status = trm_model_quantize(from, q->summary.weights, q->summary.folder, &options);
    q->summary.chosen = q->rounding.chosen;
    q->summary.without = q->rounding.without;
    return q->held != TRM_OK ? q->held : status;
}

/* Measures what quantizing each layer alone does. Experts of a layer are one. */
static trm_status measure_layers(quantizing *q, const char *folder)
{
    q->doing = "measuring layers";
    TRM_TRY(quantize_summary_list_parts(&q->summary, &q->samples.groups));
    return evaluate_parts(q->all, folder, q->summary.weights, q->summary.parts, q->summary.n_parts, tick, q);
}

static trm_status write_report(const quantize_summary *summary, const char *path)
{
    TRM_TRY(quantize_summary_check_path(path));
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    quantize_summary_write(summary, path, file);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static void print_result(const settings *all, const quantize_summary *summary)
{
    char text[512];
    if (settings_flag(all, SETTING_JSON)) {
        quantize_summary_write(summary, "report.json", stdout);
    } else if (!settings_flag(all, SETTING_QUIET)) {
        const quantize_totals t = quantize_summary_totals(summary);
        printf("%s: %zu layers in %s: %s became %s, mean error %s%%, largest %s%% (%s)\n", summary->folder,
               summary->count, summary->weights, trm_size_text((double)t.before).text,
               trm_size_text((double)t.after).text, trm_number_text(100.0 * t.mean, 2).text,
               trm_number_text(100.0 * t.worst, 2).text, t.worst_name);
        quantize_summary_describe_method(summary, text, sizeof(text));
        printf("%s%s", text, text[0] != '\0' ? "\n" : "");
        quantize_summary_describe_text(summary, text, sizeof(text));
        printf("%s%s", text, text[0] != '\0' ? "\n" : "");
        quantize_summary_print_parts(summary, stdout);
    }
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

/* Refuses early what would be refused late. */
static trm_status check(const quantizing *q)
{
    struct stat info;
    const char *path = settings_text(q->all, SETTING_REPORT);
    const bool has_text = settings_text(q->all, SETTING_TEXT) != NULL;
    const bool has_samples = settings_text(q->all, SETTING_SAMPLES) != NULL;
    if (q->summary.weights == NULL || q->summary.folder == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "quantize takes --to and --out, the new folder");
    }
    TRM_TRY(path != NULL ? quantize_summary_check_path(path) : TRM_OK);
    if ((has_text || has_samples) && launched_rank() != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--text and --samples run on one rank: start quantize without a launcher");
    }
    if (settings_flag(q->all, SETTING_SENSITIVITY) && !has_text) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--sensitivity measures layers on a text: give --text");
    }
    if (lstat(q->summary.folder, &info) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s is there already, expected the name of a new one",
                 q->summary.folder);
    }
    return TRM_OK;
}

static trm_status quantize(quantizing *q)
{
    const char *path = settings_text(q->all, SETTING_REPORT), *from = q->summary.model;
    char rescaled[600];
    const bool measures = settings_flag(q->all, SETTING_SENSITIVITY);
    TRM_TRY(check(q));
    TRM_TRY(quantize_method_read(q->all, q->summary.weights, &q->method));
    TRM_TRY(settings_text(q->all, SETTING_TEXT) != NULL ? evaluate_check(q->all, from) : TRM_OK);
    if (q->method.clip || q->method.gptq || q->method.awq || q->method.smooth) {
        const int64_t threads = settings_integer(q->all, SETTING_THREADS), cpus = sysconf(_SC_NPROCESSORS_ONLN);
        TRM_TRY(trm_pool_create((int32_t)(threads > 0 ? threads : cpus > 0 ? cpus : 1), &q->pool));
    }
    TRM_TRY(q->pool != NULL || measures || settings_text(q->all, SETTING_SAMPLES) != NULL ? take_samples(q) : TRM_OK);
    TRM_TRY(q->method.awq || q->method.smooth ? rescale(q, &from, rescaled) : TRM_OK);
    TRM_TRY(write_folder(q, from));
    if (settings_text(q->all, SETTING_TEXT) != NULL) {
        q->doing = "evaluating";
        TRM_TRY(evaluate(q->all, q->summary.model, q->summary.folder, tick, q, &q->summary.text));
    }
    TRM_TRY(measures ? measure_layers(q, from) : TRM_OK);
    if (!settings_flag(q->all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
    }
    print_result(q->all, &q->summary);
    return path != NULL ? write_report(&q->summary, path) : TRM_OK;
}

static void end(quantizing *q)
{
    trm_temporary_remove(&q->made);
    rounding_fini(&q->rounding);
    samples_fini(&q->samples);
    quantize_summary_fini(&q->summary);
    trm_pool_destroy(q->pool);
}

static bool is_interrupted(void)
{
    return interrupted != 0;
}

int command_quantize(const settings *all)
{
    if (!is_first_rank()) {
        return 0;
    }
    struct sigaction act = {.sa_handler = note_interrupt}, before[2];
    quantizing q = {.all = all,
                    .summary = {.model = all->operands[0],
                                .weights = settings_text(all, SETTING_TO),
                                .folder = settings_text(all, SETTING_OUT)},
                    .made = TRM_TEMPORARY_NONE};
    sigemptyset(&act.sa_mask); /* SIGINT and SIGTERM leave nothing behind */
    sigaction(SIGINT, &act, &before[0]);
    sigaction(SIGTERM, &act, &before[1]);
    q.summary.method = &q.method;
    const size_t size = strlen(all->operands[0]);
    const bool is_network = size > 5 && strcmp(all->operands[0] + size - 5, ".onnx") == 0;
    const trm_status status = is_network ? quantize_network(all, is_interrupted) : quantize(&q);
    const int code = status == TRM_OK ? 0 : print_failure(status);
    end(&q);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (interrupted) { /* the caller must see that it was a signal */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    return code;
}
