/* One step of the scheduler: fills it, and handles its tokens. */
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/llm/scheduler/scheduler.h"
#include "weight_stream/offload/streaming.h"

#define BURST_CHUNKS 4
#define BESIDE_ONE   24 /* prompt tokens for each decoding sequence: new requests keep up with those that end */
#define MOST_BEHIND  32 /* full steps of prompts that are left, from which on steps are filled */
#define LEAST_CUT    4  /* blocks of a chunk that is worth a step for the rest */

/* ---- what runs --------------------------------------------------------------------------------- */

static void end_running(trm_scheduler *s, trm_sequence *sequence, trm_finish finish, int32_t token, const char *error)
{
    trm_scheduler_evict(s, sequence);
    trm_scheduler_finish(s, sequence, finish, token, error);
}

/* Asks the request's mask for the tokens allowed after its own and `drafted` draft tokens. */
static trm_status ask_mask(const trm_scheduler *s, const trm_sequence *sequence, int32_t drafted, uint32_t *mask)
{
    const trm_serving_request *r = &sequence->request;
    int64_t vocab = s->g->vocab, words = s->g->sampler.words, before = r->n_prompt - r->n_resumed;
    memset(mask, 0xff, (size_t)words * sizeof(*mask));
    TRM_TRY(r->mask(r->mask_user, r->id, sequence->tokens + before, sequence->n_tokens + drafted - before, mask));
    for (int64_t i = 0; i < words; i++) {
        uint32_t in = i < vocab / 32 ? UINT32_MAX : ((uint32_t)1 << (vocab % 32)) - 1;
        if ((mask[i] & in) != 0) {
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the mask of request %llu allows no token", (unsigned long long)r->id);
}

/* The sampling row of a request after `drafted` draft tokens. */
static trm_status fill_choice(trm_scheduler *s, trm_sequence *sequence, int32_t drafted, trm_sampling_row *choice)
{
    const trm_serving_request *r = &sequence->request;
    int64_t output = sequence->n_tokens - r->n_prompt + r->n_resumed + drafted;
    uint32_t *mask = NULL;
    if (r->mask != NULL) {
        mask = s->masks + (size_t)(choice - s->choices) * (size_t)s->g->sampler.words;
        TRM_TRY(ask_mask(s, sequence, drafted, mask));
    }
    *choice = (trm_sampling_row){.sampling = &r->sampling,
                                 .banned = sequence->banned,
                                 .n_banned = output < r->min_tokens ? sequence->n_banned : 0,
                                 .mask = mask,
                                 .logprobs = r->logprobs,
                                 .counter = (uint64_t)output,
                                 .slot = sequence->slot,
                                 .history = sequence->counted || drafted > 0 ? NULL : sequence->tokens,
                                 .n_history = sequence->n_tokens,
                                 .n_prompt = r->n_prompt - r->n_resumed,
                                 .drafts = sequence->tokens + sequence->n_tokens,
                                 .n_before = drafted};
    return TRM_OK;
}

/* Fills the sampling rows after each draft token that the mask allows. */
static trm_status fill_choices(trm_scheduler *s, trm_sequence *sequence, trm_sampling_row *choices)
{
    TRM_TRY(fill_choice(s, sequence, 0, choices));
    for (int32_t i = 0; i < sequence->n_drafted; i++) {
        int32_t token = sequence->tokens[sequence->n_tokens + i];
        const uint32_t *mask = choices[i].mask;
        if ((mask != NULL && (mask[token / 32] >> (token % 32) & 1u) == 0) ||
            fill_choice(s, sequence, i + 1, &choices[i + 1]) != TRM_OK) { /* ends the request if it is reached */
            sequence->n_drafted = i;
        }
    }
    for (int32_t i = 0; i <= sequence->n_drafted; i++) {
        choices[i].n_behind = sequence->n_drafted - i;
    }
    return TRM_OK;
}

/* Adds a running request's next tokens to the step; ends it if its mask fails. */
static void add_sequence(trm_scheduler *s, trm_sequence *sequence, int32_t n_tokens)
{
    const trm_serving_request *r = &sequence->request;
    int32_t i = s->n_sequences;
    bool wanted = sequence->n_cached + n_tokens == sequence->n_tokens && sequence->n_tokens < sequence->n_most;
    trm_sampling_row *choices = s->choices + s->n_choices;
    if (wanted && fill_choices(s, sequence, choices) != TRM_OK) {
        end_running(s, sequence, TRM_FINISH_ERROR, -1, trm_last_error());
        return;
    }
    int64_t targets = r->n_prompt - 1 - sequence->n_cached;
    targets = r->prompt_logprobs < 0 || targets < 0 ? 0 : targets < n_tokens ? targets : n_tokens;
    trm_scheduler_begin_state(s, sequence);
    s->lives[i] = sequence;
    s->slots[i] = sequence->slot;
    s->sequences[i] = (trm_step_sequence){
        .tokens = sequence->tokens + sequence->n_cached,
        .n_tokens = n_tokens + sequence->n_drafted,
        .n_cached = sequence->n_cached,
        .n_prompt = r->n_prompt,
        .blocks = s->table + (size_t)sequence->slot * (size_t)s->g->blocks_per_sequence,
        .read_slot = sequence->state,
        .write_slot = sequence->next_state,
        .choices = choices,
        .n_choices = wanted ? 1 + sequence->n_drafted : 0,
        .n_targets = (int32_t)targets,
        .n_hidden = r->embedding == TRM_EMBEDDING_MEAN ? n_tokens
                    : r->embedding == TRM_EMBEDDING_LAST && sequence->n_cached + n_tokens == sequence->n_tokens ? 1
                                                                                                                : 0,
        .target_top = r->prompt_logprobs,
        .adapter = r->adapter,
    };
    s->n_sequences++;
    s->n_tokens += s->sequences[i].n_tokens;
    s->n_choices += s->sequences[i].n_choices;
    s->n_drafted += sequence->n_drafted;
}

/* Shortens a chunk, so that a state is kept behind a prefix: behind one that others have, too, and behind the last
 * whole block. */
static int32_t end_chunk(const trm_scheduler *s, const trm_sequence *sequence, int32_t chunk)
{
    const int64_t end = sequence->n_cached + chunk;
    if (s->states.n == 0 || !s->prefix_cache) {
        return chunk;
    }
    if (sequence->n_cached < sequence->cut && sequence->cut < end) {
        return (int32_t)(sequence->cut - sequence->n_cached);
    }
    const int32_t block = s->g->block_tokens;
    return chunk >= LEAST_CUT * block ? chunk - (int32_t)(end % block) : chunk;
}

/* Number of prompt tokens to run. A long prompt leaves up to half of the room to later ones, so that short prompts do
 * not wait for it and long ones progress together. */
static int32_t share_chunk(const trm_scheduler *s, int32_t at, int32_t room)
{
    const trm_sequence *sequence = s->running[at];
    int64_t left = sequence->n_tokens - sequence->n_cached, behind = 0;
    if (left > s->long_prompt) {
        for (int32_t i = at + 1; i < s->n_running && behind < room / 2; i++) {
            int64_t theirs = s->running[i]->n_tokens - s->running[i]->n_cached;
            behind += theirs > 1 ? theirs : 0;
        }
        room -= behind < room / 2 ? (int32_t)behind : room / 2;
    }
    return end_chunk(s, sequence, left < room ? (int32_t)left : room);
}

/* Tokens that prompts of running sequences have left. */
static int64_t prompts_left(const trm_scheduler *s)
{
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        const int64_t left = s->running[i]->n_tokens - s->running[i]->n_cached;
        n += left > 1 ? left : 0;
    }
    return n;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Prompt tokens beside decoding sequences. Products take tiles of rows, so the step ends with a whole one: a few rows
 * more take as long as the next. Beside many sequences, or with many prompts, there are twice the least chunk or a
 * multiple of it, unless prompts have fewer tokens left. */
static int64_t choose_chunk(const trm_scheduler *s)
{
    const int64_t least = s->prefill_chunk, unit = 2 * least, grain = TRM_CHUNK_GRAIN, decoding = s->n_tokens;
    const int64_t left = prompts_left(s), beside = (1 + BESIDE_ONE) * (int64_t)s->n_sequences,
                  behind = left / MOST_BEHIND;
    const int64_t most = smaller(beside > behind ? beside : behind, s->filled_step);
    if (most >= unit) {
        int64_t filled = smaller(decoding + left, most);
        filled -= filled >= unit ? filled % unit : 0;
        if (filled > decoding) {
            return filled - decoding;
        }
    }
    const int64_t filled = (decoding + least) / grain * grain;
    return filled >= decoding + least / 2 ? filled - decoding : least;
}

/* Room for prompt tokens in a step that already has the decoding sequences. */
static int32_t prompt_room(const trm_scheduler *s)
{
    int64_t room = s->step_tokens - s->n_tokens, chunk = s->prefill_chunk;
    if (s->n_sequences > 0) {
        chunk = choose_chunk(s);
    } else { /* several prompts share, so that the first does not wait for the last; a single one runs as a whole */
        chunk = s->n_running > 1 ? BURST_CHUNKS * chunk : room;
    }
    return (int32_t)(room < chunk ? room : chunk);
}

/* Fills the step with what is left of the async step that is in flight. Requests that came since then join the step
 * after it. Returns whether anything is left. */
static bool fill_ahead(trm_scheduler *s)
{
    s->n_sequences = s->n_tokens = s->n_choices = s->n_drafted = 0;
    for (int32_t i = 0; s->g->ahead.step != NULL && !s->lockstep && i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        if (sequence->ahead) {
            sequence->ahead = false;
            add_sequence(s, sequence, 1);
        }
    }
    return s->n_sequences > 0;
}

/* Fills the step: decoding sequences, then prompts in order. Returns whether it has no prompt. */
static bool fill(trm_scheduler *s)
{
    bool no_prompt = true;
    /* Each running sequence may need a logits row; drafts and prompts with logprobs share the rest. */
    int32_t rows = s->g->max_rows - s->n_running;
    s->n_sequences = s->n_tokens = s->n_choices = s->n_drafted = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        int32_t most = pass == 0 ? s->step_tokens : s->n_tokens + prompt_room(s);
        for (int32_t i = 0; i < s->n_running && s->n_tokens < most;) {
            trm_sequence *sequence = s->running[i];
            int64_t left = sequence->n_tokens - sequence->n_cached;
            if (pass == 0 && left == 1 && trm_scheduler_grow(s, sequence)) {
                no_prompt = no_prompt && sequence->n_tokens > sequence->request.n_prompt;
                sequence->n_drafted = trm_scheduler_grow_for_drafts(s, sequence, sequence->n_drafted);
                rows -= sequence->n_drafted;
                add_sequence(s, sequence, 1);
            } else if (pass == 1 && left > 1) {
                int32_t room = most - s->n_tokens;
                bool of_all =
                    sequence->request.prompt_logprobs >= 0 || sequence->request.embedding == TRM_EMBEDDING_MEAN;
                room = of_all && room > 1 + rows ? 1 + rows : room;
                int32_t chunk = share_chunk(s, i, room);
                rows -= of_all ? chunk - 1 : 0;
                no_prompt = false;
                add_sequence(s, sequence, chunk);
            }
            i += i < s->n_running && s->running[i] == sequence; /* it may have ended or been preempted */
        }
    }
    return no_prompt;
}

/* Whether the next step will probably have the same sequences, with a block for each of its tokens: no other runs, and
 * none ends with this token except by a stop token. States go on in the slots that they have, so their prefixes are not
 * kept. */
static bool goes_on(trm_scheduler *s, bool no_prompt)
{
    bool likely = no_prompt && s->n_drafted == 0 && s->g->speculation.kind == TRM_SPECULATION_OFF &&
                  (s->lockstep || (s->n_sequences == s->n_running && s->states.n == 0));
    for (int32_t i = 0; likely && i < s->n_sequences; i++) {
        trm_sequence *sequence = s->lives[i];
        likely = s->sequences[i].n_choices == 1 && sequence->n_tokens + 1 < sequence->n_most &&
                 trm_scheduler_grow_for_drafts(s, sequence, 1) == 1;
    }
    return likely;
}

/* ---- what came of it --------------------------------------------------------------------------- */

static bool is_stop(const trm_sequence *sequence, int32_t token)
{
    for (int32_t i = 0; i < sequence->n_banned; i++) {
        if (sequence->banned[i] == token) {
            return true;
        }
    }
    return false;
}

/* Fills in the logprobs of a row of the step. */
static void give_logprobs(trm_scheduler *s, trm_serving_event *event, int32_t row, int32_t n_top)
{
    const trm_sampler *sampler = &s->g->sampler;
    if (n_top < 0) {
        return;
    }
    size_t first = (size_t)row * TRM_LOGITS_MAX_TOP;
    event->logprob = sampler->logprobs_staging[row];
    event->top = s->tops + first;
    for (; event->n_top < n_top && sampler->top_tokens_staging[first + (size_t)event->n_top] >= 0; event->n_top++) {
        size_t at = first + (size_t)event->n_top;
        s->tops[at] = (trm_token_logprob){sampler->top_tokens_staging[at], sampler->top_logprobs_staging[at]};
    }
}

static void take_targets(trm_scheduler *s, trm_sequence *sequence, const trm_step_sequence *part, int32_t row)
{
    for (int32_t k = 0; k < part->n_targets; k++) {
        int64_t position = part->n_cached + k + 1;
        if (position > sequence->n_reported) { /* otherwise reported before a preemption */
            trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_PROMPT_TOKEN, sequence);
            event->token = sequence->tokens[position];
            event->index = position;
            give_logprobs(s, event, row + k, part->target_top);
            sequence->n_reported = position;
        }
    }
}

