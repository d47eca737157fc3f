/* One step of a generator: lays out the inputs, then enqueues the network and the sampler, or launches their captured
 * graph. */
#include "dist/llm/generator.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/half.h"
#include "base/ranges.h"
#include "base/trace.h"

/* A bucket with prompts is captured after this many uses. */
#define MIXED_USES 2
/* One in this many steps is profiled while weights stream, or for collectives alone; the first after SAMPLE_FIRST. A
 * step launched layer by layer takes up to three times as long. */
#define SAMPLE_STEPS            64
#define SAMPLE_COLLECTIVE_STEPS 1024
#define SAMPLE_FIRST            4

/*
 * Writes the inputs of a step into the staging memory of a context and sets the dims. With `form` the step is padded to
 * it: padding tokens belong to no sequence (they are past the last start), padding sequences have no tokens, and
 * padding rows are those of some token. Adds all logits rows to the sampler.
 */
static trm_status lay_out_inputs(trm_generator *g, trm_context *context, const trm_step_sequence *sequences, int32_t n,
                                 const trm_step_form *form, int32_t *n_rows)
{
    int32_t *ids = trm_context_staging(context, g->token_ids);
    int32_t *positions = trm_context_staging(context, g->positions);
    int32_t *starts = trm_context_staging(context, g->sequence_starts);
    int32_t *lengths = trm_context_staging(context, g->sequence_lengths);
    int32_t *table = trm_context_staging(context, g->block_table);
    int32_t *slots = g->sequence_slots == NULL ? NULL : trm_context_staging(context, g->sequence_slots);
    int32_t *rows = trm_context_staging(context, g->logit_rows);
    int32_t *rope_lengths = g->rope_lengths == NULL ? NULL : trm_context_staging(context, g->rope_lengths);
    int32_t *adapters = g->adapter_slots == NULL ? NULL : trm_context_staging(context, g->adapter_slots);
    const trm_tensor *hidden_input = g->of_head.rows;
    int32_t *hidden_rows = hidden_input == NULL ? NULL : trm_context_staging(context, hidden_input);
    const int32_t table_blocks = trm_generator_table_blocks(g, form);
    int32_t at = 0;
    *n_rows = 0;
    for (int32_t i = 0; i < n; i++) {
        const trm_step_sequence *sequence = &sequences[i];
        int64_t length = sequence->n_cached + sequence->n_tokens;
        starts[i] = at;
        lengths[i] = (int32_t)length;
        if (slots != NULL) {
            slots[2 * i] = sequence->read_slot;
            slots[2 * i + 1] = sequence->write_slot;
        }
        /* Block table entries past a sequence's length keep old values: attention does not read them. */
        memcpy(table + (size_t)i * (size_t)table_blocks, sequence->blocks,
               (size_t)trm_generator_blocks(g, length) * sizeof(*table));
        for (int32_t k = 0; k < sequence->n_tokens; k++, at++) {
            ids[at] = sequence->tokens[k];
            positions[at] = (int32_t)(sequence->n_cached + k);
            if (adapters != NULL) {
                adapters[at] = sequence->adapter - 1;
            }
            if (hidden_rows != NULL) {
                hidden_rows[at] = sequence->hidden_row + k;
            }
            if (rope_lengths != NULL) {
                /* the length when the token was new, so that one step or several give the same */
                rope_lengths[at] =
                    (int32_t)(positions[at] + 1 > sequence->n_prompt ? positions[at] + 1 : sequence->n_prompt);
            }
        }
        for (int32_t k = 0; k < sequence->n_targets; k++) {
            rows[(*n_rows)++] = starts[i] + k;
            trm_sampler_add_target(&g->sampler, sequence->tokens[k + 1], sequence->target_top);
        }
        for (int32_t k = 0; k < sequence->n_choices; k++) {
            rows[(*n_rows)++] = at - sequence->n_choices + k;
            TRM_TRY(trm_sampler_add(&g->sampler, context->stream, &sequence->choices[k]));
        }
        for (int32_t k = 0; k < sequence->n_hidden; k++) {
            rows[(*n_rows)++] = at - sequence->n_hidden + k;
            trm_sampler_add_padding(&g->sampler);
        }
    }
    starts[n] = at;
    int64_t s = form == NULL ? n : form->sequences;
    for (int64_t i = n; i < s; i++) {
        starts[i + 1] = at;
        lengths[i] = 0;
        if (slots != NULL) {
            slots[2 * i] = slots[2 * i + 1] = 0;
        }
    }
    for (const int32_t padded = trm_generator_padded(g, form == NULL ? at : form->tokens); at < padded; at++) {
        ids[at] = positions[at] = 0;
        if (rope_lengths != NULL) {
            rope_lengths[at] = 0;
        }
        if (adapters != NULL) {
            adapters[at] = -1;
        }
        if (hidden_rows != NULL) {
            hidden_rows[at] = 0;
        }
    }
    for (; form != NULL && *n_rows < form->rows; (*n_rows)++) {
        rows[*n_rows] = at - 1;
        trm_sampler_add_padding(&g->sampler);
    }
    const trm_dims tokens = {1, {at}}, per_sequence = {1, {s}}, starts_dims = {1, {s + 1}},
                   table_dims = {2, {s, table_blocks}}, rows_dims = {1, {*n_rows}};
    TRM_TRY(trm_context_set_dims(context, g->token_ids, &tokens));
    TRM_TRY(trm_context_set_dims(context, g->positions, &tokens));
    if (rope_lengths != NULL) {
        TRM_TRY(trm_context_set_dims(context, g->rope_lengths, &tokens));
    }
    if (adapters != NULL) {
        TRM_TRY(trm_context_set_dims(context, g->adapter_slots, &tokens));
    }
    if (hidden_rows != NULL) {
        TRM_TRY(trm_context_set_dims(context, hidden_input, &tokens));
    }
    TRM_TRY(trm_context_set_dims(context, g->sequence_starts, &starts_dims));
    TRM_TRY(trm_context_set_dims(context, g->sequence_lengths, &per_sequence));
    const trm_dims slots_dims = {2, {s, 2}};
    if (slots != NULL) {
        TRM_TRY(trm_context_set_dims(context, g->sequence_slots, &slots_dims));
    }
    TRM_TRY(trm_context_set_dims(context, g->block_table, &table_dims));
    return trm_context_set_dims(context, g->logit_rows, &rows_dims);
}

