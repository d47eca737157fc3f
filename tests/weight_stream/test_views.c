/* Views of weights against a model that keeps every element in a plain array, over random chains of views. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "kernels/sampling/random.h"
#include "files.h"
#include "weight_stream/weight.h"

/* ---- the model: dims and every element ------------------------------------------------------------- */

typedef struct model {
    trm_dims dims;
    float *elements; /* [count] */
} model;

static size_t count_of(const trm_dims *dims)
{
    size_t count = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        count *= (size_t)dims->d[i];
    }
    return count;
}

static model new_model(trm_dims dims)
{
    model result = {.dims = dims, .elements = malloc((count_of(&dims) + 1) * sizeof(float))};
    assert_non_null(result.elements);
    return result;
}

/* Index of an element of `dims`, given its position in row-major order. */
static void unravel(const trm_dims *dims, size_t position, int64_t index[TRM_MAX_DIMS])
{
    for (int32_t i = dims->n - 1; i >= 0; i--) {
        index[i] = (int64_t)(position % (size_t)dims->d[i]);
        position /= (size_t)dims->d[i];
    }
}

static size_t ravel(const trm_dims *dims, const int64_t index[TRM_MAX_DIMS])
{
    size_t position = 0;
    for (int32_t i = 0; i < dims->n; i++) {
        position = position * (size_t)dims->d[i] + (size_t)index[i];
    }
    return position;
}

static model model_transpose(const model *from, const int32_t *perm)
{
    trm_dims dims = {.n = from->dims.n};
    for (int32_t i = 0; i < dims.n; i++) {
        dims.d[i] = from->dims.d[perm[i]];
    }
    model to = new_model(dims);
    for (size_t p = 0; p < count_of(&dims); p++) {
        int64_t index[TRM_MAX_DIMS] = {0}, source[TRM_MAX_DIMS] = {0};
        unravel(&dims, p, index);
        for (int32_t i = 0; i < dims.n; i++) {
            source[perm[i]] = index[i];
        }
        to.elements[p] = from->elements[ravel(&from->dims, source)];
    }
    return to;
}

static model model_slice(const model *from, int32_t axis, int64_t start, int64_t length)
{
    trm_dims dims = from->dims;
    dims.d[axis] = length;
    model to = new_model(dims);
    for (size_t p = 0; p < count_of(&dims); p++) {
        int64_t index[TRM_MAX_DIMS] = {0};
        unravel(&dims, p, index);
        index[axis] += start;
        to.elements[p] = from->elements[ravel(&from->dims, index)];
    }
    return to;
}

/* b may be NULL: zeros of `length` along the axis. */
static model model_concat(const model *a, const model *b, int32_t axis, int64_t length)
{
    trm_dims dims = a->dims;
    dims.d[axis] += length;
    model to = new_model(dims);
    for (size_t p = 0; p < count_of(&dims); p++) {
        int64_t index[TRM_MAX_DIMS] = {0};
        unravel(&dims, p, index);
        if (index[axis] < a->dims.d[axis]) {
            to.elements[p] = a->elements[ravel(&a->dims, index)];
        } else {
            index[axis] -= a->dims.d[axis];
            to.elements[p] = b == NULL ? 0 : b->elements[ravel(&b->dims, index)];
        }
    }
    return to;
}

/* ---- pairs of a weight and its model --------------------------------------------------------------- */

typedef struct pair {
    trm_weight *weight;
    model model;
} pair;

static void drop(pair *which)
{
    trm_weight_destroy(which->weight);
    free(which->model.elements);
}

static void replace(pair *which, trm_weight *weight, model by)
{
    drop(which);
    which->weight = weight;
    which->model = by;
}

