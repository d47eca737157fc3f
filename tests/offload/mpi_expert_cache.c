/* Experts that are cached on the device: the same tokens as of a model that stays, whatever the budget, on any number
 * of ranks, in steps that use the cache and steps that do not in turn, also if the CPU computes some of those missing.
 */
#include "support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "kernels/moe/expert_table.h"
#include "support/world.h"

static bool is_late; /* the next answer of the CPU */

trm_status __real_trm_expert_table_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y,
                                       int64_t n);
trm_status __wrap_trm_expert_table_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y,
                                       int64_t n);
trm_status __wrap_trm_expert_table_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y,
                                       int64_t n)
{
    TRM_TRY(__real_trm_expert_table_add(stream, box, type, y, n));
    box->mail->late = is_late ? 1 : box->mail->late;
    is_late = false;
    return TRM_OK;
}

enum { REQUESTS = 2, PROMPT = 20, TOKENS = 12 };

typedef struct tokens {
    int32_t all[2 * REQUESTS][TOKENS], n[2 * REQUESTS], from;
} tokens;

static bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    const int32_t r = kept->from + request;
    kept->all[r][kept->n[r]++] = token;
    return true;
}

/* First one sequence after the other, then both side by side. */
static tokens generate(trm_generator *generator)
{
    int32_t prompts[REQUESTS][PROMPT];
    trm_request requests[REQUESTS];
    tokens kept = {0};
    for (int32_t r = 0; r < REQUESTS; r++) {
        for (int32_t i = 0; i < PROMPT; i++) {
            prompts[r][i] = (i * 37 + r * 11 + 5) % 90 + 2;
        }
        requests[r] = (trm_request){
            .prompt = prompts[r], .n_prompt = r == 0 ? 1 : PROMPT, .max_tokens = TOKENS, .ignore_eos = true};
        requests[r].sampling = TRM_SAMPLING_INIT;
        requests[r].sampling.temperature = 0.9f;
        requests[r].sampling.seed = 7 + (uint64_t)r;
        kept.from = r;
        assert_ok(trm_generate(generator, &requests[r], 1, keep_token, &kept, NULL));
    }
    kept.from = REQUESTS;
    assert_ok(trm_generate(generator, requests, REQUESTS, keep_token, &kept, NULL));
    for (int32_t r = 0; r < 2 * REQUESTS; r++) {
        assert_int_equal(kept.n[r], TOKENS);
    }
    return kept;
}

static size_t host_bytes;   /* for weights; 0: what is free */
static size_t limits_host;  /* that all experts and tables need */
static int32_t step_tokens; /* the most in a step; 0: the default */
static const char *host_compute = "off", *profile;

static trm_generator *open_generator(trm_model *model, const char *budget, trm_dtype dtype)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    options.max_context = 64;
    options.max_sequences = REQUESTS;
    options.no_tune = true;
    options.max_step_tokens = step_tokens;
    options.dtype = dtype;
    assert_ok(trm_weight_budget_parse(budget, &options.weight_budget));
    options.weight_budget.host_bytes = host_bytes;
    options.expert_profile = profile;
    assert_ok(trm_host_compute_parse(host_compute, &options.weight_budget));
    assert_ok(trm_generator_create(model, test_world, &options, &generator));
    return generator;
}

/* What the plan and the counters say of a generator that has run. Returns whether it has a cache. */
static bool check_cache(const trm_generator *generator)
{
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    const trm_streaming_info *info = &limits.streaming;
    assert_int_equal(limits.memory.staging, info->staging);
    assert_true(limits.memory.weights >= info->resident + info->expert_cache);
    assert_int_equal(info->expert_cache > 0, info->cached_layers > 0);
    if (info->expert_cache == 0) {
        assert_int_equal(info->expert_hits + info->expert_misses + info->expert_hosted, 0);
        return false;
    }
    assert_true(info->offloaded_layers == 0 || info->offloaded_layers == info->cached_layers);
    assert_int_equal(info->offloaded > 0, info->offloaded_layers > 0);
    assert_true(info->expert_hosted == 0 || info->offloaded_layers > 0);
    assert_true(info->expert_slots > 0 && info->expert_slots < info->experts);
    assert_true(info->resident < info->budget);
    assert_true(info->expert_misses + info->expert_hosted > 0);
    assert_true(info->expert_hit_rate > 0 && info->expert_hit_rate < 1);
    return true;
}

