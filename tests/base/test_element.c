/* Elements as doubles and back, for every type. */
#include "support/support.h"

#include <math.h>

#include "base/element.h"

static double through(trm_dtype dtype, double value)
{
    uint64_t data[2] = {0x5555555555555555, 0x5555555555555555};
    unsigned char *bytes = (unsigned char *)data;
    assert_true(trm_element_set_double(dtype, data, 1, value));
    size_t size = trm_dtype_size(dtype);
    for (size_t i = 0; i < sizeof(data); i++) { /* nothing else is touched */
        assert_true((i >= size && i < 2 * size) || bytes[i] == 0x55);
    }
    return trm_element_as_double(dtype, data, 1);
}

static void what_a_type_has_comes_back(void **state)
{
    (void)state;
    static const struct {
        trm_dtype dtype;
        double least, most, below, above; /* the ends, and what becomes of -1e300 and 1e300 */
    } types[] = {
        {TRM_I8, -128, 127, -128, 127},
        {TRM_U8, 0, 255, 0, 255},
        {TRM_I16, -32768, 32767, -32768, 32767},
        {TRM_U16, 0, 65535, 0, 65535},
        {TRM_I32, -0x1p31, 0x1p31 - 1, -0x1p31, 0x1p31 - 1},
        {TRM_U32, 0, 0x1p32 - 1, 0, 0x1p32 - 1},
        {TRM_I64, -0x1p63, 0x1p63, -0x1p63, 0x1p63}, /* INT64_MAX as a double */
        {TRM_U64, 0, 0x1p64, 0, 0x1p64},
        {TRM_F64, -1e308, 1e308, -1e300, 1e300},
        {TRM_F32, -0x1.fffffep127, 0x1.fffffep127, -INFINITY, INFINITY},
        {TRM_F16, -65504, 65504, -INFINITY, INFINITY},
        {TRM_BF16, -0x1.fep127, 0x1.fep127, -INFINITY, INFINITY},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_true(through(types[i].dtype, types[i].least) == types[i].least);
        assert_true(through(types[i].dtype, types[i].most) == types[i].most);
        assert_true(through(types[i].dtype, 0) == 0 && through(types[i].dtype, 1) == 1);
        assert_true(through(types[i].dtype, -1e300) == types[i].below);
        assert_true(through(types[i].dtype, 1e300) == types[i].above);
        bool is_float = through(types[i].dtype, 0.5) == 0.5;
        double none = through(types[i].dtype, NAN);
        assert_true(is_float ? isnan(none) : none == 0);
        assert_true(is_float || through(types[i].dtype, 2.75) == 2);
        assert_true(is_float || types[i].least == 0 || through(types[i].dtype, -2.75) == -2);
    }
    assert_true(through(TRM_U64, 0x1p63 + 0x1p12) == 0x1p63 + 0x1p12);
    assert_true(through(TRM_BOOL, -0.25) == 1 && through(TRM_BOOL, 0) == 0);
}

/* Halves of a step go to the even neighbour, and a little more than half up, also where it is too little for f32. */
static void short_floats_are_rounded_once(void **state)
{
    (void)state;
    assert_true(through(TRM_F16, 1 + 0x1p-11) == 1);
    assert_true(through(TRM_F16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
    assert_true(through(TRM_F16, 1 + 3 * 0x1p-11) == 1 + 2 * 0x1p-10);
    assert_true(through(TRM_F16, 1 + 3 * 0x1p-11 - 0x1p-40) == 1 + 0x1p-10);
    assert_true(through(TRM_BF16, 1 + 0x1p-8) == 1);
    assert_true(through(TRM_BF16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
    assert_true(through(TRM_BF16, -1 - 0x1p-8 - 0x1p-40) == -1 - 0x1p-7);
}

static void small_types_have_no_doubles(void **state)
{
    (void)state;
    uint8_t byte = 7;
    for (int32_t dtype = TRM_BOOL + 1; dtype < TRM_DTYPE_COUNT; dtype++) {
        assert_true(isnan(trm_element_as_double((trm_dtype)dtype, &byte, 0)));
        assert_false(trm_element_set_double((trm_dtype)dtype, &byte, 0, 1));
        assert_int_equal(byte, 7);
    }
    assert_false(trm_element_set_double(TRM_DTYPE_NONE, &byte, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_type_has_comes_back),
        cmocka_unit_test(short_floats_are_rounded_once),
        cmocka_unit_test(small_types_have_no_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
