/* Choices of rows move before the products that they choose from: as text before and after, with the numbers of both,
 * and near misses. */
#include "graph/choices.h"

/* ---- what moves -------------------------------------------------------------------------------- */

static void one_row(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *g = net_values(n.network, "g", DIMS(4)), *pre = net_norm(n.network, "pre", n.mixed, g);
    trm_tensor *act = net_unary(n.network, "act", RELU, product(&n, "up", pre, 8));
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "down", act, 4));
    check(&n, product(&n, "head", take_one(&n, net_norm(n.network, "post", sum, g), 1, 0), 2),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 end=1\n"
          "pre: f32 [?, 1, 4] = norm(mixed.1, g) op=rms eps=0.5\n"
          "up: f32 [?, 1, 8] = matmul(pre, w) transpose_b\n"
          "act: f32 [?, 1, 8] = unary(up) op=activation activation=relu\n"
          "down: f32 [?, 1, 4] = matmul(act, w.1) transpose_b\n"
          "sum: f32 [?, 1, 4] = elementwise(mixed.1, down) op=add\n"
          "post: f32 [?, 1, 4] = norm(sum, g) op=rms eps=0.5\n"
          "y: f32 [?, 4] = reshape(post) dims=[0, 4]\n"
          "head: f32 [?, 2] = matmul(y, w.2) transpose_b\n"
          "output head\n");
}

/* The old choice takes all that is left. */
static void some_rows(void **state)
{
    (void)state;
    net n = start(2, 6);
    trm_tensor *act = net_unary(n.network, "act", RELU, product(&n, "up", n.mixed, 8));
    check(&n, add(&n, "y", GATHER(1), act, index_of(&n, DIMS(3), 5, 0, -6)),
          "mixed: f32 [2, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [2, 3, 4] = gather(mixed, rows) axis=1\n"
          "up: f32 [2, 3, 8] = matmul(mixed.1, w) transpose_b\n"
          "act: f32 [2, 3, 8] = unary(up) op=activation activation=relu\n"
          "y: f32 [2, 3, 8] = slice(act) axis=1\n"
          "output y\n");
    n = start(-1, 6);
    check(&n, add(&n, "y", SLICE(1, -1, -6, -2), product(&n, "up", n.mixed, 8), NULL),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 3, 4] = slice(mixed) axis=1 start=5 end=0 step=-2\n"
          "up: f32 [?, 3, 8] = matmul(mixed.1, w) transpose_b\n"
          "y: f32 [?, 3, 8] = slice(up) axis=1\n"
          "output y\n");
    n = start(-1, 6);
    check(&n, add(&n, "y", GATHER(1), product(&n, "up", n.mixed, 8), index_of(&n, DIMS(1), -1, 0, 0)),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 start=5\n"
          "up: f32 [?, 1, 8] = matmul(mixed.1, w) transpose_b\n"
          "y: f32 [?, 1, 8] = slice(up) axis=1\n"
          "output y\n");
    n = start(-1, 6); /* backwards, to the first */
    check(&n, add(&n, "y", GATHER(1), product(&n, "up", n.mixed, 8), index_of(&n, DIMS(3), -2, 2, 0)),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 3, 4] = slice(mixed) axis=1 start=4 end=-9223372036854775808 step=-2\n"
          "up: f32 [?, 3, 8] = matmul(mixed.1, w) transpose_b\n"
          "y: f32 [?, 3, 8] = slice(up) axis=1\n"
          "output y\n");
}

/* With the other passes nothing is left of it, and patterns are found as if there were no others. */
static void what_takes_all_goes(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "up", n.mixed, 4));
    trm_tensor *rows = add(&n, "rows", SLICE(1, 0, 2, 1), sum, NULL);
    net_output(n.network, net_norm(n.network, "norm", rows, net_values(n.network, "g", DIMS(4))));
    check_pass(n.network, run_passes,
               "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
               "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
               "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
               "norm: f32 [?, 2, 4], sum: f32 [?, 2, 4] = norm(up, mixed.1, g) op=rms residual eps=0.5\n"
               "output norm\n");
    n = start(2, 6);
    sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "up", n.mixed, 4));
    net_output(n.network, add(&n, "y", SLICE(1, 0, 2, 1), sum, NULL));
    check_pass(n.network, run_passes,
               "mixed: f32 [2, 6, 4] = softmax(x) axis=1\n"
               "mixed.1: f32 [2, 2, 4] = slice(mixed) axis=1 end=2\n"
               "up: f32 [2, 2, 4] = matmul(mixed.1, w) transpose_b\n"
               "y: f32 [2, 2, 4] = elementwise(mixed.1, up) op=add # sum\n"
               "output y\n");
}