static void check(const pair *which, uint64_t *random)
{
    trm_dims dims = trm_weight_dims(which->weight);
    assert_int_equal(dims.n, which->model.dims.n);
    for (int32_t i = 0; i < dims.n; i++) {
        assert_int_equal(dims.d[i], which->model.dims.d[i]);
    }
    size_t count = count_of(&dims);
    float *read = malloc((count + 1) * sizeof(float));
    assert_non_null(read);
    for (int range = 0; range < 3; range++) { /* the whole, then parts */
        size_t first = range == 0 ? 0 : (size_t)test_random_below(random, (int64_t)count + 1);
        size_t n = range == 0 ? count : (size_t)test_random_below(random, (int64_t)(count - first) + 1);
        read[n] = 12345;
        assert_ok(trm_weight_read(which->weight, TRM_F32, first, n, read));
        assert_true(read[n] == 12345);
        if (n > 0) {
            assert_memory_equal(read, which->model.elements + first, n * sizeof(float));
        }
    }
    const float *mapped = trm_weight_mapped(which->weight);
    if (mapped != NULL && trm_weight_dtype(which->weight) == TRM_F32) {
        assert_memory_equal(mapped, which->model.elements, count * sizeof(float));
    }
    char text[300];
    trm_weight_describe(which->weight, text, sizeof(text));
    assert_true(strlen(text) > 0);
    free(read);
}

/* Dims of as many elements, by moving factors around. */
static trm_dims random_reshape(const trm_dims *from, uint64_t *random)
{
    size_t rest = count_of(from);
    trm_dims dims = {.n = 1 + (int32_t)test_random_below(random, 5)};
    for (int32_t i = 0; i < dims.n; i++) {
        dims.d[i] = 1;
    }
    for (size_t prime = 2; rest > 1; prime++) {
        for (; rest % prime == 0; rest /= prime) {
            dims.d[test_random_below(random, dims.n)] *= (int64_t)prime;
        }
    }
    return dims;
}

static void random_view(pair *which, uint64_t *random)
{
    trm_weight *view = NULL;
    model *from = &which->model, to;
    trm_dims dims = from->dims;
    int32_t axis = (int32_t)test_random_below(random, dims.n);
    int32_t perm[TRM_MAX_DIMS];
    int64_t start, length;
    switch (test_random_below(random, 5)) {
    case 0:
        dims = random_reshape(&from->dims, random);
        assert_ok(trm_weight_reshape(which->weight, &dims, &view));
        to = new_model(dims);
        memcpy(to.elements, from->elements, count_of(&dims) * sizeof(float));
        break;
    case 1:
        for (int32_t i = 0; i < dims.n; i++) {
            int32_t k = (int32_t)test_random_below(random, i + 1);
            perm[i] = perm[k];
            perm[k] = i;
        }
        assert_ok(trm_weight_transpose(which->weight, perm, &view));
        to = model_transpose(from, perm);
        break;
    case 2:
        start = test_random_below(random, dims.d[axis]);
        length = 1 + test_random_below(random, dims.d[axis] - start);
        assert_ok(trm_weight_slice(which->weight, axis, start, length, &view));
        to = model_slice(from, axis, start, length);
        break;
    case 3: /* with a part of itself */
        start = test_random_below(random, dims.d[axis]);
        length = 1 + test_random_below(random, dims.d[axis] - start);
        if (count_of(&dims) > 4000) {
            return;
        } else {
            trm_weight *part = NULL;
            assert_ok(trm_weight_slice(which->weight, axis, start, length, &part));
            model part_model = model_slice(from, axis, start, length);
            const trm_weight *both[] = {which->weight, part};
            assert_ok(trm_weight_concat(both, 2, axis, &view));
            to = model_concat(from, &part_model, axis, length);
            trm_weight_destroy(part);
            free(part_model.elements);
        }
        break;
    default:
        length = test_random_below(random, 3);
        if (count_of(&dims) > 4000) {
            return;
        }
        assert_ok(trm_weight_pad(which->weight, axis, dims.d[axis] + length, &view));
        to = model_concat(from, NULL, axis, length);
    }
    replace(which, view, to);
}

