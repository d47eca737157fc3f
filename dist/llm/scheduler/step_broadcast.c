/*
 * Step broadcast: rank 0 sends the others the tokens of a step and new block table entries. No sampling parameters,
 * since rank 0's tokens count for all.
 *
 * A message is words of 32 bits: kind, words in all, sequences, how the step samples, whether an async step may follow;
 * then for each sequence slot, tokens, tokens cached, prompt, tokens wanted, logprobs and hidden states wanted, slots
 * of the states that are read and written, adapter, row of a draft head's first hidden state, number of blocks that the
 * receiver has, number of new ones, the tokens and the new blocks. It is sent as a first piece of fixed size and, if
 * necessary, the rest. A message to load an adapter has its number and the folder's name.
 */
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/llm/scheduler/scheduler.h"

enum { KIND_STEP = 0x54524d31, KIND_DRAFT, KIND_HEAD, KIND_ADAPTER, KIND_BEAT, KIND_END };
enum { HEADER = 5, PER_SEQUENCE = 13, FIRST_PIECE = 1024 };

size_t trm_scheduler_message_words(const trm_generator *g, int32_t step_tokens)
{
    size_t words =
        HEADER + (size_t)step_tokens + (size_t)g->max_sequences * (PER_SEQUENCE + (size_t)g->blocks_per_sequence);
    return words < FIRST_PIECE ? FIRST_PIECE : words;
}

static bool has_followers(const trm_scheduler *s)
{
    return s->g->world->size > 1 && !s->lockstep;
}

static trm_status send_message(trm_scheduler *s, int32_t kind, size_t words)
{
    s->message[0] = kind;
    s->message[1] = (int32_t)words;
    s->last_sent = trm_scheduler_now();
    TRM_TRY(trm_world_broadcast(s->g->world, s->message, FIRST_PIECE * sizeof(int32_t), 0));
    return words <= FIRST_PIECE
               ? TRM_OK
               : trm_world_broadcast(s->g->world, s->message + FIRST_PIECE, (words - FIRST_PIECE) * sizeof(int32_t), 0);
}

/* How the step samples. */
static trm_sample_mode mode_of(const trm_scheduler *s)
{
    trm_sample_mode mode = TRM_SAMPLE_GREEDY;
    for (int32_t i = 0; i < s->n_sequences; i++) {
        const trm_step_sequence *sequence = &s->sequences[i];
        mode = sequence->n_targets > 0 ? TRM_SAMPLE_FULL : mode;
        for (int32_t k = 0; k < sequence->n_choices; k++) {
            trm_sample_mode own = trm_choice_mode(&sequence->choices[k]);
            mode = own > mode ? own : mode;
        }
    }
    return mode;
}

/* Writes a sequence of a step at `to` with the first `blocks` blocks, as far as they are new; returns its end. */
static int32_t *write_sequence(trm_scheduler *s, int32_t *to, const trm_step_sequence *sequence, int32_t slot,
                               int32_t blocks)
{
    int32_t *known = &s->n_sent[slot];
    *to++ = slot;
    *to++ = sequence->n_tokens;
    *to++ = (int32_t)sequence->n_cached;
    *to++ = (int32_t)sequence->n_prompt;
    *to++ = sequence->n_choices;
    *to++ = sequence->n_targets;
    *to++ = sequence->n_hidden;
    *to++ = sequence->read_slot;
    *to++ = sequence->write_slot;
    *to++ = sequence->adapter;
    *to++ = sequence->hidden_row;
    *to++ = *known;
    *to++ = blocks > *known ? blocks - *known : 0;
    for (int32_t k = 0; k < sequence->n_tokens; k++) {
        *to++ = sequence->tokens[k];
    }
    for (; *known < blocks; (*known)++) {
        *to++ = sequence->blocks[*known];
    }
    return to;
}

