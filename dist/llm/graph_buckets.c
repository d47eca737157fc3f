/* The graph buckets that steps are padded to, and the cache of captured ones. */
#include "dist/llm/graph_buckets.h"

#include <assert.h>

/* Longer steps keep the device busy so long that launching their layers one by one costs nothing. */
#define MOST_MIXED_TOKENS 2048

void trm_graph_buckets_init(trm_graph_buckets *steps, int32_t max_sequences, int32_t drafts, int32_t max_rows,
                            int32_t narrow_blocks)
{
    *steps = (trm_graph_buckets){.narrow_blocks = narrow_blocks};
    const int32_t room =
        TRM_MAX_BUCKETS - 1 -
        4; /* for 2 tokens up to the first power of two that holds 15 draft tokens and one, and for the largest */
    for (int32_t b = 1; steps->n_decode < room && b < max_sequences; b += b < 8 ? b : b < 128 ? 8 : 64) {
        steps->fixed[steps->n_decode++].form = (trm_step_form){b, b, b, 0};
    }
    steps->fixed[steps->n_decode++].form = (trm_step_form){max_sequences, max_sequences, max_sequences, 0};
    for (int32_t i = 0; i < steps->n_decode; i++) {
        steps->narrow[i].form = steps->fixed[i].form;
        steps->narrow[i].form.table_blocks = narrow_blocks;
    }
    for (int32_t b = 2, last = 1; drafts > 0 && last < drafts + 1; last = b, b *= 2) {
        int32_t n = b < max_rows ? b : max_rows;
        steps->fixed[steps->n_decode + steps->n_draft++].form = (trm_step_form){n, 1, n, 0};
    }
}

static void drop(trm_graph_bucket *step)
{
    for (int32_t mode = 0; mode < TRM_SAMPLE_MODE_COUNT; mode++) {
        trm_graph_exec_destroy(step->execs[mode]);
        trm_graph_exec_destroy(step->aheads[mode]);
        step->execs[mode] = step->aheads[mode] = NULL;
    }
}

void trm_graph_buckets_drop(trm_graph_buckets *steps)
{
    for (int32_t i = 0; i < TRM_MAX_BUCKETS; i++) {
        drop(&steps->fixed[i]);
        drop(&steps->narrow[i]);
    }
    for (int32_t i = 0; i < TRM_MIXED_FORMS; i++) {
        drop(&steps->mixed[i]);
    }
}

trm_graph_bucket *trm_graph_bucket_decode(trm_graph_buckets *steps, int32_t n, int32_t blocks)
{
    int32_t i = 0;
    while (steps->fixed[i].form.sequences < n) {
        i++;
        assert(i < steps->n_decode);
    }
    return blocks <= steps->narrow_blocks ? &steps->narrow[i] : &steps->fixed[i];
}

trm_graph_bucket *trm_graph_bucket_draft(trm_graph_buckets *steps, int32_t n)
{
    for (int32_t i = steps->n_decode; i < steps->n_decode + steps->n_draft; i++) {
        if (steps->fixed[i].form.tokens >= n) {
            return &steps->fixed[i];
        }
    }
    return NULL;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t power_of_two(int32_t n)
{
    int32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

static int32_t padded_tokens(int32_t n)
{
    int32_t grain = n <= 1024 ? 64 : 128;
    return n <= 32 ? least(32, power_of_two(n < 16 ? 16 : n)) : (n + grain - 1) / grain * grain;
}

trm_graph_bucket *trm_graph_bucket_mixed(trm_graph_buckets *steps, const trm_step_form *form, const trm_step_form *most)
{
    if (form->tokens > MOST_MIXED_TOKENS) {
        return NULL;
    }
    trm_step_form padded = {0};
    padded.sequences = least(power_of_two(form->sequences < 8 ? 8 : form->sequences), most->sequences);
    /* Attention treats steps with no more tokens than sequences as decode steps. */
    padded.tokens = padded_tokens(form->tokens > padded.sequences ? form->tokens : padded.sequences + 1);
    padded.tokens = least(padded.tokens, most->tokens);
    if (padded.tokens <= padded.sequences) {
        return NULL;
    }
    padded.rows = form->rows == 0                  ? 0 /* without the logits' product */
                  : form->rows <= padded.sequences ? padded.sequences
                                                   : padded.tokens;
    padded.rows = least(padded.rows, most->rows);
    if (padded.tokens < form->tokens || padded.sequences < form->sequences || padded.rows < form->rows) {
        return NULL;
    }
    trm_graph_bucket *oldest = steps->mixed;
    steps->uses++;
    for (int32_t i = 0; i < TRM_MIXED_FORMS; i++) {
        trm_graph_bucket *step = &steps->mixed[i];
        if (step->last_use > 0 && step->form.tokens == padded.tokens && step->form.sequences == padded.sequences &&
            step->form.rows == padded.rows) {
            step->last_use = steps->uses;
            return step;
        }
        oldest = step->last_use < oldest->last_use ? step : oldest;
    }
    drop(oldest);
    *oldest = (trm_graph_bucket){.form = padded, .last_use = steps->uses};
    return oldest;
}
