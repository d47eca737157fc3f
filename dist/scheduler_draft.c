/* Speculation: which sequences of a step have drafted tokens, and how many. */
#include "base/error.h"
#include "dist/scheduler.h"

/* Guesses up to so many tokens agree with what came before are of the last class. */
static int32_t class_of(int32_t agreed)
{
    return agreed <= 2 ? 0 : agreed <= 4 ? 1 : 2;
}

static bool decodes(const trm_live *live)
{
    return live->n_tokens - live->n_cached == 1;
}

/* Guesses what follows a sequence, behind its tokens. */
static void guess(trm_scheduler *s, trm_live *live)
{
    int64_t room = live->n_most - live->n_tokens - 1; /* the last token is not drafted: one more comes with it */
    int32_t most = s->g->speculation.tokens, agreed = 0;
    most = room < most ? (int32_t)room : most;
    live->n_drafted =
        trm_lookup_guess(&live->lookup, live->tokens, live->n_tokens, most, live->tokens + live->n_tokens, &agreed);
    live->draft_class = class_of(agreed);
    live->guess = live->n_drafted > 0 ? live->tokens[live->n_tokens] : -1;
}

/* The most drafted tokens of a sequence in this step. Rank 0's times decide, also in lockstep. */
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
        trm_live *live = s->running[i];
        live->n_drafted = 0;
        live->guess = -1;
        prompts = prompts || !decodes(live);
        if (decodes(live)) {
            n_decoding++;
            guess(s, live);
        }
        if (live->n_drafted > 0) {
            s->drafts[n_drafts++] = (trm_draft){live->n_drafted, live->record.right[live->draft_class]};
        }
    }
    TRM_TRY(choose(s, n_drafts, n_decoding, prompts, &most));
    int32_t room = s->g->max_rows - s->n_running;
    room = room < s->step_tokens - s->n_running ? room : s->step_tokens - s->n_running;
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_live *live = s->running[i];
        live->n_drafted = live->n_drafted < most ? live->n_drafted : most;
        live->n_drafted = live->n_drafted < room ? live->n_drafted : room;
        room -= live->n_drafted;
    }
    return TRM_OK;
}

void trm_scheduler_note_draft(trm_live *live, int32_t n, int32_t right)
{
    trm_draft_record_note(&live->record, live->draft_class, n, right);
}