/* Logits that each rank computes may differ in their last bits. */
trm_status trm_generator_agree_on_tokens(trm_generator *g, int32_t n_rows)
{
    const trm_exchange exchange = {.op = TRM_BROADCAST,
                                   .reduce = TRM_REDUCE_NONE,
                                   .dtype = TRM_I32,
                                   .from = g->sampler.chosen,
                                   .to = g->sampler.chosen,
                                   .count = (size_t)n_rows,
                                   .root = 0};
    return g->world->size == 1 ? TRM_OK
                               : trm_communicator_exchange(g->world->communicator, &exchange, g->context->stream);
}

/* Enqueues the copy of the sampled tokens to the host. */
static trm_status hand_over_tokens(trm_generator *g, int32_t n_rows, trm_sample_mode mode)
{
    TRM_TRY(trm_generator_agree_on_tokens(g, n_rows));
    return trm_sampler_download(&g->sampler, g->context->stream, n_rows, mode);
}

/* Enqueues the sampling of n rows of a context's logits, the step's rows from `first` on. */
static trm_status choose(trm_generator *g, trm_context *context, int32_t first, int32_t n, trm_sample_mode mode)
{
    return trm_sampler_enqueue(&g->sampler, g->context->stream, trm_context_view(context, g->logits).data, first, n,
                               mode);
}

/* Enqueues network, sampler, and the copy of the tokens to the host. */
static trm_status enqueue(trm_generator *g, int32_t n_rows, trm_sample_mode mode)
{
    TRM_TRY(trm_context_enqueue(g->context));
    if (n_rows == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_sampler_upload(&g->sampler, g->context->stream, n_rows, mode));
    TRM_TRY(choose(g, g->context, 0, n_rows, mode));
    return hand_over_tokens(g, n_rows, mode);
}