/* How many experts the steps so far looked for. */
static int64_t lookups_of(const trm_generator *generator)
{
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    return limits.streaming.expert_hits + limits.streaming.expert_misses;
}

static int64_t hosted_of(const trm_generator *generator)
{
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    return limits.streaming.expert_hosted;
}

static int64_t hits_of(const trm_generator *generator)
{
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    return limits.streaming.expert_hits;
}

static const char *const models[] = {"gpt-oss",        "mixtral",     "deepseek-v3", "qwen3-moe",       "quant-moe-fp8",
                                     "quant-moe-int4", "quant-mxfp4", "llama4",      "quant-moe-float", "qwen3-next"};

/* Tokens for every budget; returns how many have a cache. */
static int32_t try_budgets(trm_model *model, trm_dtype dtype)
{
    static const char *const budgets[] = {"0", "50%", "60%", "70%", "75%", "80%", "85%", "90%", "95%", "100%"};
    const bool is_brief = test_is_brief() || trm_world_size(test_world) > 1;
    /* on a GPU a round of 16-bit numbers may take another kernel than a whole step: the first has one token a step */
    const bool any_rounds = test_backend() == TRM_BACKEND_HOST || dtype != TRM_BF16;
    trm_generator *generator = open_generator(model, "off", dtype);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    int32_t caches = 0;
    int64_t hits = 0;
    for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); b += is_brief ? 3 : 1) {
        generator = open_generator(model, budgets[b], dtype);
        const tokens found = generate(generator);
        assert_memory_equal(found.all, expected.all, any_rounds ? sizeof(found.all) : sizeof(found.all[0]));
        caches += check_cache(generator);
        hits += hits_of(generator);
        trm_generator_destroy(generator);
    }
    assert_true(hits > 0 || caches == 0);
    return caches;
}

static void any_budget_gives_the_same(void **state)
{
    (void)state;
    int32_t all_caches = 0;
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        trm_model *model;
        assert_ok(trm_model_open(test_golden_folder(models[m]), &model));
        const trm_dtype types[] = {TRM_F32, TRM_BF16};
        for (int32_t t = 0; t < (trm_world_size(test_world) > 1 ? 1 : 2); t++) {
            const int32_t caches = try_budgets(model, types[t]);
            assert_true(caches > 0 || trm_world_size(test_world) > 1);
            all_caches += caches;
        }
        trm_model_close(model);
    }
    assert_true(all_caches > 0);
}

/* The cache comes, changes and goes. */
static void budgets_change(void **state)
{
    (void)state;
    trm_model *model;
    assert_ok(trm_model_open(test_golden_folder("deepseek-v3"), &model));
    trm_generator *generator = open_generator(model, "off", TRM_F32);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    generator = open_generator(model, "100%", TRM_F32);
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    const size_t all = limits.streaming.streamable;
    const size_t budgets[] = {all * 8 / 10, 0, all * 9 / 10, all * 7 / 10, all, all * 8 / 10};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
        const tokens found = generate(generator);
        assert_memory_equal(found.all, expected.all, sizeof(found.all));
        (void)check_cache(generator);
    }
    trm_generator_destroy(generator);
    trm_model_close(model);
}

/* The CPU computes a share of the missing experts: in f32 sums differ by too little for another token, in bf16 they are
 * the same every time. */
static void the_cpu_computes_its_share(void **state)
{
    (void)state;
    static const char *const budgets[] = {"60%", "75%", "90%"}, *const shares[] = {"40%", "100%", "auto"};
    const bool is_brief = test_is_brief() || trm_world_size(test_world) > 1;
    int64_t hosted = 0;
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        trm_model *model;
        assert_ok(trm_model_open(test_golden_folder(models[m]), &model));
        trm_generator *generator = open_generator(model, "off", TRM_F32);
        const tokens expected = generate(generator);
        trm_generator_destroy(generator);
        for (size_t b = 0; b < 9; b += is_brief ? 4 : 1) {
            host_compute = shares[b % 3];
            generator = open_generator(model, budgets[b / 3], TRM_F32);
            const tokens found = generate(generator);
            assert_memory_equal(found.all, expected.all, sizeof(found.all));
            const bool caches = check_cache(generator);
            assert_true(!caches || hosted_of(generator) > 0 || strcmp(host_compute, "100%") != 0);
            hosted += hosted_of(generator);
            trm_generator_destroy(generator);
        }
        host_compute = "50%";
        tokens again[2];
        for (int32_t i = 0; i < 2; i++) {
            generator = open_generator(model, "75%", TRM_BF16);
            again[i] = generate(generator);
            trm_generator_destroy(generator);
        }
        assert_memory_equal(again[0].all, again[1].all, sizeof(again[0].all));
        host_compute = "off";
        trm_model_close(model);
    }
    assert_true(hosted > 0);
}

