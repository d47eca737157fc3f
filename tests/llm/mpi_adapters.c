/* LoRA adapters on any number of ranks: logits of goldens made with PEFT, several in a batch, and folders that are
 * refused. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/file.h"
#include "dist/llm/generator.h"
#include "support/hf_golden.h"
#include "support/world.h"

#define MOST_TOKENS 32
#define VOCAB       96

static const char *const goldens[] = {"llama/all",        "llama/patterns", "llama/regex",   "gpt2/all",
                                      "glm4/interleaved", "phi3/fused",     "llama-bf16/all"};
#define N_GOLDENS ((int32_t)(sizeof(goldens) / sizeof(goldens[0])))

/* Exchanges that cost nothing, so that these small layers are split; the linker sends the library's calls here. */
void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model);

void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model)
{
    (void)backend;
    *model = (trm_cost_model){.memory_bandwidth = 1e6,
                              .compute_rate = 1e6,
                              .link_bandwidth = 1e15,
                              .memory_price = 10.0,
                              .unknown_dimension = 16};
}

static const char *folder_of(const char *golden)
{
    static char path[600];
    snprintf(path, sizeof(path), "%s/tests/goldens/adapters/%s", TRM_SOURCE_DIR, golden);
    return path;
}

static trm_model *open_base(const char *golden)
{
    char name[64];
    trm_model *model;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(golden, "/"), golden);
    assert_ok(trm_model_open(test_golden_folder(name), &model));
    return model;
}

static trm_generator *make_generator(trm_model *model, const char *mesh, trm_dtype dtype, int32_t adapters,
                                     int32_t rank)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.dtype = dtype;
    options.max_context = 64;
    options.max_sequences = MOST_TOKENS;
    options.max_step_tokens = 64;
    options.max_adapters = adapters;
    options.max_adapter_rank = rank;
    assert_ok(trm_mesh_parse(mesh, trm_world_size(test_world), &options.mesh));
    assert_ok(trm_generator_create(model, test_world, &options, &generator));
    return generator;
}

/* Whether some state of adapters is in parts. */
static bool is_split(const trm_generator *g, const char *end)
{
    bool found = false;
    const trm_network *network = g->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        found = found || (strstr(tensor->name, end) != NULL && tensor->part.kind == TRM_PART_SPLIT);
    }
    return found;
}

/* ---- logits ------------------------------------------------------------------------------------------- */

/* Runs n tokens behind `cached` others and copies their logits. */
static void run(trm_generator *g, const int32_t *tokens, int32_t n, int32_t cached, int32_t adapter, float *logits)
{
    const int32_t blocks[] = {2, 1, 3, 0};
    int32_t chosen[MOST_TOKENS];
    trm_sampling_row choices[MOST_TOKENS];
    for (int32_t i = 0; i < n; i++) {
        choices[i] = (trm_sampling_row){.sampling = &trm_sampling_greedy, .logprobs = -1};
    }
    const trm_step_sequence sequence = {.tokens = tokens,
                                        .n_tokens = n,
                                        .n_cached = cached,
                                        .n_prompt = cached + n,
                                        .blocks = blocks,
                                        .choices = choices,
                                        .n_choices = n,
                                        .adapter = adapter};
    assert_ok(trm_generator_step(g, &sequence, 1, chosen));
    assert_ok(trm_stream_download(g->context->stream, logits, trm_context_view(g->context, g->logits).data,
                                  (size_t)n * VOCAB * sizeof(*logits)));
    assert_ok(trm_stream_synchronize(g->context->stream));
}

/* The largest difference over the largest logit. */
static double difference(const float *a, const float *b, int32_t n)
{
    double largest = 0.0, worst = 0.0;
    for (int32_t i = 0; i < n * VOCAB; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst / largest;
}

static void read_expected(const trm_safetensors *set, int32_t prompt, const char *what, trm_dtype dtype, void *to,
                          int32_t *n)
{
    char name[64];
    trm_weight *weight;
    snprintf(name, sizeof(name), "prompt.%d.%s", prompt, what);
    assert_ok(trm_safetensors_weight(set, name, &weight));
    const trm_dims dims = trm_weight_dims(weight);
    *n = (int32_t)dims.d[0];
    assert_ok(trm_weight_read(weight, dtype, 0, (size_t)trm_dims_count(&dims), to));
    trm_weight_destroy(weight);
}

static void golden_equals_peft(const char *golden, const char *mesh, trm_dtype dtype, double tolerance)
{
    static float expected[MOST_TOKENS * VOCAB], logits[MOST_TOKENS * VOCAB], plain[MOST_TOKENS * VOCAB];
    char folder[700];
    trm_safetensors *set;
    trm_model *model = open_base(golden);
    trm_generator *g = make_generator(model, mesh, dtype, 3, 8);
    int32_t adapter = 0, n, tokens[MOST_TOKENS];
    assert_ok(trm_generator_load_adapter(g, folder_of(golden), &adapter));
    assert_int_equal(adapter, 1);
    if (strncmp(golden, "llama", 5) == 0 && g->engine->plan->mesh.size[TRM_AXIS_TP] > 1) {
        assert_true(is_split(g, ".lora_a") && is_split(g, ".lora_b"));
    }
    snprintf(folder, sizeof(folder), "%s/expected", folder_of(golden));
    assert_ok(trm_safetensors_open(folder, &set));
    for (int32_t i = 0; i < 2; i++) {
        read_expected(set, i, "tokens", TRM_I32, tokens, &n);
        read_expected(set, i, "logits", TRM_F32, expected, &n);
        run(g, tokens, n, 0, adapter, logits);
        const double whole = difference(logits, expected, n);
        run(g, tokens, 5, 0, adapter, logits);
        run(g, tokens + 5, n - 5, 5, adapter, logits + (size_t)5 * VOCAB);
        const double chunks = difference(logits, expected, n);
        if (!(whole <= tolerance) || !(chunks <= tolerance)) {
            fail_msg("%s: logits differ by %g in one pass and %g in chunks, expected at most %g", golden, whole, chunks,
                     tolerance);
        }
        run(g, tokens, n, 0, 0, plain);
        assert_true(difference(plain, expected, n) > 0.1); /* the adapter matters */
    }
    trm_safetensors_close(set);
    trm_generator_destroy(g);
    trm_model_close(model);
}

static void logits_equal_peft(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_GOLDENS; i++) {
        const bool narrow = strstr(goldens[i], "bf16") != NULL;
        golden_equals_peft(goldens[i], NULL, narrow ? TRM_BF16 : TRM_F32, narrow ? 1.5e-1 : 2e-5);
    }
}

