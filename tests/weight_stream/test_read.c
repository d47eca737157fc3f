/* Reading: conversions of every type, large transposes, joins by columns, many threads. */
#include "support/support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "files.h"
#include "kernels/sampling/random.h"
#include "weight_stream/convert.h"
#include "weight_stream/weight_internal.h"

static bool same_number(float a, float b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void sixteen_bit_types_convert_like_the_plain_functions(void **state)
{
    (void)state;
    uint16_t *halves = malloc(0x10000 * sizeof(uint16_t)), *to = malloc(0x10000 * sizeof(uint16_t));
    float *floats = malloc(0x10000 * sizeof(float));
    double *doubles = malloc(0x10000 * sizeof(double));
    assert_true(halves != NULL && to != NULL && floats != NULL && doubles != NULL);
    for (uint32_t i = 0; i < 0x10000; i++) {
        halves[i] = (uint16_t)i;
    }
    trm_convert(TRM_F16, halves, TRM_F32, floats, 0x10000);
    trm_convert(TRM_F16, halves, TRM_F64, doubles, 0x10000);
    trm_convert(TRM_F16, halves, TRM_BF16, to, 0x10000);
    for (uint32_t i = 0; i < 0x10000; i++) {
        float value = trm_f16_to_f32((uint16_t)i);
        assert_true(same_number(floats[i], value));
        assert_true(same_number((float)doubles[i], value));
        assert_true(same_number(trm_bf16_to_f32(to[i]), trm_bf16_to_f32(trm_f32_to_bf16(value))));
    }
    trm_convert(TRM_F32, floats, TRM_F16, to, 0x10000);
    for (uint32_t i = 0; i < 0x10000; i++) {
        assert_true(to[i] == i || isnan(floats[i]));
    }
    trm_convert(TRM_BF16, halves, TRM_F32, floats, 0x10000);
    trm_convert(TRM_BF16, halves, TRM_F64, doubles, 0x10000);
    trm_convert(TRM_BF16, halves, TRM_F16, to, 0x10000);
    for (uint32_t i = 0; i < 0x10000; i++) {
        float value = trm_bf16_to_f32((uint16_t)i);
        assert_true(same_number(floats[i], value));
        assert_true(same_number((float)doubles[i], value));
        assert_int_equal(to[i], trm_f32_to_f16(value));
    }
    free(halves);
    free(to);
    free(floats);
    free(doubles);
}

static void floats_round_like_the_plain_functions(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    uint64_t random = test_seed();
    uint32_t *bits = malloc(COUNT * sizeof(uint32_t));
    uint16_t *f16 = malloc(COUNT * sizeof(uint16_t)), *bf16 = malloc(COUNT * sizeof(uint16_t));
    assert_true(bits != NULL && f16 != NULL && bf16 != NULL);
    for (int i = 0; i < COUNT; i++) {
        uint64_t number = test_random(&random);
        bits[i] = (uint32_t)number;
        if (i % 2 == 0) { /* more in the range of f16, with ties */
            uint32_t exponent = 95 + (uint32_t)(number >> 40) % 52;
            bits[i] = ((uint32_t)number & 0x807ff000u) | exponent << 23;
        }
    }
    trm_convert(TRM_F32, bits, TRM_F16, f16, COUNT);
    trm_convert(TRM_F32, bits, TRM_BF16, bf16, COUNT);
    for (int i = 0; i < COUNT; i++) {
        float value;
        memcpy(&value, &bits[i], sizeof(value));
        assert_int_equal(f16[i], trm_f32_to_f16(value));
        assert_int_equal(bf16[i], trm_f32_to_bf16(value));
    }
    free(bits);
    free(f16);
    free(bf16);
}

/* A double just above a tie of the 16-bit type, but nearer to it than f32 can tell, rounds up, not to even. */
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7bff; i++) {
        double low = (double)trm_f16_to_f32((uint16_t)i), high = (double)trm_f16_to_f32((uint16_t)(i + 1));
        double middle = (low + high) / 2;
        double values[6] = {nextafter(middle, low), middle, nextafter(middle, high)};
        uint16_t rounded[6];
        for (int k = 0; k < 3; k++) {
            values[3 + k] = -values[k];
        }
        trm_convert(TRM_F64, values, TRM_F16, rounded, 6);
        for (int k = 0; k < 6; k++) {
            uint32_t expected = k % 3 == 0 ? i : k % 3 == 1 ? i + (i & 1) : i + 1;
            assert_int_equal(rounded[k], expected | (k >= 3 ? 0x8000u : 0));
        }
    }
    for (uint32_t i = 0; i < 0x7f7f; i++) {
        double low = (double)trm_bf16_to_f32((uint16_t)i), high = (double)trm_bf16_to_f32((uint16_t)(i + 1));
        double middle = (low + high) / 2;
        double values[3] = {nextafter(middle, low), middle, nextafter(middle, high)};
        uint16_t rounded[3];
        trm_convert(TRM_F64, values, TRM_BF16, rounded, 3);
        assert_int_equal(rounded[0], i);
        assert_int_equal(rounded[1], i + (i & 1));
        assert_int_equal(rounded[2], i + 1);
    }
    double special[4] = {1e300, -1e300, INFINITY, NAN};
    uint16_t rounded[4];
    trm_convert(TRM_F64, special, TRM_BF16, rounded, 4);
    assert_int_equal(rounded[0], 0x7f80);
    assert_int_equal(rounded[1], 0xff80);
    assert_int_equal(rounded[2], 0x7f80);
    assert_true(isnan(trm_bf16_to_f32(rounded[3])));
    float single[4];
    trm_convert(TRM_F64, special, TRM_F32, single, 4);
    assert_true(isinf(single[0]) && isinf(single[2]) && isnan(single[3]));
    double back[4];
    trm_convert(TRM_F32, single, TRM_F64, back, 4);
    assert_true(isinf(back[1]) && back[1] < 0);
}

