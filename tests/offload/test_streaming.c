/* Weights that stream while a model runs: the same results as resident ones, whatever the budget, on the host. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/streaming_fixture.h"
#include "weight_stream/offload/streaming.h"

static void any_budget_gives_the_same(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("off");
    tokens expected = generate(generator);
    trm_generator_limits off, limits;
    trm_generator_get_limits(generator, &off);
    assert_false(off.streaming.on);
    trm_generator_destroy(generator);
    static const char *const budgets[] = {"0", "1%", "25%", "60%", "99%", "100%", "4M", "100G", "auto"};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i += test_is_brief() ? 4 : 1) {
        generator = open_generator(budgets[i]);
        tokens found = generate(generator);
        trm_generator_get_limits(generator, &limits);
        assert_memory_equal(&found, &expected, sizeof(found));
        assert_true(limits.streaming.on && limits.streaming.resident <= limits.streaming.budget);
        assert_int_equal(limits.streaming.resident + limits.streaming.host, limits.streaming.streamable);
        assert_true(limits.streaming.link_rate > 0);
        assert_int_equal(limits.memory.staging, limits.streaming.staging);
        bool all = i >= 5 && i != 6;
        assert_int_equal(limits.streaming.copies == 0, all);
        assert_int_equal(limits.memory.weights + limits.memory.staging < off.memory.weights, !all && i != 4);
        trm_generator_destroy(generator);
    }
}

/* Between calls, with a context that lives on. */
static void budgets_change(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("100%");
    tokens expected = generate(generator);
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    size_t streamable = limits.streaming.streamable;
    const double guessed = limits.streaming.link_rate;
    assert_false(limits.streaming.measured);
    const size_t budgets[] = {0, streamable / 2, streamable / 4, streamable, streamable * 3 / 4, 0, SIZE_MAX};
    for (size_t i = 0; i < (test_is_brief() ? 4 : sizeof(budgets) / sizeof(budgets[0])); i++) {
        assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
        tokens found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_true(limits.streaming.resident <= budgets[i]);
        assert_int_equal(limits.streaming.copies == 0, budgets[i] >= streamable);
        assert_true(limits.streaming.measured && limits.streaming.link_rate > 0);
        assert_true(limits.streaming.link_rate != guessed);
    }
    trm_generator_destroy(generator);
    generator = open_generator("off");
    assert_fails(trm_generator_set_weight_budget(generator, 0), TRM_ERROR_INVALID_ARGUMENT, "had no weight budget");
    trm_generator_destroy(generator);
}

static int32_t copies_left; /* until one fails, if not negative */

static trm_status upload_or_fail(trm_stream *stream, void *to, const void *from, size_t size)
{
    if (copies_left >= 0 && copies_left-- == 0) {
        return trm_fail(TRM_ERROR_INTERNAL, "the link is down");
    }
    return own_ops->stream_upload(stream, to, from, size);
}

/* A copy that fails ends the call, with the cause; when the link works again, so does the generator. */
static void a_link_that_fails(void **state)
{
    (void)state;
    if (trm_device_backend(test_world->device) == TRM_BACKEND_CUDA) {
        return; /* its copies are in captured steps, which no call makes fail */
    }
    for (int32_t i = 0; i < 2; i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *generator;
        options.dtype = i == 0 ? TRM_DTYPE_NONE : TRM_BF16;
        options.max_context = 64;
        options.max_sequences = 2;
        options.weight_budget =
            (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT,
                                .percent = 20,
                                .compression = i == 0 ? TRM_WEIGHT_COMPRESSION_OFF : TRM_WEIGHT_COMPRESSION_LOSSLESS};
        copies_left = -1;
        change_ops()->stream_upload = upload_or_fail;
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        tokens expected = generate(generator);
        for (int32_t at = 0; at < (i > 0 ? 30 : test_is_brief() ? 60 : 70); at += 31) {
            trm_status status;
            copies_left = at;
            (void)try_to_generate(generator, &status);
            assert_int_equal(status, TRM_ERROR_INTERNAL);
            assert_non_null(strstr(trm_last_error(), "the link is down"));
            copies_left = -1;
            tokens found = generate(generator);
            assert_memory_equal(&found, &expected, sizeof(found));
        }
        trm_generator_destroy(generator);
        restore_ops();
    }
}

