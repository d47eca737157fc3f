/* Several choices of one tensor move as one of all rows that they take, each then taking its own: as text before and
 * after, with the numbers of both, and near misses. */
#include "graph/choices.h"

typedef struct choice {
    trm_layer_desc desc; /* SLICE; GATHER by: */
    int32_t n;           /* index[n]; 0: a scalar */
    int64_t index[3];
} choice;

/* What each takes of `up`, which is made row by row of `rows` rows, is an output. */
static void check_choices(int64_t rows, int32_t n_choices, const choice *choices, const char *after)
{
    static const char *const names[] = {"a", "b", "c"};
    net n = start(-1, rows);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    for (int32_t i = 0; i < n_choices; i++) {
        const choice *c = &choices[i];
        trm_dims dims = c->n == 0 ? (trm_dims){0} : DIMS(c->n);
        trm_tensor *by =
            c->desc.kind == TRM_LAYER_GATHER ? index_of(&n, dims, c->index[0], c->index[1], c->index[2]) : NULL;
        net_output(n.network, add(&n, names[i], c->desc, up, by));
    }
    check_pass(n.network, trm_pass_select_rows, after);
}
#define CHOICES(...)                                                                                                   \
    (int32_t)(sizeof((choice[]){__VA_ARGS__}) / sizeof(choice)), (const choice[])                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ROW(i)                                                                                                         \
    {                                                                                                                  \
        .desc = GATHER(1), .index = { i }                                                                              \
    }
#define ROWS(n_, ...)                                                                                                  \
    {                                                                                                                  \
        .desc = GATHER(1), .n = n_, .index = { __VA_ARGS__ }                                                           \
    }
#define RANGE(...)                                                                                                     \
    {                                                                                                                  \
        .desc = SLICE(1, __VA_ARGS__)                                                                                  \
    }

static void rows_side_by_side(void **state)
{
    (void)state;
    check_choices(6, CHOICES(ROW(0), ROW(1)),
                  "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
                  "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 4] = gather(up, rows) axis=1\n"
                  "b: f32 [?, 4] = gather(up, rows.1) axis=1\n"
                  "output a\n"
                  "output b\n");
    /* They overlap, and one is within the other. */
    check_choices(8, CHOICES(RANGE(1, 3, 1), RANGE(-6, 4, 1), ROWS(1, -6)),
                  "mixed: f32 [?, 8, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 3, 4] = slice(mixed) axis=1 start=1 end=4\n"
                  "up: f32 [?, 3, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 2, 4] = slice(up) axis=1 end=2\n"
                  "b: f32 [?, 2, 4] = slice(up) axis=1 start=1\n"
                  "c: f32 [?, 1, 4] = slice(up) axis=1 start=1 end=2\n"
                  "output a\n"
                  "output b\n"
                  "output c\n");
}

static void rows_at_even_distance(void **state)
{
    (void)state;
    check_choices(6, CHOICES(RANGE(1, 4, 2), ROWS(1, -1), ROW(3)),
                  "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 3, 4] = slice(mixed) axis=1 start=1 step=2\n"
                  "up: f32 [?, 3, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 2, 4] = slice(up) axis=1 end=2\n"
                  "b: f32 [?, 1, 4] = slice(up) axis=1 start=2\n"
                  "c: f32 [?, 4] = gather(up, rows) axis=1\n"
                  "output a\n"
                  "output b\n"
                  "output c\n");
}