static bool keep_three(void *user, int32_t request, int32_t token)
{
    int32_t *left = user;
    (void)request;
    (void)token;
    return --*left > 0;
}

/* Budgets that change, requests that end early and answers that do not come leave the others as they are. */
static void the_cpu_is_disturbed(void **state)
{
    (void)state;
    trm_model *model;
    trm_generator_limits limits;
    assert_ok(trm_model_open(test_golden_folder("gpt-oss"), &model));
    trm_generator *generator = open_generator(model, "off", TRM_F32);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    host_compute = "60%";
    generator = open_generator(model, "75%", TRM_F32);
    host_compute = "off";
    trm_generator_get_limits(generator, &limits);
    const size_t all = limits.streaming.streamable;
    for (int32_t i = 0; i < 6; i++) {
        const int32_t prompt[] = {3, 1, 4};
        int32_t left = 3;
        trm_request request = {.prompt = prompt, .n_prompt = 3, .max_tokens = TOKENS, .ignore_eos = true};
        request.sampling = TRM_SAMPLING_INIT;
        if (i % 3 == 1) {
            assert_ok(trm_generator_set_weight_budget(generator, all * (size_t)(90 - i * 5) / 100));
        } else if (i % 3 == 2 && trm_world_size(test_world) == 1 && hosted_of(generator) > 0) {
            trm_request late = request;
            is_late = true;
            assert_fails(trm_generate(generator, &late, 1, keep_three, &(int32_t){TOKENS + 1}, NULL),
                         TRM_ERROR_INTERNAL, "the CPU did not compute its experts within");
        }
        assert_ok(trm_generate(generator, &request, 1, keep_three, &left, NULL));
        assert_int_equal(left, 0);
        const tokens found = generate(generator);
        assert_memory_equal(found.all, expected.all, sizeof(found.all));
        assert_true(!check_cache(generator) || hosted_of(generator) > 0);
    }
    trm_generator_destroy(generator);
    trm_model_close(model);
}

/* Experts that do not fit in host memory come from files, to the same tokens, in steps that use the cache and steps
 * that do not, also if budgets change. */
static void experts_from_files(void **state)
{
    (void)state;
    static const char *const budgets[] = {"60%", "75%", "90%"};
    const bool is_brief = test_is_brief() || trm_world_size(test_world) > 1;
    int64_t reads = 0, found = 0;
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        trm_model *model;
        trm_generator_limits limits;
        assert_ok(trm_model_open(test_golden_folder(models[m]), &model));
        trm_generator *generator = open_generator(model, "off", TRM_F32);
        const tokens expected = generate(generator);
        trm_generator_destroy(generator);
        for (size_t b = 0; b < 9; b += is_brief ? 4 : 1) {
            generator = open_generator(model, budgets[b / 3], TRM_F32);
            trm_generator_get_limits(generator, &limits);
            trm_generator_destroy(generator);
            host_bytes = limits.streaming.host * (2 + 3 * (b % 3)) / 10;
            generator = open_generator(model, budgets[b / 3], TRM_F32);
            const size_t limit = host_bytes;
            host_bytes = 0;
            assert_memory_equal(generate(generator).all, expected.all, sizeof(expected.all));
            const bool caches = check_cache(generator);
            trm_generator_get_limits(generator, &limits);
            const trm_streaming_info *info = &limits.streaming;
            assert_true(info->host <= limit);
            assert_true(caches || info->host_experts == 0);
            assert_int_equal(info->host_experts > 0, caches && info->files > 0);
            assert_true(info->host_experts > 0 || info->expert_reads == 0);
            assert_true(info->host_experts == 0 || info->expert_misses >= info->expert_reads);
            reads += info->expert_reads;
            found += info->host_experts > 0 ? info->expert_misses - info->expert_reads : 0;
            for (int32_t i = 0; b == 4 && i < 4; i++) {
                const size_t share = (size_t[]){100, 50, 95, 75}[i];
                assert_ok(trm_generator_set_weight_budget(generator, info->streamable * share / 100));
                assert_memory_equal(generate(generator).all, expected.all, sizeof(expected.all));
            }
            trm_generator_destroy(generator);
        }
        trm_model_close(model);
    }
    assert_true(reads > 0 && found > 0);
}