static bool wants_hidden(const trm_step_sequence *sequences, int32_t n)
{
    bool wanted = false;
    for (int32_t i = 0; i < n; i++) {
        wanted = wanted || sequences[i].n_hidden > 0;
    }
    return wanted;
}

/* Number of wanted hidden states among a sequence's first `n` tokens. */
static int32_t hidden_before(const trm_step_sequence *sequence, int32_t n)
{
    int32_t without = sequence->n_tokens - sequence->n_hidden;
    return n > without ? n - without : 0;
}

/* Enqueues the copy of n hidden states of a context, the step's rows from `first` on, to the host. */
static trm_status hand_over_hidden(trm_generator *g, trm_context *context, int32_t first, int32_t n)
{
    trm_view hidden = trm_context_view(context, g->hidden);
    size_t row = (size_t)hidden.dims.d[1] * trm_dtype_size(hidden.dtype);
    return trm_stream_download(context->stream, g->hidden_staging + (size_t)first * row, hidden.data, (size_t)n * row);
}

/* Enqueues a step of long prompts in two microbatches of half the tokens. A sequence may be split, but not within its
 * drafts, whose samples depend on each other. */
static trm_status enqueue_lanes(trm_generator *g, const trm_step_sequence *sequences, int32_t n, int32_t tokens)
{
    int32_t half = tokens / 2, at = 0, n_first = 0, rows[TRM_MICROBATCHES];
    half -= half > TRM_MICROBATCH_GRAIN ? half % TRM_MICROBATCH_GRAIN : 0;
    trm_step_sequence *second = g->lane_sequences, *first = second + g->max_sequences;
    int32_t n_second = 0;
    for (int32_t i = 0; i < n; i++) {
        const trm_step_sequence *sequence = &sequences[i];
        int32_t here = at >= half                                                  ? 0
                       : sequence->n_tokens < half - at || sequence->n_choices > 1 ? sequence->n_tokens
                                                                                   : half - at;
        at += here;
        if (here > 0) {
            first[n_first] = *sequence;
            first[n_first].n_tokens = here;
            first[n_first].n_targets = here < sequence->n_targets ? here : sequence->n_targets;
            first[n_first].n_hidden = hidden_before(sequence, here);
            first[n_first++].n_choices = here == sequence->n_tokens ? sequence->n_choices : 0;
        }
        if (here < sequence->n_tokens) {
            second[n_second] = *sequence;
            second[n_second].read_slot = here > 0 ? sequence->write_slot : sequence->read_slot;
            second[n_second].tokens += here;
            second[n_second].n_cached += here;
            second[n_second].n_targets = here < sequence->n_targets ? sequence->n_targets - here : 0;
            second[n_second].n_hidden -= hidden_before(sequence, here);
            second[n_second++].n_tokens -= here;
        }
    }
    trm_context *const *contexts = g->microbatches->contexts;
    TRM_TRY(lay_out_inputs(g, contexts[0], first, n_first, NULL, &rows[0]));
    TRM_TRY(lay_out_inputs(g, contexts[1], second, n_second, NULL, &rows[1]));
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_context_shape(contexts[i]));
    }
    TRM_TRY(trm_event_record(g->began, g->context->stream));
    TRM_TRY(trm_microbatches_enqueue(g->microbatches));
    trm_sampler *sampler = &g->sampler;
    if (sampler->n_rows == 0) {
        return TRM_OK;
    }
    if (wants_hidden(sequences, n)) {
        TRM_TRY(hand_over_hidden(g, contexts[0], 0, rows[0]));
        TRM_TRY(hand_over_hidden(g, contexts[1], rows[0], rows[1]));
    }
    trm_stream *stream = g->context->stream;
    TRM_TRY(trm_sampler_stage(sampler, stream));
    TRM_TRY(trm_sampler_upload(sampler, stream, sampler->n_rows, sampler->mode));
    TRM_TRY(choose(g, contexts[0], 0, rows[0], sampler->mode));
    TRM_TRY(choose(g, contexts[1], rows[0], rows[1], sampler->mode));
    return hand_over_tokens(g, sampler->n_rows, sampler->mode);
}