/* Also of what the product before reads, if that leaves two tensors to choose from. */
static void rows_of_two_streams(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *other = add(&n, "other", CUMULATIVE(1), n.mixed, NULL);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "merge", other, 4));
    trm_tensor *more = net_binary(n.network, "more", ADD, sum, product(&n, "up", sum, 4));
    check(&n, take_one(&n, more, 1, 2),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 start=2 end=3\n"
          "other: f32 [?, 6, 4] = cumulative(mixed) op=sum axis=1\n"
          "other.1: f32 [?, 1, 4] = slice(other) axis=1 start=2 end=3\n"
          "merge: f32 [?, 1, 4] = matmul(other.1, w) transpose_b\n"
          "sum: f32 [?, 1, 4] = elementwise(mixed.1, merge) op=add\n"
          "up: f32 [?, 1, 4] = matmul(sum, w.1) transpose_b\n"
          "more: f32 [?, 1, 4] = elementwise(sum, up) op=add\n"
          "y: f32 [?, 4] = reshape(more) dims=[0, 4]\n"
          "output y\n");
    n = start(-1, 6);
    other = add(&n, "other", CUMULATIVE(1), n.mixed, NULL);
    trm_tensor *third = add(&n, "third", CUMULATIVE(1), other, NULL);
    sum = net_binary(n.network, "sum", ADD, other, product(&n, "merge", third, 4));
    sum = net_binary(n.network, "both", ADD, n.mixed, sum);
    check(&n, take_one(&n, product(&n, "up", sum, 4), 1, 2), /* three are too many */
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "other: f32 [?, 6, 4] = cumulative(mixed) op=sum axis=1\n"
          "third: f32 [?, 6, 4] = cumulative(other) op=sum axis=1\n"
          "merge: f32 [?, 6, 4] = matmul(third, w) transpose_b\n"
          "sum: f32 [?, 6, 4] = elementwise(other, merge) op=add\n"
          "both: f32 [?, 6, 4] = elementwise(mixed, sum) op=add\n"
          "both.1: f32 [?, 1, 4] = slice(both) axis=1 start=2 end=3\n"
          "up: f32 [?, 1, 4] = matmul(both.1, w.1) transpose_b\n"
          "y: f32 [?, 4] = reshape(up) dims=[0, 4]\n"
          "output y\n");
}

