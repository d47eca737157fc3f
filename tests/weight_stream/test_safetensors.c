/* Sets of safetensors files: what they hold, and every way in which they can be wrong. */
#include "support/support.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "weight_stream/weight.h"

static char folder[4096];

static const char *new_folder(void)
{
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    return folder;
}

static void write_text(const char *name, const char *text)
{
    char path[4400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    test_write_file(path, text, strlen(text));
}

#define TENSOR(name, dtype, shape, begin, end)                                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

/* Opens a folder with one file of this header and 16 bytes of data. */
static void refuse_header(const char *header, trm_status status, const char *cause)
{
    static const unsigned char data[16];
    new_folder();
    write_safetensors(folder, "model.safetensors", header, data, sizeof(data));
    trm_safetensors *set = NULL;
    assert_fails(trm_safetensors_open(folder, &set), status, cause);
    assert_null(set);
    if (strstr(trm_last_error(), "model.safetensors: ") == NULL) {
        fail_msg("no file in \"%s\"", trm_last_error());
    }
}

static void refuse(const char *header, const char *cause)
{
    refuse_header(header, TRM_ERROR_INVALID_MODEL, cause);
}

static void refuse_folder(trm_status status, const char *cause)
{
    trm_safetensors *set = NULL;
    assert_fails(trm_safetensors_open(folder, &set), status, cause);
    assert_null(set);
}

static void a_single_file(void **state)
{
    (void)state;
    new_folder();
    float data[4] = {1, 2, 3, 4};
    write_safetensors(folder, "model.safetensors",
                      "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("b", "F32", "[3,1]", "4", "16") "," TENSOR(
                          "a", "F32", "[]", "0", "4") "," TENSOR("empty", "F64", "[0,7]", "16", "16") "}  ",
                      data, sizeof(data));
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    assert_int_equal(trm_safetensors_count(set), 3);
    assert_string_equal(trm_safetensors_name(set, 0), "a");
    assert_string_equal(trm_safetensors_name(set, 1), "b");
    assert_true(trm_safetensors_has(set, "empty"));
    assert_false(trm_safetensors_has(set, "__metadata__"));
    assert_false(trm_safetensors_has(set, ""));
    assert_int_equal(trm_safetensors_bytes(set), 16);
    trm_dtype dtype;
    trm_dims dims;
    assert_true(trm_safetensors_describe(set, "b", &dtype, &dims));
    assert_int_equal(dtype, TRM_F32);
    assert_int_equal(dims.n, 2);
    assert_int_equal(dims.d[0], 3);
    assert_false(trm_safetensors_describe(set, "c", &dtype, &dims));
    trm_weight *a = NULL, *b = NULL, *empty = NULL, *again = NULL;
    assert_ok(trm_safetensors_weight(set, "a", &a));
    assert_ok(trm_safetensors_weight(set, "b", &b));
    assert_ok(trm_safetensors_weight(set, "b", &again));
    assert_ok(trm_safetensors_weight(set, "empty", &empty));
    assert_fails(trm_safetensors_weight(set, "c", &a), TRM_ERROR_INVALID_MODEL,
                 "weight c is in none of the model's files");
    trm_safetensors_close(set);
    float values[3];
    assert_ok(trm_weight_read(b, TRM_F32, 0, 3, values));
    assert_memory_equal(values, data + 1, sizeof(values));
    assert_ok(trm_weight_read(a, TRM_F32, 0, 1, values));
    assert_true(values[0] == 1);
    assert_int_equal(trm_weight_dims(a).n, 0);
    assert_true(trm_weight_equal(b, again));
    assert_false(trm_weight_equal(a, b));
    trm_weight *all[] = {a, b, empty, again};
    for (int i = 0; i < 4; i++) {
        trm_weight_destroy(all[i]);
    }
}