static void take_hidden(trm_scheduler *s, trm_sequence *sequence, const trm_step_sequence *part, int32_t row)
{
    if (sequence->request.embedding == TRM_EMBEDDING_LAST || part->n_cached == 0) {
        memset(sequence->pooled, 0, (size_t)s->g->hidden->dims.d[1] * sizeof(*sequence->pooled));
    }
    for (int32_t k = 0; k < part->n_hidden; k++) {
        trm_generator_add_hidden(s->g, row + k, sequence->pooled);
    }
}

/* Takes a sampled token; returns whether the request continues. */
static bool take_token(trm_scheduler *s, trm_sequence *sequence, int32_t token, int32_t row)
{
    if (is_stop(sequence, token)) {
        end_running(s, sequence, TRM_FINISH_STOP, token, NULL);
        return false;
    }
    sequence->tokens[sequence->n_tokens++] = token;
    sequence->first_token = sequence->first_token > 0 ? sequence->first_token : trm_scheduler_now();
    sequence->counted = true;
    s->stats.generated_tokens++;
    trm_scheduler_charge_output(sequence);
    trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_TOKEN, sequence);
    event->token = token;
    event->index = sequence->n_tokens - sequence->request.n_prompt - 1;
    give_logprobs(s, event, row, sequence->request.logprobs);
    if (sequence->n_tokens >= sequence->n_most) {
        end_running(s, sequence, TRM_FINISH_LENGTH, -1, NULL);
        return false;
    }
    return true;
}