static void which_types_convert(void **state)
{
    (void)state;
    for (int from = 0; from < TRM_DTYPE_COUNT + 1; from++) {
        for (int to = 0; to < TRM_DTYPE_COUNT + 1; to++) {
            bool floats = from >= TRM_F32 && from <= TRM_F64 && to >= TRM_F32 && to <= TRM_F64;
            bool expected =
                floats || (from == to && from > 0 && from < TRM_DTYPE_COUNT) || (from == TRM_F8E4M3 && to == TRM_F32);
            assert_int_equal(trm_convertible((trm_dtype)from, (trm_dtype)to), expected);
        }
    }
    for (int i = 0; i < 256; i++) {
        const uint8_t value = (uint8_t)i;
        float number, expected = trm_f8e4m3_to_f32(value);
        trm_convert(TRM_F8E4M3, &value, TRM_F32, &number, 1);
        assert_memory_equal(&number, &expected, sizeof(number));
    }
}

/* ---- files ----------------------------------------------------------------------------------------- */

enum { ROWS = 70, COLUMNS = 131 };

/* One matrix [ROWS, COLUMNS] of each size of element; element i of type u8, u16, u32, u64 is i mod its range. */
static trm_safetensors *open_matrices(void)
{
    static unsigned char data[ROWS * COLUMNS * 15];
    const size_t n = ROWS * COLUMNS;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)i;
        uint16_t two = (uint16_t)i;
        uint32_t four = (uint32_t)i;
        uint64_t eight = i;
        memcpy(data + i, &byte, 1);
        memcpy(data + n + 2 * i, &two, 2);
        memcpy(data + 3 * n + 4 * i, &four, 4);
        memcpy(data + 7 * n + 8 * i, &eight, 8);
    }
    const char *folder = test_temporary_folder();
    char header[600];
    snprintf(header, sizeof(header),
             "{\"1\":{\"dtype\":\"U8\",\"shape\":[70,131],\"data_offsets\":[0,%zu]},"
             "\"2\":{\"dtype\":\"U16\",\"shape\":[70,131],\"data_offsets\":[%zu,%zu]},"
             "\"4\":{\"dtype\":\"U32\",\"shape\":[70,131],\"data_offsets\":[%zu,%zu]},"
             "\"8\":{\"dtype\":\"I64\",\"shape\":[70,131],\"data_offsets\":[%zu,%zu]}}",
             n, n, 3 * n, 3 * n, 7 * n, 7 * n, 15 * n);
    for (size_t length = strlen(header); length % 8 != 0; length++) {
        memcpy(header + length, " ", 2); /* as writers do, to align the data */
    }
    write_safetensors(folder, "model.safetensors", header, data, 15 * n);
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    return set;
}