/* Host memory for a part of the weights, or for nothing: the rest is read from the files in every step. */
static void weights_that_stay_in_their_files(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("off");
    tokens expected = generate(generator);
    trm_generator_destroy(generator);
    const size_t host[] = {1, (size_t)3 << 20, (size_t)8 << 20};
    for (size_t i = test_is_brief() ? 2 : 0; i < sizeof(host) / sizeof(host[0]); i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator_limits limits;
        options.max_context = 64;
        options.max_sequences = 2;
        options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT,
                                                    .percent = 20,
                                                    .host_bytes = host[i],
                                                    .compression = TRM_WEIGHT_COMPRESSION_OFF};
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        tokens found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_true(limits.streaming.host <= host[i] && limits.streaming.files > 0);
        assert_int_equal(limits.streaming.file_buffers, TRM_READER_HOST_BYTES);
        assert_int_equal(limits.streaming.host + limits.streaming.files + limits.streaming.resident,
                         limits.streaming.streamable);
        assert_ok(trm_generator_set_weight_budget(generator, limits.streaming.streamable));
        found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_int_equal(limits.streaming.file_buffers, 0);
        assert_ok(trm_generator_set_weight_budget(generator, limits.streaming.streamable / 3));
        found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_true(limits.streaming.host <= host[i] && limits.streaming.files > 0);
        trm_generator_destroy(generator);
    }
}

