/* What the tests of the scheduler on one rank have in common: the small Llama, a text, generators and requests. */
#ifndef TESTS_DIST_SCHEDULER_FIXTURE_H
#define TESTS_DIST_SCHEDULER_FIXTURE_H

#include "scheduler/scheduler_load.h"
#include "support/support.h"
#include "support/world.h"

static int32_t test_text[LOAD_TOKENS]; /* of open_all */

static inline trm_generator *make_of(trm_model *model, int64_t context, int32_t sequences, int32_t step_tokens,
                                     int64_t cache_tokens, trm_speculation speculation, bool pad_steps)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = context;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.dtype = TRM_F32;
    options.speculation = speculation;
    options.pad_steps = pad_steps;
    assert_ok(trm_generator_create(model, test_world, &options, &generator));
    return generator;
}

static inline trm_generator *make_speculating(int64_t context, int32_t sequences, int32_t step_tokens,
                                              int64_t cache_tokens, trm_speculation speculation, bool pad_steps)
{
    return make_of(test_llama.model, context, sequences, step_tokens, cache_tokens, speculation, pad_steps);
}

static inline trm_generator *make(int64_t context, int32_t sequences, int32_t step_tokens, int64_t cache_tokens)
{
    return make_speculating(context, sequences, step_tokens, cache_tokens, (trm_speculation){0}, false);
}

static inline trm_scheduler *schedule(trm_generator *generator, bool prefix_cache, int32_t step_tokens)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.no_prefix_cache = !prefix_cache;
    options.step_tokens = step_tokens;
    assert_ok(trm_scheduler_create(generator, &options, &s));
    return s;
}

/* A generator that drafts for another one: not as far as its contexts go. */
static inline trm_generator *make_draft(trm_model *model, const trm_generator *g)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *draft;
    options.max_context = 64;
    options.max_sequences = g->max_sequences + 1;
    options.max_step_tokens = 32;
    assert_ok(trm_generator_create(model, test_world, &options, &draft));
    return draft;
}

static inline trm_serving_request request_of(uint64_t id, int64_t n_prompt, int64_t max_tokens)
{
    trm_serving_request r = TRM_SERVING_REQUEST_INIT;
    r.id = id;
    r.prompt = test_text;
    r.n_prompt = n_prompt;
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.sampling.base.temperature = 0.0f;
    return r;
}

static inline const trm_serving_event *find_event(const trm_serving_event *events, int32_t n, uint64_t id,
                                                  trm_serving_event_kind kind)
{
    for (int32_t i = 0; i < n; i++) {
        if (events[i].id == id && events[i].kind == kind) {
            return &events[i];
        }
    }
    return NULL;
}

static inline int open_all(void **state)
{
    uint64_t random = test_seed();
    test_open_llama(state);
    for (int32_t i = 0; i < LOAD_TOKENS; i++) {
        test_text[i] = (int32_t)test_random_below(&random, test_llama.info.vocab);
    }
    return 0;
}

#endif