static void every_type_of_the_format(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        trm_dtype dtype;
        int elements; /* in 16 bytes */
    } types[] = {
        {"F32", TRM_F32, 4},    {"F16", TRM_F16, 8},         {"BF16", TRM_BF16, 8},      {"F64", TRM_F64, 2},
        {"I8", TRM_I8, 16},     {"U8", TRM_U8, 16},          {"I16", TRM_I16, 8},        {"U16", TRM_U16, 8},
        {"I32", TRM_I32, 4},    {"U32", TRM_U32, 4},         {"I64", TRM_I64, 2},        {"U64", TRM_U64, 2},
        {"BOOL", TRM_BOOL, 16}, {"F8_E4M3", TRM_F8E4M3, 16}, {"F4", TRM_DTYPE_NONE, 32},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char header[200], cause[100];
        static const unsigned char data[16];
        snprintf(header, sizeof(header), "{\"x\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,16]}}",
                 types[i].name, types[i].elements);
        new_folder();
        write_safetensors(folder, "model.safetensors", header, data, 16);
        trm_safetensors *set = NULL;
        trm_weight *weight = NULL;
        assert_ok(trm_safetensors_open(folder, &set));
        trm_dtype dtype;
        trm_dims dims;
        assert_true(trm_safetensors_describe(set, "x", &dtype, &dims));
        assert_int_equal(dtype, types[i].dtype);
        if (dtype == TRM_DTYPE_NONE) { /* only who wants it is refused */
            snprintf(cause, sizeof(cause), "weight x in model.safetensors has type %s, which is not supported",
                     types[i].name);
            assert_fails(trm_safetensors_weight(set, "x", &weight), TRM_ERROR_UNSUPPORTED, cause);
        } else {
            assert_ok(trm_safetensors_weight(set, "x", &weight));
            assert_int_equal(trm_weight_dtype(weight), dtype);
            trm_weight_destroy(weight);
        }
        trm_safetensors_close(set);
    }
}

static void folders_without_weights(void **state)
{
    (void)state;
    new_folder();
    refuse_folder(TRM_ERROR_IO, "has neither model.safetensors nor model.safetensors.index.json");
    snprintf(folder + strlen(folder), 20, "/none");
    refuse_folder(TRM_ERROR_IO, "none: No such file or directory");
    new_folder();
    write_text("file", "");
    snprintf(folder + strlen(folder), 20, "/file");
    refuse_folder(TRM_ERROR_IO, "file: not a folder");
    new_folder();
    char path[4400];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(symlink("gone", path), 0);
    refuse_folder(TRM_ERROR_IO, "model.safetensors: No such file or directory");
}