static void copy_file(const char *folder, const char *name, int64_t most)
{
    char path[4400];
    snprintf(path, sizeof(path), TRM_SOURCE_DIR "/configs/models/kjv-7m/%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    unsigned char *bytes = malloc((size_t)size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    test_write_file(path, bytes, (size_t)(most < size ? most : size));
    free(bytes);
}

/* A file that loses bytes while steps read it ends the step with an error; when they are back, so are the tokens. */
static void a_file_that_is_cut_off_while_it_streams(void **state)
{
    (void)state;
    static const char *const weights[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    const char *folder = test_temporary_folder();
    copy_file(folder, "config.json", INT64_MAX);
    copy_file(folder, "model.safetensors.index.json", INT64_MAX);
    copy_file(folder, weights[0], INT64_MAX);
    copy_file(folder, weights[1], INT64_MAX);
    trm_model *copy;
    trm_generator *generator;
    assert_ok(trm_model_open(folder, &copy));
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = 64;
    options.max_sequences = 2;
    options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_bytes = 1};
    assert_ok(trm_generator_create(copy, test_world, &options, &generator));
    tokens expected = generate(generator);
    for (int32_t i = 0; i < 2; i++) {
        trm_status status;
        copy_file(folder, weights[i], 100000);
        (void)try_to_generate(generator, &status); /* what had been read ahead is good */
        (void)try_to_generate(generator, &status);
        assert_int_equal(status, TRM_ERROR_IO);
        assert_non_null(strstr(trm_last_error(), "when it was opened"));
        copy_file(folder, weights[i], INT64_MAX);
        tokens found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
    }
    trm_generator_destroy(generator);
    trm_model_close(copy);
}

/* A GPT-2 of one layer, whose weights [in, out] are larger than the buffers that files are read into. */
enum { HIDDEN = 512, INNER = 9216, VOCAB = 4100, POSITIONS = 64 };

static void write_gpt2(const char *folder)
{
    static const struct {
        const char *name;
        int32_t rows, columns; /* columns 0: one axis */
    } weights[] = {{"wte.weight", VOCAB, HIDDEN},
                   {"wpe.weight", POSITIONS, HIDDEN},
                   {"ln_f.weight", HIDDEN, 0},
                   {"ln_f.bias", HIDDEN, 0},
                   {"h.0.ln_1.weight", HIDDEN, 0},
                   {"h.0.ln_1.bias", HIDDEN, 0},
                   {"h.0.ln_2.weight", HIDDEN, 0},
                   {"h.0.ln_2.bias", HIDDEN, 0},
                   {"h.0.attn.c_attn.weight", HIDDEN, 3 * HIDDEN},
                   {"h.0.attn.c_attn.bias", 3 * HIDDEN, 0},
                   {"h.0.attn.c_proj.weight", HIDDEN, HIDDEN},
                   {"h.0.attn.c_proj.bias", HIDDEN, 0},
                   {"h.0.mlp.c_fc.weight", HIDDEN, INNER},
                   {"h.0.mlp.c_fc.bias", INNER, 0},
                   {"h.0.mlp.c_proj.weight", INNER, HIDDEN},
                   {"h.0.mlp.c_proj.bias", HIDDEN, 0}};
    char header[4096], path[4400], config[512];
    size_t end = 8, bytes = 0;
    uint64_t random = 5;
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        const size_t n = (size_t)weights[i].rows * (size_t)(weights[i].columns > 0 ? weights[i].columns : 1) * 4;
        char dims[32];
        snprintf(dims, sizeof(dims), weights[i].columns > 0 ? "%d,%d" : "%d", weights[i].rows, weights[i].columns);
        end += (size_t)snprintf(header + end, sizeof(header) - end,
                                "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                i == 0 ? "{" : ",", weights[i].name, dims, bytes, bytes + n);
        bytes += n;
    }
    header[end++] = '}';
    assert_true(end < sizeof(header));
    const uint64_t length = end - 8;
    memcpy(header, &length, sizeof(length));
    unsigned char *file = malloc(end + bytes);
    assert_non_null(file);
    memcpy(file, header, end);
    for (size_t i = 0; i < bytes; i += 4) {
        const float value = 0.05f * test_random_float(&random);
        memcpy(file + end + i, &value, 4);
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    test_write_file(path, file, end + bytes);
    free(file);
    snprintf(config, sizeof(config),
             "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\",\"dtype\":\"float32\","
             "\"activation_function\":\"gelu_new\",\"n_embd\":%d,\"n_inner\":%d,\"n_layer\":1,\"n_head\":4,"
             "\"n_positions\":%d,\"vocab_size\":%d,\"layer_norm_epsilon\":1e-05}",
             HIDDEN, INNER, POSITIONS, VOCAB);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    test_write_file(path, config, strlen(config));
}

static trm_status upload_rows_or_fail(trm_stream *stream, void *to, size_t pitch, const void *from, size_t width,
                                      size_t rows)
{
    if (copies_left >= 0 && copies_left-- == 0) {
        return trm_fail(TRM_ERROR_INTERNAL, "the link is down");
    }
    return own_ops->stream_upload_rows(stream, to, pitch, from, width, rows);
}

/* What lies the other way round in its file is read by columns, to the same tokens; a file that is cut off then, too,
 * is an error, and so is a link that fails. */
static void weights_that_are_turned_on_their_way(void **state)
{
    (void)state;
    const char *folder = test_temporary_folder();
    char path[4400];
    trm_model *model;
    write_gpt2(folder);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_ok(trm_model_open(folder, &model));
    tokens expected = {0};
    copies_left = -1;
    change_ops()->stream_upload_rows = upload_rows_or_fail;
    for (int32_t i = 0; i < 2; i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator_limits limits;
        trm_generator *generator;
        options.max_context = POSITIONS;
        options.max_sequences = 2;
        options.no_tune = true;
        if (i == 1) {
            options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_bytes = 1};
        }
        assert_ok(trm_generator_create(model, test_world, &options, &generator));
        tokens found = generate(generator);
        expected = i == 0 ? found : expected;
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_true(i == 0 || limits.streaming.files >= (size_t)HIDDEN * INNER * 2);
        if (i == 1) {
            struct stat whole;
            trm_status status;
            assert_int_equal(stat(path, &whole), 0);
            assert_int_equal(truncate(path, whole.st_size - HIDDEN * INNER), 0); /* into the last matrix */
            (void)try_to_generate(generator, &status);                           /* what had been read ahead is good */
            (void)try_to_generate(generator, &status);
            assert_int_equal(status, TRM_ERROR_IO);
            assert_non_null(strstr(trm_last_error(), "when it was opened"));
            write_gpt2(folder);
            found = generate(generator);
            assert_memory_equal(&found, &expected, sizeof(found));
            for (int32_t at = 0; at < 6; at += 5) {
                copies_left = at;
                (void)try_to_generate(generator, &status);
                assert_int_equal(status, TRM_ERROR_INTERNAL);
                assert_non_null(strstr(trm_last_error(), "the link is down"));
                copies_left = -1;
                found = generate(generator);
                assert_memory_equal(&found, &expected, sizeof(found));
            }
        }
        trm_generator_destroy(generator);
    }
    restore_ops();
    trm_model_close(model);
}

/* Packed weights are the same weights: wherever they are, and when the budget changes. */
static void packed_weights_give_the_same_tokens(void **state)
{
    (void)state;
    tokens expected = {0};
    static const trm_weight_compression kinds[] = {TRM_WEIGHT_COMPRESSION_OFF, TRM_WEIGHT_COMPRESSION_LOSSLESS};
    size_t streamed[2] = {0}, host[2] = {0};
    for (int32_t i = 0; i < 2; i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator_limits limits;
        trm_generator *generator;
        options.dtype = TRM_BF16;
        options.max_context = 64;
        options.max_sequences = 2;
        options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .compression = kinds[i]};
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        trm_generator_get_limits(generator, &limits);
        const trm_streaming_info *info = &limits.streaming;
        streamed[i] = info->streamed;
        host[i] = info->host;
        assert_int_equal(info->unpacked, info->streamable);
        assert_true((info->unpack_rate > 0) == (i == 1));
        const size_t budgets[] = {i == 0 ? 0 : info->streamable / 3, info->streamable, 0};
        for (size_t k = 0; k < (i == 0 ? 1 : sizeof(budgets) / sizeof(budgets[0])); k++) {
            assert_ok(trm_generator_set_weight_budget(generator, budgets[k]));
            tokens found = generate(generator);
            expected = i == 0 && k == 0 ? found : expected;
            assert_memory_equal(&found, &expected, sizeof(found));
            trm_generator_get_limits(generator, &limits);
            assert_true(info->streamed <= info->unpacked);
            assert_true(budgets[k] > 0 || (info->streamed == streamed[i] && info->host == host[i]));
        }
        if (i == 1) { /* packed ones that are loaded again get other memory */
            trm_engine *engine = generator->engine;
            assert_ok(trm_load_run(engine, NULL));
            assert_true(engine->places.refilled);
            assert_ok(trm_weight_residency_follow(&engine->places, engine->plan, test_world->device));
            tokens found = generate(generator);
            assert_memory_equal(&found, &expected, sizeof(found));
            trm_generator_get_limits(generator, &limits);
            assert_true(info->host == host[1] && info->pinned);
        }
        trm_generator_destroy(generator);
    }
    print_message("%zu bytes are copied, packed %zu: %.2f bits\n", streamed[0], streamed[1],
                  16.0 * (double)streamed[1] / (double)streamed[0]);
    assert_true((double)streamed[1] < 0.75 * (double)streamed[0] && (double)host[1] < 0.8 * (double)host[0]);
}

/* Quantized weights stream as they are stored; their bytes are not packed again. */
static void quantized_weights_stream(void **state)
{
    (void)state;
    static const char *const names[] = {"quant-awq", "quant-fp8", "quant-int4-zeros", "quant-gptq8"};
    static const char *const budgets[] = {"off", "0", "40%", "100%"};
    trm_model *large = test_model;
    vocabulary = 90;
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        char folder[512];
        tokens expected = {0};
        snprintf(folder, sizeof(folder), "%s/tests/goldens/hf/%s", TRM_SOURCE_DIR, names[n]);
        assert_ok(trm_model_open(folder, &test_model));
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
            trm_generator *generator;
            trm_generator_limits limits;
            options.max_context = 64;
            options.max_sequences = 2;
            assert_ok(trm_weight_budget_parse(budgets[i], &options.weight_budget));
            options.weight_budget.compression = TRM_WEIGHT_COMPRESSION_LOSSLESS;
            assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
            tokens found = generate(generator);
            trm_generator_get_limits(generator, &limits);
            expected = i == 0 ? found : expected;
            assert_memory_equal(&found, &expected, sizeof(found));
            assert_int_equal(limits.streaming.copies > 0, i == 1 || i == 2);
            trm_generator_destroy(generator);
        }
        trm_model_close(test_model);
    }
    test_model = large;
    vocabulary = 4000;
}

