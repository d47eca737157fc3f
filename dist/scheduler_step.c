/* One step of the scheduler: what runs in it, and what its tokens mean. */
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/scheduler.h"
#include "dist/streaming.h"

#define BURST_CHUNKS 4

/* ---- what runs --------------------------------------------------------------------------------- */

static void end_running(trm_scheduler *s, trm_live *live, trm_finish finish, int32_t token, const char *error)
{
    trm_scheduler_evict(s, live);
    trm_scheduler_finish(s, live, finish, token, error);
}

/* Asks the request which tokens may come after those it has and `drafted` more. */
static trm_status ask_mask(const trm_scheduler *s, const trm_live *live, int32_t drafted, uint32_t *mask)
{
    const trm_serving_request *r = &live->request;
    int64_t vocab = s->g->vocab, words = s->g->chooser.words, before = r->n_prompt - r->n_resumed;
    memset(mask, 0xff, (size_t)words * sizeof(*mask));
    TRM_TRY(r->mask(r->mask_user, r->id, live->tokens + before, live->n_tokens + drafted - before, mask));
    for (int64_t i = 0; i < words; i++) {
        uint32_t in = i < vocab / 32 ? UINT32_MAX : ((uint32_t)1 << (vocab % 32)) - 1;
        if ((mask[i] & in) != 0) {
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the mask of request %llu leaves no token", (unsigned long long)r->id);
}

/* How the token of a request behind `drafted` drafted ones is chosen. */
static trm_status fill_choice(trm_scheduler *s, trm_live *live, int32_t drafted, trm_step_choice *choice)
{
    const trm_serving_request *r = &live->request;
    int64_t output = live->n_tokens - r->n_prompt + r->n_resumed + drafted;
    uint32_t *mask = NULL;
    if (r->mask != NULL) {
        mask = s->masks + (size_t)(choice - s->choices) * (size_t)s->g->chooser.words;
        TRM_TRY(ask_mask(s, live, drafted, mask));
    }
    *choice = (trm_step_choice){.sampling = &r->sampling,
                                .banned = live->banned,
                                .n_banned = output < r->min_tokens ? live->n_banned : 0,
                                .mask = mask,
                                .logprobs = r->logprobs,
                                .counter = (uint64_t)output,
                                .slot = live->slot,
                                .history = live->counted || drafted > 0 ? NULL : live->tokens,
                                .n_history = live->n_tokens,
                                .n_prompt = r->n_prompt - r->n_resumed,
                                .drafts = live->tokens + live->n_tokens,
                                .n_before = drafted};
    return TRM_OK;
}

/* Fills the choices of a request behind each of its drafted tokens, as far as its mask allows those. */
static trm_status fill_choices(trm_scheduler *s, trm_live *live, trm_step_choice *choices)
{
    TRM_TRY(fill_choice(s, live, 0, choices));
    for (int32_t i = 0; i < live->n_drafted; i++) {
        int32_t token = live->tokens[live->n_tokens + i];
        const uint32_t *mask = choices[i].mask;
        if ((mask != NULL && (mask[token / 32] >> (token % 32) & 1u) == 0) ||
            fill_choice(s, live, i + 1, &choices[i + 1]) != TRM_OK) { /* which ends it if it comes so far */
            live->n_drafted = i;
        }
    }
    for (int32_t i = 0; i <= live->n_drafted; i++) {
        choices[i].n_behind = live->n_drafted - i;
    }
    return TRM_OK;
}

/* Adds a running request's next tokens to the step; one whose mask fails ends here. */
static void add_sequence(trm_scheduler *s, trm_live *live, int32_t n_tokens)
{
    const trm_serving_request *r = &live->request;
    int32_t i = s->n_sequences;
    bool wanted = live->n_cached + n_tokens == live->n_tokens && live->n_tokens < live->n_most;
    trm_step_choice *choices = s->choices + s->n_choices;
    if (wanted && fill_choices(s, live, choices) != TRM_OK) {
        end_running(s, live, TRM_FINISH_ERROR, -1, trm_last_error());
        return;
    }
    int64_t targets = r->n_prompt - 1 - live->n_cached;
    targets = r->prompt_logprobs < 0 || targets < 0 ? 0 : targets < n_tokens ? targets : n_tokens;
    s->lives[i] = live;
    s->slots[i] = live->slot;
    s->sequences[i] = (trm_step_sequence){
        .tokens = live->tokens + live->n_cached,
        .n_tokens = n_tokens + live->n_drafted,
        .n_cached = live->n_cached,
        .n_prompt = r->n_prompt,
        .blocks = s->table + (size_t)live->slot * (size_t)s->g->blocks_per_sequence,
        .choices = choices,
        .n_choices = wanted ? 1 + live->n_drafted : 0,
        .n_targets = (int32_t)targets,
        .n_hidden = r->embedding == TRM_EMBEDDING_MEAN                                                  ? n_tokens
                    : r->embedding == TRM_EMBEDDING_LAST && live->n_cached + n_tokens == live->n_tokens ? 1
                                                                                                        : 0,
        .target_top = r->prompt_logprobs,
    };
    s->n_sequences++;
    s->n_tokens += s->sequences[i].n_tokens;
    s->n_choices += s->sequences[i].n_choices;
    s->n_drafted += live->n_drafted;
}

/* How many tokens of a prompt to run. A long one leaves up to half of the room to those behind it, so that short
 * prompts do not wait for the end of a long one, and long ones go on side by side. */
static int32_t choose_chunk(const trm_scheduler *s, int32_t at, int32_t room)
{
    const trm_live *live = s->running[at];
    int64_t left = live->n_tokens - live->n_cached, behind = 0;
    if (left > s->long_prompt) {
        for (int32_t i = at + 1; i < s->n_running && behind < room / 2; i++) {
            int64_t theirs = s->running[i]->n_tokens - s->running[i]->n_cached;
            behind += theirs > 1 ? theirs : 0;
        }
        room -= behind < room / 2 ? (int32_t)behind : room / 2;
    }
    return left < room ? (int32_t)left : room;
}

/* Room for tokens of prompts in a step that has what decodes already. */
static int32_t prompt_room(const trm_scheduler *s)
{
    int64_t room = s->step_tokens - s->n_tokens, chunk = s->prefill_chunk, grain = TRM_CHUNK_GRAIN;
    if (s->n_sequences > 0) {
        chunk = chunk < grain ? chunk : (s->n_tokens + chunk + grain - 1) / grain * grain - s->n_tokens;
    } else { /* of several prompts the first need not wait for the last; one alone is done soonest as a whole */
        chunk = s->n_running > 1 ? BURST_CHUNKS * chunk : room;
    }
    return (int32_t)(room < chunk ? room : chunk);
}

/* Fills the step: the newest token of all that have no other, then prompts in order. Whether it has no prompt. */
static bool fill(trm_scheduler *s)
{
    bool no_prompt = true;
    /* Each running sequence may need a row of logits; drafts and prompts whose logprobs are wanted share the rest. */
    int32_t rows = s->g->max_rows - s->n_running;
    s->n_sequences = s->n_tokens = s->n_choices = s->n_drafted = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        int32_t most = pass == 0 ? s->step_tokens : s->n_tokens + prompt_room(s);
        for (int32_t i = 0; i < s->n_running && s->n_tokens < most;) {
            trm_live *live = s->running[i];
            int64_t left = live->n_tokens - live->n_cached;
            if (pass == 0 && left == 1 && trm_scheduler_grow(s, live)) {
                no_prompt = no_prompt && live->n_tokens > live->request.n_prompt;
                live->n_drafted = trm_scheduler_grow_for_drafts(s, live, live->n_drafted);
                rows -= live->n_drafted;
                add_sequence(s, live, 1);
            } else if (pass == 1 && left > 1) {
                int32_t room = most - s->n_tokens;
                bool of_all = live->request.prompt_logprobs >= 0 || live->request.embedding == TRM_EMBEDDING_MEAN;
                room = of_all && room > 1 + rows ? 1 + rows : room;
                int32_t chunk = choose_chunk(s, i, room);
                rows -= of_all ? chunk - 1 : 0;
                no_prompt = false;
                add_sequence(s, live, chunk);
            }
            i += i < s->n_running && s->running[i] == live; /* it may have ended, or given way */
        }
    }
    return no_prompt;
}

/* Whether what runs in the step is likely to be all that runs in the next, with a block for each token of that: all
 * requests are known, and none of these ends with its token unless that is one to stop at. */
static bool goes_on(trm_scheduler *s, bool no_prompt)
{
    bool likely = s->lockstep && no_prompt && s->n_drafted == 0 && s->g->speculation.kind == TRM_SPECULATION_OFF;
    for (int32_t i = 0; likely && i < s->n_sequences; i++) {
        trm_live *live = s->lives[i];
        likely = s->sequences[i].n_choices == 1 && live->n_tokens + 1 < live->n_most &&
                 trm_scheduler_grow_for_drafts(s, live, 1) == 1;
    }
    return likely;
}

/* ---- what came of it --------------------------------------------------------------------------- */

static bool is_stop(const trm_live *live, int32_t token)
{
    for (int32_t i = 0; i < live->n_banned; i++) {
        if (live->banned[i] == token) {
            return true;
        }
    }
    return false;
}

/* The logprobs of a row of the step. */
static void give_logprobs(trm_scheduler *s, trm_serving_event *event, int32_t row, int32_t n_top)
{
    const trm_chooser *chooser = &s->g->chooser;
    if (n_top < 0) {
        return;
    }
    size_t first = (size_t)row * TRM_LOGITS_MAX_TOP;
    event->logprob = chooser->logprobs_staging[row];
    event->top = s->tops + first;
    for (; event->n_top < n_top && chooser->top_tokens_staging[first + (size_t)event->n_top] >= 0; event->n_top++) {
        size_t at = first + (size_t)event->n_top;
        s->tops[at] = (trm_token_logprob){chooser->top_tokens_staging[at], chooser->top_logprobs_staging[at]};
    }
}

static void take_targets(trm_scheduler *s, trm_live *live, const trm_step_sequence *sequence, int32_t row)
{
    for (int32_t k = 0; k < sequence->n_targets; k++) {
        int64_t position = sequence->n_cached + k + 1;
        if (position > live->n_reported) { /* else it was before a preemption */
            trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_PROMPT_TOKEN, live);
            event->token = live->tokens[position];
            event->index = position;
            give_logprobs(s, event, row + k, sequence->target_top);
            live->n_reported = position;
        }
    }
}