static uint64_t element(const unsigned char *values, size_t size, size_t index)
{
    uint64_t value = 0;
    memcpy(&value, values + index * size, size); /* little endian, as the format */
    return value;
}

static void transposed_matrices(void **state)
{
    (void)state;
    trm_safetensors *set = open_matrices();
    uint64_t random = test_seed();
    for (size_t size = 1; size <= 8; size *= 2) {
        char name[2] = {(char)('0' + size), 0};
        trm_weight *stored = NULL, *turned = NULL;
        assert_ok(trm_safetensors_weight(set, name, &stored));
        assert_ok(trm_weight_transpose(stored, (int32_t[]){1, 0}, &turned));
        unsigned char *values = malloc(ROWS * COLUMNS * 8);
        assert_non_null(values);
        for (int range = 0; range < 200; range++) {
            size_t first = range == 0 ? 0 : (size_t)test_random_below(&random, ROWS * COLUMNS);
            size_t count =
                range == 0 ? ROWS * COLUMNS : 1 + (size_t)test_random_below(&random, ROWS * COLUMNS - (int64_t)first);
            assert_ok(trm_weight_read(turned, trm_weight_dtype(turned), first, count, values));
            for (size_t i = 0; i < count; i++) {
                size_t row = (first + i) / ROWS, column = (first + i) % ROWS;
                uint64_t mask = size == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * size)) - 1;
                assert_true(element(values, size, i) == ((column * COLUMNS + row) & mask));
            }
        }
        free(values);
        trm_weight_destroy(stored);
        trm_weight_destroy(turned);
    }
    trm_safetensors_close(set);
}

/* Columns of a matrix on two ranks, joined along the columns again, in the other order. */
static void column_slices_join(void **state)
{
    (void)state;
    trm_safetensors *set = open_matrices();
    trm_weight *stored = NULL, *left = NULL, *right = NULL, *swapped = NULL;
    assert_ok(trm_safetensors_weight(set, "4", &stored));
    assert_ok(trm_weight_slice(stored, 1, 0, 65, &left));
    assert_ok(trm_weight_slice(stored, 1, 65, 66, &right));
    assert_ok(trm_weight_concat((const trm_weight *[]){right, left}, 2, 1, &swapped));
    uint32_t values[ROWS * COLUMNS];
    assert_ok(trm_weight_read(swapped, TRM_U32, 0, ROWS * COLUMNS, values));
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        uint32_t row = i / COLUMNS, column = (i % COLUMNS + 65) % COLUMNS;
        assert_int_equal(values[i], row * COLUMNS + column);
    }
    assert_ok(trm_weight_read(swapped, TRM_U32, 131 + 66, 1, values));
    assert_int_equal(values[0], 131);
    trm_weight *all[] = {stored, left, right, swapped};
    for (int i = 0; i < 4; i++) {
        trm_weight_destroy(all[i]);
    }
    trm_safetensors_close(set);
}

static void mapped_addresses(void **state)
{
    (void)state;
    trm_safetensors *set = open_matrices();
    trm_weight *two = NULL, *four = NULL, *rows = NULL, *columns = NULL, *shaped = NULL;
    assert_ok(trm_safetensors_weight(set, "2", &two));
    assert_ok(trm_safetensors_weight(set, "4", &four));
    assert_ok(trm_weight_slice(two, 0, 3, 2, &rows));
    assert_ok(trm_weight_slice(two, 1, 3, 2, &columns));
    assert_ok(trm_weight_reshape(rows, &(trm_dims){3, {131, 1, 2}}, &shaped));
    const uint16_t *mapped = trm_weight_mapped(two);
    assert_non_null(mapped);
    assert_int_equal(mapped[5], 5);
    assert_ptr_equal(trm_weight_mapped(rows), mapped + 3 * 131);
    assert_ptr_equal(trm_weight_mapped(shaped), mapped + 3 * 131);
    assert_null(trm_weight_mapped(columns));
    assert_null(trm_weight_mapped(four)); /* at an address that is no multiple of 4 */
    trm_weight *all[] = {two, four, rows, columns, shaped};
    for (int i = 0; i < 5; i++) {
        trm_weight_destroy(all[i]);
    }
    trm_safetensors_close(set);
}