static void stages_equal_peft(void **state)
{
    (void)state;
    const int32_t n = trm_world_size(test_world);
    if (n % 2 == 0) {
        golden_equals_peft("llama/all", n == 2 ? "pp=2" : "tp=2,pp=2", TRM_F32, 2e-5);
        golden_equals_peft("gpt2/all", n == 2 ? "pp=2" : "tp=2,pp=2", TRM_F32, 2e-5);
    }
}

static void shared_tokens_equal_peft(void **state)
{
    (void)state;
    const int32_t n = trm_world_size(test_world);
    const char *mesh = n == 2 ? "cp=2" : n == 3 ? "cp=3" : n == 4 ? "cp=2,tp=2" : NULL;
    golden_equals_peft("llama/all", mesh, TRM_F32, 2e-5);
    golden_equals_peft("gpt2/all", mesh, TRM_F32, 2e-5);
}

static int32_t count_layers(const trm_generator *g, trm_layer_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->engine->plan->network->n_layers; i++) {
        n += g->engine->plan->network->layers[i]->desc.kind == kind;
    }
    return n;
}

/* Without adapters the network is what it is; with them, products are joined and attention is fused as before. */
static void adapters_are_beside_joined_products(void **state)
{
    (void)state;
    trm_model *model = open_base("llama");
    trm_generator *with = make_generator(model, NULL, TRM_F32, 3, 8), *g = make_generator(model, NULL, TRM_F32, 0, 0);
    int32_t adapter;
    assert_int_equal(count_layers(g, TRM_LAYER_LORA), 0);
    if (trm_world_size(test_world) == 1) { /* over ranks, other ways may be as cheap */
        assert_int_equal(count_layers(with, TRM_LAYER_QKV_ATTENTION), count_layers(g, TRM_LAYER_QKV_ATTENTION));
        assert_int_equal(count_layers(with, TRM_LAYER_LORA), 4 * g->info.layers); /* qkv, output, gate and up, down */
    }
    trm_generator_destroy(with);
    assert_fails(trm_generator_load_adapter(g, folder_of("llama/all"), &adapter), TRM_ERROR_INVALID_ARGUMENT,
                 "there is no room for any");
    trm_generator_destroy(g);
    trm_model_close(model);
}

/* ---- batches ------------------------------------------------------------------------------------------- */

#define N_REQUESTS 8
#define N_OUTPUT   12

typedef struct transcript {
    int32_t tokens[N_REQUESTS][N_OUTPUT], count[N_REQUESTS];
} transcript;

static bool take(void *user, int32_t request, int32_t token)
{
    transcript *t = user;
    t->tokens[request][t->count[request]++] = token;
    return true;
}

static trm_request request_of(const int32_t *tokens, int64_t n, int32_t adapter)
{
    return (trm_request){
        .prompt = tokens, .n_prompt = n, .max_tokens = N_OUTPUT, .ignore_eos = true, .adapter = adapter};
}

