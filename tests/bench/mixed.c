/*
 * Steps of a language model that mix decoding sequences and prompts: what one takes beside its parts. Without scheduler
 * and HTTP; of one rank.
 *
 * A case is D+P: D sequences decode behind --context tokens (1100), and prompts have P tokens in all, --prompt (1024)
 * each at most, none of them cached. --tune times the products of each case first, as a scheduler does of the sizes
 * that it uses. --profile adds what the layers of a step take, those of all blocks together; such steps run layer by
 * layer.
 *
 * usage: bench_mixed MODEL|preset:NAME[:LAYERS] [--context N] [--prompt N] [--tune] [--profile] D+P... (host with
 * TRM_TEST_BACKEND=host)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "dist/llm/generator.h"

#define CHECK(call) bench_check(call, #call)
enum { WARM = 3, TIMED = 11, MOST_KERNELS = 96, MOST_CASES = 64 };

typedef struct mix {
    int32_t decoding, prompt_tokens;
} mix;

typedef struct kernel_time {
    char name[160];
    double milliseconds;
} kernel_time;

typedef struct bench {
    trm_generator *g;
    int64_t context;
    int32_t prompt;
    bool tune, profile;
    int32_t *tokens; /* [max_step_tokens] */
    int32_t *blocks; /* [max_sequences, blocks_per_sequence] */
    trm_step_sequence *sequences;
    int32_t *chosen;
    kernel_time kernels[MOST_KERNELS];
    int32_t n_kernels;
} bench;

static const trm_sampling_row choice = {.sampling = &trm_sampling_greedy, .logprobs = -1};

static void *allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    bench_check(memory == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK, "out of memory");
    return memory;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void set_sequence(bench *b, int32_t i, int64_t n_cached, int32_t n_tokens, int32_t n_choices)
{
    b->sequences[i] = (trm_step_sequence){.tokens = b->tokens + i,
                                          .n_tokens = n_tokens,
                                          .n_cached = n_cached,
                                          .n_prompt = n_cached + n_tokens,
                                          .blocks = b->blocks + (size_t)i * (size_t)b->g->blocks_per_sequence,
                                          .choices = &choice,
                                          .n_choices = n_choices};
}

/* Fills the caches of all sequences, in steps of several. */
static void fill_caches(bench *b)
{
    const int32_t n = b->g->max_sequences, together = (int32_t)(b->g->max_step_tokens / b->context);
    for (int32_t first = 0; first < n; first += together) {
        const int32_t here = n - first < together ? n - first : together;
        for (int32_t i = 0; i < here; i++) {
            set_sequence(b, first + i, 0, (int32_t)b->context, 0);
        }
        CHECK(trm_generator_step(b->g, b->sequences + first, here, b->chosen));
    }
}

static int32_t set_step(bench *b, const mix *m)
{
    int32_t n = 0;
    for (; n < m->decoding; n++) {
        set_sequence(b, n, b->context - 1, 1, 1);
    }
    for (int32_t left = m->prompt_tokens; left > 0; n++) {
        const int32_t here = left < b->prompt ? left : b->prompt;
        set_sequence(b, n, 0, here, here == b->prompt);
        left -= here;
    }
    return n;
}

static void add_kernel(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                       int64_t runs)
{
    bench *b = user;
    char name[160];
    int number = 0, used = 0;
    (void)runs;
    const char *of_block = strstr(layer, "layers.");
    if (of_block != NULL && sscanf(of_block, "layers.%d.%n", &number, &used) == 1 && used > 0) {
        layer = of_block + used;
    }
    snprintf(name, sizeof(name), "%.*s %s %s", (int)strcspn(layer, "+"), layer, trm_layer_kind_name(kind), kernel);
    int32_t i = 0;
    while (i < b->n_kernels && strcmp(b->kernels[i].name, name) != 0) {
        i++;
    }
    if (i == b->n_kernels && i < MOST_KERNELS) {
        memcpy(b->kernels[b->n_kernels++].name, name, sizeof(name));
    }
    if (i < MOST_KERNELS) {
        b->kernels[i].milliseconds += milliseconds;
    }
}

static void profile(bench *b, int32_t n)
{
    b->n_kernels = 0;
    memset(b->kernels, 0, sizeof(b->kernels));
    CHECK(trm_context_set_layer_timing(b->g->context, true));
    CHECK(trm_generator_step(b->g, b->sequences, n, b->chosen));
    trm_context_layer_times(b->g->context, add_kernel, b);
    CHECK(trm_context_set_layer_timing(b->g->context, false));
    for (int32_t i = 0; i < b->n_kernels; i++) {
        printf("  %9.3f ms  %s\n", b->kernels[i].milliseconds, b->kernels[i].name);
    }
}

