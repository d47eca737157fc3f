/* Plan files: what is read back is what was written, the same plans give the same bytes, and files that are damaged, do
 * not fit or lie are refused. */
#include "graph/nets.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "support/world.h"

#include "base/file.h"
#include "dist/plan/file.h"
#include "support/hf_golden_ranks.h"
#include "support/random_network.h"
#include "weight_stream/weight_internal.h"

#define LARGEST_INPUT 16384
#define MAX_PLANS     4

/* ---- round trips --------------------------------------------------------------------------------------- */

static void assert_same_text(const trm_plan *a, const trm_plan *b)
{
    char *text_a = trm_plan_to_text(a), *text_b = trm_plan_to_text(b);
    size_t line = 0;
    for (size_t i = 0; text_a[i] != '\0' && text_a[i] == text_b[i]; i++) {
        line = text_a[i] == '\n' ? i + 1 : line;
    }
    if (strcmp(text_a, text_b) != 0) {
        fail_msg("expected %.*s, found %.*s", (int)strcspn(text_a + line, "\n"), text_a + line,
                 (int)strcspn(text_b + line, "\n"), text_b + line);
    }
    trm_free(text_a);
    trm_free(text_b);
}

static void assert_same_plan(const trm_plan *a, const trm_plan *b)
{
    trm_memory_plan memory_a, memory_b;
    trm_plan_memory(a, &memory_a);
    trm_plan_memory(b, &memory_b);
    assert_memory_equal(&memory_a, &memory_b, sizeof(memory_a));
    assert_int_equal(a->network->n_tensors, b->network->n_tensors);
    for (int32_t i = 0; i < a->network->n_tensors; i++) {
        const trm_tensor *of_a = a->network->tensors[i], *of_b = b->network->tensors[i];
        assert_string_equal(of_a->name, of_b->name);
        assert_true(trm_dims_equal(&of_a->dims, &of_b->dims));
        assert_true(of_a->is_output == of_b->is_output);
        for (int32_t k = 0; k < of_a->dims.n; k++) {
            const char *name_a = trm_tensor_dim_name(of_a, k), *name_b = trm_tensor_dim_name(of_b, k);
            assert_string_equal(name_a == NULL ? "" : name_a, name_b == NULL ? "" : name_b);
        }
    }
    assert_int_equal(a->n_profiles, b->n_profiles);
    for (int32_t i = 0; i < a->network->n_layers; i++) {
        const trm_layer *of_a = a->network->layers[i], *of_b = b->network->layers[i];
        assert_true(trm_layer_output_count(&of_a->desc) == of_a->n_outputs && of_a->n_inputs == of_b->n_inputs);
        assert_string_equal(of_a->name, of_b->name);
    }
    assert_memory_equal(&a->partition, &b->partition, sizeof(a->partition));
    assert_int_equal(a->allow_tf32, b->allow_tf32);
    assert_int_equal(a->batch_invariant, b->batch_invariant);
    assert_int_equal(a->max_aux_streams, b->max_aux_streams);
    assert_true(a->max_workspace == b->max_workspace);
}

/* Plans of all ranks; false for a network that cannot be cut into stages, or whose batch the ranks do not divide, of
 * which there are random ones. */
static bool build_all(const trm_network *network, const trm_shape_bound *bounds, int32_t n_bounds, const char *mesh,
                      int32_t ranks, trm_plan **plans)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    assert_ok(trm_mesh_parse(mesh, ranks, &options.mesh));
    options.bounds = bounds;
    options.n_bounds = n_bounds;
    options.allow_tf32 = ranks > 1;
    options.batch_invariant = ranks % 2 == 0;
    options.max_aux_streams = ranks;
    options.max_workspace = (size_t)ranks << 40;
    for (options.rank = 0; options.rank < ranks; options.rank++) {
        trm_status status = trm_build(network, &options, &plans[options.rank]);
        if (status == TRM_ERROR_INVALID_ARGUMENT &&
            options.mesh.size[TRM_AXIS_PP] * options.mesh.size[TRM_AXIS_DP] > 1 && options.rank == 0) {
            return false;
        }
        assert_ok(status);
    }
    return true;
}

static void destroy_all(trm_plan **plans, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_plan_destroy(plans[i]);
    }
}

static void save(trm_plan **plans, int32_t n, bool embed, const char *path)
{
    assert_ok(trm_plan_save((const trm_plan *const *)plans, n, embed, path));
}