/* ---- threads --------------------------------------------------------------------------------------- */

static void *read_and_view(void *argument)
{
    trm_weight *shared = argument;
    static _Thread_local uint64_t values[ROWS * COLUMNS];
    for (int round = 0; round < 50; round++) {
        trm_weight *mine = NULL, *part = NULL;
        size_t count = ROWS * COLUMNS;
        if (trm_weight_read(shared, TRM_I64, 0, count, values) != TRM_OK || trm_weight_clone(shared, &mine) != TRM_OK ||
            trm_weight_slice(mine, 0, 3, 1, &part) != TRM_OK || !trm_weight_equal(mine, shared)) {
            return "failed";
        }
        trm_weight_destroy(mine);
        for (size_t i = 0; i < count; i++) {
            if (values[i] != i % ROWS * COLUMNS + i / ROWS) {
                return "wrong";
            }
        }
        if (trm_weight_read(part, TRM_I64, 1, 1, values) != TRM_OK || values[0] != COLUMNS + 3) {
            return "wrong part";
        }
        trm_weight_destroy(part);
    }
    return NULL;
}

static void many_threads_read_one_weight(void **state)
{
    (void)state;
    trm_safetensors *set = open_matrices();
    trm_weight *stored = NULL, *turned = NULL;
    assert_ok(trm_safetensors_weight(set, "8", &stored));
    assert_ok(trm_weight_transpose(stored, (int32_t[]){1, 0}, &turned));
    trm_weight_destroy(stored);
    trm_safetensors_close(set);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_and_view, turned), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    trm_weight_destroy(turned);
}

/* Past the file cache, anywhere in a file whose data and end are at no round place. */
static void direct_reads(void **state)
{
    (void)state;
    enum { COUNT = 900001 };
    const char *folder = test_temporary_folder();
    char path[4400], header[256];
    uint32_t *data = calloc(COUNT, sizeof(*data)), *to = calloc(COUNT, sizeof(*to));
    uint64_t random = test_seed();
    trm_safetensors *set;
    trm_weight *whole;
    assert_true(data != NULL && to != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = (uint32_t)test_random(&random);
    }
    snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"U32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", COUNT,
             COUNT * 4);
    write_safetensors(folder, "model.safetensors", header, data, COUNT * sizeof(*data));
    assert_ok(trm_safetensors_open(folder, &set));
    assert_ok(trm_safetensors_weight(set, "w", &whole));
    for (int i = 0; i < 40; i++) {
        size_t first = i == 0 ? 0 : (size_t)test_random_below(&random, COUNT);
        size_t count = i < 2 ? COUNT - first : 1 + (size_t)test_random_below(&random, (int64_t)(COUNT - first));
        memset(to, 0, COUNT * sizeof(*to));
        assert_ok(trm_weight_read_direct(whole, TRM_U32, first, count, to));
        assert_memory_equal(to, data + first, count * sizeof(*to));
        assert_true(count == COUNT || to[count] == 0);
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(truncate(path, COUNT * 2), 0);
    assert_fails(trm_weight_read_direct(whole, TRM_U32, 0, COUNT, to), TRM_ERROR_IO, "when it was opened");
    trm_weight_destroy(whole);
    trm_safetensors_close(set);
    free(data);
    free(to);
}

