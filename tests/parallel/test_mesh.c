/* Meshes: reading, writing, coordinates and groups. */
#include "support/support.h"

#include <trireme/mesh.h>

static void test_parse(void **state)
{
    (void)state;
    trm_mesh mesh;
    assert_ok(trm_mesh_parse(NULL, 4, &mesh));
    assert_int_equal(mesh.size[TRM_AXIS_TP], 4);
    assert_ok(trm_mesh_parse("", 1, &mesh));
    assert_int_equal(mesh.size[TRM_AXIS_TP], 1);
    assert_ok(trm_mesh_parse("dp=2,tp=2,ep=2,pp=3", 12, &mesh));
    const int32_t expected[TRM_AXIS_COUNT] = {2, 3, 1, 2, 2};
    assert_memory_equal(mesh.size, expected, sizeof(expected));
}

static void test_refused(void **state)
{
    (void)state;
    trm_mesh mesh = {{7, 7, 7, 7, 7}};
    const struct {
        const char *text, *part;
    } cases[] = {
        {"tp", "\"tp\", expected an axis"},
        {"xp=2", "\"xp=2\", expected an axis"},
        {"tp=2,", "\"\", expected an axis"},
        {",tp=2", "\"\", expected an axis"},
        {"tp=2,tp=2", "axis tp twice"},
        {"tp=", "\"tp=\", expected a size"},
        {"tp=0", "expected a size from 1 to 64"},
        {"tp=-2", "expected a size"},
        {"tp=65", "expected a size"},
        {"tp=99999999999999999999", "expected a size"},
        {"tp=2x", "expected a size"},
        {"tp=4", "has 4 ranks, but the world has 2"},
        {"tp=2,pp=2", "has 4 ranks, but the world has 2"},
        {"dp=2,ep=4", "ep=4, which does not divide dp=2"},
        {"ep=2", "ep=2, which does not divide dp=1: experts are split over the ranks of dp, as in dp=2,ep=2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_fails(trm_mesh_parse(cases[i].text, 2, &mesh), TRM_ERROR_INVALID_ARGUMENT, cases[i].part);
        assert_int_equal(mesh.size[0], 7);
    }
    assert_fails(trm_mesh_parse("", 0, &mesh), TRM_ERROR_INVALID_ARGUMENT, "0 ranks");
}

static void test_format(void **state)
{
    (void)state;
    char text[64];
    trm_mesh mesh = {{2, 2, 1, 1, 3}};
    trm_mesh_format(&mesh, text, sizeof(text));
    assert_string_equal(text, "tp=2,pp=2,dp=3");
    trm_mesh again;
    assert_ok(trm_mesh_parse(text, 12, &again));
    assert_memory_equal(&mesh, &again, sizeof(mesh));
    trm_mesh one = {{1, 1, 1, 1, 1}};
    trm_mesh_format(&one, text, sizeof(text));
    assert_string_equal(text, "tp=1");
    char small[6];
    trm_mesh_format(&mesh, small, sizeof(small));
    assert_string_equal(small, "tp=2,");
}

/* Every rank has its own coordinates, and stands in each of its groups at its coordinate. */
static void test_groups(void **state)
{
    (void)state;
    trm_mesh mesh;
    assert_ok(trm_mesh_parse("tp=2,cp=3,pp=2,dp=2,ep=2", 24, &mesh));
    for (int32_t rank = 0; rank < 24; rank++) {
        int32_t dp = trm_mesh_coordinate(&mesh, TRM_AXIS_DP, rank), pp = trm_mesh_coordinate(&mesh, TRM_AXIS_PP, rank);
        int32_t cp = trm_mesh_coordinate(&mesh, TRM_AXIS_CP, rank), tp = trm_mesh_coordinate(&mesh, TRM_AXIS_TP, rank);
        assert_int_equal(((dp * 2 + pp) * 3 + cp) * 2 + tp, rank);
        for (int axis = 0; axis < TRM_AXIS_COUNT; axis++) {
            int32_t ranks[64];
            trm_mesh_group(&mesh, (trm_axis)axis, rank, ranks);
            assert_int_equal(ranks[trm_mesh_coordinate(&mesh, (trm_axis)axis, rank)], rank);
            for (int other = 0; other < TRM_AXIS_EP; other++) {
                for (int32_t i = 0; i < mesh.size[axis] && other != axis; i++) {
                    assert_int_equal(trm_mesh_coordinate(&mesh, (trm_axis)other, ranks[i]),
                                     trm_mesh_coordinate(&mesh, (trm_axis)other, rank));
                }
            }
        }
    }
    int32_t ranks[64];
    trm_mesh_group(&mesh, TRM_AXIS_CP, 3, ranks);
    const int32_t expected[] = {1, 3, 5};
    assert_memory_equal(ranks, expected, sizeof(expected));
}

/* ep is laid over dp: with ep=2 and dp=4, neighbours in dp share experts. */
static void test_experts(void **state)
{
    (void)state;
    trm_mesh mesh;
    assert_ok(trm_mesh_parse("tp=2,dp=4,ep=2", 8, &mesh));
    int32_t ranks[64];
    trm_mesh_group(&mesh, TRM_AXIS_EP, 7, ranks);
    assert_int_equal(ranks[0], 5);
    assert_int_equal(ranks[1], 7);
    trm_mesh_group(&mesh, TRM_AXIS_DP, 7, ranks);
    assert_int_equal(ranks[0], 1);
    assert_int_equal(ranks[3], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),  cmocka_unit_test(test_refused), cmocka_unit_test(test_format),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