static void take_hidden(trm_scheduler *s, trm_live *live, const trm_step_sequence *sequence, int32_t row)
{
    if (live->request.embedding == TRM_EMBEDDING_LAST || sequence->n_cached == 0) {
        memset(live->pooled, 0, (size_t)s->g->hidden->dims.d[1] * sizeof(*live->pooled));
    }
    for (int32_t k = 0; k < sequence->n_hidden; k++) {
        trm_generator_add_hidden(s->g, row + k, live->pooled);
    }
}

/* Whether the request goes on. */
static bool take_token(trm_scheduler *s, trm_live *live, int32_t token, int32_t row)
{
    if (is_stop(live, token)) {
        end_running(s, live, TRM_FINISH_STOP, token, NULL);
        return false;
    }
    live->tokens[live->n_tokens++] = token;
    live->counted = true;
    s->stats.generated_tokens++;
    trm_scheduler_charge_output(live);
    trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_TOKEN, live);
    event->token = token;
    event->index = live->n_tokens - live->request.n_prompt - 1;
    give_logprobs(s, event, row, live->request.logprobs);
    if (live->n_tokens >= live->n_most) {
        end_running(s, live, TRM_FINISH_LENGTH, -1, NULL);
        return false;
    }
    return true;
}

/* The token behind each drafted one as far as the drafts come true; `row` is of the first. What the cache has of the
 * other drafts is written over. */