/* Takes the tokens after each accepted draft token; `row` is the first row. Rejected drafts in the cache will be
 * overwritten. */
static void take_tokens(trm_scheduler *s, trm_sequence *sequence, const int32_t *chosen, int32_t n, int32_t row)
{
    const int32_t right = trm_scheduler_count_right(sequence, chosen, n), guess = sequence->guess;
    if (guess >= 0) { /* an unverified draft counts too */
        bool one = n == 1;
        trm_scheduler_note_draft(sequence, one ? 1 : right < n - 1 ? right + 1 : right, one ? guess == *chosen : right);
    }
    trm_scheduler_keep_drafts(s, sequence, right);
    s->stats.drafted_tokens += n - 1;
    s->stats.accepted_tokens += right;
    for (int32_t i = 0; i <= right; i++) {
        if (i > 0) {
            sequence->n_cached++;
            trm_scheduler_publish(s, sequence);
        }
        if (!take_token(s, sequence, chosen[i], row + i)) {
            return;
        }
    }
}

static void take_results(trm_scheduler *s)
{
    const int32_t *chosen = s->chosen;
    for (int32_t i = 0, row = 0; i < s->n_sequences; i++) {
        trm_sequence *sequence = s->lives[i];
        const trm_step_sequence *part = &s->sequences[i];
        int64_t prompt_left = sequence->request.n_prompt - sequence->n_cached;
        trm_scheduler_end_state(s, sequence);
        int32_t known = part->n_choices > 1 ? part->n_tokens - (part->n_choices - 1) : part->n_tokens;
        if (prompt_left > 0) {
            s->stats.prompt_tokens += prompt_left < known ? prompt_left : known;
        }
        sequence->n_cached += known;
        trm_scheduler_publish(s, sequence);
        take_targets(s, sequence, part, row);
        if (part->n_hidden > 0) {
            take_hidden(s, sequence, part, row + part->n_targets);
        }
        if (part->n_choices > 0) {
            take_tokens(s, sequence, chosen, part->n_choices, row + part->n_targets);
        } else if (sequence->n_cached == sequence->n_tokens) { /* no token was asked for */
            end_running(s, sequence, TRM_FINISH_LENGTH, -1, NULL);
        }
        chosen += part->n_choices;
        row += trm_step_rows(part);
    }
}