/* What a read finds gone, which the look at the file before it did not see. */
static void windows_of_a_file_that_was_cut_off(void **state)
{
    (void)state;
    enum { SIZE = 300000, LEFT = 200001 };
    char path[4400];
    unsigned char *data = malloc(SIZE), *window = aligned_alloc(TRM_WEIGHT_WINDOW_ALIGNMENT, TRM_WEIGHT_WINDOW);
    const unsigned char *at;
    trm_weight_file *file;
    assert_true(data != NULL && window != NULL);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (unsigned char)(i * 31 >> 3);
    }
    snprintf(path, sizeof(path), "%s/data", test_temporary_folder());
    test_write_file(path, data, SIZE);
    assert_ok(trm_weight_file_open(path, "data", &file));
    assert_ok(trm_weight_file_read_direct(file, 5001, SIZE - 5001, window, &at));
    assert_memory_equal(at, data + 5001, SIZE - 5001);
    assert_int_equal(truncate(path, LEFT), 0);
    assert_ok(trm_weight_file_read_direct(file, 5001, LEFT - 5001, window, &at));
    assert_memory_equal(at, data + 5001, LEFT - 5001);
    assert_fails(trm_weight_file_read_direct(file, 5001, LEFT - 5000, window, &at), TRM_ERROR_IO,
                 "has 200001 bytes, it had 300000 when it was opened");
    assert_fails(trm_weight_file_read_direct(file, LEFT + 5000, 7, window, &at), TRM_ERROR_IO, "when it was opened");
    trm_weight_file_release(file);
    free(data);
    free(window);
}

/* A file with one f32 matrix "w" of zeros, and that. */
static trm_safetensors *open_zeros(int height, int width, char *path, size_t size, trm_weight **whole)
{
    const char *folder = test_temporary_folder();
    char header[256];
    trm_safetensors *set;
    float *data = calloc((size_t)height * (size_t)width, sizeof(*data));
    assert_non_null(data);
    snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}", height,
             width, height * width * 4);
    write_safetensors(folder, "model.safetensors", header, data, (size_t)height * (size_t)width * sizeof(*data));
    free(data);
    snprintf(path, size, "%s/model.safetensors", folder);
    assert_ok(trm_safetensors_open(folder, &set));
    assert_ok(trm_safetensors_weight(set, "w", whole));
    return set;
}

/* Mapped pages that a file has lost are a signal for who touches them. */
static void a_file_that_was_cut_off(void **state)
{
    (void)state;
    enum { HEIGHT = 512, WIDTH = 256 };
    char path[4400];
    float *to = calloc(HEIGHT * WIDTH, sizeof(*to));
    trm_safetensors *set;
    trm_weight *whole, *turned, *joined;
    assert_non_null(to);
    set = open_zeros(HEIGHT, WIDTH, path, sizeof(path), &whole);
    assert_ok(trm_weight_transpose(whole, (int32_t[]){1, 0}, &turned));
    assert_ok(trm_weight_concat((const trm_weight *const[]){whole, whole}, 2, 1, &joined));
    assert_ok(trm_weight_read(whole, TRM_F32, 0, HEIGHT * WIDTH, to));
    assert_int_equal(truncate(path, HEIGHT * WIDTH * 2), 0);
    assert_fails(trm_weight_read(whole, TRM_F32, 0, HEIGHT * WIDTH, to), TRM_ERROR_IO, "when it was opened");
    assert_fails(trm_weight_read(turned, TRM_F32, 0, HEIGHT * WIDTH, to), TRM_ERROR_IO, "when it was opened");
    assert_fails(trm_weight_read(joined, TRM_F16, 0, HEIGHT * WIDTH, to), TRM_ERROR_IO, "when it was opened");
    trm_weight_destroy(whole);
    trm_weight_destroy(turned);
    trm_weight_destroy(joined);
    trm_safetensors_close(set);
    free(to);
}