static trm_safetensors *open_stored(model *whole, trm_dtype dtype)
{
    static char folder[4096];
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    whole->dims = (trm_dims){3, {4, 6, 10}};
    *whole = new_model(whole->dims);
    float data[240];
    uint16_t halves[240];
    for (int i = 0; i < 240; i++) {
        data[i] = (float)i + 1;
        halves[i] = trm_f32_to_bf16(data[i]);
        whole->elements[i] = dtype == TRM_F32 ? data[i] : trm_bf16_to_f32(halves[i]);
    }
    if (dtype == TRM_F32) {
        write_safetensors(folder, "model.safetensors",
                          "{\"w\":{\"dtype\":\"F32\",\"shape\":[4,6,10],\"data_offsets\":[0,960]}}   ", data, 960);
    } else { /* at an odd address */
        unsigned char bytes[481] = {7};
        memcpy(bytes + 1, halves, 480);
        write_safetensors(folder, "model.safetensors",
                          "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                          "\"w\":{\"dtype\":\"BF16\",\"shape\":[4,6,10],\"data_offsets\":[1,481]}}",
                          bytes, 481);
    }
    trm_safetensors *set = NULL;
    assert_ok(trm_safetensors_open(folder, &set));
    return set;
}

static void run_chains(trm_weight *source, const model *whole, int chains)
{
    for (int chain = 0; chain < chains; chain++) {
        uint64_t seed = test_seed() + (uint64_t)chain, random = seed;
        pair which = {NULL, new_model(whole->dims)};
        assert_ok(trm_weight_clone(source, &which.weight));
        memcpy(which.model.elements, whole->elements, count_of(&whole->dims) * sizeof(float));
        int64_t length = 1 + test_random_below(&random, 12);
        for (int64_t i = 0; i < length; i++) {
            random_view(&which, &random);
        }
        check(&which, &random);
        drop(&which);
    }
}

static void chains_of_stored_weights(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        model whole = {0};
        trm_safetensors *set = open_stored(&whole, type == 0 ? TRM_F32 : TRM_BF16);
        trm_weight *source = NULL;
        assert_ok(trm_safetensors_weight(set, "w", &source));
        trm_safetensors_close(set); /* the weight keeps the file */
        run_chains(source, &whole, 3000);
        trm_weight_destroy(source);
        free(whole.elements);
    }
}

static void chains_of_random_weights(void **state)
{
    (void)state;
    trm_weight *source = NULL;
    trm_dims dims = {3, {4, 6, 10}};
    assert_ok(trm_weight_random(TRM_BF16, &dims, 42, 0.5f, 0.02f, &source));
    model whole = new_model(dims);
    for (uint64_t i = 0; i < 240; i++) {
        whole.elements[i] = trm_bf16_to_f32(trm_f32_to_bf16(fmaf(0.02f, trm_random_unit(42, i), 0.5f)));
    }
    run_chains(source, &whole, 3000);
    trm_weight_destroy(source);
    free(whole.elements);
}

/* ---- single views ---------------------------------------------------------------------------------- */

static trm_weight *iota(trm_dims dims)
{
    trm_weight *weight = NULL;
    assert_ok(trm_weight_random(TRM_F32, &dims, 7, 0, 1, &weight));
    return weight;
}

static trm_weight *slice(trm_weight *weight, int32_t axis, int64_t start, int64_t length)
{
    trm_weight *view = NULL;
    assert_ok(trm_weight_slice(weight, axis, start, length, &view));
    return view;
}

static void a_cut_and_joined_weight_is_the_weight_again(void **state)
{
    (void)state;
    trm_weight *whole = iota((trm_dims){2, {12, 8}});
    for (int32_t axis = 0; axis < 2; axis++) {
        trm_weight *parts[3] = {slice(whole, axis, 0, 3), slice(whole, axis, 3, 4),
                                slice(whole, axis, 7, axis == 0 ? 5 : 1)};
        trm_weight *joined = NULL;
        assert_ok(trm_weight_concat((const trm_weight *const *)parts, 3, axis, &joined));
        assert_true(trm_weight_equal(joined, whole));
        assert_false(trm_weight_equal(parts[0], parts[1]));
        trm_weight_destroy(joined);
        for (int i = 0; i < 3; i++) {
            trm_weight_destroy(parts[i]);
        }
    }
    trm_weight_destroy(whole);
}

