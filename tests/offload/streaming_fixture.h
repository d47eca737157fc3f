/* What the tests of streamed weights have in common: generators of the shipped model, two requests, and a device whose
 * operations a test changes. */
#ifndef TESTS_DIST_STREAMING_FIXTURE_H
#define TESTS_DIST_STREAMING_FIXTURE_H

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "dist/runtime/load.h"
#include "kernels/device/device_impl.h"
#include "support/support.h"
#include "support/world.h"

#define PROMPT 24
#define TOKENS 12

static int32_t vocabulary = 4000; /* tokens that prompts are made of */

static inline trm_generator *open_generator(const char *budget)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    options.max_context = 64;
    options.max_sequences = 2;
    options.no_tune = true; /* on a GPU another generator may find other algorithms faster, with other last bits */
    assert_ok(trm_weight_budget_parse(budget, &options.weight_budget));
    options.weight_budget.compression = TRM_WEIGHT_COMPRESSION_OFF;
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    return generator;
}

typedef struct tokens {
    int32_t all[2][TOKENS], n[2];
} tokens;

static inline bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    kept->all[request][kept->n[request]++] = token;
    return true;
}

static inline tokens try_to_generate(trm_generator *generator, trm_status *status)
{
    int32_t prompts[2][PROMPT];
    trm_request requests[2];
    tokens kept = {0};
    for (int32_t r = 0; r < 2; r++) {
        for (int32_t i = 0; i < PROMPT; i++) {
            prompts[r][i] = (i * 37 + r * 101) % vocabulary + 2;
        }
        requests[r] = (trm_request){.prompt = prompts[r],
                                    .n_prompt = PROMPT,
                                    .max_tokens = test_is_brief() ? TOKENS / 2 : TOKENS,
                                    .ignore_eos = true};
        requests[r].sampling = TRM_SAMPLING_INIT;
        requests[r].sampling.temperature = 0.7f;
        requests[r].sampling.seed = 11 + (uint64_t)r;
    }
    *status = trm_generate(generator, requests, 2, keep_token, &kept, NULL);
    return kept;
}

static inline tokens generate(trm_generator *generator)
{
    trm_status status;
    tokens kept = try_to_generate(generator, &status);
    assert_ok(status);
    return kept;
}

/* Of the device, while a test has others in their place. */
static const trm_device_ops *own_ops;

/* The operations of the device from here on: its own until the caller sets some. Streams and events made meanwhile keep
 * them. */
static inline trm_device_ops *change_ops(void)
{
    static trm_device_ops changed;
    if (test_world->device->ops != &changed) { /* else a test that failed left them */
        own_ops = test_world->device->ops;
    }
    changed = *own_ops;
    test_world->device->ops = &changed;
    return &changed;
}

static inline void restore_ops(void)
{
    test_world->device->ops = own_ops;
}

#endif