static void rows_here_and_there(void **state)
{
    (void)state;
    check_choices(6, CHOICES(ROW(-1), RANGE(0, 2, 1)),
                  "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 3, 4] = gather(mixed, rows) axis=1\n"
                  "up: f32 [?, 3, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 4] = gather(up, rows.1) axis=1\n"
                  "b: f32 [?, 2, 4] = slice(up) axis=1 end=2\n"
                  "output a\n"
                  "output b\n");
    /* 0, 1, 2, 4: of these a step no longer takes every second, and backwards is backwards. */
    check_choices(8, CHOICES(RANGE(0, 5, 2), RANGE(2, INT64_MIN, -1), ROWS(3, 4, 0, -6)),
                  "mixed: f32 [?, 8, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 4, 4] = gather(mixed, rows) axis=1\n"
                  "up: f32 [?, 4, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 3, 4] = gather(up, rows.1) axis=1\n"
                  "b: f32 [?, 3, 4] = slice(up) axis=1 start=2 end=-9223372036854775808 step=-1\n"
                  "c: f32 [?, 3, 4] = gather(up, rows.2) axis=1\n"
                  "output a\n"
                  "output b\n"
                  "output c\n");
    /* A row that is taken twice is made once. */
    check_choices(4, CHOICES(ROWS(3, 1, 1, 1), ROWS(1, 0)),
                  "mixed: f32 [?, 4, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
                  "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 3, 4] = gather(up, rows) axis=1\n"
                  "b: f32 [?, 1, 4] = slice(up) axis=1 end=1\n"
                  "output a\n"
                  "output b\n");
}

static void the_same_rows_twice(void **state)
{
    (void)state;
    check_choices(6, CHOICES(ROW(2), ROW(-4), ROWS(1, 2)),
                  "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 start=2 end=3\n"
                  "up: f32 [?, 1, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 4] = reshape(up) dims=[0, 4]\n"
                  "b: f32 [?, 4] = reshape(up) dims=[0, 4]\n"
                  "c: f32 [?, 1, 4] = slice(up) axis=1\n"
                  "output a\n"
                  "output b\n"
                  "output c\n");
    check_choices(6, CHOICES(ROWS(2, 2, 0), RANGE(2, INT64_MIN, -2), RANGE(0, 3, 2)),
                  "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                  "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=3 step=2\n"
                  "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
                  "a: f32 [?, 2, 4] = slice(up) axis=1 start=1 end=-9223372036854775808 step=-1\n"
                  "b: f32 [?, 2, 4] = slice(up) axis=1 start=1 end=-9223372036854775808 step=-1\n"
                  "c: f32 [?, 2, 4] = slice(up) axis=1\n"
                  "output a\n"
                  "output b\n"
                  "output c\n");
}

/* All rows, or more than half of them; none, or some that are not there; others than by their index. */
static void choices_that_take_too_much_together(void **state)
{
    (void)state;
    check_choices(6, CHOICES(RANGE(0, 3, 1), RANGE(3, INT64_MAX, 1)), NULL);
    check_choices(6, CHOICES(RANGE(0, 2, 1), RANGE(4, INT64_MAX, 1)), NULL);
    check_choices(5, CHOICES(ROW(0), ROW(1), ROW(2)), NULL);
    check_choices(6, CHOICES(ROW(0), ROW(6)), NULL);
    check_choices(6, CHOICES(ROW(0), ROW(-7)), NULL);
    check_choices(6, CHOICES(ROW(0), {.desc = SLICE(2, 0, 2, 1)}), NULL);
    net n = start(-1, 6); /* an index that a run tells */
    trm_tensor *up = product(&n, "up", n.mixed, 4), *given = net_input(n.network, "given", TRM_I32, DIMS(1));
    net_output(n.network, add(&n, "other", GATHER(1), up, given));
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(-1, 6); /* what is made of all rows before one is taken */
    up = product(&n, "up", n.mixed, 4);
    net_output(n.network, take_one(&n, net_unary(n.network, "act", RELU, up), 1, 1));
    check(&n, take_one(&n, up, 1, 0), NULL);
}

/* The last layer of a network with two heads: both of its streams are chosen from, and with the other passes what takes
 * all of them goes, an output as well as what is read. */