static void equal_weights_name_the_same_elements(void **state)
{
    (void)state;
    trm_weight *whole = iota((trm_dims){2, {6, 6}}), *turned = NULL, *twice = NULL, *other = NULL, *long_one = NULL;
    trm_weight *first = slice(whole, 0, 0, 3), *second = slice(whole, 0, 3, 3), *again = slice(whole, 0, 3, 3);
    assert_ok(trm_weight_transpose(whole, (int32_t[]){1, 0}, &turned));
    assert_ok(trm_weight_transpose(turned, (int32_t[]){1, 0}, &twice));
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {6, 6}}, 8, 0, 1, &other));
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {1, 36}}, 7, 0, 1, &long_one));
    assert_false(trm_weight_equal(first, second));
    assert_true(trm_weight_equal(second, again));
    assert_false(trm_weight_equal(whole, turned));
    assert_true(trm_weight_equal(whole, twice));
    assert_false(trm_weight_equal(whole, other));
    assert_false(trm_weight_equal(whole, long_one));
    trm_weight *joined[3] = {NULL};
    assert_ok(trm_weight_concat((const trm_weight *[]){first, other}, 2, 0, &joined[0]));
    assert_ok(trm_weight_concat((const trm_weight *[]){second, other}, 2, 0, &joined[1]));
    assert_ok(trm_weight_concat((const trm_weight *[]){again, other}, 2, 0, &joined[2]));
    assert_false(trm_weight_equal(joined[0], joined[1]));
    assert_true(trm_weight_equal(joined[1], joined[2]));
    trm_weight *all[] = {whole, turned, twice, other, long_one, first, second, again, joined[0], joined[1], joined[2]};
    for (int i = 0; i < 11; i++) {
        trm_weight_destroy(all[i]);
    }
}

/* [heads * 3 * dim, hidden] -> [heads, 3, dim, hidden] -> q of some heads -> [heads * dim, hidden] */
static void fused_projections_come_apart(void **state)
{
    (void)state;
    trm_weight *fused = iota((trm_dims){2, {4 * 3 * 5, 7}}), *apart = NULL, *q = NULL;
    assert_ok(trm_weight_reshape(fused, &(trm_dims){4, {4, 3, 5, 7}}, &apart));
    trm_weight *middle = slice(apart, 1, 1, 1), *heads = slice(middle, 0, 2, 2);
    assert_ok(trm_weight_reshape(heads, &(trm_dims){2, {2 * 5, 7}}, &q));
    float values[70];
    assert_ok(trm_weight_read(q, TRM_F32, 0, 70, values));
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 35; i++) {
            assert_true(values[h * 35 + i] == trm_random_unit(7, (uint64_t)(((h + 2) * 3 + 1) * 35 + i)));
        }
    }
    trm_weight *all[] = {fused, apart, q, middle, heads};
    for (int i = 0; i < 5; i++) {
        trm_weight_destroy(all[i]);
    }
}

static void joined_weights_are_cut_part_by_part(void **state)
{
    (void)state;
    trm_weight *q = NULL, *k = NULL, *qkv = NULL, *view = NULL;
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {8, 4}}, 1, 0, 1, &q));
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){2, {2, 4}}, 2, 0, 1, &k));
    const trm_weight *parts[] = {q, k, k};
    assert_ok(trm_weight_concat(parts, 3, 0, &qkv));
    trm_weight *only_k = slice(qkv, 0, 8, 2);
    assert_true(trm_weight_equal(only_k, k));
    assert_ok(trm_weight_reshape(qkv, &(trm_dims){3, {6, 2, 4}}, &view)); /* heads of two rows */
    trm_weight *head = slice(view, 0, 4, 1), *back = NULL;
    assert_ok(trm_weight_reshape(head, &(trm_dims){2, {2, 4}}, &back));
    assert_true(trm_weight_equal(back, k));
    trm_weight *all[] = {q, k, qkv, view, only_k, head, back};
    for (int i = 0; i < 7; i++) {
        trm_weight_destroy(all[i]);
    }
}