static void copy_file(const char *from, const char *to, const char *name)
{
    char path[4400], bytes[65536];
    snprintf(path, sizeof(path), "%s/%s", from, name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    snprintf(path, sizeof(path), "%s/%s", to, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), in)) > 0;) {
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    }
    assert_int_equal(fclose(out), 0);
    fclose(in);
}

static bool keep_none(void *user, int32_t request, int32_t token)
{
    (void)user;
    (void)request;
    (void)token;
    return true;
}

/* A file that is cut off while steps run is an error; once it is whole again, steps go on with the same tokens. */
static void files_that_end_early(void **state)
{
    (void)state;
    trm_model *model;
    trm_generator_limits limits;
    const char *folder = test_temporary_folder(), *from = test_golden_folder("gpt-oss");
    char path[4400];
    struct stat whole;
    if (trm_world_size(test_world) > 1) {
        return; /* ranks compare what they found, as for other steps that fail */
    }
    copy_file(from, folder, "config.json");
    copy_file(from, folder, "model.safetensors");
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(stat(path, &whole), 0);
    assert_ok(trm_model_open(folder, &model));
    trm_generator *generator = open_generator(model, "off", TRM_F32);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    generator = open_generator(model, "75%", TRM_F32);
    trm_generator_get_limits(generator, &limits);
    trm_generator_destroy(generator);
    host_bytes = limits.streaming.host * 4 / 10;
    generator = open_generator(model, "75%", TRM_F32);
    host_bytes = 0;
    for (int32_t i = 0; i < 3; i++) {
        assert_memory_equal(generate(generator).all, expected.all, sizeof(expected.all));
        const int32_t prompt[] = {3};
        trm_request request = {.prompt = prompt, .n_prompt = 1, .max_tokens = 40, .ignore_eos = true};
        request.sampling = TRM_SAMPLING_INIT;
        request.sampling.temperature = 1000;
        request.sampling.seed = (uint64_t)i;
        assert_int_equal(truncate(path, 4096), 0);
        assert_fails(trm_generate(generator, &request, 1, keep_none, NULL, NULL), TRM_ERROR_IO, "when it was opened");
        copy_file(from, folder, "model.safetensors");
    }
    assert_memory_equal(generate(generator).all, expected.all, sizeof(expected.all));
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.streaming.host_experts > 0);
    trm_generator_destroy(generator);
    trm_model_close(model);
}

/* The only file of a profile folder that has one; of the rank's own experts. */
static void find_profile(const char *folder, char *path, size_t size)
{
    struct dirent *entry;
    DIR *all = opendir(folder);
    assert_non_null(all);
    path[0] = '\0';
    while ((entry = readdir(all)) != NULL) {
        if (strstr(entry->d_name, ".txt") != NULL) {
            assert_true((size_t)snprintf(path, size, "%s/%s", folder, entry->d_name) < size);
        }
    }
    closedir(all);
}

/* Tokens of one short request, and the share of its experts that were found. */
static double hit_rate_of_few(trm_generator *generator, tokens *kept)
{
    const int32_t prompt[] = {5};
    trm_request request = {.prompt = prompt, .n_prompt = 1, .max_tokens = 4, .ignore_eos = true};
    request.sampling = TRM_SAMPLING_INIT;
    *kept = (tokens){0};
    const int64_t hits = hits_of(generator), lookups = lookups_of(generator);
    assert_ok(trm_generate(generator, &request, 1, keep_token, kept, NULL));
    return lookups_of(generator) == lookups
               ? 0
               : (double)(hits_of(generator) - hits) / (double)(lookups_of(generator) - lookups);
}

/* A profile of former runs fills the caches before the first step; a file that is damaged or of another model does not.
 */