/* What is packed has to fit into the host memory that there is. */
static void packed_weights_and_files(void **state)
{
    (void)state;
    tokens expected = {0};
    for (int32_t i = 0; i < 2; i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator_limits limits;
        trm_generator *generator;
        options.dtype = TRM_BF16;
        options.max_context = 64;
        options.max_sequences = 2;
        options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT,
                                                    .percent = 10,
                                                    .compression = TRM_WEIGHT_COMPRESSION_LOSSLESS,
                                                    .host_bytes = i == 0 ? 0 : (size_t)4 << 20};
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        tokens found = generate(generator);
        expected = i == 0 ? found : expected;
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_get_limits(generator, &limits);
        assert_true(i == 0 || limits.streaming.host <= (size_t)4 << 20);
        assert_true((limits.streaming.files > 0) == (i > 0));
        if (i > 0) {
            assert_ok(trm_generator_set_weight_budget(generator, 0));
            found = generate(generator);
            assert_memory_equal(&found, &expected, sizeof(found));
        }
        trm_generator_destroy(generator);
    }
}

static void compressions_are_read(void **state)
{
    (void)state;
    trm_weight_compression compression;
    assert_ok(trm_weight_compression_parse("lossless", &compression));
    assert_int_equal(compression, TRM_WEIGHT_COMPRESSION_LOSSLESS);
    assert_ok(trm_weight_compression_parse("off", &compression));
    assert_int_equal(compression, TRM_WEIGHT_COMPRESSION_OFF);
    assert_ok(trm_weight_compression_parse("auto", &compression));
    assert_int_equal(compression, TRM_WEIGHT_COMPRESSION_AUTO);
    assert_fails(trm_weight_compression_parse("zip", &compression), TRM_ERROR_INVALID_ARGUMENT,
                 "weight compression is \"zip\", expected auto, off or lossless");
    assert_fails(trm_weight_compression_parse(NULL, &compression), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

/* Of any room, as much as fits is used; with too little, the error says what is needed. */
static void automatic_budgets_fit(void **state)
{
    (void)state;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    build.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    int64_t cache_tokens;
    options.weight_budget.kind = TRM_WEIGHT_BUDGET_AUTO;
    assert_ok(trm_generator_plan(test_model, &options, &build, &plan, &cache_tokens));
    trm_memory_plan memory;
    trm_streaming_info info;
    trm_plan_memory(plan, &memory);
    size_t all = memory.weights;
    double seconds = 1;
    assert_int_equal(memory.staging, 0);
    assert_fails(trm_streaming_fit(plan, all / 16), TRM_ERROR_OUT_OF_MEMORY, "weights need at least");
    trm_plan_memory(plan, &memory); /* what is named is what is enough */
    const size_t least = memory.weights + memory.staging;
    char named[64];
    snprintf(named, sizeof(named), "weights need at least %.2f MiB of memory", (double)least / 0x1p20);
    assert_non_null(strstr(trm_last_error(), named));
    assert_fails(trm_streaming_fit(plan, least - 1), TRM_ERROR_OUT_OF_MEMORY, named);
    assert_ok(trm_streaming_fit(plan, least));
    for (size_t room = all / 5; room <= all + 1; room += all / 25) {
        assert_ok(trm_streaming_fit(plan, room));
        trm_plan_memory(plan, &memory);
        trm_plan_streaming(plan, &info);
        assert_true(memory.weights + memory.staging <= room);
        assert_true(info.run_seconds <= seconds * 1.05); /* more room is not slower */
        seconds = info.run_seconds;
    }
    assert_ok(trm_streaming_fit(plan, all));
    trm_plan_streaming(plan, &info);
    assert_int_equal(info.copies, 0);
    assert_int_equal(info.resident, info.streamable);
    trm_plan_destroy(plan);
}

typedef struct profiled {
    int32_t layers, waits;
    double milliseconds;
} profiled;

static void count_layer(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                        int64_t runs)
{
    profiled *p = user;
    (void)layer;
    (void)kind;
    assert_true(milliseconds >= 0 && runs > 0);
    p->layers++;
    p->waits += strcmp(kernel, TRM_KERNEL_WAIT) == 0;
    p->milliseconds += milliseconds;
}

/* Every fetch of the step itself is waited for once, and profiles have it. */
static void stalls_are_profiled(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("0");
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    trm_context *context = trm_generator_context(generator);
    assert_ok(trm_context_set_layer_timing(context, true));
    (void)generate(generator);
    profiled p = {0};
    trm_context_layer_times(context, count_layer, &p);
    assert_true(p.milliseconds > 0);
    int32_t carried = generator->engine->plan->streaming->residency.n_carried;
    /* each of another layer, and the step for what the next one begins with */
    assert_int_equal(p.waits, limits.streaming.copies - carried + (carried > 0));
    assert_int_equal(p.layers - p.waits, generator->engine->plan->network->n_layers);
    assert_ok(trm_context_set_layer_timing(context, false));
    trm_generator_destroy(generator);
}

typedef struct stalls {
    int32_t n;
    double seconds;
    bool next_step; /* the last of them */
} stalls;

static void count_stall(void *user, const char *layer, double seconds)
{
    stalls *s = user;
    assert_true(seconds >= 0 && !s->next_step);
    s->n++;
    s->seconds += seconds;
    s->next_step = strcmp(layer, TRM_NEXT_STEP) == 0;
}

/* One step of 64 is profiled while requests are served, which changes no token; and the plan knows what would be waited
 * for in a step that reads its weights and no more. */
static void steps_are_looked_at(void **state)
{
    (void)state;
    int32_t expected[40];
    for (int32_t budget = 0; budget < 2; budget++) {
        trm_generator *generator = open_generator(budget == 0 ? "off" : "0");
        trm_serving_request request = TRM_SERVING_REQUEST_INIT;
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        const int32_t prompt[3] = {5, 6, 7};
        trm_scheduler *scheduler;
        stalls found = {0}, planned = {0};
        int32_t n = 0, n_events;
        request.prompt = prompt;
        request.n_prompt = 3;
        request.max_tokens = 40;
        request.ignore_eos = true;
        request.sampling.base.temperature = 1.0f;
        request.sampling.base.seed = 3;
        assert_ok(trm_scheduler_create(generator, &options, &scheduler));
        assert_ok(trm_scheduler_submit(scheduler, &request));
        while (trm_scheduler_has_work(scheduler)) {
            const trm_serving_event *events;
            const int64_t looked = trm_scheduler_stalls(scheduler, NULL, NULL); /* a prompt on a GPU is not counted */
            assert_true(budget == 0 || n < 5 ? looked == 0 : n == 5 || looked == 1);
            assert_ok(trm_scheduler_step(scheduler, &events, &n_events));
            for (int32_t i = 0; i < n_events; i++) {
                if (events[i].kind == TRM_EVENT_TOKEN && budget == 0) {
                    expected[n++] = events[i].token;
                } else if (events[i].kind == TRM_EVENT_TOKEN) {
                    assert_int_equal(events[i].token, expected[n++]);
                }
            }
        }
        assert_int_equal(n, 40);
        assert_int_equal(trm_scheduler_stalls(scheduler, count_stall, &found), budget);
        trm_plan_stalls(generator->engine->plan, count_stall, &planned);
        assert_int_equal(found.n > 0, budget == 1);
        assert_true(budget == 1 || planned.n == 0);
        if (budget == 1) {
            const trm_residency *residency = &generator->engine->plan->streaming->residency;
            assert_int_equal(found.next_step, residency->n_carried > 0);
            double wanted = residency->seconds - residency->compute_seconds; /* none, where the link is fast enough */
            assert_true(fabs(planned.seconds - wanted) <= 1e-6 * residency->seconds);
            trm_scheduler_stats stats;
            trm_scheduler_get_stats(scheduler, &stats);
            assert_true(found.seconds <= stats.step_seconds);
        }
        assert_ok(trm_scheduler_end(scheduler));
        trm_scheduler_destroy(scheduler);
        trm_generator_destroy(generator);
    }
}

static void budgets_as_text(void **state)
{
    (void)state;
    trm_weight_budget budget;
    static const struct {
        const char *text;
        trm_weight_budget_kind kind;
        double percent;
        size_t bytes;
    } good[] = {{"off", TRM_WEIGHT_BUDGET_OFF, 0, 0},
                {"auto", TRM_WEIGHT_BUDGET_AUTO, 0, 0},
                {"0%", TRM_WEIGHT_BUDGET_PERCENT, 0, 0},
                {"12.5%", TRM_WEIGHT_BUDGET_PERCENT, 12.5, 0},
                {"100%", TRM_WEIGHT_BUDGET_PERCENT, 100, 0},
                {"0", TRM_WEIGHT_BUDGET_BYTES, 0, 0},
                {"123", TRM_WEIGHT_BUDGET_BYTES, 0, 123},
                {"7B", TRM_WEIGHT_BUDGET_BYTES, 0, 7},
                {"2k", TRM_WEIGHT_BUDGET_BYTES, 0, 2048},
                {"1.5G", TRM_WEIGHT_BUDGET_BYTES, 0, (size_t)3 << 29},
                {"3M", TRM_WEIGHT_BUDGET_BYTES, 0, (size_t)3 << 20}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok(trm_weight_budget_parse(good[i].text, &budget));
        assert_int_equal(budget.kind, good[i].kind);
        assert_true(budget.percent == good[i].percent);
        assert_int_equal(budget.bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",     "on",   "-1",  "-2%", "101%", "5%%", "G",   "8GB",
                                      "0x10", "1e99", "8 G", "nan", "inf",  "8T",  "%50", "1e30G"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_fails(trm_weight_budget_parse(bad[i], &budget), TRM_ERROR_INVALID_ARGUMENT, "expected off, auto");
    }
    assert_fails(trm_weight_budget_parse(NULL, &budget), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_budget_gives_the_same),
        cmocka_unit_test(budgets_change),
        cmocka_unit_test(a_link_that_fails),
        cmocka_unit_test(weights_that_stay_in_their_files),
        cmocka_unit_test(a_file_that_is_cut_off_while_it_streams),
        cmocka_unit_test(weights_that_are_turned_on_their_way),
        cmocka_unit_test(packed_weights_give_the_same_tokens),
        cmocka_unit_test(quantized_weights_stream),
        cmocka_unit_test(packed_weights_and_files),
        cmocka_unit_test(compressions_are_read),
        cmocka_unit_test(automatic_budgets_fit),
        cmocka_unit_test(stalls_are_profiled),
        cmocka_unit_test(steps_are_looked_at),
        cmocka_unit_test(budgets_as_text),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_two_threads, test_close_world);
}
