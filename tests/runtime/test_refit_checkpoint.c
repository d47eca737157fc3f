/* Plans of one checkpoint and other checkpoints: what an import has left out because of its elements, zero points that
 * are all the middle, the order of columns, an output projection that equals the embedding, must be the same in what a
 * plan is given. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "graph/network.h"
#include "support/hf_golden.h"
#include "weight_stream/files.h"
#include "weight_stream/weight_form.h"

#define GOLDEN "quant-gptq-phi3"

static void copy_file(const char *from, const char *to, const char *name)
{
    char path[4400];
    static unsigned char bytes[1 << 20];
    snprintf(path, sizeof(path), "%s/%s", from, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, sizeof(bytes), stream);
    assert_true(size > 0 && size < sizeof(bytes));
    assert_int_equal(fclose(stream), 0);
    snprintf(path, sizeof(path), "%s/%s", to, name);
    test_write_file(path, bytes, size);
}

/* Writes a word over elements of the weights whose names end like this: from element `first` on, of all or of the last
 * one alone. Returns how many weights there are. */
static int32_t write_words(const char *folder, const char *suffix, uint32_t word, size_t first, bool last_alone)
{
    char path[4400];
    trm_safetensors *set;
    int32_t n = 0, seen = 0;
    assert_ok(trm_safetensors_open(folder, &set));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < trm_safetensors_count(set); i++) {
            const char *name = trm_safetensors_name(set, i), *end = strstr(name, suffix);
            trm_weight *weight;
            trm_weight_form form;
            if (end == NULL || strlen(end) != strlen(suffix)) {
                continue;
            }
            n += pass == 0;
            seen += pass;
            if (pass == 0 || (last_alone && seen < n)) {
                continue;
            }
            assert_ok(trm_safetensors_weight(set, name, &weight));
            trm_weight_get_form(weight, &form);
            assert_int_equal(fseek(stream, (long)(form.begin + 4 * first), SEEK_SET), 0);
            for (size_t k = first; k < trm_dims_bytes(&form.dims, TRM_U8); k++) {
                assert_int_equal(fwrite(&word, sizeof(word), 1, stream), 1);
            }
            trm_weight_destroy(weight);
        }
    }
    assert_int_equal(fclose(stream), 0);
    trm_safetensors_close(set);
    return n;
}

/* The golden with zero points of 8, as symmetric checkpoints have them. */
static void make_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_temporary_folder());
    char from[4096];
    snprintf(from, sizeof(from), "%s", test_golden_folder(GOLDEN));
    copy_file(from, folder, "config.json");
    copy_file(from, folder, "model.safetensors");
    assert_true(write_words(folder, ".qzeros", 0x77777777, 0, false) > 0);
}

/* Plans of `ranks` ranks in one file. */
static void save(const char *folder, int32_t ranks, trm_plan_weights weights, const char *path)
{
    trm_model *model;
    trm_network *network;
    trm_plan *plans[2];
    trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    assert_ok(trm_model_open(folder, &model));
    assert_ok(trm_model_build_network(model, TRM_F32, &network));
    assert_true(network->n_deciding > 0);
    assert_ok(trm_mesh_parse("", ranks, &options.mesh));
    options.bounds = bounds;
    options.n_bounds = test_golden_bounds(network, bounds);
    for (options.rank = 0; options.rank < ranks; options.rank++) {
        assert_ok(trm_build(network, &options, &plans[options.rank]));
    }
    assert_ok(trm_plan_save((const trm_plan *const *)plans, ranks, weights, path));
    for (int32_t i = 0; i < ranks; i++) {
        trm_plan_destroy(plans[i]);
    }
    trm_network_destroy(network);
    trm_model_close(model);
}

static void other_zero_points_are_refused(void **state)
{
    (void)state;
    char one[4096], same[4096], zeros[4096], order[4096], path[4200], again[4200];
    trm_plan *plan;
    make_folder(one);
    make_folder(same);
    make_folder(zeros);
    make_folder(order);
    write_words(zeros, ".qzeros", 0x77777776, 1, true); /* one layer except its first word */
    assert_true(write_words(order, ".g_idx", 7, 3, true) > 0);
    snprintf(path, sizeof(path), "%s/model.plan", one);
    snprintf(again, sizeof(again), "%s/again.plan", one);
    static const trm_plan_weights kept[] = {TRM_PLAN_WEIGHTS_REFERENCED, TRM_PLAN_WEIGHTS_STRIPPED};
    for (int32_t i = 0; i < 4; i++) {
        const int32_t ranks = 1 + i / 2;
        save(one, ranks, kept[i % 2], path);
        for (int32_t rank = 0; rank < ranks; rank++) {
            assert_fails(trm_plan_refit(path, rank, zeros, &plan), TRM_ERROR_INVALID_ARGUMENT,
                         "model.safetensors is not the one that plan");
            assert_fails(trm_plan_refit(path, rank, order, &plan), TRM_ERROR_INVALID_ARGUMENT, "g_idx of");
            assert_ok(trm_plan_refit(path, rank, same, &plan));
            trm_plan_destroy(plan);
        }
    }
    save(one, 1, TRM_PLAN_WEIGHTS_STRIPPED, path);
    assert_ok(trm_plan_refit(path, 0, same, &plan)); /* and what came out is as careful */
    assert_ok(trm_plan_save((const trm_plan *const *)&plan, 1, TRM_PLAN_WEIGHTS_REFERENCED, again));
    trm_plan_destroy(plan);
    assert_fails(trm_plan_refit(again, 0, zeros, &plan), TRM_ERROR_INVALID_ARGUMENT, "decided the network");
    assert_ok(trm_plan_load(again, 0, &plan));
    trm_plan_destroy(plan);
    write_words(same, ".qzeros", 0x77777776, 1, true);
    assert_fails(trm_plan_load(again, 0, &plan), TRM_ERROR_INVALID_MODEL, "has changed since");
}