static void run(bench *b, const mix *m)
{
    double walls[TIMED], devices[TIMED];
    const int32_t n = set_step(b, m), tokens = m->decoding + m->prompt_tokens;
    if (b->tune && m->prompt_tokens > 0) {
        CHECK(trm_generator_tune_mixed(b->g, tokens));
    }
    for (int32_t i = 0; i < WARM + TIMED; i++) {
        const double began = bench_now();
        CHECK(trm_generator_step(b->g, b->sequences, n, b->chosen));
        if (i >= WARM) {
            walls[i - WARM] = 1e3 * (bench_now() - began);
            devices[i - WARM] = 1e3 * b->g->device_seconds;
        }
    }
    qsort(walls, TIMED, sizeof(*walls), by_value);
    qsort(devices, TIMED, sizeof(*devices), by_value);
    printf("%4d+%-5d %8.3f ms, on the device %8.3f ms, %6.1f thousand tok/s%s\n", m->decoding, m->prompt_tokens,
           walls[TIMED / 2], devices[TIMED / 2], tokens / walls[TIMED / 2], b->g->was_captured ? ", captured" : "");
    if (b->profile) {
        profile(b, n);
    }
    fflush(stdout);
}

static trm_model *open_model(const char *name)
{
    trm_model *model;
    char preset[128] = "";
    int layers = 0;
    if (sscanf(name, "preset:%127[^:]:%d", preset, &layers) < 1) {
        CHECK(trm_model_open(name, &model));
    } else {
        CHECK(trm_model_open_preset(preset, layers, 1, &model));
    }
    return model;
}

static void create(bench *b, trm_model *model, trm_world *world, const mix *cases, int32_t n)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    for (int32_t i = 0; i < n; i++) {
        const int32_t sequences = cases[i].decoding + (cases[i].prompt_tokens + b->prompt - 1) / b->prompt;
        options.max_sequences = sequences > options.max_sequences ? sequences : options.max_sequences;
    }
    options.max_context = b->context > b->prompt ? b->context : b->prompt;
    CHECK(trm_mesh_parse(NULL, trm_world_size(world), &options.mesh));
    CHECK(trm_generator_create(model, world, &options, &b->g));
    const trm_generator *g = b->g;
    b->tokens = allocate((size_t)(g->max_step_tokens + g->max_sequences), sizeof(*b->tokens));
    b->blocks = allocate((size_t)g->n_blocks, sizeof(*b->blocks));
    b->sequences = allocate((size_t)g->max_sequences, sizeof(*b->sequences));
    b->chosen = allocate((size_t)g->max_rows, sizeof(*b->chosen));
    for (int32_t i = 0; i < g->max_step_tokens + g->max_sequences; i++) {
        b->tokens[i] = (int32_t)((i * 104729LL + 7919) % g->vocab);
    }
    for (int32_t i = 0; i < g->n_blocks; i++) {
        b->blocks[i] = i;
    }
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s MODEL|preset:NAME[:LAYERS] [--context N] [--prompt N] [--tune] [--profile] D+P...\n",
            program);
    return 2;
}

int main(int argc, char **argv)
{
    bench b = {.context = 1100, .prompt = 1024};
    mix cases[MOST_CASES];
    int32_t n = 0;
    for (int i = 2; i < argc; i++) {
        int used = 0;
        if (strcmp(argv[i], "--tune") == 0) {
            b.tune = true;
        } else if (strcmp(argv[i], "--profile") == 0) {
            b.profile = true;
        } else if (strcmp(argv[i], "--context") == 0 && i + 1 < argc) {
            b.context = atoll(argv[++i]);
        } else if (strcmp(argv[i], "--prompt") == 0 && i + 1 < argc) {
            b.prompt = atoi(argv[++i]);
        } else if (n == MOST_CASES ||
                   sscanf(argv[i], "%d+%d%n", &cases[n].decoding, &cases[n].prompt_tokens, &used) != 2 ||
                   argv[i][used] != '\0' || cases[n].decoding < 0 || cases[n].prompt_tokens < 0 ||
                   cases[n].decoding + cases[n].prompt_tokens < 1) {
            return usage(argv[0]);
        } else {
            n++;
        }
    }
    if (n == 0 || b.context < 1 || b.prompt < 1) {
        return usage(argv[0]);
    }
    const char *backend = getenv("TRM_TEST_BACKEND");
    trm_world_options world_options = TRM_WORLD_OPTIONS_INIT;
    world_options.backend = backend != NULL && strcmp(backend, "host") == 0 ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    trm_world *world;
    CHECK(trm_world_open(&world_options, &world));
    trm_model *model = open_model(argv[1]);
    create(&b, model, world, cases, n);
    fill_caches(&b);
    for (int32_t i = 0; i < n; i++) {
        run(&b, &cases[i]);
    }
    free(b.tokens);
    free(b.blocks);
    free(b.sequences);
    free(b.chosen);
    trm_generator_destroy(b.g);
    trm_model_close(model);
    trm_world_close(world);
    return 0;
}