trm_status trm_scheduler_send_step(trm_scheduler *s, bool goes_on)
{
    if (!has_followers(s)) {
        return TRM_OK;
    }
    int32_t *to = s->message + 2;
    *to++ = s->n_sequences;
    *to++ = (int32_t)mode_of(s);
    *to++ = goes_on;
    for (int32_t i = 0; i < s->n_sequences; i++) {
        const trm_step_sequence *sequence = &s->sequences[i];
        const int64_t length = sequence->n_cached + sequence->n_tokens + goes_on;
        to = write_sequence(s, to, sequence, s->slots[i], trm_generator_blocks(s->g, length));
    }
    return send_message(s, KIND_STEP, (size_t)(to - s->message));
}

trm_status trm_scheduler_send_beat(trm_scheduler *s)
{
    double deadline = s->g->world->deadline_seconds / 4, patience = deadline < 1.0 ? deadline : 1.0;
    if (!has_followers(s) || trm_scheduler_now() - s->last_sent < patience) {
        return TRM_OK;
    }
    return send_message(s, KIND_BEAT, HEADER);
}

trm_status trm_scheduler_send_end(trm_scheduler *s)
{
    return has_followers(s) ? send_message(s, KIND_END, HEADER) : TRM_OK;
}

trm_status trm_scheduler_send_adapter(trm_scheduler *s, const char *folder, int32_t adapter)
{
    const size_t size = strlen(folder) + 1, words = HEADER + (size + 3) / sizeof(int32_t);
    if (words > s->message_words) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the name of an adapter's folder has %zu bytes, expected at most %zu",
                 size - 1, (s->message_words - HEADER) * sizeof(int32_t) - 1);
    }
    s->message[2] = adapter;
    s->message[3] = (int32_t)size;
    memcpy(s->message + HEADER, folder, size);
    return has_followers(s) ? send_message(s, KIND_ADAPTER, words) : TRM_OK;
}

trm_status trm_scheduler_send_draft(trm_scheduler *s, int32_t n)
{
    if (!has_followers(s)) {
        return TRM_OK;
    }
    int32_t *to = s->message + 2;
    *to++ = n;
    *to++ = TRM_SAMPLE_GREEDY;
    *to++ = false;
    for (int32_t i = 0; i < n; i++) {
        const trm_step_sequence *sequence = &s->drafter.sequences[i];
        *to++ = s->drafter.slot_of[i];
        *to++ = sequence->n_tokens;
        *to++ = (int32_t)sequence->n_cached;
        *to++ = sequence->n_choices;
        memcpy(to, sequence->tokens, (size_t)sequence->n_tokens * sizeof(*to));
        to += sequence->n_tokens;
    }
    return send_message(s, KIND_DRAFT, (size_t)(to - s->message));
}

trm_status trm_scheduler_send_head(trm_scheduler *s, int32_t n, bool begins)
{
    if (!has_followers(s)) {
        return TRM_OK;
    }
    int32_t *to = s->message + 2;
    *to++ = n;
    *to++ = TRM_SAMPLE_GREEDY;
    *to++ = begins;
    for (int32_t i = 0; i < n; i++) {
        const trm_step_sequence *sequence = &s->head.sequences[i];
        to = write_sequence(s, to, sequence, s->head.slots[i],
                            trm_generator_blocks(s->g, sequence->n_cached + sequence->n_tokens));
    }
    return send_message(s, KIND_HEAD, (size_t)(to - s->message));
}

/* ---- the other ranks --------------------------------------------------------------------------- */

static trm_status receive(trm_scheduler *s)
{
    TRM_TRY(trm_world_broadcast(s->g->world, s->message, FIRST_PIECE * sizeof(int32_t), 0));
    size_t words = (size_t)(uint32_t)s->message[1];
    if (s->message[0] < KIND_STEP || s->message[0] > KIND_END || words < HEADER || words > s->message_words) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "rank 0 sent a message of kind %d with %zu words, expected at most %zu",
                 s->message[0], words, s->message_words);
    }
    return words <= FIRST_PIECE
               ? TRM_OK
               : trm_world_broadcast(s->g->world, s->message + FIRST_PIECE, (words - FIRST_PIECE) * sizeof(int32_t), 0);
}