/* Bits of all outputs, from the same inputs. */
static void assert_same_results(const trm_network *network, trm_plan *a, trm_plan *b, uint64_t seed)
{
    trm_plan *plans[] = {a, b};
    trm_engine *engines[2];
    trm_context *contexts[2];
    static float data[LARGEST_INPUT];
    for (int k = 0; k < 2; k++) {
        contexts[k] = test_open_context(plans[k], &engines[k]);
        for (int32_t i = 0; i < trm_network_input_count(network); i++) {
            const trm_tensor *input = trm_network_input(network, i);
            trm_dims dims;
            test_random_input(input, 5, seed + (uint64_t)i, &dims, data);
            assert_ok(trm_context_set_input(contexts[k], input->name, dims, data));
        }
        assert_ok(trm_context_run(contexts[k]));
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        trm_dims dims[2];
        const void *results[2];
        for (int k = 0; k < 2; k++) {
            assert_ok(trm_context_output(contexts[k], network->outputs[i]->name, &dims[k], &results[k]));
        }
        assert_true(trm_dims_equal(&dims[0], &dims[1]));
        assert_memory_equal(results[0], results[1], trm_dims_bytes(&dims[0], network->outputs[i]->dtype));
    }
    for (int k = 0; k < 2; k++) {
        trm_context_destroy(contexts[k]);
        trm_engine_destroy(engines[k]);
    }
}

static int32_t bounds_of_tokens(const trm_network *network, trm_shape_bound *bounds)
{
    int32_t n = 0;
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        const trm_tensor *input = trm_network_input(network, i);
        bounds[n] = (trm_shape_bound){.tensor = input->name, .max = input->dims};
        for (int32_t k = 0; k < input->dims.n; k++) {
            bounds[n].max.d[k] = input->dims.d[k] < 0 ? 8 : input->dims.d[k];
        }
        n++;
    }
    return n;
}

/* Files of the same bytes. */
static void assert_same_file(const char *path, const char *expected, size_t expected_size)
{
    char *text;
    size_t size;
    assert_ok(trm_file_read(path, (size_t)1 << 30, &text, &size));
    assert_int_equal(size, expected_size);
    assert_memory_equal(text, expected, size);
    free(text);
}

static void round_trip(const trm_network *network, const char *folder, const char *mesh, int32_t ranks, bool embed,
                       uint64_t seed)
{
    trm_plan *plans[MAX_PLANS], *again[MAX_PLANS], *loaded[MAX_PLANS];
    trm_shape_bound bounds[16];
    char *text;
    size_t size;
    char path[4096];
    snprintf(path, sizeof(path), "%s/net.plan", folder);
    int32_t n_bounds = bounds_of_tokens(network, bounds);
    if (!build_all(network, bounds, n_bounds, mesh, ranks, plans)) {
        return;
    }
    build_all(network, bounds, n_bounds, mesh, ranks, again);
    save(plans, ranks, embed, path);
    assert_ok(trm_file_read(path, (size_t)1 << 30, &text, &size));
    save(again, ranks, embed, path);
    assert_same_file(path, text, size);
    for (int32_t i = 0; i < ranks; i++) {
        assert_ok(trm_plan_load(path, i, &loaded[i]));
        if (!embed) { /* then weights are named otherwise */
            assert_same_text(plans[i], loaded[i]);
        }
        assert_same_plan(plans[i], loaded[i]);
    }
    if (!embed) { /* what was loaded is saved as it was */
        save(loaded, ranks, embed, path);
        assert_same_file(path, text, size);
    }
    if (ranks == 1) {
        assert_same_results(network, plans[0], loaded[0], seed);
    } else {
        destroy_all(plans, ranks);
        destroy_all(loaded, ranks);
    }
    destroy_all(again, ranks);
    free(text);
}

static void random_networks_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        int32_t ranks;
    } meshes[] = {{"", 1}, {"tp=2", 2}, {"tp=2,dp=2", 4}, {"pp=2", 2}, {"tp=3", 3}};
    uint64_t seed = test_seed();
    const char *folder = test_temporary_folder();
    for (int32_t i = 0; i < (test_is_brief() ? 20 : 150); i++) {
        uint64_t mine = seed + (uint64_t)i;
        trm_network *network = test_random_network(mine, 4 + i % 40);
        const int32_t pick = i % 3 == 0 ? 0 : i % 5;
        round_trip(network, folder, meshes[pick].mesh, meshes[pick].ranks, i % 7 == 0, mine);
        trm_network_destroy(network);
    }
}