/* Copies from pageable memory cannot be part of a captured step. */
static bool can_capture(const trm_generator *g)
{
    return trm_device_backend(g->world->device) == TRM_BACKEND_CUDA && !trm_context_is_profiling(g->context) &&
           (!trm_context_streams_weights(g->context) || g->engine->places.capturable ||
            trm_context_captures_small(g->context));
}

/* Whether the step whose inputs are laid out can be captured, if others can: not if it reads weights from files. */
static trm_status check_captures(trm_generator *g, bool *captures)
{
    TRM_TRY(trm_context_follow_weights(g->context));
    if (*captures && trm_context_streams_weights(g->context) && !g->engine->places.capturable) {
        TRM_TRY(trm_context_shape(g->context));
        *captures =
            trm_context_captures_small(g->context) && trm_context_schedule(g->context) == TRM_COPY_SCHEDULE_SMALL;
    }
    return TRM_OK;
}

typedef struct capturing {
    trm_generator *g;
    int32_t rows;
    trm_sample_mode mode;
} capturing;

static trm_status enqueue_captured(void *user)
{
    const capturing *c = user;
    return enqueue(c->g, c->rows, c->mode);
}

/* Captures a step whose inputs are laid out, after tuning it if the generator tunes. */
static trm_status capture(trm_generator *g, trm_captured_shape *step, trm_sample_mode mode)
{
    capturing c = {g, trm_graph_bucket_form(step)->rows, mode};
    if (!step->is_ready) {
        if (g->tune) {
            const trm_tune_options options = {.level = TRM_TUNE_USUAL, .cache = g->timing_cache};
            double began = trm_clock_seconds();
            TRM_TRY(trm_context_tune_kernels(g->context, &options));
            g->startup.tune_seconds += trm_clock_seconds() - began;
        }
        TRM_TRY(enqueue_captured(&c)); /* initializes libraries outside the capture */
        TRM_TRY(trm_context_wait(g->context));
        step->is_ready = true;
    }
    TRM_TRY(trm_context_shape(g->context));
    return trm_context_capture(g->context, step, trm_graph_bucket_variant(mode, false), enqueue_captured, &c);
}

trm_status trm_generator_time_steps(trm_generator *g)
{
    if (!trm_context_streams_weights(g->context) && g->world->size == 1) {
        return TRM_OK;
    }
    TRM_TRY(trm_context_prepare_sample(g->context));
    g->samples = true;
    g->n_steps = g->n_sampled = 0;
    return TRM_OK;
}

/* Whether to profile the next step: the same on all ranks, which make the same steps. */
static bool is_sample_due(const trm_generator *g)
{
    const bool traces = trm_trace_is_on();
    const int64_t every = traces || trm_context_streams_weights(g->context) ? SAMPLE_STEPS : SAMPLE_COLLECTIVE_STEPS;
    return (g->samples || traces) && g->n_steps % every == SAMPLE_FIRST;
}

static bool begins_sample(trm_generator *g)
{
    g->is_sample = is_sample_due(g) && trm_context_begin_sample(g->context);
    g->n_steps++;
    return g->is_sample;
}

/* Times the layers of a step that runs layer by layer, if a timeline is recorded. */
static trm_status trace_layers(trm_generator *g)
{
    if (trm_trace_is_on()) {
        TRM_TRY(trm_context_prepare_sample(g->context));
        g->is_traced = trm_context_begin_sample(g->context);
    }
    return TRM_OK;
}

