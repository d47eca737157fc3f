/* `trireme quantize`: a model folder with quantized weights. The library writes it; here are progress and reports. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
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
    quantize_summary summary;
    samples samples;
    bool has_memory;
} quantizing;

static bool take_layer(void *user, const trm_quantized_layer *layer)
{
    quantizing *q = user;
    q->has_memory = q->has_memory && quantize_summary_add(&q->summary, layer);
    if (!settings_flag(q->all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\rquantizing: %3d%%, %s\033[K", (int)(100.0 * (double)layer->done / (double)layer->total),
                layer->name);
        fflush(stderr);
    }
    return interrupted == 0 && q->has_memory;
}

static trm_status choose(void *user, const trm_quantize_choice *choice)
{
    quantizing *q = user;
    return interrupted != 0 ? trm_fail(TRM_ERROR_CANCELLED, "quantizing was stopped")
                            : samples_choose(&q->samples, choice);
}

/* SIGINT and SIGTERM leave nothing behind. */
static trm_status run(quantizing *q, const char *folder)
{
    const settings *all = q->all;
    struct sigaction act = {.sa_handler = note_interrupt}, before[2];
    const trm_quantize_options options = {.size = sizeof(options),
                                          .keep = all->lists[SETTING_KEEP],
                                          .n_keep = all->list_counts[SETTING_KEEP],
                                          .on_layer = take_layer,
                                          .choose = q->samples.n > 0 ? choose : NULL,
                                          .user = q};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &before[0]);
    sigaction(SIGTERM, &act, &before[1]);
    trm_status status = trm_model_quantize(all->operands[0], settings_text(all, SETTING_TO), folder, &options);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (!settings_flag(all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
    }
    if (!q->has_memory) {
        return trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for the report");
    }
    return status;
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
    char text[256];
    if (settings_flag(all, SETTING_JSON)) {
        quantize_summary_write(summary, "report.json", stdout);
    } else if (!settings_flag(all, SETTING_QUIET)) {
        const quantize_totals t = quantize_summary_totals(summary);
        printf("%s: %zu layers in %s: %s became %s, mean error %s%%, largest %s%% (%s)\n", summary->folder,
               summary->count, summary->weights, trm_size_text((double)t.before).text,
               trm_size_text((double)t.after).text, trm_number_text(100.0 * t.mean, 2).text,
               trm_number_text(100.0 * t.worst, 2).text, t.worst_name);
        if (summary->chosen > 0) {
            printf("%d layers rounded by samples of their inputs\n", summary->chosen);
        }
        quantize_summary_describe_text(summary, text, sizeof(text));
        printf("%s%s", text, text[0] != '\0' ? "\n" : "");
    }
}

static trm_status quantize(quantizing *q)
{
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
    if (has_samples && strncmp(q->summary.weights, "int", 3) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--samples is for int8, int4 and int4-128, --to is %s",
                 q->summary.weights);
    }
    TRM_TRY(has_samples ? samples_collect(&q->samples, q->all, q->summary.model) : TRM_OK);
    TRM_TRY(run(q, q->summary.folder));
    q->summary.chosen = q->samples.chosen;
    if (has_text) {
        TRM_TRY(evaluate(q->all, q->summary.model, q->summary.folder, &q->summary.text));
    }
    print_result(q->all, &q->summary);
    return path != NULL ? write_report(&q->summary, path) : TRM_OK;
}

int command_quantize(const settings *all)
{
    if (!is_first_rank()) {
        return 0;
    }
    quantizing q = {.all = all,
                    .summary = {.model = all->operands[0],
                                .weights = settings_text(all, SETTING_TO),
                                .folder = settings_text(all, SETTING_OUT)},
                    .has_memory = true};
    const trm_status status = quantize(&q);
    quantize_summary_fini(&q.summary);
    samples_fini(&q.samples);
    const int code = status == TRM_OK ? 0 : print_failure(status);
    if (interrupted) { /* the caller must see that it was a signal */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    return code;
}
