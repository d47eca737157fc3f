/* The logits of the first model wait in a file without a name until the second one has made its own. */
#include "launcher/cli/quantize/evaluate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/quantize/beside.h"
#include "launcher/cli/quantize/passages.h"
#include "launcher/cli/quantize/token_list.h"

#define MOST_TOKENS 4096

typedef struct work {
    const settings *all;
    trm_backend backend;
    trm_world *world;
    token_list tokens;
    FILE *logits;     /* of the first model */
    float *reference; /* [vocab], in the second run */
    evaluation sums;
    double loss, seconds; /* of this run */
    evaluate_tick_fn tick;
    void *user;
    int64_t done, total; /* passages of all runs */
} work;

/* ---- one token ------------------------------------------------------------------------------------------------ */

/* The logarithm of the sum of exponentials, and the largest. */
static double normalize(const float *logits, int64_t vocab, int64_t *best)
{
    double sum = 0.0;
    *best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        *best = logits[i] > logits[*best] ? i : *best;
    }
    for (int64_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - (double)logits[*best]);
    }
    return (double)logits[*best] + log(sum);
}

static void compare_token(work *w, const float *logits, double norm, int64_t best, int64_t vocab)
{
    int64_t first;
    const double reference = normalize(w->reference, vocab, &first);
    for (int64_t i = 0; i < vocab; i++) {
        const double p = (double)w->reference[i] - reference;
        w->sums.divergence += exp(p) * (p - ((double)logits[i] - norm));
    }
    w->sums.agreement += first == best ? 1.0 : 0.0;
}

/* Keeps the logits of a token, or compares them with those that were kept. */
static trm_status take_token(work *w, const float *logits, int32_t next, int64_t vocab)
{
    int64_t best;
    const double norm = normalize(logits, vocab, &best);
    const size_t bytes = (size_t)vocab * sizeof(float);
    w->loss += norm - (double)logits[next];
    if (w->reference == NULL) {
        w->sums.tokens++;
        if (fwrite(logits, 1, bytes, w->logits) != bytes) {
            TRM_FAIL(TRM_ERROR_IO, "cannot write logits to a temporary file: %s", strerror(errno));
        }
        return TRM_OK;
    }
    if (fread(w->reference, 1, bytes, w->logits) != bytes) {
        TRM_FAIL(TRM_ERROR_IO, "cannot read logits from a temporary file: %s", strerror(errno));
    }
    compare_token(w, logits, norm, best, vocab);
    return TRM_OK;
}

/* ---- a model ---------------------------------------------------------------------------------------------------- */

static trm_status run_passage(work *w, passages *p, int64_t index)
{
    const int64_t first = w->tokens.starts[index], n = w->tokens.starts[index + 1] - first;
    const int32_t *ids = w->tokens.ids + first;
    const float *logits;
    const double start = trm_clock_seconds();
    TRM_TRY(passages_run(p, ids, n, &logits));
    w->seconds += trm_clock_seconds() - start;
    for (int64_t i = 0; i + 1 < n; i++) {
        TRM_TRY(take_token(w, logits + i * p->vocab, ids[i + 1], p->vocab));
    }
    if (w->tick != NULL && !w->tick(w->user, ++w->done, w->total)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "quantizing was stopped");
    }
    return TRM_OK;
}

/* Runs a model, which it closes, over all passages. */
static trm_status run_model(work *w, trm_model *model, bool is_first)
{
    passages p;
    trm_dtype dtype = TRM_DTYPE_NONE;
    w->loss = w->seconds = 0.0;
    rewind(w->logits);
    trm_status status = job_dtype(w->all, &dtype);
    if (status != TRM_OK) {
        trm_model_close(model);
        return status;
    }
    status = passages_begin(&p, w->all, model, dtype, w->backend, w->world, NULL, NULL);
    if (status == TRM_OK && !is_first) {
        w->reference = malloc((size_t)p.vocab * sizeof(float));
        status = w->reference == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for logits") : TRM_OK;
    }
    for (int64_t i = 0; status == TRM_OK && i < w->tokens.n; i++) {
        status = run_passage(w, &p, i);
    }
    passages_close(&p);
    free(w->reference);
    w->reference = NULL;
    return status;
}

trm_status evaluate_open_world(const settings *all, trm_backend *backend, trm_world **world)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    TRM_TRY(job_backend(all, &options.backend));
    options.gpu = (int32_t)settings_integer(all, SETTING_DEVICE) + 1;
    options.threads = (int32_t)settings_integer(all, SETTING_THREADS);
    *backend = options.backend;
    return trm_world_open(&options, world);
}