/* Reads one sequence of a message at *at and advances it. */
static trm_status read_sequence(trm_scheduler *s, const int32_t **at, const int32_t *end, trm_step_sequence *sequence)
{
    const trm_generator *g = s->g;
    const int32_t *from = *at;
    if (end - from < PER_SEQUENCE) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a step from rank 0 is cut off inside a sequence");
    }
    int32_t slot = from[0], n_tokens = from[1], n_choices = from[4], n_targets = from[5], n_hidden = from[6];
    int32_t read = from[7], written = from[8], adapter = from[9], hidden_row = from[10];
    int32_t known = from[11], fresh = from[12];
    int64_t n_cached = from[2];
    if (slot < 0 || slot >= g->max_sequences || n_tokens < 1 || n_tokens > g->max_step_tokens || n_cached < 0 ||
        read < 0 || read >= g->state_slots || written < 0 || written >= g->state_slots || n_choices < 0 ||
        adapter < 0 || adapter > g->adapters.n || n_targets < 0 || n_hidden < 0 || n_choices > n_tokens ||
        n_targets > n_tokens || n_hidden > (g->hidden == NULL ? 0 : n_tokens) || known < 0 || fresh < 0 ||
        hidden_row < 0 || hidden_row > g->max_step_tokens - n_tokens || fresh > g->blocks_per_sequence - known ||
        end - from - PER_SEQUENCE < (int64_t)n_tokens + fresh ||
        n_cached + n_tokens > (int64_t)(known + fresh) * g->block_tokens) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a step from rank 0 has slot %d with %d tokens after %lld and %d + %d blocks",
                 slot, n_tokens, (long long)n_cached, known, fresh);
    }
    int32_t *row = s->table + (size_t)slot * (size_t)g->blocks_per_sequence;
    const int32_t *tokens = from + PER_SEQUENCE, *blocks = tokens + n_tokens;
    for (int32_t i = 0; i < fresh; i++) {
        row[known + i] = blocks[i];
    }
    *sequence = (trm_step_sequence){.tokens = tokens,
                                    .n_tokens = n_tokens,
                                    .n_cached = n_cached,
                                    .n_prompt = from[3],
                                    .blocks = row,
                                    .read_slot = read,
                                    .write_slot = written,
                                    .choices = s->choices,
                                    .n_choices = n_choices,
                                    .n_targets = n_targets,
                                    .n_hidden = n_hidden,
                                    .adapter = adapter,
                                    .hidden_row = hidden_row};
    *at = blocks + fresh;
    return TRM_OK;
}

/* Reads the sequences of a step into `sequences` [max_sequences]; *n of them. */
static trm_status read_step(trm_scheduler *s, trm_step_sequence *sequences, int32_t *count)
{
    const int32_t *at = s->message + HEADER, *end = s->message + s->message[1];
    int32_t n = s->message[2];
    int32_t mode = s->message[3];
    if (n < 1 || n > s->g->max_sequences || mode < 0 || mode >= TRM_SAMPLE_MODE_COUNT) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a step from rank 0 has %d sequences and mode %d, expected 1 to %d", n, mode,
                 s->g->max_sequences);
    }
    int64_t tokens = 0, rows = 0;
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(read_sequence(s, &at, end, &sequences[i]));
        tokens += sequences[i].n_tokens;
        rows += trm_step_rows(&sequences[i]);
    }
    if (tokens > s->g->max_step_tokens || rows > s->g->max_rows) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a step from rank 0 has %lld tokens and %lld rows, expected at most %d and %d",
                 (long long)tokens, (long long)rows, s->g->max_step_tokens, s->g->max_rows);
    }
    *count = n;
    return TRM_OK;
}

static trm_status run_message(trm_scheduler *s)
{
    int32_t n;
    TRM_TRY(read_step(s, s->sequences, &n));
    double began = trm_scheduler_now();
    s->g->sampler.least_mode = (trm_sample_mode)s->message[3];
    s->g->goes_on = s->message[4] != 0;
    trm_status status = trm_generator_step(s->g, s->sequences, n, NULL);
    s->g->goes_on = false;
    s->g->sampler.least_mode = TRM_SAMPLE_GREEDY;
    if (status == TRM_OK) {
        trm_scheduler_tell_step(s, trm_scheduler_now() - began);
    }
    return status;
}

