/* The index arithmetic of the CUDA copies and broadcasts, which is plain C: every rewriting of a loop visits the same
 * elements. */
#include <stdio.h>

#include "support/support.h"

#include "kernels/cuda/strides.h"

/* Offsets in bytes of operand `o` at step i of the loop. */
static int64_t offset_at(const trm_strided *s, int o, int64_t i, int64_t element)
{
    int64_t at = 0;
    for (int32_t axis = s->n - 1; axis >= 0; axis--) {
        at += i % s->d[axis] * s->stride[o][axis];
        i /= s->d[axis];
    }
    return at * element;
}

/* Both loops visit the same bytes in the same order, `wide` in larger steps. */
static void assert_same_walk(const trm_strided *plain, int64_t element, const trm_strided *other, int64_t wide)
{
    const int64_t count = trm_strided_count(plain), factor = wide / element;
    assert_int_equal(trm_strided_count(other) * factor, count);
    for (int64_t i = 0; i < count; i++) {
        for (int o = 0; o < plain->operands; o++) {
            int64_t expected = offset_at(plain, o, i, element);
            assert_int_equal(offset_at(other, o, i / factor, wide) + i % factor * element, expected);
        }
    }
}

/* A permuted or sliced copy of small dims: operand 0 strided, operand 1 contiguous. */
static trm_strided random_copy(uint64_t *random)
{
    trm_strided s = {.n = (int32_t)test_random_below(random, 5), .operands = 2};
    trm_dims dims = {.n = s.n};
    int64_t source[TRM_MAX_DIMS];
    for (int32_t i = 0; i < s.n; i++) {
        static const int64_t sizes[] = {1, 2, 3, 4, 8};
        dims.d[i] = sizes[test_random_below(random, 5)];
    }
    trm_contiguous_strides(&dims, source);
    int32_t perm[TRM_MAX_DIMS];
    for (int32_t i = 0; i < s.n; i++) {
        perm[i] = i;
    }
    for (int32_t i = s.n - 1; i > 0 && test_random_below(random, 3) != 0; i--) {
        int32_t j = (int32_t)test_random_below(random, i + 1), kept = perm[i];
        perm[i] = perm[j];
        perm[j] = kept;
    }
    trm_dims out = {.n = s.n};
    for (int32_t i = 0; i < s.n; i++) {
        out.d[i] = s.d[i] = dims.d[perm[i]];
        s.stride[0][i] = source[perm[i]];
    }
    trm_contiguous_strides(&out, s.stride[1]);
    return s;
}

static void rewriting_visits_the_same_elements(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 3000; i++) {
        const trm_strided plain = random_copy(&random);
        trm_strided joined = plain;
        trm_strided_collapse(&joined);
        assert_in_range(joined.n, 1, TRM_MAX_DIMS);
        assert_same_walk(&plain, 1, &joined, 1);
        const int64_t element = (int64_t)1 << test_random_below(&random, 4);
        const uintptr_t alignment = (uintptr_t)element << test_random_below(&random, 5);
        trm_strided wide = joined;
        const size_t size = trm_strided_widen(&wide, (size_t)element, alignment);
        assert_true(size >= (size_t)element && size <= 16 && alignment % size == 0);
        assert_same_walk(&joined, element, &wide, (int64_t)size);
    }
}

static void joins_what_is_contiguous(void **state)
{
    (void)state;
    trm_strided s = {.n = 4, .operands = 2, .d = {2, 1, 3, 4}, .stride = {{12, 12, 4, 1}, {12, 7, 4, 1}}};
    trm_strided_collapse(&s);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.d[0], 24);
    assert_int_equal(trm_strided_widen(&s, 2, 0x100), 16);
    assert_int_equal(s.d[0], 3);
    trm_strided transposed = {.n = 2, .operands = 2, .d = {3, 4}, .stride = {{1, 3}, {4, 1}}};
    trm_strided_collapse(&transposed);
    assert_int_equal(transposed.n, 2);
    assert_int_equal(trm_strided_widen(&transposed, 2, 0x100), 2);
}

static void broadcasts_repeat(void **state)
{
    (void)state;
    const trm_dims a = {2, {3, 1}}, to = {3, {2, 3, 4}}, scalar = {0, {0}};
    int64_t strides[TRM_MAX_DIMS];
    trm_broadcast_strides(&a, &to, strides);
    assert_int_equal(strides[0], 0);
    assert_int_equal(strides[1], 1);
    assert_int_equal(strides[2], 0);
    trm_broadcast_strides(&scalar, &to, strides);
    assert_int_equal(strides[0] + strides[1] + strides[2], 0);
    trm_broadcast_strides(&to, &to, strides);
    assert_int_equal(strides[0], 12);
    assert_int_equal(strides[1], 4);
    assert_int_equal(strides[2], 1);
}

static void views_around_an_axis(void **state)
{
    (void)state;
    const trm_dims dims = {4, {2, 3, 4, 5}};
    trm_axis_view v = trm_view_around(&dims, -2);
    assert_int_equal(v.outer, 6);
    assert_int_equal(v.n, 4);
    assert_int_equal(v.inner, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewriting_visits_the_same_elements),
        cmocka_unit_test(joins_what_is_contiguous),
        cmocka_unit_test(broadcasts_repeat),
        cmocka_unit_test(views_around_an_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
