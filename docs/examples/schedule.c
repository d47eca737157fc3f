/*
 * Many requests at a time, as a server has them: they come when they like, each with parameters of its own, share steps
 * and the cache, and can be taken back. Weights that the budget does not keep on the device stream.
 *
 *   [mpirun -np 2] schedule MODEL [BUDGET]      such as: schedule configs/models/kjv-7m 25%
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* What clients ask for, the step before which they come, and the one before which they have lost their patience. */
static const struct asked {
    const char *prompt;
    int64_t max_tokens;
    float temperature;
    int32_t priority, comes, leaves;
} asked[] = {
    {"In the beginning God", 7, 0, 0, 0, -1},
    {"And the LORD said unto Moses", 40, 0.8f, 0, 0, -1},
    {"And it came to pass", 1000, 0.8f, 0, 2, 12},
    {"And God said, Let there be light:", 6, 0, 1, 5, -1}, /* before others that wait, as its priority is larger */
};
enum { N = sizeof(asked) / sizeof(asked[0]), MOST_TOKENS = 1024 };

typedef struct output {
    int32_t tokens[MOST_TOKENS];
    size_t n;
    bool ended;
} output;

static trm_status submit(trm_scheduler *scheduler, const trm_tokenizer *tokenizer, int32_t i)
{
    trm_serving_request request = TRM_SERVING_REQUEST_INIT;
    trm_tokens prompt;
    trm_status status = trm_tokenizer_encode(tokenizer, asked[i].prompt, strlen(asked[i].prompt), true, &prompt);
    if (status != TRM_OK) {
        return status;
    }
    request.id = (uint64_t)i + 1;
    request.prompt = prompt.ids; /* copied */
    request.n_prompt = (int64_t)prompt.count;
    request.max_tokens = asked[i].max_tokens;
    request.priority = asked[i].priority;
    request.sampling.base.temperature = asked[i].temperature;
    request.sampling.base.seed = 7; /* the same tokens in every run, whatever else runs */
    status = trm_scheduler_submit(scheduler, &request);
    trm_tokens_fini(&prompt);
    return status;
}

static trm_status print(const trm_tokenizer *tokenizer, int32_t i, const output *out, const trm_serving_event *end)
{
    static const char *const reasons[] = {"", "stop", "length", "", "cancelled", "error"};
    char *text;
    size_t size;
    trm_status status = trm_tokenizer_decode(tokenizer, out->tokens, out->n, true, &text, &size);
    if (status == TRM_OK) {
        printf("%d, %s after %lld tokens: %s%s\n", (int)i + 1, reasons[end->finish], (long long)end->n_output,
               asked[i].prompt, text);
        trm_free(text);
    }
    return status;
}

/* Rank 0's side: requests come and go between steps. */
static trm_status serve(trm_scheduler *scheduler, const trm_tokenizer *tokenizer)
{
    output *outputs = calloc(N, sizeof(*outputs));
    int32_t n_ended = 0;
    trm_status status = outputs == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    for (int32_t step = 0; status == TRM_OK && n_ended < N; step++) {
        const trm_serving_event *events;
        int32_t n_events;
        for (int32_t i = 0; i < N; i++) {
            if (asked[i].comes == step) {
                TRY(submit(scheduler, tokenizer, i));
            }
            if (asked[i].leaves == step) {
                (void)trm_scheduler_cancel(scheduler, (uint64_t)i + 1); /* false: it has just ended */
            }
        }
        TRY(trm_scheduler_step(scheduler, &events, &n_events));
        for (int32_t k = 0; k < n_events; k++) {
            output *out = &outputs[events[k].id - 1];
            if (events[k].kind == TRM_EVENT_TOKEN && out->n < MOST_TOKENS) {
                out->tokens[out->n++] = events[k].token;
            } else if (events[k].kind == TRM_EVENT_FINISHED) {
                TRY(print(tokenizer, (int32_t)events[k].id - 1, out, &events[k]));
                n_ended++;
            }
        }
    }
    TRY(trm_scheduler_end(scheduler)); /* lets the other ranks go */
done:
    free(outputs);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: schedule MODEL [BUDGET]\n");
        return 2;
    }
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_scheduler_options how = TRM_SCHEDULER_OPTIONS_INIT;
    trm_generator_limits limits;
    trm_model_info info;
    trm_world *world = NULL;
    trm_model *model = NULL;
    trm_tokenizer *tokenizer = NULL;
    trm_generator *generator = NULL;
    trm_scheduler *scheduler = NULL;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    TRY(trm_model_open(argv[1], &model));
    trm_model_get_info(model, &info);
    TRY(trm_tokenizer_open(info.path, &tokenizer));
    TRY(trm_mesh_parse(NULL, trm_world_size(world), &options.mesh));
    TRY(trm_weight_budget_parse(argc > 2 ? argv[2] : "off", &options.weight_budget));
    options.max_context = 256;
    options.max_sequences = 3; /* at a time; the cache has room for them */
    TRY(trm_generator_create(model, world, &options, &generator));
    trm_generator_get_limits(generator, &limits);
    TRY(trm_scheduler_create(generator, &how, &scheduler));
    if (trm_world_rank(world) > 0) {
        TRY(trm_scheduler_follow(scheduler)); /* makes the steps that rank 0 makes, until it ends */
    } else {
        if (limits.streaming.on) {
            printf("%.1f of %.1f MiB of weights stay, the others stream in %d copies a step through %.1f MiB\n",
                   (double)limits.streaming.resident / 1048576, (double)limits.streaming.streamable / 1048576,
                   (int)limits.streaming.copies, (double)limits.streaming.staging / 1048576);
        }
        TRY(serve(scheduler, tokenizer));
    }
done:
    if (status != TRM_OK) {
        fprintf(stderr, "schedule: %s: %s\n", trm_status_name(status), trm_last_error());
        trm_world_abort(world, status); /* ends the other ranks too */
    }
    trm_scheduler_destroy(scheduler);
    trm_generator_destroy(generator);
    trm_tokenizer_close(tokenizer);
    trm_model_close(model);
    trm_world_close(world);
    return trm_status_exit_code(status);
}
