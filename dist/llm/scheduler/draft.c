/* Speculation: which sequences of a step get draft tokens, and how many. */
#include "base/error.h"
#include "dist/llm/scheduler/scheduler.h"

/* Drafts whose context matches up to this many tokens are in the last class. */
static int32_t class_of(int32_t agreed)
{
    return agreed <= 2 ? 0 : agreed <= 4 ? 1 : 2;
}

static bool decodes(const trm_sequence *sequence)
{
    return sequence->n_tokens - sequence->n_cached == 1;
}

/* Drafts tokens after those of a sequence. */
static void guess(trm_scheduler *s, trm_sequence *sequence)
{
    int64_t room =
        sequence->n_most - sequence->n_tokens - 1; /* the last token is not drafted: one more comes with it */
    int32_t most = s->g->speculation.tokens, agreed = 0;
    most = room < most ? (int32_t)room : most;
    sequence->n_drafted = trm_ngram_draft_guess(&sequence->lookup, sequence->tokens, sequence->n_tokens, most,
                                                sequence->tokens + sequence->n_tokens, &agreed);
    sequence->draft_class = class_of(agreed);
    sequence->guess = sequence->n_drafted > 0 ? sequence->tokens[sequence->n_tokens] : -1;
}

/* Number of tokens that a draft model or a draft head drafts for a sequence. */
static int32_t model_room(const trm_scheduler *s, const trm_sequence *sequence)
{
    const trm_generator *drafts = s->head.g != NULL ? s->head.g : s->drafter.g;
    int64_t room = sequence->n_most - sequence->n_tokens - 1, context = drafts->max_context - sequence->n_tokens;
    if (s->head.g != NULL && sequence->head_row < 0) {
        return 0;
    }
    room = room < context ? room : context;
    room = room < s->g->speculation.tokens ? room : s->g->speculation.tokens;
    return room > 0 ? (int32_t)room : 0;
}

/* Drafts at most `most` tokens for each decoding sequence with the draft model. Stops early at a token that only one of
 * the models has. */
static trm_status draft_by_model(trm_scheduler *s, int32_t most)
{
    trm_draft_model *d = &s->drafter;
    int32_t n = 0, filled;
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        int32_t wanted = sequence->n_drafted < most ? sequence->n_drafted : most;
        for (int64_t k = d->n_cached[sequence->slot]; k < sequence->n_tokens && wanted > 0; k++) {
            wanted = sequence->tokens[k] < d->g->vocab ? wanted : 0;
        }
        sequence->n_drafted = wanted;
        if (d->n_cached[sequence->slot] >= sequence->n_tokens) {
            d->n_cached[sequence->slot] = sequence->n_tokens - 1; /* the newest token is run for its successor */
        }
        if (wanted > 0) {
            d->wanted[n++] = (trm_draft_slot){
                .slot = sequence->slot, .tokens = sequence->tokens, .n_tokens = sequence->n_tokens, .most = wanted};
        }
    }
    while ((filled = trm_draft_model_fill(d, n)) > 0) {
        TRM_TRY(trm_scheduler_send_draft(s, filled));
        TRM_TRY(trm_draft_model_step(d, filled));
        trm_draft_model_take(d, n);
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        for (int32_t k = 0; k < sequence->n_drafted; k++) {
            sequence->n_drafted = sequence->tokens[sequence->n_tokens + k] < s->g->vocab ? sequence->n_drafted : k;
        }
        sequence->n_from_model = sequence->n_drafted;
        sequence->guess = sequence->n_drafted > 0 ? sequence->tokens[sequence->n_tokens] : -1;
    }
    return TRM_OK;
}

void trm_scheduler_keep_drafts(trm_scheduler *s, const trm_sequence *sequence, int32_t right)
{
    if (s->drafter.g != NULL) {
        trm_draft_model_keep(&s->drafter, sequence->slot, sequence->n_tokens, sequence->n_from_model, right);
    }
}

/* Most draft tokens per sequence in this step. Rank 0's times decide, also in lockstep. */
static trm_status choose(trm_scheduler *s, int32_t n_drafts, int32_t n_decoding, bool prompts, int32_t *most)
{
    const trm_generator *g = s->g;
    *most = g->speculation.tokens;
    if (g->speculation.kind != TRM_SPECULATION_AUTO || n_drafts == 0) {
        return TRM_OK;
    }
    *most = prompts ? 0 /* the step is full without drafts */
                    : trm_speculator_choose(&s->speculator, n_decoding, s->drafts, n_drafts, g->speculation.tokens,
                                            g->max_rows - s->n_running);
    return g->world->size == 1 || !s->lockstep ? TRM_OK : trm_world_broadcast(g->world, most, sizeof(*most), 0);
}

trm_status trm_scheduler_draft(trm_scheduler *s)
{
    int32_t n_drafts = 0, n_decoding = 0, most;
    bool prompts = false;
    if (s->g->speculation.kind == TRM_SPECULATION_OFF) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        sequence->n_drafted = sequence->n_from_model = 0;
        sequence->guess = -1;
        prompts = prompts || !decodes(sequence);
        if (decodes(sequence)) {
            n_decoding++;
            if (s->drafter.g == NULL && s->head.g == NULL) {
                guess(s, sequence);
            } else {
                sequence->n_drafted = model_room(s, sequence);
                sequence->draft_class = 0;
            }
        }
        if (sequence->n_drafted > 0) {
            s->drafts[n_drafts++] = (trm_draft){sequence->n_drafted, sequence->record.right[sequence->draft_class]};
        }
    }
    TRM_TRY(choose(s, n_drafts, n_decoding, prompts, &most));
    double began = trm_scheduler_now();
    if (s->head.g != NULL) {
        TRM_TRY(trm_scheduler_draft_by_head(s, most));
    } else if (s->drafter.g != NULL) {
        TRM_TRY(draft_by_model(s, most));
    }
    s->draft_seconds = trm_scheduler_now() - began;
    int32_t room = s->g->max_rows - s->n_running;
    room = room < s->step_tokens - s->n_running ? room : s->step_tokens - s->n_running;
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        sequence->n_drafted = sequence->n_drafted < most ? sequence->n_drafted : most;
        sequence->n_drafted = sequence->n_drafted < room ? sequence->n_drafted : room;
        room -= sequence->n_drafted;
    }
    return TRM_OK;
}

void trm_scheduler_note_draft(trm_sequence *sequence, int32_t n, int32_t right)
{
    trm_draft_record_note(&sequence->record, sequence->draft_class, n, right);
}