/* Runs a step whose inputs are laid out for bucket `step`, which may be NULL. `captures`: can_capture. */
static trm_status run(trm_generator *g, trm_captured_shape *step, int32_t n_rows, bool captures)
{
    const trm_sample_mode mode = g->sampler.mode;
    if (captures) {
        TRM_TRY(check_captures(g, &captures));
    }
    if (captures) {
        const int32_t variant = trm_graph_bucket_variant(mode, false);
        if (step != NULL && !step->stays && step->uses < MIXED_USES) {
            step->uses++;
            step->is_ready = true;
        } else if (step != NULL && step->execs[variant] == NULL) {
            TRM_TRY(capture(g, step, mode));
        }
        if (step != NULL && step->execs[variant] != NULL && !begins_sample(g)) {
            g->was_captured = true;
            TRM_TRY(trm_event_record(g->began, g->context->stream));
            return trm_context_launch(g->context, step, variant);
        }
    } else {
        (void)begins_sample(g);
    }
    TRM_TRY(trace_layers(g));
    TRM_TRY(trm_context_shape(g->context));
    TRM_TRY(trm_event_record(g->began, g->context->stream));
    return enqueue(g, n_rows, mode);
}

/* Whether every sequence has one token and one logits row. */
static bool is_regular(const trm_step_sequence *sequences, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (sequences[i].n_tokens != 1 || trm_step_rows(&sequences[i]) != 1) {
            return false;
        }
    }
    return true;
}

/* Blocks of the longest sequence after the next decode step, too. */
static int32_t blocks_ahead(const trm_generator *g, const trm_step_sequence *sequences, int32_t n)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        const int64_t length = sequences[i].n_cached + sequences[i].n_tokens + 1;
        most = length > most ? length : most;
    }
    return trm_generator_blocks(g, most);
}

/* The bucket that a step is padded to; NULL: none. */
static trm_captured_shape *find_bucket(trm_generator *g, const trm_step_sequence *sequences, int32_t n, bool regular)
{
    const trm_step_form most = {g->max_step_tokens, g->max_sequences, g->max_rows, 0};
    trm_step_form form = {0, n, 0, 0}, other;
    const trm_step_form *padded = NULL;
    bool is_plain = true;
    for (int32_t i = 0; i < n; i++) {
        is_plain = is_plain && sequences[i].n_targets + sequences[i].n_hidden == 0;
        form.tokens += sequences[i].n_tokens;
        form.rows += sequences[i].n_choices;
    }
    if (regular) {
        other = trm_graph_bucket_decode(&g->buckets, n, blocks_ahead(g, sequences, n));
        padded = &other;
    } else if (is_plain && n == 1 && form.rows == form.tokens) {
        padded = trm_graph_bucket_draft(&g->buckets, form.tokens);
    } else if (is_plain && trm_graph_bucket_mixed(&form, &most, &other)) {
        padded = &other;
    }
    return padded == NULL ? NULL : trm_capture_cache_get(trm_context_captures(g->context), padded);
}

/* Enqueues a step that is not running as an async step. *form: its bucket, or NULL. */
static trm_status begin_step(trm_generator *g, const trm_step_sequence *sequences, int32_t n, trm_captured_shape **form)
{
    const bool regular = is_regular(sequences, n);
    int32_t tokens = 0, n_rows;
    for (int32_t i = 0; i < n; i++) {
        tokens += sequences[i].n_tokens;
    }
    *form = NULL;
    trm_sampler_begin(&g->sampler);
    g->was_captured = g->was_microbatched = false;
    g->n_draft_hidden = tokens;
    if (g->microbatches != NULL && tokens >= g->lane_tokens && !regular && !trm_context_is_profiling(g->context)) {
        g->was_microbatched = true;
        return enqueue_lanes(g, sequences, n, tokens);
    }
    const bool captures = can_capture(g);
    trm_captured_shape *step = captures || g->pad_steps ? find_bucket(g, sequences, n, regular) : NULL;
    TRM_TRY(lay_out_inputs(g, g->context, sequences, n, step == NULL ? NULL : trm_graph_bucket_form(step), &n_rows));
    TRM_TRY(trm_sampler_stage(&g->sampler, g->context->stream));
    g->n_draft_hidden = trm_generator_is_head(g) ? n_rows : tokens;
    TRM_TRY(run(g, step, n_rows, captures));
    if (g->hidden != NULL && wants_hidden(sequences, n)) {
        TRM_TRY(trm_context_shape(g->context)); /* a captured step has not done so */
        TRM_TRY(hand_over_hidden(g, g->context, 0, n_rows));
    }
    *form = regular ? step : NULL;
    return TRM_OK;
}

