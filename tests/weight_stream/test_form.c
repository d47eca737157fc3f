/* Weights as data: random chains of views come back equal, and forms that no weight has are refused. */
#include "support/support.h"

#include <stdio.h>

#include "weight_stream/weight_form.h"

#define CHAINS 400

static trm_weight_file *make_file(size_t size)
{
    char path[4096];
    trm_weight_file *file = NULL;
    unsigned char *bytes = malloc(size);
    uint64_t seed = 5;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)test_random(&seed);
    }
    snprintf(path, sizeof(path), "%s/weights", test_temporary_folder());
    test_write_file(path, bytes, size);
    free(bytes);
    assert_ok(trm_weight_file_open(path, "weights", &file));
    return file;
}

/* A weight of the parts of another one as they come back, and so on. */
static trm_weight *again(const trm_weight *weight)
{
    trm_weight_form form;
    trm_weight *made = NULL;
    trm_weight_get_form(weight, &form);
    trm_weight **parts = calloc((size_t)form.n_parts + 1, sizeof(*parts));
    for (int32_t i = 0; i < form.n_parts; i++) {
        parts[i] = again(form.parts[i]);
    }
    const trm_weight *const *taken = form.parts;
    form.parts = (const trm_weight *const *)parts;
    assert_ok(trm_weight_from_form(&form, &made));
    for (int32_t i = 0; i < form.n_parts; i++) {
        assert_true(trm_weight_equal(parts[i], taken[i]));
        trm_weight_destroy(parts[i]);
    }
    free(parts);
    return made;
}

/* One random view of a weight; takes it over. */
static trm_weight *step(trm_weight *weight, uint64_t *seed)
{
    trm_dims dims = trm_weight_dims(weight);
    trm_weight *view = NULL;
    int32_t axis = dims.n == 0 ? 0 : (int32_t)test_random_below(seed, dims.n);
    int64_t size = dims.n == 0 ? 0 : dims.d[axis], start;
    switch (dims.n == 0 ? -1 : test_random_below(seed, 5)) {
    case 0:
        start = test_random_below(seed, size + 1);
        assert_ok(trm_weight_slice(weight, axis, start, test_random_below(seed, size - start + 1), &view));
        break;
    case 1: {
        int32_t perm[TRM_MAX_DIMS];
        for (int32_t i = 0; i < dims.n; i++) {
            perm[i] = (i + axis) % dims.n;
        }
        assert_ok(trm_weight_transpose(weight, perm, &view));
        break;
    }
    case 2:
        if (size % 2 == 0 && dims.n < TRM_MAX_DIMS) {
            for (int32_t i = dims.n++; i > axis; i--) {
                dims.d[i] = dims.d[i - 1];
            }
            dims.d[axis] = 2;
            dims.d[axis + 1] = size / 2;
        } else if (dims.n > 1) {
            dims.d[0] *= dims.d[1];
            for (int32_t i = 1; i + 1 < dims.n; i++) {
                dims.d[i] = dims.d[i + 1];
            }
            dims.n--;
        }
        assert_ok(trm_weight_reshape(weight, &dims, &view));
        break;
    case 3:
        assert_ok(trm_weight_pad(weight, axis, size + test_random_below(seed, 3), &view));
        break;
    default:
        assert_ok(trm_weight_clone(weight, &view));
        break;
    }
    trm_weight_destroy(weight);
    return view;
}

static void views_come_back(void **state)
{
    (void)state;
    trm_weight_file *file = make_file(4096);
    uint64_t seed = test_seed();
    for (int32_t i = 0; i < CHAINS; i++) {
        trm_weight *weight = NULL, *other = NULL, *joined = NULL;
        assert_ok(trm_weight_from_file(file, 16, "w", TRM_F32, &(trm_dims){3, {6, 4, 8}}, &weight));
        for (int64_t n = test_random_below(&seed, 8); n > 0; n--) {
            weight = step(weight, &seed);
        }
        if (trm_weight_dims(weight).n > 0 && i % 2 == 0) {
            trm_dims dims = trm_weight_dims(weight);
            assert_ok(trm_weight_random(TRM_F32, &dims, (uint64_t)i, 0, 1, &other));
            const trm_weight *parts[] = {other, weight};
            assert_ok(trm_weight_concat(parts, 2, dims.n - 1, &joined));
            trm_weight_destroy(weight);
            trm_weight_destroy(other);
            weight = joined;
            for (int64_t n = test_random_below(&seed, 4); n > 0; n--) {
                weight = step(weight, &seed);
            }
        }
        trm_weight *copy = again(weight);
        assert_true(trm_weight_equal(weight, copy));
        trm_weight_destroy(copy);
        trm_weight_destroy(weight);
    }
    trm_weight_file_release(file);
}