static void profiles_fill_the_cache(void **state)
{
    (void)state;
    char path[4700] = "", folder[4300];
    if (trm_world_size(test_world) > 1) {
        return; /* each rank has a folder of its own here */
    }
    for (int32_t from_files = 0; from_files < 2; from_files++) {
        trm_model *model;
        trm_generator_limits limits;
        tokens first, kept;
        double rates[4];
        snprintf(folder, sizeof(folder), "%s/profiles/%d", test_temporary_folder(), from_files);
        assert_ok(trm_model_open(test_golden_folder("deepseek-v3"), &model));
        for (int32_t run = 0; run < 4; run++) { /* without a profile, with it, damaged, foreign */
            if (run >= 2) {
                find_profile(folder, path, sizeof(path));
                FILE *file = fopen(path, run == 2 ? "w" : "r+");
                assert_non_null(file);
                fputs(run == 2 ? "# trireme expert profile\n12 zz" : "# trireme expert profile\n0000", file);
                fclose(file);
            }
            profile = folder;
            host_bytes = from_files ? limits_host * 6 / 10 : 0;
            trm_generator *generator = open_generator(model, "75%", TRM_F32);
            profile = NULL;
            host_bytes = 0;
            trm_generator_get_limits(generator, &limits);
            assert_true(limits.streaming.expert_cache > 0);
            assert_int_equal(limits.streaming.expert_profile, run == 1);
            assert_int_equal(limits.streaming.host_experts > 0, from_files);
            rates[run] = hit_rate_of_few(generator, &kept);
            first = run == 0 ? kept : first;
            assert_memory_equal(&kept, &first, sizeof(kept));
            trm_generator_get_limits(generator, &limits);
            assert_true(limits.streaming.expert_reads <= limits.streaming.expert_misses);
            limits_host = from_files ? limits_host : limits.streaming.host;
            trm_generator_destroy(generator);
        }
        assert_true(rates[1] > rates[0]);
        assert_true(rates[2] == rates[0] && rates[3] == rates[0]);
        trm_model_close(model);
    }
}

/* Without host memory for a token's experts the budget holds whole weights. */
static void little_host_memory(void **state)
{
    (void)state;
    trm_model *model;
    trm_generator_limits limits;
    assert_ok(trm_model_open(test_golden_folder("deepseek-v3"), &model));
    trm_generator *generator = open_generator(model, "off", TRM_F32);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    host_bytes = 1000;
    generator = open_generator(model, "80%", TRM_F32);
    host_bytes = 0;
    const tokens found = generate(generator);
    assert_memory_equal(found.all, expected.all, sizeof(found.all));
    assert_false(check_cache(generator));
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.streaming.files > 0 && limits.streaming.resident > limits.streaming.streamable / 2);
    trm_generator_destroy(generator);
    trm_model_close(model);
}

/* Steps of a prompt that choose no token use the cache, too: their last layer has no rows. */
static void prompts_in_small_steps(void **state)
{
    (void)state;
    trm_model *model;
    trm_generator_limits limits;
    int32_t prompt[PROMPT];
    assert_ok(trm_model_open(test_golden_folder("mixtral"), &model));
    step_tokens = REQUESTS;
    trm_generator *generator = open_generator(model, "80%", TRM_F32);
    step_tokens = 0;
    for (int32_t i = 0; i < PROMPT; i++) {
        prompt[i] = i + 2;
    }
    tokens kept = {0};
    trm_request request = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 1, .ignore_eos = true};
    request.sampling = TRM_SAMPLING_INIT;
    const int64_t before = lookups_of(generator);
    assert_ok(trm_generate(generator, &request, 1, keep_token, &kept, NULL));
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.streaming.cached_layers > 0);
    const int64_t least = (limits.streaming.cached_layers - 1) * 2; /* experts of one token */
    assert_true(lookups_of(generator) - before >= PROMPT / REQUESTS * least);
    trm_generator_destroy(generator);
    trm_model_close(model);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_budget_gives_the_same),  cmocka_unit_test(budgets_change),
        cmocka_unit_test(the_cpu_computes_its_share), cmocka_unit_test(the_cpu_is_disturbed),
        cmocka_unit_test(experts_from_files),         cmocka_unit_test(files_that_end_early),
        cmocka_unit_test(profiles_fill_the_cache),    cmocka_unit_test(little_host_memory),
        cmocka_unit_test(prompts_in_small_steps),
    };
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