/* Of a join only files are checked from which elements are read. */
static void one_of_two_files_was_cut_off(void **state)
{
    (void)state;
    enum { HEIGHT = 16, WIDTH = 8 };
    char paths[2][4400];
    float to[2 * HEIGHT * WIDTH];
    trm_safetensors *sets[2];
    trm_weight *parts[2], *joined;
    for (int i = 0; i < 2; i++) {
        sets[i] = open_zeros(HEIGHT, WIDTH, paths[i], sizeof(paths[i]), &parts[i]);
    }
    assert_ok(trm_weight_concat((const trm_weight *const *)parts, 2, 0, &joined));
    assert_int_equal(truncate(paths[1], 100), 0);
    assert_ok(trm_weight_read(joined, TRM_F32, 0, HEIGHT * WIDTH, to));
    assert_fails(trm_weight_read(joined, TRM_F32, 1, HEIGHT * WIDTH, to), TRM_ERROR_IO, "has 100 bytes");
    trm_weight_destroy(joined);
    for (int i = 0; i < 2; i++) {
        trm_weight_destroy(parts[i]);
        trm_safetensors_close(sets[i]);
    }
}

typedef struct cutter {
    const char *path;
    off_t size;
    atomic_bool stop;
} cutter;

/* Cuts a file of zeros off and makes it whole again. */
static void *cut_and_mend(void *user)
{
    cutter *c = user;
    bool done = true;
    while (!atomic_load(&c->stop)) {
        done = truncate(c->path, 0) == 0 && truncate(c->path, c->size) == 0 && done;
    }
    return done ? NULL : c;
}

/* At any moment of a read that may not go through the mapping: an error, not a signal. */
static void a_file_that_is_cut_off_while_it_is_read(void **state)
{
    (void)state;
    enum { HEIGHT = 64, WIDTH = 1024, MOST_READS = 200000 };
    static const char *const names[] = {"whole rows", "columns", "columns, transposed", "one column",
                                        "all, transposed"};
    char path[4400];
    float *to = calloc(HEIGHT * WIDTH, sizeof(*to));
    trm_safetensors *set;
    trm_weight *whole, *columns, *turned, *column, *all_turned;
    int failed = 0;
    assert_non_null(to);
    set = open_zeros(HEIGHT, WIDTH, path, sizeof(path), &whole);
    assert_ok(trm_weight_slice(whole, 1, 0, WIDTH / 2, &columns));
    assert_ok(trm_weight_transpose(columns, (int32_t[]){1, 0}, &turned));   /* gathered by tiles */
    assert_ok(trm_weight_slice(whole, 1, 7, 8, &column));                   /* and one by one */
    assert_ok(trm_weight_transpose(whole, (int32_t[]){1, 0}, &all_turned)); /* in one piece */
    const trm_weight *const weights[] = {whole, columns, turned, column, all_turned};
    int failures[5] = {0};
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    cutter c = {.path = path, .size = file.st_size};
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, cut_and_mend, &c), 0);
    for (int i = 0; i < 2000 || (failed == 0 && i < MOST_READS); i++) { /* some begin when the file is whole */
        trm_status status = trm_weight_read_direct(weights[i % 5], i % 3 ? TRM_F32 : TRM_F16, 0,
                                                   i % 5 == 3 ? HEIGHT : HEIGHT * WIDTH / 2, to);
        assert_true(status == TRM_OK || status == TRM_ERROR_IO);
        failures[i % 5] += status != TRM_OK;
        failed = i < 4 ? 0 : failures[0];
        for (int k = 1; k < 5; k++) {
            failed = failures[k] < failed ? failures[k] : failed;
        }
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, &result);
    assert_null(result);
    for (int k = 0; k < 5; k++) {
        if (failures[k] == 0) {
            fail_msg("%s: none of %d reads found the file cut off", names[k], MOST_READS / 5);
        }
    }
    trm_weight_destroy(whole);
    trm_weight_destroy(columns);
    trm_weight_destroy(turned);
    trm_weight_destroy(all_turned);
    trm_weight_destroy(column);
    trm_safetensors_close(set);
    free(to);
}