/* The axis is another one before a transpose, a reduction and a reshape, whose parameters say its size. */
static void the_axis_moves_about(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *up = product(&n, "up", n.mixed, 4), *split = NULL, *flat = NULL;
    assert_ok(trm_network_add_reshape(n.network, "split", up, DIMS(-1, 6, 2, 2), &split));
    trm_tensor *heads = add(&n, "heads", TRANSPOSE(0, 2, 1, 3), split, NULL);
    trm_tensor *soft = add(&n, "soft", SOFTMAX(3), heads, NULL);
    trm_tensor *most = add(&n, "most", LARGEST(1, false), soft, NULL);
    trm_tensor *scaled = net_binary(n.network, "scaled", MUL, most, net_values(n.network, "s", DIMS(2)));
    assert_ok(trm_network_add_reshape(n.network, "flat", scaled, DIMS(-1, 6, 2, 1), &flat));
    check(&n, take_one(&n, flat, 1, 3),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 start=3 end=4\n"
          "up: f32 [?, 1, 4] = matmul(mixed.1, w) transpose_b\n"
          "split: f32 [?, 1, 2, 2] = reshape(up) dims=[-1, 1, 2, 2]\n"
          "heads: f32 [?, 2, 1, 2] = transpose(split) perm=[0, 2, 1, 3]\n"
          "soft: f32 [?, 2, 1, 2] = softmax(heads) axis=3\n"
          "most: f32 [?, 1, 2] = reduce(soft) op=max axis=1\n"
          "scaled: f32 [?, 1, 2] = elementwise(most, s) op=mul\n"
          "flat: f32 [?, 1, 2, 1] = reshape(scaled) dims=[-1, 1, 2, 1]\n"
          "y: f32 [?, 2, 1] = reshape(flat) dims=[0, 2, 1]\n"
          "output y\n");
    n = start(2, 6);
    trm_tensor *turned = add(&n, "turned", TRANSPOSE(0, 2, 1), n.mixed, NULL);
    up = add(&n, "up", MATMUL(.transpose_a = true), turned, net_weight(n.network, "w", DIMS(4, 3), 1));
    check(&n, add(&n, "y", SLICE(1, 4, INT64_MAX, 1), up, NULL),
          "mixed: f32 [2, 6, 4] = softmax(x) axis=1\n"
          "turned: f32 [2, 4, 6] = transpose(mixed) perm=[0, 2, 1]\n"
          "turned.1: f32 [2, 4, 2] = slice(turned) axis=2 start=4\n"
          "up: f32 [2, 2, 3] = matmul(turned.1, w) transpose_a\n"
          "y: f32 [2, 2, 3] = slice(up) axis=1\n"
          "output y\n");
    n = start(2, 6);
    turned = add(&n, "turned", TRANSPOSE(0, 2, 1), n.mixed, NULL);
    up = add(&n, "up", MATMUL(.transpose_a = true), turned, net_weight(n.network, "w", DIMS(4, 3), 1));
    check(&n, add(&n, "y", GATHER(1), up, index_of(&n, DIMS(2), 2, 2, 0)),
          "mixed: f32 [2, 6, 4] = softmax(x) axis=1\n"
          "turned: f32 [2, 4, 6] = transpose(mixed) perm=[0, 2, 1]\n"
          "turned.1: f32 [2, 4, 2] = gather(turned, rows) axis=2\n"
          "up: f32 [2, 2, 3] = matmul(turned.1, w) transpose_a\n"
          "y: f32 [2, 2, 3] = slice(up) axis=1\n"
          "output y\n");
    n = start(1, 6); /* 6 columns, copied from where the rows are */
    assert_ok(trm_network_add_reshape(n.network, "flat", product(&n, "up", n.mixed, 6), DIMS(6, 0), &flat));
    check(&n, add(&n, "y", SLICE(0, 4, INT64_MAX, 1), flat, NULL),
          "mixed: f32 [1, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [1, 2, 4] = slice(mixed) axis=1 start=4\n"
          "up: f32 [1, 2, 6] = matmul(mixed.1, w) transpose_b\n"
          "flat: f32 [2, 6] = reshape(up) dims=[2, 6]\n"
          "y: f32 [2, 6] = slice(flat) axis=0\n"
          "output y\n");
}

/* Both axes of a square that is added to itself turned are chosen from in one tensor, or two that a layer makes. */
static void two_axes_of_one_layer(void **state)
{
    (void)state;
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 1}};
    net n = start(2, 4);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, up, add(&n, "turned", TRANSPOSE(0, 2, 1), up, NULL));
    check(&n, take_one(&n, product(&n, "last", sum, 4), 1, 1),
          "mixed: f32 [2, 4, 4] = softmax(x) axis=1\n"
          "up: f32 [2, 4, 4] = matmul(mixed, w) transpose_b\n"
          "turned: f32 [2, 4, 4] = transpose(up) perm=[0, 2, 1]\n"
          "sum: f32 [2, 4, 4] = elementwise(up, turned) op=add\n"
          "sum.1: f32 [2, 1, 4] = slice(sum) axis=1 start=1 end=2\n"
          "last: f32 [2, 1, 4] = matmul(sum.1, w.1) transpose_b\n"
          "y: f32 [2, 4] = reshape(last) dims=[2, 4]\n"
          "output y\n");
    n = start(2, 4);
    trm_tensor *inputs[] = {product(&n, "up", n.mixed, 4), n.mixed}, *outputs[2];
    assert_ok(trm_network_add_layer(n.network, "norm", &norm, inputs, 2, outputs));
    trm_tensor *turned = add(&n, "turned", TRANSPOSE(0, 2, 1), outputs[1], NULL);
    check(&n, take_one(&n, net_binary(n.network, "sum", ADD, outputs[0], turned), 1, 1), NULL);
}