/* Adapters of the tokens of a step, in any order and beside tokens without one, change nothing for each other. */
static void mixed_batch_equals_each_alone(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama/patterns", "llama/all", "llama/regex"};
    trm_model *model = open_base("llama");
    trm_generator *g = make_generator(model, NULL, TRM_F32, 3, 8);
    uint64_t random = test_seed();
    int32_t adapters[4] = {0}, tokens[20];
    for (int32_t i = 0; i < 3; i++) {
        assert_ok(trm_generator_load_adapter(g, folder_of(folders[i]), &adapters[i + 1]));
    }
    assert_fails(trm_generator_load_adapter(g, folder_of("llama/all"), &adapters[0]), TRM_ERROR_BUSY,
                 "there is room for 3");
    for (int32_t i = 0; i < 20; i++) {
        tokens[i] = (int32_t)test_random_below(&random, VOCAB);
    }
    trm_request requests[N_REQUESTS];
    transcript mixed = {0}, alone = {0};
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = request_of(tokens, 20 - i, adapters[(i * 3) % 4]);
    }
    assert_ok(trm_generate(g, requests, N_REQUESTS, take, &mixed, NULL));
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        transcript one = {0};
        trm_request request = request_of(tokens, 20 - i, adapters[(i * 3) % 4]);
        assert_ok(trm_generate(g, &request, 1, take, &one, NULL));
        memcpy(alone.tokens[i], one.tokens[0], sizeof(one.tokens[0]));
        alone.count[i] = one.count[0];
    }
    assert_memory_equal(&mixed, &alone, sizeof(mixed));
    assert_ok(trm_generator_unload_adapter(g, 2));
    assert_fails(trm_generator_unload_adapter(g, 2), TRM_ERROR_INVALID_ARGUMENT, "not loaded");
    assert_fails(trm_generate(g, requests, N_REQUESTS, take, &mixed, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "has adapter 2, which is not loaded");
    trm_generator_destroy(g);
    trm_model_close(model);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

/* A folder with the weights of a golden and this configuration; every rank makes one of its own. */
static const char *make_folder(const char *weights, const char *config)
{
    static char folder[600];
    char path[700], from[700];
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    test_write_file(path, config, strlen(config));
    if (weights != NULL) {
        snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
        snprintf(from, sizeof(from), "%s/adapter_model.safetensors", folder_of(weights));
        assert_int_equal(symlink(from, path), 0);
    }
    return folder;
}

static void refusals_say_why(void **state)
{
    (void)state;
#define GOOD "\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8"
    static const struct {
        const char *weights, *config, *cause;
        trm_status status;
    } cases[] = {
        {"llama/all", "{" GOOD ", \"use_dora\": true}", "sets use_dora", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"modules_to_save\": [\"lm_head\"]}", "sets modules_to_save", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"lora_bias\": true}", "sets lora_bias", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"something_new\": 3}", "sets something_new", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"bias\": \"all\"}", "has bias all, expected none", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"init_lora_weights\": \"pissa\"}", "init_lora_weights pissa", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{\"peft_type\": \"IA3\"}", "has peft_type IA3, expected LORA", TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{\"peft_type\": \"LORA\"}", "r is missing", TRM_ERROR_INVALID_MODEL},
        {"llama/all", "{\"peft_type\": \"LORA\", \"r\": 5}", "has shape [4, 32], expected [5, 32]",
         TRM_ERROR_INVALID_MODEL},
        {"llama/all", "{\"peft_type\": \"LORA\", \"r\": 16}", "max_adapter_rank allows larger ones",
         TRM_ERROR_UNSUPPORTED},
        {"llama/all", "{" GOOD ", \"alpha_pattern\": {\"(?=q)_proj\": 3}}", "of which \"(?\" is not supported",
         TRM_ERROR_UNSUPPORTED},
        {"llama/patterns", "{\"peft_type\": \"LORA\", \"r\": 3, \"target_modules\": [\"k_proj\"]}", "has shape",
         TRM_ERROR_INVALID_MODEL},
        {"llama/regex", "{\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"q_proj\"]}",
         "has no tensors of layers.0.self_attn.q_proj, which target_modules names as q_proj", TRM_ERROR_INVALID_MODEL},
        {"gpt2/all", "{" GOOD "}", "is of no linear layer of the model", TRM_ERROR_UNSUPPORTED},
        {"phi3/fused", "{" GOOD "}", "is of no linear layer of the model", TRM_ERROR_UNSUPPORTED},
        {NULL, "{" GOOD "}", "adapter_model.safetensors", TRM_ERROR_IO},
        {"llama/all", "{" GOOD, "adapter_config.json", TRM_ERROR_INVALID_MODEL},
    };
    trm_model *model = open_base("llama");
    trm_generator *g = make_generator(model, NULL, TRM_F32, 1, 8);
    int32_t adapter = -1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *folder = make_folder(cases[i].weights, cases[i].config);
        assert_fails(trm_generator_load_adapter(g, folder, &adapter), cases[i].status, cases[i].cause);
    }
    assert_fails(trm_generator_load_adapter(g, "/no/such/folder", &adapter), TRM_ERROR_IO, "/no/such/folder");
    assert_int_equal(adapter, -1);
    assert_ok(trm_generator_load_adapter(g, folder_of("llama/all"), &adapter)); /* the slot is still free */
    trm_generator_destroy(g);
    trm_model_close(model);
}

int main(void)
{
    if (test_lacks_backend()) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_peft),
        cmocka_unit_test(stages_equal_peft),
        cmocka_unit_test(shared_tokens_equal_peft),
        cmocka_unit_test(adapters_are_beside_joined_products),
        cmocka_unit_test(mixed_batch_equals_each_alone),
        cmocka_unit_test(refusals_say_why),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