/* Whatever lies apart comes the same way from the file as through its mapping. */
static void direct_reads_of_gathered_elements(void **state)
{
    (void)state;
    enum { HEIGHT = 96, WIDTH = 2100, COUNT = HEIGHT * WIDTH };
    static const trm_dtype types[] = {TRM_F32, TRM_BF16, TRM_F16};
    static const size_t counts[] = {COUNT, 3 * HEIGHT, 2 * WIDTH, HEIGHT};
    const char *folder = test_temporary_folder();
    char header[256];
    float *data = calloc(COUNT, sizeof(*data)), *direct = calloc(COUNT, sizeof(*data)),
          *mapped = calloc(COUNT, sizeof(*data));
    uint64_t random = test_seed();
    assert_true(data != NULL && direct != NULL && mapped != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = test_random_float(&random);
    }
    snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}", HEIGHT,
             WIDTH, COUNT * 4);
    write_safetensors(folder, "model.safetensors", header, data, COUNT * sizeof(*data));
    trm_safetensors *set;
    trm_weight *whole, *weights[4];
    assert_ok(trm_safetensors_open(folder, &set));
    assert_ok(trm_safetensors_weight(set, "w", &whole));
    assert_ok(trm_weight_transpose(whole, (int32_t[]){1, 0}, &weights[0]));
    assert_ok(trm_weight_slice(weights[0], 0, 3, 6, &weights[1])); /* too few rows for tiles: one by one, far apart */
    assert_ok(trm_weight_slice(whole, 0, 1, 3, &weights[2]));
    assert_ok(trm_weight_slice(whole, 1, 5, 6, &weights[3]));
    for (int i = 0; i < 60; i++) {
        const trm_weight *weight = weights[i % 4];
        trm_dtype type = types[i / 4 % 3];
        const size_t all = counts[i % 4], first = (size_t)test_random_below(&random, (int64_t)all);
        const size_t count = 1 + (size_t)test_random_below(&random, (int64_t)(all - first));
        const size_t bytes = count * trm_dtype_size(type);
        assert_ok(trm_weight_read(weight, type, first, count, mapped));
        assert_ok(trm_weight_read_direct(weight, type, first, count, direct));
        assert_memory_equal(direct, mapped, bytes);
    }
    for (size_t i = 0; i < 4; i++) {
        trm_weight_destroy(weights[i]);
    }
    trm_weight_destroy(whole);
    trm_safetensors_close(set);
    free(data);
    free(direct);
    free(mapped);
}

/* A file with one f32 matrix "w" of random numbers, which are kept. */
static trm_weight *open_random(int height, int width, float **data)
{
    const char *folder = test_temporary_folder();
    const size_t count = (size_t)height * (size_t)width;
    char header[256];
    uint64_t random = test_seed();
    trm_safetensors *set;
    trm_weight *whole;
    *data = calloc(count, sizeof(**data));
    assert_non_null(*data);
    for (size_t i = 0; i < count; i++) {
        (*data)[i] = test_random_float(&random);
    }
    snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}", height,
             width, count * sizeof(**data));
    write_safetensors(folder, "model.safetensors", header, *data, count * sizeof(**data));
    assert_ok(trm_safetensors_open(folder, &set));
    assert_ok(trm_safetensors_weight(set, "w", &whole));
    trm_safetensors_close(set);
    return whole;
}

/* Boxes of a transpose of some columns of a file's matrix, whose lines are few in the window, or many, or too long for
 * it, and lie close or apart: every element is the file's. */