/* Indices of rows, and what they are indices of: the one is chosen from, the other is not. */
static void a_tensor_that_is_read_whole_too(void **state)
{
    (void)state;
    const trm_layer_desc to_i64 = {.kind = TRM_LAYER_CAST, .cast = {TRM_I64}},
                         to_f32 = {.kind = TRM_LAYER_CAST, .cast = {TRM_F32}};
    net n = {.network = net_create()};
    trm_tensor *x = net_input(n.network, "x", TRM_F32, DIMS(6)), *first = NULL, *second = NULL;
    trm_tensor *t = add(&n, "t", to_i64, x, NULL);
    trm_tensor *of = add(&n, "of", GATHER(0), t, t);
    assert_ok(trm_network_add_reshape(n.network, "first", add(&n, "of_f32", to_f32, of, NULL), DIMS(6, 1), &first));
    assert_ok(trm_network_add_reshape(n.network, "second", add(&n, "t_f32", to_f32, t, NULL), DIMS(6, 1), &second));
    trm_tensor *sum = net_binary(n.network, "sum", ADD, second, product(&n, "up", first, 1));
    check(&n, take_one(&n, sum, 0, 4),
          "t: i64 [6] = cast(x) to=i64\n"
          "t.1: i64 [1] = slice(t) axis=0 start=4 end=5\n"
          "of: i64 [1] = gather(t, t.1) axis=0\n"
          "of_f32: f32 [1] = cast(of) to=f32\n"
          "first: f32 [1, 1] = reshape(of_f32) dims=[1, 1]\n"
          "t_f32: f32 [1] = cast(t.1) to=f32\n"
          "second: f32 [1, 1] = reshape(t_f32) dims=[1, 1]\n"
          "up: f32 [1, 1] = matmul(first, w) transpose_b\n"
          "sum: f32 [1, 1] = elementwise(second, up) op=add\n"
          "y: f32 [1] = reshape(sum) dims=[1]\n"
          "output y\n");
}

static void fewer_rows_are_no_part_of_the_whole(void **state)
{
    (void)state;
    const trm_tensor_part whole = {.kind = TRM_PART_WHOLE, .parts = 1, .of = "up"};
    net n = start(-1, 6);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    trm_tensor *y = take_one(&n, up, 1, 0);
    net_output(n.network, y);
    n.mixed->part = up->part = y->part = whole;
    assert_ok(trm_pass_select_rows(n.network, NULL));
    assert_int_equal(n.mixed->part.kind, TRM_PART_WHOLE);
    assert_int_equal(up->part.kind, TRM_PART_UNKNOWN);
    assert_int_equal(y->part.kind, TRM_PART_WHOLE);
    trm_network_destroy(n.network);
}

/* A norm with its sum: both are of fewer rows, whether they are read or not. */
static void rows_of_norms_with_sums(void **state)
{
    (void)state;
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 1}};
    for (int32_t taken = 0; taken < 2; taken++) {
        net n = start(-1, 6);
        trm_tensor *inputs[] = {product(&n, "up", n.mixed, 4), n.mixed}, *outputs[2];
        assert_ok(trm_network_add_layer(n.network, "norm", &norm, inputs, 2, outputs));
        check(&n, add(&n, "y", SLICE(1, 0, 2, 1), outputs[taken], NULL),
              taken == 0 ? "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                           "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
                           "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
                           "norm: f32 [?, 2, 4], norm:1: f32 [?, 2, 4] = norm(up, mixed.1) op=rms residual eps=1\n"
                           "y: f32 [?, 2, 4] = slice(norm) axis=1\n"
                           "output y\n"
                         : "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
                           "mixed.1: f32 [?, 2, 4] = slice(mixed) axis=1 end=2\n"
                           "up: f32 [?, 2, 4] = matmul(mixed.1, w) transpose_b\n"
                           "norm: f32 [?, 2, 4], norm:1: f32 [?, 2, 4] = norm(up, mixed.1) op=rms residual eps=1\n"
                           "y: f32 [?, 2, 4] = slice(norm:1) axis=1\n"
                           "output y\n");
    }
}

/* ---- axes of unknown size ---------------------------------------------------------------------- */