/* Whether an async step may follow a step in bucket `form`. If it is discarded, states need their version before it. A
 * step that is profiled runs layer by layer, when the host has the tokens. */
static bool may_go_ahead(const trm_generator *g, const trm_captured_shape *form, trm_sample_mode mode)
{
    return g->goes_on && form != NULL && g->versions != 1 && mode != TRM_SAMPLE_FULL &&
           !trm_context_streams_weights(g->context) && !trm_context_is_profiling(g->context) && !is_sample_due(g) &&
           (can_capture(g) ? form->execs[trm_graph_bucket_variant(mode, false)] != NULL : g->pad_steps);
}

/* Copies the sampled tokens of an async step that is taken for n sequences. */
static void take_ahead(const trm_async_step *ahead, const int32_t *from, int32_t n, int32_t *chosen)
{
    for (int32_t i = 0; i < n; i++) {
        chosen[i] = from[ahead->rows[i]];
    }
}

/* Copies the sampled tokens, which are ordered by row. */
static void take_chosen(const int32_t *from, const trm_step_sequence *sequences, int32_t n, int32_t *chosen)
{
    for (int32_t i = 0, row = 0; i < n; i++) {
        row += sequences[i].n_targets;
        for (int32_t k = 0; k < sequences[i].n_choices; k++) {
            *chosen++ = from[row++];
        }
        row += sequences[i].n_hidden;
    }
}

/* Adds a step that has ended to the timeline. `under_way`: it was an async step. */
static trm_status trace_step(trm_generator *g, const trm_step_sequence *sequences, int32_t n, trm_event *began,
                             trm_event *ended, bool under_way)
{
    int32_t tokens = 0, prompts = 0;
    for (int32_t i = 0; i < n; i++) {
        tokens += sequences[i].n_tokens;
        prompts += sequences[i].n_tokens > sequences[i].n_choices;
    }
    const trm_trace_value values[] = {{.key = "tokens", .number = tokens},
                                      {.key = "sequences", .number = n},
                                      {.key = "prompts", .number = prompts},
                                      {.key = "captured", .text = g->was_captured || under_way ? "yes" : "no"}};
    const trm_traced_run run = {.row = trm_generator_is_head(g) ? "draft head steps" : "steps",
                                .name = prompts == 0  ? "decode"
                                        : prompts < n ? "decode and prefill"
                                                      : "prefill",
                                .began = began,
                                .ended = ended,
                                .follows = under_way,
                                .values = values,
                                .n_values = 4};
    return trm_context_trace_run(g->context, &run);
}

