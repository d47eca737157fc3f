/* Every allocation fails once: each call reports it, leaks nothing and leaves what it was given as it was. */
#include "support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "files.h"
#include "weight_stream/weight.h"

static long allocations_left = -1; /* until one fails; negative: none does */

static bool fails_now(void)
{
    if (allocations_left < 0) {
        return false;
    }
    return allocations_left-- == 0;
}

/* The linker sends the library's calls here (CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails_now() ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = fails_now() ? NULL : __real_malloc(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

typedef trm_status (*scenario)(void *argument);

/* Runs a scenario with the first, second, ... allocation failing, until none is left to fail. */
static void exhaust(scenario run, void *argument)
{
    for (long n = 0;; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        trm_status status = run(argument);
        bool failed = allocations_left < 0;
        allocations_left = -1;
        if (!failed) {
            assert_ok(status);
            assert_true(n > 0);
            return;
        }
        assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
        if (strstr(trm_last_error(), "cannot allocate") == NULL) {
            fail_msg("allocation %ld: \"%s\"", n, trm_last_error());
        }
    }
}

static trm_status open_set(void *folder)
{
    trm_safetensors *set = NULL;
    trm_weight *weight = NULL;
    TRM_TRY(trm_safetensors_open(folder, &set));
    trm_status status = trm_safetensors_weight(set, "a", &weight);
    trm_weight_destroy(weight);
    trm_safetensors_close(set);
    return status;
}

static void opening_a_set(void **state)
{
    (void)state;
    const char *folder = test_temporary_folder();
    write_safetensors(folder, "x", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "1234", 4);
    char path[4400];
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", folder);
    test_write_file(path, "{\"weight_map\":{\"a\":\"x\"}}", 24);
    exhaust(open_set, (void *)(uintptr_t)folder);
}

static trm_status parse_many_keys(void *text)
{
    trm_json_document *document = NULL;
    trm_status status = trm_json_parse("text", text, strlen(text), &document);
    trm_json_close(document);
    return status;
}

static void parsing_json(void **state)
{
    (void)state;
    exhaust(parse_many_keys, "{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,\"i\":{\"x\":[1,2]}}");
}

/* Each step is a view of the one before; the last one is read. */
static trm_status make_views(void *argument)
{
    const trm_weight *source = argument;
    trm_weight *made[10] = {NULL};
    trm_status status;
    float values[4];
    TRM_TRY_GOTO(status, trm_weight_reshape(source, &(trm_dims){3, {2, 3, 4}}, &made[0]), out);
    TRM_TRY_GOTO(status, trm_weight_transpose(made[0], (int32_t[]){1, 0, 2}, &made[1]), out);
    TRM_TRY_GOTO(status, trm_weight_reshape(made[1], &(trm_dims){2, {8, 3}}, &made[2]), out); /* nested */
    TRM_TRY_GOTO(status, trm_weight_pad(made[2], 1, 5, &made[3]), out);
    TRM_TRY_GOTO(status, trm_weight_concat((const trm_weight *[]){made[3], made[3]}, 2, 0, &made[4]), out);
    TRM_TRY_GOTO(status, trm_weight_transpose(made[4], (int32_t[]){1, 0}, &made[5]), out);
    TRM_TRY_GOTO(status, trm_weight_slice(made[5], 1, 4, 8, &made[6]), out);
    TRM_TRY_GOTO(status, trm_weight_reshape(made[6], &(trm_dims){3, {5, 4, 2}}, &made[7]), out);
    TRM_TRY_GOTO(status, trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, made[7], made[7], &made[8]), out);
    TRM_TRY_GOTO(status, trm_weight_transpose(made[8], (int32_t[]){2, 0, 1}, &made[9]), out);
    status = trm_weight_read(made[9], TRM_F32, 7, 4, values);
out:
    for (int i = 0; i < 10; i++) {
        trm_weight_destroy(made[i]);
    }
    return status;
}

static void making_views(void **state)
{
    (void)state;
    trm_weight *source = NULL;
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){1, {24}}, 1, 0, 1, &source));
    exhaust(make_views, source);
    trm_weight_destroy(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_set),
        cmocka_unit_test(parsing_json),
        cmocka_unit_test(making_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
