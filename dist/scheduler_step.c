/* One step of the scheduler: what runs in it, and what its tokens mean. */
#include <string.h>

#include "base/error.h"
#include "dist/scheduler.h"

static void add_sequence(trm_scheduler *s, trm_live *live, int32_t n_tokens)
{
    const trm_generator *g = s->g;
    int32_t i = s->n_sequences++;
    bool wanted = live->n_cached + n_tokens == live->n_tokens && live->n_tokens < live->n_most;
    s->lives[i] = live;
    s->slots[i] = live->slot;
    s->sequences[i] = (trm_step_sequence){
        .tokens = live->tokens + live->n_cached,
        .n_tokens = n_tokens,
        .n_cached = live->n_cached,
        .n_prompt = live->request.n_prompt,
        .blocks = s->table + (size_t)live->slot * (size_t)g->blocks_per_sequence,
        .sampling = wanted ? &live->request.sampling.base : NULL,
        .seen = s->seen + (size_t)live->slot * (size_t)g->seen_words,
        .counter = (uint64_t)(live->n_tokens - live->request.n_prompt + live->request.n_resumed),
    };
    s->n_tokens += n_tokens;
}

/* Fills the step: the newest token of all that have no other, then prompts in order. Whether it is of single tokens. */
static bool fill(trm_scheduler *s)
{
    s->n_sequences = s->n_tokens = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_live *live = s->running[i];
        if (live->n_tokens - live->n_cached == 1 && trm_scheduler_grow(s, live)) {
            add_sequence(s, live, 1);
        }
    }
    bool single = true;
    for (int32_t i = 0; i < s->n_running && s->n_tokens < s->step_tokens; i++) {
        trm_live *live = s->running[i];
        int64_t left = live->n_tokens - live->n_cached;
        if (left > 1) {
            int32_t room = s->step_tokens - s->n_tokens;
            int32_t chunk = left < room ? (int32_t)left : room;
            add_sequence(s, live, chunk);
            single = single && chunk == 1;
        }
    }
    return single;
}

static bool is_stop(const trm_scheduler *s, const trm_live *live, int32_t token)
{
    const trm_model_info *info = &s->g->info;
    for (int32_t i = 0; !live->request.ignore_eos && i < info->n_eos_tokens; i++) {
        if (info->eos_tokens[i] == token) {
            return true;
        }
    }
    for (int32_t i = 0; i < live->request.n_stop_tokens; i++) {
        if (live->request.stop_tokens[i] == token) {
            return true;
        }
    }
    return false;
}

static void end_running(trm_scheduler *s, trm_live *live, trm_finish finish, int32_t token)
{
    trm_scheduler_evict(s, live);
    trm_scheduler_finish(s, live, finish, token, NULL);
}

static void take_token(trm_scheduler *s, trm_live *live, int32_t token)
{
    if (is_stop(s, live, token)) {
        end_running(s, live, TRM_FINISH_STOP, token);
        return;
    }
    live->tokens[live->n_tokens++] = token;
    s->stats.generated_tokens++;
    s->seen[(size_t)live->slot * (size_t)s->g->seen_words + (size_t)(token / 32)] |= 1u << (token % 32);
    trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_TOKEN, live);
    event->token = token;
    event->index = live->n_tokens - live->request.n_prompt - 1;
    if (live->n_tokens >= live->n_most) {
        end_running(s, live, TRM_FINISH_LENGTH, -1);
    }
}

static void take_results(trm_scheduler *s)
{
    for (int32_t i = 0; i < s->n_sequences; i++) {
        trm_live *live = s->lives[i];
        const trm_step_sequence *sequence = &s->sequences[i];
        int64_t prompt_left = live->request.n_prompt - live->n_cached;
        s->stats.prompt_tokens += prompt_left < 0                    ? 0
                                  : prompt_left < sequence->n_tokens ? prompt_left
                                                                     : sequence->n_tokens;
        live->n_cached += sequence->n_tokens;
        trm_scheduler_publish(s, live);
        if (sequence->sampling != NULL) {
            take_token(s, live, s->chosen[i]);
        } else if (live->n_cached == live->n_tokens) { /* no token was asked for */
            end_running(s, live, TRM_FINISH_LENGTH, -1);
        }
    }
}

static trm_status run(trm_scheduler *s)
{
    double began = trm_scheduler_now();
    trm_scheduler_admit(s);
    bool single = fill(s);
    if (s->n_sequences == 0) {
        return trm_scheduler_send_beat(s);
    }
    TRM_TRY(trm_scheduler_send_step(s, single));
    double sent = trm_scheduler_now();
    TRM_TRY(trm_generator_step(s->g, s->sequences, s->n_sequences, single, s->chosen));
    s->stats.wait_seconds += trm_scheduler_now() - sent;
    take_results(s);
    s->stats.steps++;
    s->stats.decode_steps += single;
    s->stats.last_step_seconds = trm_scheduler_now() - began;
    s->stats.step_seconds += s->stats.last_step_seconds;
    s->stats.last_step_sequences = s->n_sequences;
    s->stats.last_step_tokens = s->n_tokens;
    return TRM_OK;
}

trm_status trm_scheduler_step(trm_scheduler *s, const trm_serving_event **events, int32_t *n_events)
{
    if (s == NULL || events == NULL || n_events == NULL || s->g->world->rank != 0 || s->ended) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot step: %s",
                 s == NULL                            ? "scheduler is NULL"
                 : events == NULL || n_events == NULL ? "events or n_events is NULL"
                 : s->ended                           ? "the scheduler has ended"
                                                      : "this rank follows rank 0");
    }
    if (s->events_given) {
        s->n_events = s->n_errors = 0;
        s->events_given = false;
    }
    TRM_TRY(run(s));
    s->events_given = true;
    *events = s->events;
    *n_events = s->n_events;
    return TRM_OK;
}