static void take_tokens(trm_scheduler *s, trm_live *live, const int32_t *chosen, int32_t n, int32_t row)
{
    int32_t right = 0, guess = live->guess;
    while (right < n - 1 && chosen[right] == live->tokens[live->n_tokens + right]) {
        right++;
    }
    if (guess >= 0) { /* one that was not verified tells something as well */
        bool one = n == 1;
        trm_scheduler_note_draft(live, one ? 1 : right < n - 1 ? right + 1 : right, one ? guess == *chosen : right);
    }
    trm_scheduler_keep_drafts(s, live, right);
    s->stats.drafted_tokens += n - 1;
    s->stats.accepted_tokens += right;
    for (int32_t i = 0; i <= right; i++) {
        if (i > 0) {
            live->n_cached++;
            trm_scheduler_publish(s, live);
        }
        if (!take_token(s, live, chosen[i], row + i)) {
            return;
        }
    }
}

static void take_results(trm_scheduler *s)
{
    const int32_t *chosen = s->chosen;
    for (int32_t i = 0, row = 0; i < s->n_sequences; i++) {
        trm_live *live = s->lives[i];
        const trm_step_sequence *sequence = &s->sequences[i];
        int64_t prompt_left = live->request.n_prompt - live->n_cached;
        int32_t known = sequence->n_choices > 1 ? sequence->n_tokens - (sequence->n_choices - 1) : sequence->n_tokens;
        if (prompt_left > 0) {
            s->stats.prompt_tokens += prompt_left < known ? prompt_left : known;
        }
        live->n_cached += known;
        trm_scheduler_publish(s, live);
        take_targets(s, live, sequence, row);
        if (sequence->n_hidden > 0) {
            take_hidden(s, live, sequence, row + sequence->n_targets);
        }
        if (sequence->n_choices > 0) {
            take_tokens(s, live, chosen, sequence->n_choices, row + sequence->n_targets);
        } else if (live->n_cached == live->n_tokens) { /* no token was asked for */
            end_running(s, live, TRM_FINISH_LENGTH, -1, NULL);
        }
        chosen += sequence->n_choices;
        row += trm_step_rows(sequence);
    }
}