/* Weights by reference and embedded: same networks, same logits. */
static void models_come_back(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof(path), "%s/model.plan", test_temporary_folder());
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden golden;
        trm_network *network;
        trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];
        trm_plan *plans[2], *loaded;
        test_golden_open(test_golden_name(i), &golden);
        assert_ok(trm_model_build_network(golden.model, TRM_F32, &network));
        int32_t n_bounds = test_golden_bounds(network, bounds);
        build_all(network, bounds, n_bounds, "tp=2", 2, plans);
        save(plans, 2, false, path);
        for (int32_t rank = 0; rank < 2; rank++) {
            assert_ok(trm_plan_load(path, rank, &loaded));
            assert_same_text(plans[rank], loaded);
            assert_same_plan(plans[rank], loaded);
            trm_plan_destroy(loaded);
        }
        destroy_all(plans, 2);
        for (int embed = 0; embed < 2; embed++) {
            build_all(network, bounds, n_bounds, "", 1, plans);
            save(plans, 1, embed == 1, path);
            trm_plan_destroy(plans[0]);
            assert_ok(trm_plan_load(path, 0, &loaded));
            trm_engine *engine;
            trm_context *context = test_open_context(loaded, &engine);
            test_runner runner = test_runner_of_context(context, network);
            assert_true(test_golden_run_whole(&golden, &runner).worst <= test_golden_tolerance(&golden, TRM_F32));
            trm_context_destroy(context);
            trm_engine_destroy(engine);
        }
        trm_network_destroy(network);
        test_golden_close(&golden);
    }
}

/* ---- a small plan -------------------------------------------------------------------------------------- */

/* y = relu(x w) + b, reshaped to the sizes in `shape`; w is a weight of a file, seen as a join of turned parts. */
static trm_network *small_network(const char *weight_path)
{
    static const float ones[4] = {1, 2, 3, 4};
    trm_network *network;
    trm_tensor *x, *shape, *w, *b, *product, *sum, *relu, *y;
    trm_weight_file *file;
    trm_weight *stored, *halves[2], *turned, *joined, *random, *padded, *both[2];
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, 6}}, &x));
    assert_ok(trm_network_name_dim(network, x, 0, "rows"));
    assert_ok(trm_network_add_input(network, "shape", TRM_I64, (trm_dims){1, {2}}, &shape));
    assert_ok(trm_weight_file_open(weight_path, "w.bin", &file));
    assert_ok(trm_weight_from_file(file, 8, "w", TRM_F32, &(trm_dims){2, {4, 3}}, &stored));
    trm_weight_file_release(file);
    assert_ok(trm_weight_slice(stored, 0, 0, 2, &halves[0]));
    assert_ok(trm_weight_slice(stored, 0, 2, 2, &halves[1]));
    const trm_weight *swapped[] = {halves[1], halves[0]};
    assert_ok(trm_weight_concat(swapped, 2, 0, &joined));
    assert_ok(trm_weight_transpose(joined, (const int32_t[]){1, 0}, &turned)); /* [3, 4] */
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {2, 4}}, 7, 0.5f, 0.25f, &random));
    assert_ok(trm_weight_pad(random, 0, 3, &padded)); /* [3, 4] */
    both[0] = turned;
    both[1] = padded;
    trm_weight *all;
    assert_ok(trm_weight_concat((const trm_weight *const *)both, 2, 0, &all)); /* [6, 4] */
    trm_weight *parts[] = {stored, halves[0], halves[1], joined, turned, random, padded};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        trm_weight_destroy(parts[i]);
    }
    assert_ok(trm_network_add_weight(network, "w", all, TRM_F32, &w));
    assert_ok(trm_network_add_constant(network, "b", TRM_F32, (trm_dims){1, {4}}, ones, &b));
    assert_ok(trm_network_add_matmul(network, "product", x, w, NULL, false, &product));
    assert_ok(trm_network_add_activation(network, "relu", TRM_ACTIVATION_RELU, product, &relu));
    assert_ok(trm_network_add_elementwise(network, "sum", TRM_ELEMENTWISE_ADD, relu, b, &sum));
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE};
    trm_tensor *reshaped[] = {sum, shape};
    assert_ok(trm_network_add_layer(network, "y", &reshape, reshaped, 2, &y));
    assert_ok(trm_network_mark_output(network, y));
    return network;
}

static const int64_t most[2] = {4, 4}, least[2] = {1, 4}, usual[2] = {8, 1}, more[2] = {16, 2};

static int32_t small_bounds(trm_shape_bound *bounds)
{
    bounds[0] = (trm_shape_bound){.tensor = "x", .max = {2, {4, 6}}, .min = {2, {1, 6}}, .opt = {2, {2, 6}}};
    bounds[1] = (trm_shape_bound){
        .tensor = "shape", .max = {1, {2}}, .max_values = most, .min_values = least, .opt_values = usual};
    bounds[2] = (trm_shape_bound){.tensor = "x", .max = {2, {8, 6}}, .profile = 1};
    bounds[3] = (trm_shape_bound){.tensor = "shape", .max = {1, {2}}, .max_values = more, .profile = 1};
    return 4;
}