static void weights_without_elements(void **state)
{
    (void)state;
    trm_weight *whole = iota((trm_dims){2, {3, 4}}), *view = NULL, *padded = NULL;
    trm_weight *none = slice(whole, 0, 3, 0);
    float value = 5;
    assert_ok(trm_weight_read(none, TRM_F32, 0, 0, &value));
    assert_true(value == 5);
    assert_ok(trm_weight_reshape(none, &(trm_dims){3, {4, 0, 9}}, &view));
    assert_ok(trm_weight_pad(none, 0, 1, &padded));
    float row[4] = {1, 1, 1, 1}, zeros[4] = {0};
    assert_ok(trm_weight_read(padded, TRM_F32, 0, 4, row));
    assert_memory_equal(row, zeros, sizeof(row));
    const trm_weight *both[] = {none, whole};
    trm_weight *joined = NULL;
    assert_ok(trm_weight_concat(both, 2, 0, &joined));
    assert_true(trm_weight_equal(joined, whole));
    trm_weight *scalar = NULL;
    assert_ok(trm_weight_random(TRM_F32, &(trm_dims){0, {0}}, 3, 0, 1, &scalar));
    assert_ok(trm_weight_read(scalar, TRM_F32, 0, 1, &value));
    assert_true(value == trm_random_unit(3, 0));
    trm_weight *all[] = {whole, view, padded, none, joined, scalar};
    for (int i = 0; i < 6; i++) {
        trm_weight_destroy(all[i]);
    }
    trm_weight_destroy(NULL);
}

static void wrong_views_are_refused(void **state)
{
    (void)state;
    const trm_status invalid = TRM_ERROR_INVALID_ARGUMENT;
    trm_weight *w = iota((trm_dims){2, {3, 4}}), *other = iota((trm_dims){2, {3, 5}}), *view = NULL, *half = NULL;
    assert_ok(trm_weight_random(TRM_F16, &(trm_dims){2, {3, 4}}, 7, 0, 1, &half));
    assert_fails(trm_weight_reshape(w, &(trm_dims){1, {13}}, &view), invalid, "cannot reshape [3, 4] to [13]");
    assert_fails(trm_weight_reshape(w, &(trm_dims){1, {-12}}, &view), invalid, "dimension -12");
    assert_fails(trm_weight_reshape(w, &(trm_dims){9, {0}}, &view), invalid, "9 dimensions");
    assert_fails(trm_weight_transpose(w, (int32_t[]){0, 0}, &view), invalid, "position 1 of the permutation is 0");
    assert_fails(trm_weight_transpose(w, (int32_t[]){0, 2}, &view), invalid, "position 1 of the permutation is 2");
    assert_fails(trm_weight_slice(w, 2, 0, 1, &view), invalid, "of axis 2 of [3, 4]");
    assert_fails(trm_weight_slice(w, 1, 2, 3, &view), invalid, "cannot take 3 elements from offset 2 of axis 1");
    assert_fails(trm_weight_slice(w, 1, -1, 1, &view), invalid, "cannot take 1 elements from offset -1");
    assert_fails(trm_weight_slice(w, 1, INT64_MAX, INT64_MAX, &view), invalid, "cannot take");
    assert_fails(trm_weight_concat((const trm_weight *[]){w, other}, 2, 0, &view), invalid,
                 "has dims [3, 5], cannot be joined to [3, 4] along axis 0");
    assert_fails(trm_weight_concat((const trm_weight *[]){w, half}, 2, 0, &view), invalid,
                 "has type f16, expected f32");
    assert_fails(trm_weight_concat((const trm_weight *[]){w}, 1, 2, &view), invalid, "along axis 2");
    assert_fails(trm_weight_concat(NULL, 0, 0, &view), invalid, "cannot join 0 weights");
    assert_fails(trm_weight_pad(w, 0, 2, &view), invalid, "cannot pad axis 0 of [3, 4] to 2");
    assert_fails(trm_weight_pad(w, 0, INT64_MAX, &view), invalid, "exceeds the address space");
    assert_fails(trm_weight_random(TRM_I16, &(trm_dims){1, {1}}, 0, 0, 1, &view), invalid, "random weight of type i16");
    assert_fails(trm_weight_random(TRM_F32, &(trm_dims){1, {1}}, 0, NAN, 1, &view), invalid, "expected finite");
    assert_fails(trm_weight_random(TRM_F32, &(trm_dims){2, {INT64_MAX, 2}}, 0, 0, 1, &view), invalid,
                 "exceeds the address space");
    float values[12];
    assert_fails(trm_weight_read(w, TRM_F32, 0, 13, values), invalid, "has 12 elements, cannot read 13 from offset 0");
    assert_fails(trm_weight_read(w, TRM_F32, SIZE_MAX, 2, values), invalid, "cannot read 2 from");
    assert_fails(trm_weight_read(w, TRM_I32, 0, 1, values), invalid, "has type f32, cannot be read as i32");
    assert_fails(trm_weight_read(w, TRM_DTYPE_NONE, 0, 1, values), invalid, "cannot be read as none");
    assert_null(view);
    trm_weight_destroy(w);
    trm_weight_destroy(other);
    trm_weight_destroy(half);
}

