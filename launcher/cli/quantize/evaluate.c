/* The logits of the first model wait in a file without a name until the second one has made its own. */
#include "launcher/cli/quantize/evaluate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/file.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/quantize/passages.h"

#define MOST_TOKENS 4096
#define TEXT_LIMIT  ((size_t)1 << 30)
#define TEXT_BYTES  ((size_t)1 << 18) /* of a text: they have MOST_TOKENS tokens and more */

typedef struct work {
    const int32_t *ids; /* [n] */
    int64_t n;
    FILE *logits;     /* of the first model */
    float *reference; /* [vocab], in the second run */
    evaluation sums;
    double loss; /* of this run */
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

static trm_status run_all(work *w, passages *p)
{
    w->loss = 0.0;
    for (int64_t first = 0; first + 1 < w->n; first += p->tokens) {
        const int64_t n = w->n - first < p->tokens ? w->n - first : p->tokens;
        const float *logits;
        TRM_TRY(passages_run(p, w->ids + first, n, &logits));
        for (int64_t i = 0; i + 1 < n; i++) {
            TRM_TRY(take_token(w, logits + i * p->vocab, w->ids[first + i + 1], p->vocab));
        }
    }
    return TRM_OK;
}

static trm_status run_model(const settings *all, work *w, const char *folder, bool is_second, trm_backend backend,
                            trm_world *world, double *perplexity)
{
    passages p;
    trm_dtype dtype;
    TRM_TRY(job_dtype(all, &dtype));
    trm_status status = passages_open(&p, folder, dtype, backend, world, NULL, NULL);
    if (status == TRM_OK && is_second) {
        w->reference = malloc((size_t)p.vocab * sizeof(float));
        status = w->reference == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for logits") : TRM_OK;
    }
    status = status == TRM_OK ? run_all(w, &p) : status;
    passages_close(&p);
    free(w->reference);
    w->reference = NULL;
    *perplexity = exp(w->loss / (double)w->sums.tokens);
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

static trm_status run_both(const settings *all, work *w, const char *before, const char *after)
{
    trm_backend backend;
    trm_world *world;
    TRM_TRY(evaluate_open_world(all, &backend, &world));
    trm_status status = run_model(all, w, before, false, backend, world, &w->sums.perplexity_before);
    rewind(w->logits);
    if (status == TRM_OK) {
        status = run_model(all, w, after, true, backend, world, &w->sums.perplexity_after);
    }
    trm_world_close(world);
    return status;
}

/* ---- the text --------------------------------------------------------------------------------------------------- */

trm_status evaluate_read_tokens(const char *path, const char *folder, int64_t *n, trm_tokens *tokens)
{
    char *text;
    size_t size;
    trm_tokenizer *tokenizer;
    TRM_TRY(trm_tokenizer_open(folder, &tokenizer));
    trm_status status = trm_file_read(path, TEXT_LIMIT, &text, &size);
    if (status == TRM_OK) {
        size = size < TEXT_BYTES ? size : TEXT_BYTES;
        while (size > 0 && size == TEXT_BYTES && ((unsigned char)text[size] & 0xc0u) == 0x80u) {
            size--; /* not within a character */
        }
        status = trm_tokenizer_encode(tokenizer, text, size, true, tokens);
        free(text);
    }
    trm_tokenizer_close(tokenizer);
    TRM_TRY(status);
    *n = (int64_t)tokens->count < MOST_TOKENS ? (int64_t)tokens->count : MOST_TOKENS;
    if (*n < 2) {
        trm_tokens_fini(tokens);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "text %s has %lld tokens, expected 2 or more", path, (long long)*n);
    }
    return TRM_OK;
}

trm_status evaluate(const settings *all, const char *before, const char *after, evaluation *result)
{
    const char *path = settings_text(all, SETTING_TEXT);
    trm_tokens tokens = {0};
    work w = {0};
    TRM_TRY(evaluate_read_tokens(path, after, &w.n, &tokens));
    w.ids = tokens.ids;
    trm_status status = TRM_OK;
    if ((w.logits = tmpfile()) == NULL) {
        status = trm_fail(TRM_ERROR_IO, "cannot make a temporary file: %s", strerror(errno));
    } else {
        status = run_both(all, &w, before, after);
        fclose(w.logits);
    }
    trm_tokens_fini(&tokens);
    TRM_TRY(status);
    *result = w.sums;
    result->divergence /= (double)w.sums.tokens;
    result->agreement /= (double)w.sums.tokens;
    return TRM_OK;
}