typedef struct small_plan {
    char folder[2048], path[4096], weights[4096];
    trm_plan *plan;
    unsigned char *bytes;
    size_t size;
} small_plan;

static void make_small(small_plan *s, bool embed)
{
    float values[14] = {0};
    for (int i = 0; i < 14; i++) {
        values[i] = (float)i * 0.25f - 1;
    }
    trm_shape_bound bounds[4];
    snprintf(s->folder, sizeof(s->folder), "%s", test_temporary_folder());
    snprintf(s->weights, sizeof(s->weights), "%s/w.bin", s->folder);
    snprintf(s->path, sizeof(s->path), "%s/small.plan", s->folder);
    test_write_file(s->weights, values, sizeof(values));
    trm_network *network = small_network(s->weights);
    build_all(network, bounds, small_bounds(bounds), "", 1, &s->plan);
    trm_network_destroy(network);
    save(&s->plan, 1, embed, s->path);
    char *text;
    assert_ok(trm_file_read(s->path, (size_t)1 << 20, &text, &s->size));
    s->bytes = (unsigned char *)text;
}

static void end_small(small_plan *s)
{
    trm_plan_destroy(s->plan);
    free(s->bytes);
}

static void run_small(trm_plan *plan, float results[8])
{
    float x[12];
    trm_engine *engine;
    trm_dims dims;
    const void *data;
    const int64_t sizes[2] = {8, 1};
    for (int i = 0; i < 12; i++) {
        x[i] = (float)(i % 5) - 1.5f;
    }
    trm_context *context = test_open_context(plan, &engine);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 6}}, x));
    assert_ok(trm_context_set_input(context, "shape", (trm_dims){1, {2}}, sizes));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == 8 && dims.d[1] == 1);
    memcpy(results, data, 8 * sizeof(float));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* Profiles with values; weights that are views, joins, random numbers and zeros; the weight file moves along. */
