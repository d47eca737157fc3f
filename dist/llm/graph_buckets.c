/* The graph buckets that steps are padded to. */
#include "dist/llm/graph_buckets.h"

#include <assert.h>

#include "base/error.h"

/* Longer steps keep the device busy so long that launching their layers one by one costs nothing. */
#define MOST_MIXED_TOKENS 2048
/* Of fewer tokens products take less time by 64; of more a tile of 128 rows takes as long half full, and neither
 * padding sequences nor their logits rows cost much. Fewer forms are captured sooner. */
#define LONG_TOKENS 512

void trm_graph_buckets_init(trm_graph_buckets *buckets, int32_t max_sequences, int32_t drafts, int32_t max_rows,
                            int32_t narrow_blocks)
{
    *buckets = (trm_graph_buckets){.narrow_blocks = narrow_blocks};
    const int32_t room =
        TRM_MAX_BUCKETS - 1 -
        4; /* for 2 tokens up to the first power of two that holds 15 draft tokens and one, and for the largest */
    for (int32_t b = 1; buckets->n_decode < room && b < max_sequences; b += b < 8 ? b : b < 128 ? 8 : 64) {
        buckets->fixed[buckets->n_decode++] = (trm_step_form){b, b, b, 0};
    }
    buckets->fixed[buckets->n_decode++] = (trm_step_form){max_sequences, max_sequences, max_sequences, 0};
    for (int32_t b = 2, last = 1; drafts > 0 && last < drafts + 1; last = b, b *= 2) {
        int32_t n = b < max_rows ? b : max_rows;
        buckets->fixed[buckets->n_decode + buckets->n_draft++] = (trm_step_form){n, 1, n, 0};
    }
}

trm_status trm_graph_buckets_open(const trm_graph_buckets *buckets, trm_capture_cache *cache)
{
    _Static_assert(2 * TRM_SAMPLE_MODE_COUNT <= TRM_CAPTURE_VARIANTS, "every mode, and every mode as async");
    const int32_t n_fixed = buckets->n_decode + buckets->n_draft;
    const int32_t n_narrow = buckets->narrow_blocks > 0 ? buckets->n_decode : 0;
    TRM_TRY(trm_capture_cache_init(cache, n_narrow + n_fixed + TRM_MIXED_FORMS, sizeof(trm_step_form)));
    for (int32_t i = 0; i < n_narrow; i++) {
        const trm_step_form narrow = trm_graph_bucket_decode(buckets, buckets->fixed[i].sequences, 1);
        trm_capture_cache_get(cache, &narrow)->stays = true;
    }
    for (int32_t i = 0; i < n_fixed; i++) {
        trm_capture_cache_get(cache, &buckets->fixed[i])->stays = true;
    }
    return TRM_OK;
}

trm_step_form trm_graph_bucket_decode(const trm_graph_buckets *buckets, int32_t n, int32_t blocks)
{
    int32_t i = 0;
    while (buckets->fixed[i].sequences < n) {
        i++;
        assert(i < buckets->n_decode);
    }
    trm_step_form form = buckets->fixed[i];
    form.table_blocks = blocks <= buckets->narrow_blocks ? buckets->narrow_blocks : 0;
    return form;
}

const trm_step_form *trm_graph_bucket_draft(const trm_graph_buckets *buckets, int32_t n)
{
    for (int32_t i = buckets->n_decode; i < buckets->n_decode + buckets->n_draft; i++) {
        if (buckets->fixed[i].tokens >= n) {
            return &buckets->fixed[i];
        }
    }
    return NULL;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The first of `from` * factor^i that is not below n. */
static int32_t power(int32_t from, int32_t factor, int32_t n)
{
    while (from < n) {
        from *= factor;
    }
    return from;
}

static int32_t padded_tokens(int32_t n)
{
    int32_t grain = n <= LONG_TOKENS ? 64 : 128;
    return n <= 32 ? power(16, 2, n) : (n + grain - 1) / grain * grain;
}

bool trm_graph_bucket_mixed(const trm_step_form *form, const trm_step_form *most, trm_step_form *padded)
{
    if (form->tokens > MOST_MIXED_TOKENS) {
        return false;
    }
    padded->table_blocks = 0;
    padded->sequences = least(power(8, form->tokens < LONG_TOKENS ? 2 : 4, form->sequences), most->sequences);
    /* Attention treats steps with no more tokens than sequences as decode steps. */
    padded->tokens = padded_tokens(form->tokens > padded->sequences ? form->tokens : padded->sequences + 1);
    padded->tokens = least(padded->tokens, most->tokens);
    if (padded->tokens <= padded->sequences) {
        return false;
    }
    padded->rows = form->rows == 0                   ? 0 /* without the logits' product */
                   : form->rows <= padded->sequences ? padded->sequences
                                                     : padded->tokens;
    padded->rows = least(padded->rows, most->rows);
    return padded->tokens >= form->tokens && padded->sequences >= form->sequences && padded->rows >= form->rows;
}