typedef void (*spoil)(trm_weight_form *form);

static void offset_past_the_end(trm_weight_form *form)
{
    form->view.offset++;
}
static void negative_offset(trm_weight_form *form)
{
    form->view.offset = -1;
}
static void large_stride(trm_weight_form *form)
{
    form->view.steps[0].stride = 9;
}
static void stride_that_overflows(trm_weight_form *form)
{
    form->view.steps[0].stride = INT64_MAX;
}
static void stride_of_zero(trm_weight_form *form)
{
    form->view.steps[1].stride = 0;
}
static void step_of_another_size(trm_weight_form *form)
{
    form->view.steps[1].size = 7;
}
static void dims_that_are_larger(trm_weight_form *form)
{
    form->view.dims.d[0] = 7;
}
static void empty_dims(trm_weight_form *form)
{
    form->view.dims.d[0] = 0;
}
static void too_many_dims(trm_weight_form *form)
{
    form->view.dims.n = TRM_MAX_DIMS + 1;
}
static void steps_past_the_last(trm_weight_form *form)
{
    form->view.first[1] = form->view.first[2] = TRM_WEIGHT_MAX_STEPS + 1;
}
static void steps_backwards(trm_weight_form *form)
{
    form->view.first[1] = -1;
}
static void begin_past_the_end(trm_weight_form *form)
{
    form->begin = SIZE_MAX - 3;
}
static void more_than_the_file(trm_weight_form *form)
{
    form->begin = 4096 - 4;
}
static void base_past_the_address_space(trm_weight_form *form)
{
    form->dims = (trm_dims){3, {INT64_MAX, INT64_MAX, 4}};
}
static void no_type(trm_weight_form *form)
{
    form->dtype = TRM_DTYPE_NONE;
}
static void no_kind(trm_weight_form *form)
{
    form->kind = (trm_weight_base_kind)9;
}
static void no_parts(trm_weight_form *form)
{
    form->kind = TRM_WEIGHT_JOINED;
}
static void spread_below_zero(trm_weight_form *form)
{
    form->kind = TRM_WEIGHT_RANDOM;
    form->spread = -1;
}

static void forms_that_no_weight_has_are_refused(void **state)
{
    (void)state;
    static const spoil ways[] = {offset_past_the_end,
                                 negative_offset,
                                 large_stride,
                                 stride_that_overflows,
                                 stride_of_zero,
                                 step_of_another_size,
                                 dims_that_are_larger,
                                 empty_dims,
                                 too_many_dims,
                                 steps_past_the_last,
                                 steps_backwards,
                                 begin_past_the_end,
                                 more_than_the_file,
                                 no_type,
                                 base_past_the_address_space,
                                 no_kind,
                                 no_parts,
                                 spread_below_zero};
    trm_weight_file *file = make_file(4096);
    trm_weight *weight = NULL, *half = NULL, *made = NULL;
    assert_ok(trm_weight_from_file(file, 0, "w", TRM_F32, &(trm_dims){2, {6, 8}}, &weight));
    assert_ok(trm_weight_slice(weight, 1, 4, 4, &half)); /* its last element is that of the base */
    trm_weight_form form, spoilt;
    trm_weight_get_form(half, &form);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        spoilt = form;
        ways[i](&spoilt);
        trm_status status = trm_weight_from_form(&spoilt, &made);
        if (status == TRM_OK) {
            fail_msg("form %zu makes a weight", i);
        }
        assert_true(trm_last_error()[0] != '\0');
    }
    assert_ok(trm_weight_from_form(&form, &made));
    assert_true(trm_weight_equal(made, half));
    trm_weight_destroy(made);
    trm_weight_destroy(half);
    trm_weight_destroy(weight);
    trm_weight_file_release(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_come_back),
        cmocka_unit_test(forms_that_no_weight_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