static void bounds_values_and_views_come_back(void **state)
{
    (void)state;
    float expected[8], found[8];
    for (int embed = 0; embed < 2; embed++) {
        small_plan s;
        trm_plan *loaded;
        make_small(&s, embed == 1);
        assert_ok(trm_plan_load(s.path, 0, &loaded));
        if (embed == 0) {
            assert_same_text(s.plan, loaded);
        }
        assert_same_plan(s.plan, loaded);
        assert_string_equal(trm_tensor_dim_name(trm_network_find_tensor(loaded->network, "x"), 0), "rows");
        trm_shape_bound a, b;
        for (int32_t i = 0; trm_plan_get_bound(s.plan, i, &a); i++) {
            assert_true(trm_plan_get_bound(loaded, i, &b));
            assert_string_equal(a.tensor, b.tensor);
            assert_true(trm_dims_equal(&a.max, &b.max) && trm_dims_equal(&a.min, &b.min) && a.profile == b.profile);
            assert_true((a.opt_values == NULL) == (b.opt_values == NULL));
        }
        trm_plan_destroy(loaded);
        char moved[3000], from[4096], to[4096];
        snprintf(moved, sizeof(moved), "%s/moved", s.folder);
        assert_int_equal(mkdir(moved, 0777), 0);
        snprintf(to, sizeof(to), "%s/small.plan", moved);
        assert_int_equal(rename(s.path, to), 0);
        snprintf(from, sizeof(from), "%s", s.weights);
        snprintf(s.weights, sizeof(s.weights), "%s/w.bin", moved);
        assert_int_equal(rename(from, s.weights), 0);
        assert_ok(trm_plan_load(to, 0, &loaded));
        run_small(loaded, found);
        run_small(s.plan, expected);
        s.plan = NULL;
        assert_memory_equal(found, expected, sizeof(found));
        end_small(&s);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

/* Reads a plan from memory, as if it lay in the folder of the small one. */
static trm_status read_bytes(const small_plan *s, const unsigned char *bytes, size_t size, bool trusting,
                             trm_plan **plan)
{
    static trm_weight_file file; /* never released to zero: the bytes are not a mapping of ours */
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s/", s->folder);
    file.mapping = (trm_mapping){bytes, size};
    file.descriptor = -1;
    file.name = file.path = (char *)(uintptr_t) "small.plan";
    atomic_init(&file.references, 1);
    *plan = NULL;
    trm_status status = trm_plan_read(&file, folder, 0, trusting, NULL, plan);
    assert_true(status == TRM_OK || (trm_last_error()[0] != '\0' && atomic_load(&file.references) == 1));
    return status;
}

static void cut_off_files_are_refused(void **state)
{
    (void)state;
    small_plan s;
    trm_plan *plan;
    make_small(&s, true);
    for (size_t size = 0; size < s.size; size++) {
        assert_fails(read_bytes(&s, s.bytes, size, false, &plan), TRM_ERROR_INVALID_MODEL, "small.plan");
        assert_fails(read_bytes(&s, s.bytes, size, true, &plan), TRM_ERROR_INVALID_MODEL, "small.plan");
    }
    s.bytes = realloc(s.bytes, s.size + 1);
    s.bytes[s.size] = 0;
    assert_fails(read_bytes(&s, s.bytes, s.size + 1, false, &plan), TRM_ERROR_INVALID_MODEL, "too long");
    assert_fails(read_bytes(&s, s.bytes, s.size - 1, false, &plan), TRM_ERROR_INVALID_MODEL, "cut off");
    test_write_file(s.path, "not a plan", 7);
    assert_fails(trm_plan_load(s.path, 0, &plan), TRM_ERROR_INVALID_MODEL, "not a plan file");
    end_small(&s);
}

static void flipped_bits_are_refused_or_nothing(void **state)
{
    (void)state;
    for (int embed = 0; embed < 2; embed++) {
        small_plan s;
        int32_t harmless = 0;
        make_small(&s, embed == 1);
        for (size_t i = 0; i < s.size; i++) {
            trm_plan *plan;
            s.bytes[i] ^= (unsigned char)(1 << i % 8);
            if (read_bytes(&s, s.bytes, s.size, false, &plan) == TRM_OK) { /* between blobs */
                assert_same_plan(s.plan, plan);
                harmless++;
            }
            trm_plan_destroy(plan);
            s.bytes[i] ^= (unsigned char)(1 << i % 8);
        }
        assert_true(harmless < 8 * TRM_PLAN_ALIGNMENT);
        end_small(&s);
    }
}

/* The same behind the checksums: nothing but refusals, or plans that hold together. */
static void lies_behind_checksums_are_refused(void **state)
{
    (void)state;
    small_plan s;
    int32_t refused = 0, taken = 0;
    make_small(&s, false);
    for (size_t i = TRM_PLAN_HEADER; i < s.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            trm_plan *plan;
            s.bytes[i] ^= (unsigned char)(1 << bit);
            if (read_bytes(&s, s.bytes, s.size, true, &plan) == TRM_OK) {
                trm_free(trm_plan_to_text(plan));
                taken++;
            } else {
                refused++;
            }
            trm_plan_destroy(plan);
            s.bytes[i] ^= (unsigned char)(1 << bit);
        }
    }
    assert_true(refused > taken);
    end_small(&s);
}

/* Writes the small plan with another byte string of the same length somewhere, and checksums that fit. */
static trm_status load_edited(small_plan *s, const char *from, const char *to)
{
    size_t length = strlen(from);
    unsigned char *copy = malloc(s->size), *found;
    trm_plan_header header;
    trm_plan *plan = NULL;
    memcpy(copy, s->bytes, s->size);
    found = memmem(copy, s->size, from, length);
    assert_non_null(found);
    memcpy(found, to, length);
    assert_ok(trm_plan_get_header("test", s->bytes, s->size, true, &header));
    header.index_checksum = trm_plan_checksum(copy + header.index_offset, (size_t)header.index_size);
    trm_plan_put_header(&header, copy);
    trm_status status = read_bytes(s, copy, s->size, false, &plan);
    trm_plan_destroy(plan);
    free(copy);
    return status;
}

static void plans_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    small_plan s;
    trm_plan *plan = NULL, *two[2];
    make_small(&s, false);
    assert_fails(load_edited(&s, trm_version(), "9.9.9"), TRM_ERROR_UNSUPPORTED, "built by trireme 9.9.9");
    assert_fails(load_edited(&s, "host", "hast"), TRM_ERROR_INVALID_MODEL, "backend \"hast\"");
    test_write_file(s.path, s.bytes, s.size);
    assert_fails(trm_plan_load(s.path, 1, &plan), TRM_ERROR_INVALID_ARGUMENT, "has no rank 1");
    assert_fails(trm_plan_load(s.path, -1, &plan), TRM_ERROR_INVALID_ARGUMENT, "has no rank -1");
    s.bytes[8] = TRM_PLAN_FORMAT + 1;
    assert_fails(read_bytes(&s, s.bytes, s.size, false, &plan), TRM_ERROR_UNSUPPORTED, "has format 3");
    s.bytes[8] = TRM_PLAN_FORMAT;
    /* Another number of ranks is the engine's matter. */
    trm_network *network = small_network(s.weights);
    trm_shape_bound bounds[4];
    build_all(network, bounds, small_bounds(bounds), "tp=2", 2, two);
    save(two, 2, false, s.path);
    assert_ok(trm_plan_load(s.path, 0, &plan));
    trm_engine *engine;
    assert_fails(trm_engine_create(plan, test_world, NULL, NULL, &engine), TRM_ERROR_INVALID_ARGUMENT,
                 "mesh of 2 ranks");
    const trm_plan *swapped[] = {two[1], two[0]};
    assert_fails(trm_plan_save(swapped, 2, false, s.path), TRM_ERROR_INVALID_ARGUMENT, "in order");
    assert_fails(trm_plan_save((const trm_plan *const *)two, 1, false, s.path), TRM_ERROR_INVALID_ARGUMENT, "in order");
    destroy_all(two, 2);
    trm_network_destroy(network);
    end_small(&s);
}