static void a_row_of_unknown_many(void **state)
{
    (void)state;
    net n = start(2, -1);
    trm_tensor *up = product(&n, "up", n.mixed, 4), *flat = NULL;
    assert_ok(trm_network_add_reshape(n.network, "flat", up, DIMS(2, -1, 2, 2), &flat));
    check_sizes(&n, take_one(&n, flat, 1, 0),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "mixed.1: f32 [2, ?, 4] = slice(mixed) axis=1 end=1\n"
                "up: f32 [2, ?, 4] = matmul(mixed.1, w) transpose_b\n"
                "flat: f32 [2, ?, 2, 2] = reshape(up) dims=[2, -1, 2, 2]\n"
                "y: f32 [2, 2, 2] = gather(flat, rows) axis=1\n"
                "output y\n");
    n = start(2, -1);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "up", n.mixed, 4));
    check_sizes(&n, take_one(&n, sum, 1, -1),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "mixed.1: f32 [2, ?, 4] = slice(mixed) axis=1 start=-1\n"
                "up: f32 [2, ?, 4] = matmul(mixed.1, w) transpose_b\n"
                "sum: f32 [2, ?, 4] = elementwise(mixed.1, up) op=add\n"
                "y: f32 [2, 4] = gather(sum, rows) axis=1\n"
                "output y\n");
    n = start(2, -1);
    check_sizes(&n, add(&n, "y", GATHER(1), product(&n, "up", n.mixed, 4), index_of(&n, DIMS(1), 3, 0, 0)),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "mixed.1: f32 [2, ?, 4] = slice(mixed) axis=1 start=3 end=4\n"
                "up: f32 [2, ?, 4] = matmul(mixed.1, w) transpose_b\n"
                "y: f32 [2, 1, 4] = gather(up, rows) axis=1\n"
                "output y\n");
    n = start(1, -1);
    assert_ok(trm_network_add_reshape(n.network, "flat", product(&n, "up", n.mixed, 4), DIMS(-1, 4), &flat));
    check_sizes(&n, take_one(&n, flat, 0, 0),
                "mixed: f32 [1, ?, 4] = softmax(x) axis=1\n"
                "mixed.1: f32 [1, ?, 4] = slice(mixed) axis=1 end=1\n"
                "up: f32 [1, ?, 4] = matmul(mixed.1, w) transpose_b\n"
                "flat: f32 [?, 4] = reshape(up) dims=[-1, 4]\n"
                "y: f32 [4] = gather(flat, rows) axis=0\n"
                "output y\n");
    n = start(2, -1); /* of five at most */
    trm_tensor *five = add(&n, "five", SLICE(1, 0, 5, 1), n.mixed, NULL);
    check_sizes(&n, take_one(&n, product(&n, "up", five, 4), 1, 0),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "five: f32 [2, ?, 4] = slice(mixed) axis=1 end=5\n"
                "five.1: f32 [2, ?, 4] = slice(five) axis=1 end=1\n"
                "up: f32 [2, ?, 4] = matmul(five.1, w) transpose_b\n"
                "y: f32 [2, 4] = gather(up, rows) axis=1\n"
                "output y\n");
}

/* A reshape that copies the size of the rows elsewhere, or that of something else for the rows. */
static void reshapes_that_copy_other_axes(void **state)
{
    (void)state;
    for (int32_t axis = 0; axis < 2; axis++) {
        net n = start(1, -1);
        trm_tensor *flat = NULL;
        trm_tensor *turned = add(&n, "turned", TRANSPOSE(0, 2, 1), product(&n, "columns", n.mixed, 1), NULL);
        trm_tensor *square = net_binary(n.network, "square", MUL, product(&n, "rows", n.mixed, 1), turned);
        assert_ok(trm_network_add_reshape(n.network, "flat", square, DIMS(-1, 0), &flat));
        check(&n, add(&n, "z", LARGEST(0, false), take_one(&n, flat, axis, 2), NULL), NULL);
    }
}