static void count_streamed(trm_scheduler *s)
{
    const trm_streaming_plan *streaming = s->g->engine->plan->streaming;
    if (streaming != NULL) {
        const trm_residency *step = trm_streaming_program(streaming, s->g->context->ran_program);
        s->stats.streamed_bytes += (int64_t)step->link_bytes;
        s->stats.unpacked_bytes += (int64_t)step->streamed_bytes;
        s->stats.hosted_bytes += (int64_t)step->hosted_bytes;
        s->stats.link_rate = streaming->problem.link_rate;
    }
}

void trm_scheduler_tell_step(const trm_scheduler *s, double seconds)
{
    const trm_generator *g = s->g;
    const trm_step_times times = {seconds, g->device_seconds, g->layer_seconds, g->collective_seconds};
    if (s->on_step != NULL) {
        s->on_step(s->user, &times);
    }
}

static trm_status run(trm_scheduler *s)
{
    double began = trm_scheduler_now();
    trm_scheduler_admit(s);
    TRM_TRY(trm_scheduler_draft(s));
    bool no_prompt = fill(s);
    if (s->n_sequences == 0) {
        return trm_scheduler_send_beat(s);
    }
    TRM_TRY(trm_scheduler_send_step(s));
    double sent = trm_scheduler_now();
    s->g->goes_on = goes_on(s, no_prompt);
    trm_status status = trm_generator_step(s->g, s->sequences, s->n_sequences, s->chosen);
    s->g->goes_on = false;
    TRM_TRY(status);
    double seconds = trm_scheduler_now() - sent;
    s->stats.wait_seconds += seconds;
    if (no_prompt && s->g->speculation.kind == TRM_SPECULATION_AUTO) {
        trm_speculator_note(&s->speculator, s->n_sequences, s->n_drafted, seconds + s->draft_seconds);
    }
    take_results(s);
    s->stats.steps++;
    s->stats.decode_steps += no_prompt;
    s->stats.last_step_seconds = trm_scheduler_now() - began;
    s->stats.step_seconds += s->stats.last_step_seconds;
    count_streamed(s);
    s->stats.last_step_sequences = s->n_sequences;
    s->stats.last_step_tokens = s->n_tokens;
    s->stats.last_step_captured = s->g->was_captured;
    s->stats.last_device_seconds = s->g->device_seconds;
    s->stats.device_seconds += s->g->device_seconds;
    trm_scheduler_tell_step(s, s->stats.last_step_seconds);
    return TRM_OK;
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_step,
         (trm_scheduler *s, const trm_serving_event **events, int32_t *n_events), (s, events, n_events))
{
    if (s == NULL || events == NULL || n_events == NULL || !trm_scheduler_leads(s) || s->ended) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot step: %s",
                 s == NULL                            ? "scheduler is NULL"
                 : events == NULL || n_events == NULL ? "events or n_events is NULL"
                 : s->ended                           ? "the scheduler has ended"
                                                      : "this rank follows rank 0");
    }
    if (s->events_given) {
        s->n_events = s->n_errors = s->n_embeddings = 0;
        s->events_given = false;
    }
    TRM_TRY(run(s));
    s->events_given = true;
    *events = s->events;
    *n_events = s->n_events;
    return TRM_OK;
}