static void weight_files_that_changed_are_refused(void **state)
{
    (void)state;
    small_plan s;
    trm_plan *plan = NULL;
    float values[14] = {0};
    make_small(&s, false);
    test_write_file(s.weights, values, sizeof(values));
    assert_fails(trm_plan_load(s.path, 0, &plan), TRM_ERROR_INVALID_MODEL, "has changed since");
    test_write_file(s.weights, values, sizeof(values) - 4);
    assert_fails(trm_plan_load(s.path, 0, &plan), TRM_ERROR_INVALID_MODEL, "it had 56");
    assert_int_equal(unlink(s.weights), 0);
    assert_fails(trm_plan_load(s.path, 0, &plan), TRM_ERROR_IO, "weight file of plan small.plan");
    end_small(&s);
    make_small(&s, true); /* then nothing else is needed */
    assert_int_equal(unlink(s.weights), 0);
    assert_ok(trm_plan_load(s.path, 0, &plan));
    trm_plan_destroy(plan);
    end_small(&s);
}

static void what_cannot_be_written_is_told(void **state)
{
    (void)state;
    small_plan s;
    make_small(&s, false);
    const trm_plan *plan = s.plan, *none = NULL;
    assert_fails(trm_plan_save(&plan, 1, false, "/nowhere/at/all.plan"), TRM_ERROR_IO, "/nowhere/at/all.plan");
    assert_fails(trm_plan_save(&plan, 1, false, s.folder), TRM_ERROR_IO, s.folder);
    assert_fails(trm_plan_save(&none, 1, false, s.path), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_plan_save(&plan, 0, false, s.path), TRM_ERROR_INVALID_ARGUMENT, "0 plans");
    trm_network *network;
    trm_tensor *x, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "new\nline", TRM_F32, (trm_dims){1, {4}}, &x));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_plan *odd;
    build_all(network, NULL, 0, "", 1, &odd);
    const trm_plan *given = odd;
    assert_fails(trm_plan_save(&given, 1, false, s.path), TRM_ERROR_INVALID_ARGUMENT, "control characters");
    trm_plan_destroy(odd);
    trm_network_destroy(network);
    assert_same_file(s.path, (const char *)s.bytes, s.size); /* the one that was there stays */
    end_small(&s);
}

/* ---- tactics ------------------------------------------------------------------------------------------- */

/* Tactics as tuning leaves them in a plan, of a device that this is not. */
static void give_tactics(trm_plan *plan)
{
    const trm_plan_timed product = {"10000000ff", 1234}, own = {"own.convolution", 5678};
    const trm_plan_timed engines[TRM_MOST_SHORTLISTED] = {
        {"cudnn.fused:7,2=0", 2000}, {"cudnn.fused:8,2=0", 2000}, {"cudnn.alone:9", 1999}, {"cudnn.fused:5", 3000}};
    assert_ok(trm_plan_add_tactic(plan, "cublasLt 130100; matmul m=1 n=2", &product, 1));
    assert_ok(trm_plan_add_tactic(plan, "cuDNN 91900; convolution n=1", &own, 1));
    assert_ok(trm_plan_add_tactic(plan, "cuDNN 91900; convolution n=2", engines, TRM_MOST_SHORTLISTED));
    plan->device = (trm_plan_device){.name = "Some GPU", .multiprocessors = 132, .major = 9, .minor = 0};
}