static void truncated_files(void **state)
{
    (void)state;
    new_folder();
    write_text("model.safetensors", "");
    refuse_folder(TRM_ERROR_INVALID_MODEL, "the file has 0 bytes, a safetensors file has 8 or more");
    write_text("model.safetensors", "1234567");
    refuse_folder(TRM_ERROR_INVALID_MODEL, "the file has 7 bytes");
    char path[4400];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    test_write_file(path, "\x10\0\0\0\0\0\0\0{}", 10);
    refuse_folder(TRM_ERROR_INVALID_MODEL,
                  "the header has 16 bytes, but the file has 2 after its length; is it truncated?");
    test_write_file(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    refuse_folder(TRM_ERROR_INVALID_MODEL,
                  "the header has 18446744073709551615 bytes, more than the limit of 100000000");
    test_write_file(path, "\x01\xe1\xf5\x05\0\0\0\0{}", 10);
    refuse_folder(TRM_ERROR_INVALID_MODEL, "the header has 100000001 bytes, more than the limit of 100000000");
    refuse("{" TENSOR("a", "F32", "[5]", "0", "20") "}",
           "tensor a ends at offset 20, but the file has 16 bytes after its header; is it truncated?");
}

static void headers_that_are_no_headers(void **state)
{
    (void)state;
    refuse("", "line 1 column 1: unexpected end of text, expected a value");
    refuse("[]", "the header is not a JSON object");
    refuse("{\"a\":", "line 1 column 6: unexpected end of text");
    refuse("{\"\xff\":1}", "line 1 column 3: invalid UTF-8");
    refuse("{} x", "found 'x', expected the end of the text");
    refuse("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
           "nested more than 64 levels deep");
    refuse("{" TENSOR("a", "F32", "[2]", "0", "8") "," TENSOR("a", "F32", "[2]", "8", "16") "}", "duplicate key \"a\"");
    refuse("{\"a\":1}", "tensor a is not an object");
    refuse("{\"a\\nb\":1}", "the name of a tensor has control characters");
}

static void wrong_types_and_shapes(void **state)
{
    (void)state;
    refuse("{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", "tensor a has no dtype");
    refuse("{" TENSOR("a", "F31", "[4]", "0", "16") "}", "tensor a has unknown dtype F31");
    refuse("{" TENSOR("a", "f32", "[4]", "0", "16") "}", "tensor a has unknown dtype f32");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", "tensor a has no shape");
    refuse("{" TENSOR("a", "F32", "[-4]", "0", "16") "}", "dimension 0 of tensor a is not a whole number");
    refuse("{" TENSOR("a", "F32", "[1,2.5]", "0", "16") "}", "dimension 1 of tensor a is not a whole number");
    refuse("{" TENSOR("a", "F32", "[null]", "0", "16") "}", "dimension 0 of tensor a is not a whole number");
    refuse("{" TENSOR("a", "F32", "[18446744073709551616]", "0", "16") "}", "dimension 0 of tensor a");
    refuse("{" TENSOR("a", "F32", "[4294967296,4294967296]", "0", "16") "}", "the shape of tensor a overflows");
    refuse("{" TENSOR("a", "F32", "[4611686018427387904]", "0", "16") "}", "dimension 0 of tensor a");
    refuse("{" TENSOR("a", "F64", "[1152921504606846976,4]", "0", "16") "}", "dimension 0 of tensor a");
    refuse("{" TENSOR("a", "F64", "[9007199254740991,2048]", "0", "16") "}", "the shape of tensor a overflows");
    refuse("{" TENSOR("a", "F32", "[3]", "0", "16") "}", "tensor a has 16 bytes, its shape and dtype F32 need 12");
    refuse("{" TENSOR("a", "F4", "[3]", "0", "2") "}", "tensor a of F4 ends inside a byte");
    refuse_header("{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,4]", "0", "16") "}", TRM_ERROR_UNSUPPORTED,
                  "tensor a has 9 dimensions, at most 8 are supported");
}

static void wrong_offsets(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", "tensor a has no data_offsets of two whole numbers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "no data_offsets of two whole numbers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,32]}}",
           "no data_offsets of two whole numbers");
    refuse("{" TENSOR("a", "F32", "[4]", "-1", "15") "}", "no data_offsets of two whole numbers");
    refuse("{" TENSOR("a", "F32", "[4]", "0.5", "16") "}", "no data_offsets of two whole numbers");
    refuse("{" TENSOR("a", "F32", "[4]", "0", "1e300") "}", "no data_offsets of two whole numbers");
    refuse("{" TENSOR("a", "F32", "[4]", "16", "0") "}", "tensor a ends at offset 0, before its begin at 16");
    refuse("{" TENSOR("a", "F32", "[4]", "9007199254740975", "9007199254740991") "}",
           "tensor a ends at offset 9007199254740991, but the file has 16 bytes");
    refuse("{" TENSOR("a", "F32", "[3]", "0", "12") "," TENSOR("b", "F32", "[2]", "8", "16") "}",
           "tensors a and b overlap at offset 8");
    refuse("{" TENSOR("a", "F32", "[4]", "0", "16") "," TENSOR("b", "F32", "[1]", "4", "8") "}",
           "tensors a and b overlap at offset 4");
    refuse("{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[2]", "8", "16") "}",
           "4 bytes before tensor b belong to no tensor");
    refuse("{" TENSOR("b", "F32", "[2]", "8", "16") "}", "8 bytes before tensor b belong to no tensor");
    refuse("{" TENSOR("a", "F32", "[3]", "0", "12") "}", "4 bytes at the end belong to no tensor");
    refuse("{}", "16 bytes at the end belong to no tensor");
}