/* A step of the draft model. */
static trm_status run_draft(trm_scheduler *s)
{
    trm_draft_model *d = &s->drafter;
    const int32_t *at = s->message + HEADER, *end = s->message + s->message[1];
    int32_t n = s->message[2];
    int64_t tokens = 0;
    bool fits = d->g != NULL && n >= 1 && n <= d->slots;
    for (int32_t i = 0; i < n && fits; i++) {
        fits = end - at >= 4 && at[0] >= 0 && at[0] < d->slots && at[1] >= 1 && at[1] <= end - at - 4 && at[2] >= 0 &&
               at[2] + (int64_t)at[1] <= d->g->max_context && at[3] >= 0 && at[3] <= 1;
        if (fits) {
            d->sequences[i] =
                (trm_step_sequence){.tokens = at + 4,
                                    .n_tokens = at[1],
                                    .n_cached = at[2],
                                    .n_prompt = at[2] + at[1],
                                    .blocks = d->blocks + (size_t)at[0] * (size_t)d->g->blocks_per_sequence,
                                    .choices = s->choices,
                                    .n_choices = at[3]};
            tokens += at[1];
            at += 4 + at[1];
        }
    }
    if (!fits || tokens > d->step_tokens) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "rank 0 sent a step of %d sequences for a draft model%s", n,
                 d->g == NULL ? ", but this rank has none" : "");
    }
    return trm_draft_model_step(d, n);
}

/* A step of the draft head. */
static trm_status run_head(trm_scheduler *s)
{
    int32_t n;
    if (s->head.g == NULL) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "rank 0 sent a step of a draft head, but this rank has none");
    }
    TRM_TRY(read_step(s, s->head.sequences, &n));
    return trm_scheduler_step_head(s, n, s->message[4] != 0);
}

/* Loads an adapter. All ranks know if one of them cannot: it is no error of this call. */
static trm_status run_adapter(trm_scheduler *s)
{
    const char *folder = (const char *)(s->message + HEADER);
    const int32_t adapter = s->message[2], size = s->message[3];
    const int64_t room = ((int64_t)s->message[1] - HEADER) * (int64_t)sizeof(int32_t);
    if (adapter < 1 || adapter > s->g->adapters.n || size < 1 || size > room || folder[size - 1] != '\0') {
        TRM_FAIL(TRM_ERROR_INTERNAL, "rank 0 sent adapter %d with a name of %d bytes", adapter, size);
    }
    const trm_status status = trm_generator_load_adapter_as(s->g, folder, adapter);
    return status == TRM_ERROR_LOST_RANK ? status : TRM_OK;
}

static void tell_heard(const trm_scheduler *s, bool has_step)
{
    if (s->on_heard != NULL) {
        s->on_heard(s->user, has_step);
    }
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_follow, (trm_scheduler *s), (s))
{
    if (s == NULL || s->g->world->rank == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot follow: %s", s == NULL ? "scheduler is NULL" : "rank 0 leads");
    }
    for (int32_t i = 0; i < s->g->max_rows; i++) { /* rank 0 decides the tokens */
        s->choices[i] = (trm_sampling_row){.sampling = &trm_sampling_greedy, .logprobs = -1};
    }
    for (;;) {
        TRM_TRY(receive(s));
        const int32_t kind = s->message[0];
        const bool has_step = kind == KIND_STEP || kind == KIND_DRAFT || kind == KIND_HEAD;
        tell_heard(s, has_step);
        if (kind == KIND_END) {
            return TRM_OK;
        }
        if (kind == KIND_ADAPTER) {
            TRM_TRY(run_adapter(s));
        }
        if (has_step) {
            TRM_TRY(kind == KIND_STEP ? run_message(s) : kind == KIND_HEAD ? run_head(s) : run_draft(s));
            tell_heard(s, false);
        }
    }
}