static void tactics_come_back(void **state)
{
    (void)state;
    small_plan s;
    trm_plan *loaded, *again;
    trm_plan_info info;
    const char *problem, *tactic;
    double microseconds;
    char *bytes;
    size_t size;
    make_small(&s, false);
    trm_plan_get_info(s.plan, &info);
    assert_true(info.n_tactics == 0 && info.device == NULL);
    give_tactics(s.plan);
    save(&s.plan, 1, false, s.path);
    assert_ok(trm_file_read(s.path, (size_t)1 << 20, &bytes, &size));
    assert_ok(trm_plan_load(s.path, 0, &loaded));
    trm_plan_get_info(loaded, &info);
    assert_true(info.n_tactics == 3 && info.multiprocessors == 132 && info.cc_major == 9 && info.cc_minor == 0);
    assert_string_equal(info.device, "Some GPU");
    assert_true(trm_plan_get_tactic(loaded, 1, &problem, &tactic, &microseconds));
    assert_string_equal(problem, "cuDNN 91900; convolution n=1");
    assert_string_equal(tactic, "own.convolution");
    assert_true(microseconds > 5.6779 && microseconds < 5.6781);
    assert_true(trm_plan_get_tactic(loaded, 2, &problem, &tactic, &microseconds));
    assert_true(strcmp(tactic, "cudnn.fused:7,2=0") == 0 && microseconds == 2);
    assert_false(trm_plan_get_tactic(loaded, 3, &problem, &tactic, &microseconds));
    for (int32_t i = 0; i < 3; i++) { /* with the others that were timed, as they stand */
        const trm_plan_tactic *kept = &s.plan->tactics[i], *back = &loaded->tactics[i];
        assert_int_equal(back->n, i < 2 ? 1 : TRM_MOST_SHORTLISTED);
        for (int32_t k = 0; k < back->n; k++) {
            assert_string_equal(back->timed[k].name, kept->timed[k].name);
            assert_int_equal(back->timed[k].nanoseconds, kept->timed[k].nanoseconds);
        }
    }
    save(&loaded, 1, false, s.path); /* the same plan, the same bytes */
    assert_same_file(s.path, bytes, size);
    /* It runs where it was tuned, or without its tactics. */
    trm_engine *engine;
    float expected[8], found[8];
    assert_fails(trm_plan_check_device(loaded, test_world), TRM_ERROR_INVALID_ARGUMENT, "tuned on Some GPU");
    assert_fails(trm_engine_create(loaded, test_world, NULL, NULL, &engine), TRM_ERROR_INVALID_ARGUMENT,
                 "tuned on Some GPU (compute capability 9.0, 132 multiprocessors), this is");
    assert_ok(trm_plan_load(s.path, 0, &again));
    trm_plan_drop_tactics(again);
    assert_ok(trm_plan_check_device(again, test_world));
    trm_plan_drop_tactics(s.plan);
    run_small(s.plan, expected);
    run_small(again, found);
    s.plan = NULL;
    assert_memory_equal(found, expected, sizeof(found));
    free(bytes);
    end_small(&s);
}

/* The bytes of a plan with one tactic. */
static void save_tactic(small_plan *s, const char *problem, const trm_plan_timed *timed, int32_t n)
{
    char *text;
    trm_plan_drop_tactics(s->plan);
    assert_ok(trm_plan_add_tactic(s->plan, problem, timed, n));
    save(&s->plan, 1, false, s->path);
    free(s->bytes);
    assert_ok(trm_file_read(s->path, (size_t)1 << 20, &text, &s->size));
    s->bytes = (unsigned char *)text;
}

static void tactics_of_no_library_are_refused(void **state)
{
    (void)state;
    char longest[TRM_TACTIC_NAME_SIZE + 1] = {0};
    memset(longest, 'x', TRM_TACTIC_NAME_SIZE - 1);
    const struct {
        trm_plan_timed timed;
        bool fits;
    } cases[] = {{{"a", 0}, true},   {{longest, INT64_MAX}, true}, {{"", 1}, false},
                 {{"a", -1}, false}, {{"a b", 1}, false},          {{longest, 1}, false}};
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t at = 0; at < TRM_MOST_SHORTLISTED; at++) {
            small_plan s;
            trm_plan *plan;
            trm_plan_timed timed[TRM_MOST_SHORTLISTED] = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}};
            longest[TRM_TACTIC_NAME_SIZE - 1] = i < 5 ? '\0' : 'x';
            timed[at] = cases[i].timed;
            make_small(&s, false);
            save_tactic(&s, "p", timed, TRM_MOST_SHORTLISTED);
            if (cases[i].fits) {
                assert_ok(read_bytes(&s, s.bytes, s.size, true, &plan));
                assert_string_equal(plan->tactics[0].timed[at].name, timed[at].name);
                assert_int_equal(plan->tactics[0].timed[at].nanoseconds, timed[at].nanoseconds);
                trm_plan_destroy(plan);
            } else {
                assert_fails(read_bytes(&s, s.bytes, s.size, true, &plan), TRM_ERROR_INVALID_MODEL, "invalid tactic");
            }
            end_small(&s);
        }
    }
}