static void boxes_of_transposes(void **state)
{
    (void)state;
    static const struct {
        int height, width, first, columns;
    } cases[] = {{300, 2100, 0, 2100},   {40, 60000, 0, 60000},  {90, 9000, 1000, 7900},
                 {90, 9000, 4000, 3000}, {5, 600001, 1, 600000}, {1000, 70, 3, 60}};
    uint64_t random = test_seed();
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const int64_t all = cases[c].columns, height = cases[c].height;
        float *data, *to = calloc((size_t)(all * height), sizeof(*to));
        trm_weight *whole = open_random(cases[c].height, cases[c].width, &data), *part, *turned;
        assert_non_null(to);
        assert_ok(trm_weight_slice(whole, 1, cases[c].first, all, &part));
        assert_ok(trm_weight_transpose(part, (int32_t[]){1, 0}, &turned));
        for (int i = 0; i < 6; i++) {
            const bool halves = i % 3 == 2; /* converted */
            const int64_t row = i == 0 ? 0 : test_random_below(&random, all);
            const int64_t rows = i == 0 ? all : 1 + test_random_below(&random, all - row);
            const int64_t column = i < 2 ? 0 : test_random_below(&random, height);
            const int64_t columns = i < 2 ? height : 1 + test_random_below(&random, height - column);
            assert_ok(trm_weight_read_box_direct(turned, halves ? TRM_BF16 : TRM_F32, row, rows, column, columns, to));
            for (int64_t k = 0; k < rows * columns; k++) {
                const int64_t at = (column + k % columns) * cases[c].width + cases[c].first + row + k / columns;
                uint32_t expected, found = 0;
                memcpy(&expected, &data[at], 4);
                memcpy(&found, (unsigned char *)to + k * (halves ? 2 : 4), halves ? 2 : 4);
                assert_int_equal(found, halves ? trm_f32_to_bf16(data[at]) : expected);
            }
        }
        assert_fails(trm_weight_read_box_direct(turned, TRM_F32, all - 1, 2, 0, 1, to), TRM_ERROR_INVALID_ARGUMENT, "");
        assert_fails(trm_weight_read_box_direct(turned, TRM_I8, 0, 1, 0, 1, to), TRM_ERROR_INVALID_ARGUMENT,
                     "cannot be read as");
        trm_weight_destroy(whole);
        trm_weight_destroy(part);
        trm_weight_destroy(turned);
        free(data);
        free(to);
    }
}

/* Which weights are rather read by columns. */
static void weights_that_files_have_the_other_way_round(void **state)
{
    (void)state;
    float *data;
    trm_weight *whole = open_random(12, 30, &data), *turned, *half, *both, *boxes, *flat, *random;
    assert_ok(trm_weight_transpose(whole, (int32_t[]){1, 0}, &turned));
    assert_ok(trm_weight_slice(turned, 0, 3, 20, &half));
    assert_ok(trm_weight_concat((const trm_weight *const[]){half, turned}, 2, 0, &both));
    assert_ok(trm_weight_reshape(turned, &(trm_dims){3, {2, 15, 12}}, &boxes));
    assert_ok(trm_weight_reshape(turned, &(trm_dims){1, {360}}, &flat));
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {30, 12}}, 1, 0, 1, &random));
    assert_true(trm_weight_is_turned(turned) && trm_weight_is_turned(half) && trm_weight_is_turned(both));
    assert_false(trm_weight_is_turned(whole) || trm_weight_is_turned(boxes) || trm_weight_is_turned(flat) ||
                 trm_weight_is_turned(random));
    float box[50 * 12]; /* of a join, too */
    assert_ok(trm_weight_read_box_direct(both, TRM_F32, 10, 40, 2, 9, box));
    for (int i = 0; i < 40 * 9; i++) {
        const int row = 10 + i / 9 < 20 ? 10 + i / 9 + 3 : 10 + i / 9 - 20;
        assert_true(box[i] == data[(2 + i % 9) * 30 + row]);
    }
    trm_weight *const all[] = {whole, turned, half, both, boxes, flat, random};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        trm_weight_destroy(all[i]);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_reads),
        cmocka_unit_test(direct_reads_of_gathered_elements),
        cmocka_unit_test(windows_of_a_file_that_was_cut_off),
        cmocka_unit_test(boxes_of_transposes),
        cmocka_unit_test(weights_that_files_have_the_other_way_round),
        cmocka_unit_test(sixteen_bit_types_convert_like_the_plain_functions),
        cmocka_unit_test(floats_round_like_the_plain_functions),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(which_types_convert),
        cmocka_unit_test(transposed_matrices),
        cmocka_unit_test(column_slices_join),
        cmocka_unit_test(mapped_addresses),
        cmocka_unit_test(many_threads_read_one_weight),
        cmocka_unit_test(a_file_that_was_cut_off),
        cmocka_unit_test(one_of_two_files_was_cut_off),
        cmocka_unit_test(a_file_that_is_cut_off_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