static void descriptions(void **state)
{
    (void)state;
    model whole = {0};
    trm_safetensors *set = open_stored(&whole, TRM_F32);
    trm_weight *w = NULL, *turned = NULL, *padded = NULL;
    char text[200];
    assert_ok(trm_safetensors_weight(set, "w", &w));
    trm_weight_describe(w, text, sizeof(text));
    assert_string_equal(text, "model.safetensors:w");
    trm_weight *part = slice(w, 1, 2, 3);
    trm_weight_describe(part, text, sizeof(text));
    assert_string_equal(text, "model.safetensors:w[:, 2:5]");
    trm_weight *rows = slice(part, 0, 1, 2), *box = slice(rows, 2, 4, 2);
    trm_weight_describe(box, text, sizeof(text));
    assert_string_equal(text, "model.safetensors:w[1:3, 2:5, 4:6]");
    assert_ok(trm_weight_transpose(w, (int32_t[]){0, 2, 1}, &turned));
    trm_weight_describe(turned, text, sizeof(text));
    assert_string_equal(text, "model.safetensors:w{from 0, 4 by 60, 10 by 1, 6 by 10}");
    assert_ok(trm_weight_pad(part, 0, 5, &padded));
    trm_weight_describe(padded, text, sizeof(text));
    assert_string_equal(text, "join along 0 (model.safetensors:w[:, 2:5], zeros)");
    trm_weight_describe(padded, text, 20);
    assert_string_equal(text, "join along 0 (model");
    trm_weight *all[] = {w, part, turned, padded, rows, box};
    for (int i = 0; i < 6; i++) {
        trm_weight_destroy(all[i]);
    }
    trm_safetensors_close(set);
    free(whole.elements);
}

int main(void)
{
    print_message("TRM_TEST_SEED=%llu\n", (unsigned long long)test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_of_stored_weights),
        cmocka_unit_test(chains_of_random_weights),
        cmocka_unit_test(a_cut_and_joined_weight_is_the_weight_again),
        cmocka_unit_test(equal_weights_name_the_same_elements),
        cmocka_unit_test(fused_projections_come_apart),
        cmocka_unit_test(joined_weights_are_cut_part_by_part),
        cmocka_unit_test(weights_without_elements),
        cmocka_unit_test(wrong_views_are_refused),
        cmocka_unit_test(descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