/* ---- shards ---------------------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"

static void write_shards(void)
{
    static const float one[2] = {1, 2}, two[2] = {3, 4};
    new_folder();
    write_safetensors(folder, "one.safetensors", "{" TENSOR("a", "F32", "[2]", "0", "8") "}", one, 8);
    write_safetensors(folder, "two.safetensors",
                      "{" TENSOR("b", "F32", "[1]", "0", "4") "," TENSOR("c", "F32", "[1]", "4", "8") "}", two, 8);
}

static void refuse_index(const char *index, trm_status status, const char *cause)
{
    write_shards();
    write_text(INDEX, index);
    refuse_folder(status, cause);
}

static void a_set_of_shards(void **state)
{
    (void)state;
    write_shards();
    write_text(INDEX, "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"b\":\"two.safetensors\","
                      "\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}");
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    assert_int_equal(trm_safetensors_count(set), 3);
    assert_int_equal(trm_safetensors_bytes(set), 16);
    trm_weight *c = NULL;
    assert_ok(trm_safetensors_weight(set, "c", &c));
    float value = 0;
    assert_ok(trm_weight_read(c, TRM_F32, 0, 1, &value));
    assert_true(value == 4);
    char text[64];
    trm_weight_describe(c, text, sizeof(text));
    assert_string_equal(text, "two.safetensors:c");
    trm_weight_destroy(c);
    trm_safetensors_close(set);
}

static void the_shipped_model_opens(void **state)
{
    (void)state;
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &set));
    assert_true(trm_safetensors_has(set, "model.embed_tokens.weight"));
    size_t bytes = 0;
    for (int32_t i = 0; i < trm_safetensors_count(set); i++) {
        trm_weight *weight = NULL;
        assert_ok(trm_safetensors_weight(set, trm_safetensors_name(set, i), &weight));
        assert_non_null(trm_weight_mapped(weight));
        size_t count = 1;
        for (int32_t k = 0; k < trm_weight_dims(weight).n; k++) {
            count *= (size_t)trm_weight_dims(weight).d[k];
        }
        bytes += count * trm_dtype_size(trm_weight_dtype(weight));
        trm_weight_destroy(weight);
    }
    assert_int_equal(bytes, trm_safetensors_bytes(set));
    trm_safetensors_close(set);
}

/* The cache of the hub: snapshots/<commit>/<file> are links to blobs/<hash>. */
static void files_behind_links(void **state)
{
    (void)state;
    write_shards();
    write_text(INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    char blobs[4096], from[4400], to[4400];
    snprintf(blobs, sizeof(blobs), "%s", folder);
    new_folder();
    static const char *const names[] = {"one.safetensors", "two.safetensors", INDEX};
    for (int i = 0; i < 3; i++) {
        snprintf(from, sizeof(from), "../%s/%s", strrchr(blobs, '/') + 1, names[i]);
        snprintf(to, sizeof(to), "%s/%s", folder, names[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    assert_true(trm_safetensors_has(set, "c")); /* in a shard, though the index does not list it */
    trm_safetensors_close(set);
}

static void wrong_indices(void **state)
{
    (void)state;
    const trm_status invalid = TRM_ERROR_INVALID_MODEL;
    refuse_index("{", invalid, "index.json: line 1 column 2: unexpected end of text");
    refuse_index("{}", invalid, "index.json: no weight_map of tensor names to files");
    refuse_index("{\"weight_map\":[]}", invalid, "no weight_map");
    refuse_index("{\"weight_map\":{}}", invalid, "no weight_map");
    refuse_index("{\"weight_map\":{\"a\":1}}", invalid, "tensor a is in a file without a plain name");
    refuse_index("{\"weight_map\":{\"a\":\"\"}}", invalid, "tensor a is in \"\", expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", invalid,
                 "tensor a is in \"/etc/passwd\", expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"../one.safetensors\"}}", invalid, "expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"x/../../one.safetensors\"}}", invalid, "expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"..\"}}", invalid, "expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"x/..\"}}", invalid, "expected a file of the folder");
    refuse_index("{\"weight_map\":{\"a\":\"a\\nb\"}}", invalid, "tensor a is in a file without a plain name");
    refuse_index("{\"weight_map\":{\"a\\nb\":\"one.safetensors\"}}", invalid, "control characters");
    refuse_index("{\"weight_map\":{\"a\":\"three.safetensors\"}}", TRM_ERROR_IO,
                 "index.json names a file for tensor a: cannot open");
    refuse_index("{\"weight_map\":{\"a\":\"three.safetensors\"}}", TRM_ERROR_IO,
                 "three.safetensors: No such file or directory");
    refuse_index("{\"weight_map\":{\"d\":\"one.safetensors\"}}", invalid,
                 "index.json: tensor d is not in one.safetensors");
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\",\"c\":\"two.safetensors\"}}",
                 invalid, "index.json: tensor b is in two.safetensors, not in one.safetensors");
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", invalid,
                 "duplicate key \"a\"");
    write_shards();
    write_safetensors(folder, "two.safetensors", "{" TENSOR("a", "F32", "[2]", "0", "8") "}", "12345678", 8);
    write_text(INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    refuse_folder(invalid, "tensor a is in two files, one.safetensors and two.safetensors");
}

static void names_with_two_dots_inside_are_fine(void **state)
{
    (void)state;
    new_folder();
    char path[4300];
    snprintf(path, sizeof(path), "%s/sub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_safetensors(folder, "sub/..a..safetensors", "{" TENSOR("a", "U8", "[1]", "0", "1") "}", "x", 1);
    write_text(INDEX, "{\"weight_map\":{\"a\":\"sub/..a..safetensors\"}}");
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    trm_safetensors_close(set);
    trm_safetensors_close(NULL);
}

/* 20 thousand tensors in one header: nothing may be quadratic. */
static void large_headers(void **state)
{
    (void)state;
    const int tensors = 20000;
    char *header = malloc((size_t)tensors * 128);
    unsigned char *data = calloc((size_t)tensors, 2);
    assert_true(header != NULL && data != NULL);
    size_t used = 0;
    for (int i = 0; i < tensors; i++) {
        used += (size_t)sprintf(
            header + used, "%s\"model.layers.%d.weight\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i == 0 ? "{" : ",", i, 2 * i, 2 * i + 2);
    }
    memcpy(header + used, "}", 2);
    new_folder();
    write_safetensors(folder, "model.safetensors", header, data, (size_t)tensors * 2);
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    assert_int_equal(trm_safetensors_count(set), tensors);
    for (int i = 0; i < tensors; i++) {
        char name[64];
        snprintf(name, sizeof(name), "model.layers.%d.weight", i);
        assert_string_equal(trm_safetensors_name(set, i), name);
        assert_true(trm_safetensors_has(set, name));
    }
    trm_safetensors_close(set);
    free(header);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_file),
        cmocka_unit_test(every_type_of_the_format),
        cmocka_unit_test(folders_without_weights),
        cmocka_unit_test(truncated_files),
        cmocka_unit_test(headers_that_are_no_headers),
        cmocka_unit_test(wrong_types_and_shapes),
        cmocka_unit_test(wrong_offsets),
        cmocka_unit_test(a_set_of_shards),
        cmocka_unit_test(the_shipped_model_opens),
        cmocka_unit_test(files_behind_links),
        cmocka_unit_test(wrong_indices),
        cmocka_unit_test(names_with_two_dots_inside_are_fine),
        cmocka_unit_test(large_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