/* The end of a problem's text made into others: one more than there may be is refused. */
static void tactics_with_too_many_others_are_refused(void **state)
{
    (void)state;
    static const unsigned char other[] = {4 << 3 | 2, 5, 1 << 3 | 2, 1, 'x', 2 << 3, 1};
    for (size_t n = 1; n <= TRM_MOST_SHORTLISTED; n++) {
        small_plan s;
        trm_plan *plan;
        char problem[64] = "";
        const trm_plan_timed timed = {"a", 1};
        memset(problem, 'p', 2 + n * sizeof(other));
        make_small(&s, false);
        save_tactic(&s, problem, &timed, 1);
        unsigned char *text = memmem(s.bytes, s.size, problem, strlen(problem));
        assert_non_null(text);
        assert_int_equal(text[-1], strlen(problem));
        text[-1] = 2;
        for (size_t i = 0; i < n; i++) {
            memcpy(text + 2 + i * sizeof(other), other, sizeof(other));
        }
        if (n < TRM_MOST_SHORTLISTED) {
            assert_ok(read_bytes(&s, s.bytes, s.size, true, &plan));
            assert_int_equal(plan->tactics[0].n, 1 + n);
            assert_true(strcmp(plan->tactics[0].problem, "pp") == 0 && plan->tactics[0].timed[n].nanoseconds == 1);
            trm_plan_destroy(plan);
        } else {
            assert_fails(read_bytes(&s, s.bytes, s.size, true, &plan), TRM_ERROR_INVALID_MODEL, "invalid tactic");
        }
        end_small(&s);
    }
}

static void tactics_that_are_cut_off_are_refused(void **state)
{
    (void)state;
    small_plan s;
    make_small(&s, false);
    give_tactics(s.plan);
    save(&s.plan, 1, false, s.path);
    free(s.bytes);
    char *text;
    assert_ok(trm_file_read(s.path, (size_t)1 << 20, &text, &s.size));
    s.bytes = (unsigned char *)text;
    for (size_t size = 0; size < s.size; size++) {
        trm_plan *plan;
        assert_fails(read_bytes(&s, s.bytes, size, true, &plan), TRM_ERROR_INVALID_MODEL, "small.plan");
    }
    trm_plan *two[2];
    trm_shape_bound bounds[4];
    trm_network *network = small_network(s.weights);
    build_all(network, bounds, small_bounds(bounds), "tp=2", 2, two);
    give_tactics(two[0]);
    give_tactics(two[1]);
    strcpy(two[1]->device.name, "Another");
    assert_fails(trm_plan_save((const trm_plan *const *)two, 2, false, s.path), TRM_ERROR_INVALID_ARGUMENT,
                 "tuned on Some GPU and on Another");
    destroy_all(two, 2);
    trm_network_destroy(network);
    end_small(&s);
}

static bool count_progress(void *user, int32_t done, int32_t total, double seconds_left)
{
    (void)done, (void)total, (void)seconds_left;
    ++*(int *)user;
    return true;
}

/* The host has nothing to choose; wrong options are refused. */
static void tuning_on_the_host_changes_nothing(void **state)
{
    (void)state;
    small_plan s;
    int calls = 0;
    trm_plan_info info;
    make_small(&s, false);
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    options.progress = count_progress;
    options.progress_user = &calls;
    assert_ok(trm_plan_tune(s.plan, test_world, &options));
    assert_ok(trm_plan_tune(s.plan, test_world, NULL));
    trm_plan_get_info(s.plan, &info);
    assert_true(calls == 0 && info.n_tactics == 0);
    save(&s.plan, 1, false, s.path);
    assert_same_file(s.path, (const char *)s.bytes, s.size);
    options.level = 6;
    assert_fails(trm_plan_tune(s.plan, test_world, &options), TRM_ERROR_INVALID_ARGUMENT, "level 6");
    assert_fails(trm_plan_tune(NULL, test_world, NULL), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_plan_check_device(NULL, test_world), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    trm_plan_drop_tactics(NULL);
    end_small(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tactics_come_back),
        cmocka_unit_test(tactics_of_no_library_are_refused),
        cmocka_unit_test(tactics_with_too_many_others_are_refused),
        cmocka_unit_test(tactics_that_are_cut_off_are_refused),
        cmocka_unit_test(tuning_on_the_host_changes_nothing),
        cmocka_unit_test(random_networks_come_back),
        cmocka_unit_test(models_come_back),
        cmocka_unit_test(bounds_values_and_views_come_back),
        cmocka_unit_test(cut_off_files_are_refused),
        cmocka_unit_test(flipped_bits_are_refused_or_nothing),
        cmocka_unit_test(lies_behind_checksums_are_refused),
        cmocka_unit_test(plans_that_do_not_fit_are_refused),
        cmocka_unit_test(weight_files_that_changed_are_refused),
        cmocka_unit_test(what_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