/* Where classes of dims do not follow, nobody could tell that the rows are chosen from already. */
static void sizes_that_are_lost(void **state)
{
    (void)state;
    const trm_layer_desc largest = {.kind = TRM_LAYER_TOPK, .topk = {.axis = 2}};
    for (int32_t known = 0; known < 2; known++) {
        net n = start(2, known ? 6 : -1);
        trm_tensor *inputs[] = {product(&n, "up", n.mixed, 4), index_of(&n, DIMS(1), 2, 0, 0)}, *outputs[2];
        assert_ok(trm_network_add_layer(n.network, "top", &largest, inputs, 2, outputs));
        check(&n, take_one(&n, outputs[0], 1, 1),
              known ? "mixed: f32 [2, 6, 4] = softmax(x) axis=1\n"
                      "mixed.1: f32 [2, 1, 4] = slice(mixed) axis=1 start=1 end=2\n"
                      "up: f32 [2, 1, 4] = matmul(mixed.1, w) transpose_b\n"
                      "top: f32 [2, 1, 2], top:1: i64 [2, 1, 2] = topk(up, i) axis=2\n"
                      "y: f32 [2, 2] = reshape(top) dims=[2, 2]\n"
                      "output y\n"
                    : NULL);
    }
}

/* Two choices would not be known to be of one size. */
static void unknown_many_are_chosen_from_once(void **state)
{
    (void)state;
    net n = start(2, -1);
    trm_tensor *other = add(&n, "other", CUMULATIVE(1), n.mixed, NULL);
    trm_tensor *sum = net_binary(n.network, "sum", ADD, n.mixed, product(&n, "merge", other, 4));
    check_sizes(&n, take_one(&n, product(&n, "up", sum, 4), 1, 0),
                "mixed: f32 [2, ?, 4] = softmax(x) axis=1\n"
                "other: f32 [2, ?, 4] = cumulative(mixed) op=sum axis=1\n"
                "merge: f32 [2, ?, 4] = matmul(other, w) transpose_b\n"
                "sum: f32 [2, ?, 4] = elementwise(mixed, merge) op=add\n"
                "sum.1: f32 [2, ?, 4] = slice(sum) axis=1 end=1\n"
                "up: f32 [2, ?, 4] = matmul(sum.1, w.1) transpose_b\n"
                "y: f32 [2, 4] = gather(up, rows) axis=1\n"
                "output y\n");
}

/* With more unknown dims than a reshape can have, what is left of the old choice stays one. */
static void dims_that_no_reshape_has(void **state)
{
    (void)state;
    net n = {.network = net_create()};
    trm_tensor *x = net_input(n.network, "x", TRM_F32, DIMS(3, -1, -1, 4));
    trm_tensor *up = product(&n, "up", x, 8);
    check(&n, take_one(&n, up, 0, -1),
          "x.1: f32 [1, ?, ?, 4] = slice(x) axis=0 start=2\n"
          "up: f32 [1, ?, ?, 8] = matmul(x.1, w) transpose_b\n"
          "y: f32 [?, ?, 8] = gather(up, rows) axis=0\n"
          "output y\n");
}

/* ---- what stays -------------------------------------------------------------------------------- */

static void rows_that_are_read(void **state)
{
    (void)state;
    net n = start(-1, 6); /* by the caller */
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    net_output(n.network, up);
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(-1, 6); /* by another layer */
    up = product(&n, "up", n.mixed, 4);
    net_output(n.network, net_unary(n.network, "other", RELU, up));
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(-1, 6); /* by another choice, of the rest */
    up = product(&n, "up", n.mixed, 4);
    net_output(n.network, add(&n, "rest", SLICE(1, 1, INT64_MAX, 1), up, NULL));
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(-1, 6); /* by another choice, and by the caller */
    up = product(&n, "up", n.mixed, 4);
    net_output(n.network, up);
    net_output(n.network, take_one(&n, up, 1, 1));
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(-1, 6);
    up = product(&n, "up", n.mixed, 4);
    assert_ok(trm_network_pin(n.network, up, "replicate"));
    check(&n, take_one(&n, up, 1, 0), NULL);
    n = start(2, 6); /* of what layers may write before */
    trm_tensor *memory = NULL;
    assert_ok(trm_network_add_state(n.network, "memory", TRM_F32, DIMS(2, 6, 4), &memory));
    check(&n, take_one(&n, product(&n, "up", memory, 4), 1, 0), NULL);
}