static trm_status make_step(trm_generator *g, const trm_step_sequence *sequences, int32_t n, int32_t *chosen)
{
    trm_async_step *ahead = &g->ahead;
    const bool under_way = ahead->step != NULL && trm_async_step_applies(g, sequences, n);
    const bool whole = !under_way || n == ahead->n; /* rows of ended sequences cannot go on */
    trm_captured_shape *form = ahead->step;
    trm_event *began = g->began;
    if (under_way) {
        began = ahead->ends[ahead->turn];
        ahead->turn = (ahead->turn + 1) % TRM_ASYNC_STEP_TURNS;
        ahead->step = NULL;
        ahead->n_taken++;
    } else {
        TRM_TRY(ahead->step == NULL ? TRM_OK : trm_async_step_settle(g));
        TRM_TRY(begin_step(g, sequences, n, &form));
        TRM_TRY(trm_event_record(ahead->ends[ahead->turn], g->context->stream));
    }
    const trm_sample_mode mode = under_way ? ahead->mode : g->sampler.mode;
    trm_event *end = ahead->ends[ahead->turn];
    const int32_t *tokens = under_way ? ahead->chosen[ahead->turn] : g->sampler.chosen_staging;
    if (whole && may_go_ahead(g, form, mode) &&
        blocks_ahead(g, sequences, n) <= trm_generator_table_blocks(g, trm_graph_bucket_form(form))) {
        TRM_TRY(trm_async_step_enqueue(g, form, mode, sequences, n));
        g->n_steps++;
    }
    TRM_TRY(trm_world_await(g->world, end, "a step"));
    TRM_TRY(trm_context_offload_status(g->context));
    float milliseconds;
    TRM_TRY(trm_event_elapsed_ms(began, end, &milliseconds));
    g->device_seconds = (double)milliseconds * 1e-3;
    if (trm_context_is_profiling(g->context) && !under_way) { /* an async step began before profiling */
        TRM_TRY(trm_context_collect_profile(g->context));
        if (g->is_sample) {
            trm_context_sum_sample(g->context, &g->layer_seconds, &g->collective_seconds);
            g->n_sampled++;
        }
    }
    TRM_TRY(trm_trace_is_on() ? trace_step(g, sequences, n, began, end, under_way) : TRM_OK);
    if (chosen != NULL && under_way) {
        take_ahead(ahead, tokens, n, chosen);
    } else if (chosen != NULL) {
        take_chosen(tokens, sequences, n, chosen);
    }
    if (ahead->step != NULL) {
        take_chosen(tokens, sequences, n, ahead->tokens);
    }
    return TRM_OK;
}

trm_status trm_generator_step(trm_generator *g, const trm_step_sequence *sequences, int32_t n, int32_t *chosen)
{
    g->layer_seconds = g->collective_seconds = 0;
    trm_range_begin("step");
    const trm_status status = make_step(g, sequences, n, chosen);
    trm_range_end();
    if (g->is_sample || g->is_traced) {
        trm_context_end_sample(g->context);
        g->is_sample = g->is_traced = false;
    }
    return status;
}

trm_status trm_generator_tune_mixed(trm_generator *g, int32_t tokens)
{
    static const int32_t token = 0;
    static const trm_sampling_row choice = {.sampling = &trm_sampling_greedy, .logprobs = -1};
    const int32_t block = 0;
    const trm_step_sequence sequence = {
        .tokens = &token, .n_tokens = 1, .blocks = &block, .choices = &choice, .n_choices = 1};
    const trm_step_form most = {g->max_step_tokens, g->max_sequences, g->max_rows, 0};
    const trm_step_form form = {tokens, g->max_sequences, g->max_sequences, 0};
    trm_step_form padded;
    int32_t n_rows;
    if (!g->tune || !can_capture(g) || (g->microbatches != NULL && tokens >= g->lane_tokens) ||
        !trm_graph_bucket_mixed(&form, &most, &padded)) {
        return TRM_OK;
    }
    trm_sampler_begin(&g->sampler);
    TRM_TRY(lay_out_inputs(g, g->context, &sequence, 1, &padded, &n_rows));
    const trm_tune_options options = {.level = TRM_TUNE_USUAL, .cache = g->timing_cache};
    double began = trm_clock_seconds();
    TRM_TRY(trm_context_tune_kernels(g->context, &options));
    g->startup.tune_seconds += trm_clock_seconds() - began;
    return trm_context_wait(g->context);
}

void trm_generator_add_hidden(const trm_generator *g, int32_t row, float *sum)
{
    size_t n = (size_t)g->hidden->dims.d[1];
    const unsigned char *from = g->hidden_staging + (size_t)row * n * trm_dtype_size(g->hidden->dtype);
    const float *floats = (const float *)(const void *)from;
    const uint16_t *halves = (const uint16_t *)(const void *)from;
    for (size_t i = 0; i < n; i++) {
        sum[i] += g->hidden->dtype == TRM_F32   ? floats[i]
                  : g->hidden->dtype == TRM_F16 ? trm_f16_to_f32(halves[i])
                                                : trm_bf16_to_f32(halves[i]);
    }
}