/* `most` tokens at most; 0: a passage. */
static trm_status read_tokens(work *w, const char *folder, int64_t most)
{
    trm_model *model;
    trm_model_info info;
    TRM_TRY(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    const int64_t longest =
        info.context_length > 0 && info.context_length < PASSAGE_TOKENS ? info.context_length : PASSAGE_TOKENS;
    trm_status status = token_list_read(settings_text(w->all, SETTING_TEXT), info.path, most > 0 ? most : longest,
                                        longest, info.vocab, &w->tokens);
    trm_model_close(model);
    bool any = status != TRM_OK;
    for (int64_t i = 0; !any && i < w->tokens.n; i++) {
        any = w->tokens.starts[i + 1] - w->tokens.starts[i] > 1;
    }
    if (!any) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "text %s has no passage of 2 tokens", settings_text(w->all, SETTING_TEXT));
    }
    return status;
}

trm_status evaluate_check(const settings *all, const char *folder)
{
    work w = {.all = all};
    trm_status status = read_tokens(&w, folder, MOST_TOKENS);
    token_list_fini(&w.tokens);
    return status;
}

/* Opens all but the models. */
static trm_status begin(work *w, const char *folder, int64_t most)
{
    TRM_TRY(read_tokens(w, folder, most));
    TRM_TRY(beside_file(settings_text(w->all, SETTING_OUT), &w->logits));
    return evaluate_open_world(w->all, &w->backend, &w->world);
}

static void end(work *w)
{
    trm_world_close(w->world);
    if (w->logits != NULL) {
        fclose(w->logits);
    }
    token_list_fini(&w->tokens);
}

static trm_status run_folder(work *w, const char *folder, bool is_first, double *perplexity, double *rate)
{
    trm_model *model;
    TRM_TRY(trm_model_open(folder, &model));
    TRM_TRY(run_model(w, model, is_first));
    *perplexity = exp(w->loss / (double)w->sums.tokens);
    *rate = (double)w->tokens.starts[w->tokens.n] / w->seconds;
    return TRM_OK;
}

trm_status evaluate(const settings *all, const char *before, const char *after, evaluate_tick_fn tick, void *user,
                    evaluation *result)
{
    work w = {.all = all, .tick = tick, .user = user};
    evaluation *sums = &w.sums;
    trm_status status = begin(&w, after, MOST_TOKENS);
    w.total = 2 * w.tokens.n;
    status = status == TRM_OK ? run_folder(&w, before, true, &sums->perplexity_before, &sums->rate_before) : status;
    status = status == TRM_OK ? run_folder(&w, after, false, &sums->perplexity_after, &sums->rate_after) : status;
    end(&w);
    TRM_TRY(status);
    *result = w.sums;
    result->divergence /= (double)w.sums.tokens;
    result->agreement /= (double)w.sums.tokens;
    return TRM_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static trm_status run_parts(work *w, const char *folder, const char *weights, evaluated_part *parts, int32_t n,
                            const char **keep)
{
    trm_model *model;
    TRM_TRY(trm_model_open(folder, &model));
    TRM_TRY(run_model(w, model, true));
    for (int32_t i = 0; i < n; i++) {
        int32_t n_keep = 0;
        for (int32_t k = 0; k < n; k++) {
            keep[n_keep] = parts[k].pattern;
            n_keep += k != i ? 1 : 0;
        }
        w->sums.divergence = 0.0;
        TRM_TRY(trm_model_open_quantized_except(folder, weights, keep, n_keep, &model));
        TRM_TRY(run_model(w, model, false));
        parts[i].divergence = w->sums.divergence / (double)w->sums.tokens;
    }
    return TRM_OK;
}

trm_status evaluate_parts(const settings *all, const char *folder, const char *weights, evaluated_part *parts,
                          int32_t n, evaluate_tick_fn tick, void *user)
{
    work w = {.all = all, .tick = tick, .user = user};
    const char **keep = malloc(((size_t)n + 1) * sizeof(*keep));
    trm_status status = keep == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %d layers", (int)n)
                                     : begin(&w, folder, 0);
    w.total = (n + 1) * w.tokens.n;
    status = status == TRM_OK ? run_parts(&w, folder, weights, parts, n, keep) : status;
    end(&w);
    free(keep);
    return status;
}