static void layers_that_mix_rows(void **state)
{
    (void)state;
    const trm_layer_desc mix[] = {SOFTMAX(1), CUMULATIVE(1), LARGEST(1, true)};
    for (size_t i = 0; i < 3; i++) {
        net n = start(-1, 6);
        trm_tensor *mixed = add(&n, "again", mix[i], product(&n, "up", n.mixed, 4), NULL);
        check(&n, take_one(&n, mixed, 1, 0), NULL);
    }
    net n = start(2, 6); /* a size that is a parameter */
    trm_layer_desc expand = {.kind = TRM_LAYER_EXPAND, .expand = {DIMS(2, 6, 4)}};
    check(&n, take_one(&n, add(&n, "wide", expand, product(&n, "up", n.mixed, 4), NULL), 1, 0), NULL);
    n = start(-1, 6); /* the axis that a norm takes together, and a product */
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    check(&n, take_one(&n, net_norm(n.network, "norm", up, net_values(n.network, "g", DIMS(4))), 2, 0), NULL);
    n = start(-1, 6);
    check(&n, take_one(&n, product(&n, "up", n.mixed, 4), 2, 0), NULL); /* of a weight */
    n = start(2, 6);                                                    /* rows that are no axis of their own */
    trm_tensor *flat = NULL;
    assert_ok(trm_network_add_reshape(n.network, "flat", product(&n, "up", n.mixed, 4), DIMS(12, 4), &flat));
    check(&n, take_one(&n, flat, 0, 0), NULL);
}

/* The scores and the sums of attention; behind them there is something to gain. */
static void attention_stays_whole(void **state)
{
    (void)state;
    net n = start(2, 6);
    trm_tensor *q = product(&n, "q", n.mixed, 4), *k = product(&n, "k", n.mixed, 4), *v = product(&n, "v", n.mixed, 4);
    trm_tensor *scores = add(&n, "scores", MATMUL(.transpose_b = true), q, k);
    trm_tensor *heads = add(&n, "heads", MATMUL(0), add(&n, "p", SOFTMAX(2), scores, NULL), v);
    check(&n, take_one(&n, heads, 1, 0), NULL);
}

static void choices_that_take_no_less(void **state)
{
    (void)state;
    const int64_t all[] = {0, 1, 2, 3, 4, 4}, out_of_range[] = {0, 6}, below[] = {-7, 0};
    const struct {
        int64_t rows, n;
        const int64_t *values;
    } cases[] = {
        {6, 6, all}, {5, 6, all}, {6, 4, all}, {7, 4, all}, {6, 2, out_of_range}, {6, 2, below}, {-1, 2, all},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        net n = start(2, cases[i].rows);
        trm_tensor *indices = NULL, *up = product(&n, "up", n.mixed, 4);
        assert_ok(trm_network_add_constant(n.network, "i", TRM_I64, DIMS(cases[i].n), cases[i].values, &indices));
        check(&n, add(&n, "y", GATHER(1), up, indices), NULL);
    }
    net n = start(2, 6); /* of two axes */
    check(&n, add(&n, "y", GATHER(1), product(&n, "up", n.mixed, 4), index_of(&n, DIMS(1, 2), 0, 1, 0)), NULL);
    n = start(2, 6);
    trm_tensor *given = net_input(n.network, "given", TRM_I32, DIMS(1));
    check(&n, add(&n, "y", GATHER(1), product(&n, "up", n.mixed, 4), given), NULL);
    n = start(2, -1);
    check(&n, add(&n, "y", SLICE(1, 0, 2, 1), product(&n, "up", n.mixed, 4), NULL), NULL);
    n = start(2, 6);
    check(&n, add(&n, "y", SLICE(1, 0, 6, 1), product(&n, "up", n.mixed, 4), NULL), NULL);
    n = start(2, 6);
    check(&n, add(&n, "y", SLICE(1, 1, INT64_MAX, 1), product(&n, "up", n.mixed, 4), NULL), NULL);
    n = start(2, 6); /* of a step that is left to a tensor */
    const trm_layer_desc slice = SLICE(1, 0, 2, 1);
    trm_tensor *inputs[] = {product(&n, "up", n.mixed, 4), NULL, NULL, index_of(&n, DIMS(1), 3, 0, 0)}, *y;
    assert_ok(trm_network_add_layer(n.network, "y", &slice, inputs, 4, &y));
    check(&n, y, NULL);
    n = start(2, 1);
    check(&n, take_one(&n, product(&n, "up", n.mixed, 4), 1, 0), NULL);
}