static void count_streamed(trm_scheduler *s)
{
    const trm_streaming_plan *streaming = s->g->engine->plan->streaming;
    if (streaming != NULL) {
        const trm_residency *step = trm_streaming_copy_schedule(streaming, trm_context_ran_schedule(s->g->context));
        const trm_expert_counts experts = trm_context_expert_counts(s->g->context);
        const trm_expert_counts before =
            experts.hits < s->experts.hits || experts.misses < s->experts.misses ? (trm_expert_counts){0} : s->experts;
        const int64_t fetched = experts.bytes - before.bytes;
        s->stats.streamed_bytes += (int64_t)step->link_bytes + fetched;
        s->stats.unpacked_bytes += (int64_t)step->streamed_bytes + fetched;
        s->stats.hosted_bytes +=
            (streaming->hosts ? (int64_t)step->hosted_bytes : 0) + experts.hosted_bytes - before.hosted_bytes;
        s->stats.expert_hits += experts.hits - before.hits;
        s->stats.expert_misses += experts.misses - before.misses;
        s->stats.expert_hosted += experts.hosted - before.hosted;
        s->experts = experts;
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
    bool no_prompt = fill_ahead(s) || fill(s);
    if (s->n_sequences == 0) {
        return trm_scheduler_send_beat(s);
    }
    const bool may_go_on = goes_on(s, no_prompt);
    TRM_TRY(trm_scheduler_send_step(s, may_go_on));
    double sent = trm_scheduler_now();
    s->g->goes_on = may_go_on;
    trm_status status = trm_generator_step(s->g, s->sequences, s->n_sequences, s->chosen);
    s->g->goes_on = false;
    TRM_TRY(status);
    for (int32_t i = 0; i < s->n_sequences; i++) {
        s->lives[i]->ahead = s->g->ahead.step != NULL;
    }
    double seconds = trm_scheduler_now() - sent;
    s->stats.wait_seconds += seconds;
    if (no_prompt && s->g->speculation.kind == TRM_SPECULATION_AUTO) {
        trm_speculator_note(&s->speculator, s->n_sequences, s->n_drafted, seconds + s->draft_seconds);
    }
    TRM_TRY(trm_scheduler_follow_with_head(s));
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