static void embedded_weights_are_their_own(void **state)
{
    (void)state;
    char one[4096], zeros[4096], path[4200];
    trm_plan *plan;
    make_folder(one);
    make_folder(zeros);
    write_words(zeros, ".qzeros", 0x77777776, 0, false);
    snprintf(path, sizeof(path), "%s/model.plan", one);
    save(one, 1, TRM_PLAN_WEIGHTS_EMBEDDED, path);
    assert_fails(trm_plan_refit(path, 0, zeros, &plan), TRM_ERROR_INVALID_ARGUMENT, "has none of the weights");
    assert_ok(trm_plan_load(path, 0, &plan));
    trm_plan_destroy(plan);
}

/* Columns that are in order need not say so. */
static void order_may_be_left_out(void **state)
{
    (void)state;
    char one[4096], other[4096], path[4200], file[4200];
    static unsigned char bytes[1 << 20];
    trm_plan *plan;
    make_folder(one);
    make_folder(other);
    snprintf(path, sizeof(path), "%s/model.plan", one);
    snprintf(file, sizeof(file), "%s/model.safetensors", other);
    save(one, 1, TRM_PLAN_WEIGHTS_STRIPPED, path);
    FILE *stream = fopen(file, "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, sizeof(bytes), stream);
    assert_int_equal(fclose(stream), 0);
    int32_t renamed = 0;
    for (size_t i = 0; i + 5 < size && i < 100000; i++) { /* in the header, to a name that nobody asks for */
        if (memcmp(bytes + i, "g_idx", 5) == 0) {
            memcpy(bytes + i, "x_idx", 5);
            renamed++;
        }
    }
    assert_true(renamed > 0);
    test_write_file(file, bytes, size);
    assert_ok(trm_plan_refit(path, 0, other, &plan));
    trm_plan_destroy(plan);
    assert_fails(trm_plan_load(path, 0, &plan), TRM_ERROR_INVALID_MODEL, "was saved without its");
}

/* The golden whose output projection is stored though it is tied, with the embedding's elements in it. */
static void make_tied_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_temporary_folder());
    char from[4096], path[4400];
    snprintf(from, sizeof(from), "%s", test_golden_folder("llama-tied-head"));
    copy_file(from, folder, "config.json");
    copy_file(from, folder, "model.safetensors");
    static const char *const names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    static float elements[96 * 32];
    trm_safetensors *set;
    trm_weight *weight;
    trm_weight_form form = {0};
    assert_ok(trm_safetensors_open(folder, &set));
    for (int i = 0; i < 2; i++) {
        assert_ok(trm_safetensors_weight(set, names[i], &weight));
        trm_weight_get_form(weight, &form);
        assert_int_equal(trm_dims_count(&form.dims), 96 * 32);
        if (i == 0) {
            assert_ok(trm_weight_read(weight, TRM_F32, 0, 96 * 32, elements));
        }
        trm_weight_destroy(weight);
    }
    trm_safetensors_close(set);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, (long)form.begin, SEEK_SET), 0);
    assert_int_equal(fwrite(elements, sizeof(float), 96 * 32, stream), 96 * 32);
    assert_int_equal(fclose(stream), 0);
}

static void other_tied_heads_are_refused(void **state)
{
    (void)state;
    char one[4096], other[4096], path[4200];
    trm_plan *plan;
    make_tied_folder(one);
    make_tied_folder(other);
    snprintf(path, sizeof(path), "%s/model.plan", one);
    save(one, 1, TRM_PLAN_WEIGHTS_STRIPPED, path);
    assert_ok(trm_plan_refit(path, 0, other, &plan));
    trm_plan_destroy(plan);
    write_words(other, "lm_head.weight", 0x3f800000, 95 * 32 + 31, true); /* its last element */
    assert_fails(trm_plan_refit(path, 0, other, &plan), TRM_ERROR_INVALID_ARGUMENT, "lm_head.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_tied_heads_are_refused),
        cmocka_unit_test(other_zero_points_are_refused),
        cmocka_unit_test(embedded_weights_are_their_own),
        cmocka_unit_test(order_may_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