/* What broadcasts along the axis stays; what has it, and is a constant, or may have it in a run, ends the way. */
static void inputs_that_have_the_axis(void **state)
{
    (void)state;
    net n = start(-1, 6);
    trm_tensor *up = product(&n, "up", n.mixed, 4);
    trm_tensor *wide = net_binary(n.network, "wide", ADD, up, net_values(n.network, "one", DIMS(1, 4)));
    check(&n, take_one(&n, wide, 1, 5),
          "mixed: f32 [?, 6, 4] = softmax(x) axis=1\n"
          "mixed.1: f32 [?, 1, 4] = slice(mixed) axis=1 start=5\n"
          "up: f32 [?, 1, 4] = matmul(mixed.1, w) transpose_b\n"
          "wide: f32 [?, 1, 4] = elementwise(up, one) op=add\n"
          "y: f32 [?, 4] = reshape(wide) dims=[0, 4]\n"
          "output y\n");
    n = start(-1, 6);
    up = product(&n, "up", n.mixed, 4);
    check(&n, take_one(&n, net_binary(n.network, "sum", ADD, up, net_values(n.network, "p", DIMS(6, 4))), 1, 5), NULL);
    n = start(2, -1);
    trm_tensor *rest = net_input(n.network, "rest", TRM_F32, DIMS(-1, 4)); /* or one row of it */
    check(&n, take_one(&n, net_binary(n.network, "sum", ADD, product(&n, "up", n.mixed, 4), rest), 1, 1), NULL);
    n = start(-1, 6);
    up = product(&n, "up", n.mixed, 4);
    trm_tensor *some = net_input(n.network, "some", TRM_F32, DIMS(-1, 4));
    trm_network *network = n.network; /* of the sizes 5 and 6 it would not run */
    net_output(network, take_one(&n, net_binary(network, "sum", ADD, up, some), 1, 5));
    char *text = trm_network_to_text(network);
    assert_ok(trm_pass_select_rows(network, NULL));
    assert_text(network, text);
    trm_free(text);
    trm_network_destroy(network);
}

static void little_is_not_worth_a_move(void **state)
{
    (void)state;
    net n = start(-1, 6);
    check(&n, take_one(&n, net_unary(n.network, "act", RELU, n.mixed), 1, 0), NULL);
}

static void networks_with_regions_stay(void **state)
{
    (void)state;
    net n = start(2, 6);
    trm_tensor *condition = net_input(n.network, "condition", TRM_BOOL, (trm_dims){0});
    trm_tensor *begun = add(&n, "if", (trm_layer_desc){.kind = TRM_LAYER_IF}, condition, NULL);
    add(&n, "end", (trm_layer_desc){.kind = TRM_LAYER_END_IF}, begun, NULL);
    net_output(n.network, take_one(&n, product(&n, "up", n.mixed, 4), 1, 0));
    char *text = trm_network_to_text(n.network);
    assert_ok(trm_pass_select_rows(n.network, NULL));
    assert_text(n.network, text);
    trm_free(text);
    trm_network_destroy(n.network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row),
        cmocka_unit_test(some_rows),
        cmocka_unit_test(what_takes_all_goes),
        cmocka_unit_test(rows_of_two_streams),
        cmocka_unit_test(the_axis_moves_about),
        cmocka_unit_test(two_axes_of_one_layer),
        cmocka_unit_test(a_tensor_that_is_read_whole_too),
        cmocka_unit_test(fewer_rows_are_no_part_of_the_whole),
        cmocka_unit_test(rows_of_norms_with_sums),
        cmocka_unit_test(a_row_of_unknown_many),
        cmocka_unit_test(reshapes_that_copy_other_axes),
        cmocka_unit_test(sizes_that_are_lost),
        cmocka_unit_test(unknown_many_are_chosen_from_once),
        cmocka_unit_test(dims_that_no_reshape_has),
        cmocka_unit_test(rows_that_are_read),
        cmocka_unit_test(layers_that_mix_rows),
        cmocka_unit_test(attention_stays_whole),
        cmocka_unit_test(choices_that_take_no_less),
        cmocka_unit_test(inputs_that_have_the_axis),
        cmocka_unit_test(little_is_not_worth_a_move),
        cmocka_unit_test(networks_with_regions_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