static void heads_of_a_network(void **state)
{
    (void)state;
    net n = start(-1, 7);
    trm_tensor *g = net_values(n.network, "g", DIMS(4)), *other = add(&n, "other", CUMULATIVE(1), n.mixed, NULL);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "merge", other, 4));
    trm_tensor *norm = net_norm(n.network, "norm", sum, g);
    net_output(n.network, product(&n, "first", take_one(&n, norm, 1, 0), 2));
    net_output(n.network, product(&n, "second", take_one(&n, norm, 1, 1), 3));
    net_output(n.network, add(&n, "both", SLICE(1, 0, 2, 1), norm, NULL));
    check(&n, net_unary(n.network, "z", RELU, add(&n, "again", GATHER(1), norm, index_of(&n, DIMS(2), 0, 1, 0))),
          "mixed: f32 [?, 7, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
          "other: f32 [?, 7, 4] = cumulative(mixed) op=sum axis=1\n"
          "other.1: f32 [?, 2, 4] = slice(other) axis=1 end=2\n"
          "merge: f32 [?, 2, 4] = matmul(other.1, w) transpose_b\n"
          "sum: f32 [?, 2, 4] = elementwise(mixed.1, merge) op=add\n"
          "norm: f32 [?, 2, 4] = norm(sum, g) op=rms eps=0.5\n"
          "y: f32 [?, 4] = gather(norm, rows) axis=1\n"
          "first: f32 [?, 2] = matmul(y, w.1) transpose_b\n"
          "y.1: f32 [?, 4] = gather(norm, rows.1) axis=1\n"
          "second: f32 [?, 3] = matmul(y.1, w.2) transpose_b\n"
          "both: f32 [?, 2, 4] = slice(norm) axis=1\n"
          "again: f32 [?, 2, 4] = slice(norm) axis=1\n"
          "z: f32 [?, 2, 4] = unary(again) op=activation activation=relu\n"
          "output first\n"
          "output second\n"
          "output both\n"
          "output z\n");
    n = start(-1, 7);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    net_output(n.network, take_one(&n, up, 1, 1));
    net_output(n.network, add(&n, "both", SLICE(1, 0, 2, 1), up, NULL));
    trm_tensor *again = add(&n, "again", GATHER(1), up, index_of(&n, DIMS(2), 0, 1, 0));
    net_output(n.network, net_unary(n.network, "z", RELU, again));
    check_pass(n.network, run_passes,
               "mixed: f32 [?, 7, 4] = softmax(x) axis=1\n"
               "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
               "both: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b # up\n"
               "y: f32 [?, 4] = gather(both, rows) axis=1\n"
               "z: f32 [?, 2, 4] = unary(both) op=activation activation=relu\n"
               "output y\n"
               "output both\n"
               "output z\n");
}

/* Choices that meet after one of them was moved: the first behind a product, then both before another. */
static void choices_that_come_together(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    net_output(n.network, take_one(&n, product(&n, "head", up, 2), 1, 3));
    check(&n, take_one(&n, up, 1, 1),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 start=1 end=4 step=2\n"
          "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
          "up.1: f32 [?, 1, 4] = slice(up) axis=1 start=1\n"
          "head: f32 [?, 1, 2] = matmul(up.1, w.1) transpose_b\n"
          "y: f32 [?, 2] = reshape(head) dims=[0, 2]\n"
          "y.1: f32 [?, 4] = gather(up, rows) axis=1\n"
          "output y\n"
          "output y.1\n");
}

/* Several that take the same row; of two others nobody knows whether they are less than all. */
static void a_row_of_unknown_many_twice(void **state)
{
    (void)state;
    net n = start(2, -1);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    net_output(n.network, add(&n, "other", GATHER(1), up, index_of(&n, DIMS(1), -1, 0, 0)));
    check_sizes(&n, take_one(&n, up, 1, -1),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "mixed.1: f32 [2, ?, 4] = slice(mixed) axis=1 start=-1\n"
                "up: f32 [2, ?, 4] = matmul(mixed.1, w) transpose_b\n"
                "other: f32 [2, 1, 4] = gather(up, rows) axis=1\n"
                "y: f32 [2, 4] = gather(up, rows.1) axis=1\n"
                "output other\n"
                "output y\n");
    n = start(2, -1);
    up = product(&n, "up", n.mixed, 4);
    net_output(n.network, add(&n, "other", GATHER(1), up, index_of(&n, DIMS(1), 1, 0, 0)));
    check_sizes(&n, take_one(&n, up, 1, 0), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_side_by_side),
        cmocka_unit_test(rows_at_even_distance),
        cmocka_unit_test(rows_here_and_there),
        cmocka_unit_test(the_same_rows_twice),
        cmocka_unit_test(choices_that_take_too_much_together),
        cmocka_unit_test(heads_of_a_network),
        cmocka_unit_test(choices_that_come_together),
        cmocka_unit_test(a_row_of_unknown_many_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
