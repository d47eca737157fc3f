/* How often layers of loops are estimated to run: as constants and elements of inputs say, else by a guess. */
#include "support/support.h"

#include "graph/layer_runs.h"
#include "nets.h"

#define KIND(kind_) ((trm_layer_desc){.kind = (kind_)})

static const trm_layer_desc negative = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_NEG}};
static const trm_layer_desc less = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {.op = TRM_ELEMENTWISE_LESS}};

static trm_tensor *add(trm_network *network, trm_layer_desc desc, trm_tensor *a, trm_tensor *b)
{
    return net_layer(network, NULL, desc, a, b, NULL, NULL);
}

static trm_tensor *number(trm_network *network, int64_t value)
{
    trm_tensor *made;
    assert_ok(trm_network_add_constant(network, NULL, TRM_I64, (trm_dims){0}, &value, &made));
    return made;
}

static trm_tensor *scalar(trm_network *network, const char *name, trm_dtype dtype)
{
    return net_input(network, name, dtype, (trm_dims){0});
}

/* A loop that counts. */
typedef struct loop {
    trm_tensor *counter, *begun; /* in the loop, what it counts from 0 */
} loop;

static loop begin_loop(trm_network *network, trm_tensor *trips)
{
    loop made = {.counter = add(network, KIND(TRM_LAYER_RECURRENCE), number(network, 0), NULL)};
    made.begun = add(network, KIND(TRM_LAYER_LOOP), add(network, less, number(network, 0), trips), NULL);
    return made;
}

static void end_loop(trm_network *network, const loop *l, trm_tensor *trips)
{
    trm_tensor *next = net_binary(network, NULL, TRM_ELEMENTWISE_ADD, l->counter, number(network, 1));
    trm_tensor *again = add(network, less, next, add(network, KIND(TRM_LAYER_ENTER), trips, NULL));
    add(network, KIND(TRM_LAYER_NEXT), next, l->counter);
    add(network, KIND(TRM_LAYER_END_LOOP), again, l->begun);
}

/* Of layers by their names, with elements of inputs by theirs. */
typedef struct known {
    const char *input;
    const void *elements;
} known;

static void expect_runs(const trm_network *network, const known *inputs, int32_t n, const char *const *names,
                        const int32_t *expected, bool guessed)
{
    int32_t runs[64];
    const void *values[128] = {0};
    bool found_guessed = !guessed;
    assert_true(network->n_layers <= 64 && network->n_tensors <= 128);
    for (int32_t i = 0; i < n; i++) {
        values[trm_network_find_tensor(network, inputs[i].input)->index] = inputs[i].elements;
    }
    assert_ok(trm_layer_runs(network, NULL, values, runs, &found_guessed));
    for (int32_t k = 0; names[k] != NULL; k++) {
        assert_int_equal(runs[trm_network_find_tensor(network, names[k])->producer->index], expected[k]);
    }
    assert_int_equal(found_guessed, guessed);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RUNS(...)  ((const int32_t[]){__VA_ARGS__})

static void a_loop_runs_as_inputs_say(void **state)
{
    (void)state;
    static const int64_t trips[] = {5, 1, 0, 3000}, many = (int64_t)1 << 40;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4)), *n = scalar(network, "n", TRM_I64);
    net_layer(network, "before", negative, x, NULL, NULL, NULL);
    const loop l = begin_loop(network, n);
    net_layer(network, "inside", negative, add(network, KIND(TRM_LAYER_ENTER), x, NULL), NULL, NULL, NULL);
    end_loop(network, &l, n);
    net_layer(network, "behind", negative, x, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof(trips) / sizeof(trips[0]); i++) {
        const int32_t expected = trips[i] > 1 ? (int32_t)trips[i] : 1;
        expect_runs(network, &(known){"n", &trips[i]}, 1, NAMES("before", "inside", "behind"), RUNS(1, expected, 1),
                    false);
    }
    expect_runs(network, NULL, 0, NAMES("before", "inside", "behind"), RUNS(1, TRM_LOOP_PASSES, 1), true);
    int32_t runs[64]; /* more than anybody waits for: as many as were counted */
    bool guessed;
    const void *values[128] = {0};
    values[n->index] = &many;
    assert_ok(trm_layer_runs(network, NULL, values, runs, &guessed));
    const int32_t inside = runs[trm_network_find_tensor(network, "inside")->producer->index];
    assert_true(guessed && inside > 100 && inside <= 512);
    trm_network_destroy(network);
}

static void loops_within_loops(void **state)
{
    (void)state;
    static const int64_t three = 3, five = 5;
    for (int32_t triangle = 0; triangle < 2; triangle++) {
        trm_network *network = net_create();
        trm_tensor *n = scalar(network, "n", TRM_I64), *m = scalar(network, "m", TRM_I64);
        const loop outer = begin_loop(network, n);
        net_layer(network, "outer", negative, add(network, KIND(TRM_LAYER_ENTER), m, NULL), NULL, NULL, NULL);
        trm_tensor *trips = triangle ? outer.counter : add(network, KIND(TRM_LAYER_ENTER), m, NULL);
        const loop inner = begin_loop(network, trips);
        net_layer(network, "inner", negative, inner.counter, NULL, NULL, NULL);
        end_loop(network, &inner, trips);
        end_loop(network, &outer, n);
        const known all[] = {{"n", &five}, {"m", &three}};
        if (triangle) { /* 0 + 1 + 2 + 3 + 4 passes */
            expect_runs(network, all, 1, NAMES("outer", "inner"), RUNS(5, 10), false);
        } else {
            expect_runs(network, all, 2, NAMES("outer", "inner"), RUNS(5, 15), false);
            expect_runs(network, all, 1, NAMES("outer", "inner"), RUNS(5, 5 * TRM_LOOP_PASSES), true);
            expect_runs(network, all + 1, 1, NAMES("outer", "inner"), RUNS(TRM_LOOP_PASSES, 3 * TRM_LOOP_PASSES), true);
        }
        trm_network_destroy(network);
    }
}

/* Guesses do not grow beyond a bound, what is known does. */
static void many_loops_within_each_other(void **state)
{
    (void)state;
    enum { DEPTH = 4 };
    static const int32_t guesses[DEPTH] = {8, 64, 512, 512};
    static const char *const names[DEPTH] = {"a", "b", "c", "d"};
    static const int64_t five = 5;
    trm_network *network = net_create();
    trm_tensor *n = scalar(network, "n", TRM_I64), *trips[DEPTH];
    loop loops[DEPTH];
    for (int32_t i = 0; i < DEPTH; i++) {
        trips[i] = i == 0 ? n : add(network, KIND(TRM_LAYER_ENTER), trips[i - 1], NULL);
        loops[i] = begin_loop(network, trips[i]);
        net_layer(network, names[i], negative, loops[i].counter, NULL, NULL, NULL);
    }
    for (int32_t i = DEPTH; i-- > 0;) {
        end_loop(network, &loops[i], trips[i]);
    }
    expect_runs(network, NULL, 0, NAMES("a", "b", "c", "d"), guesses, true);
    expect_runs(network, &(known){"n", &five}, 1, NAMES("a", "b", "c", "d"), RUNS(5, 25, 125, 625), false);
    trm_network_destroy(network);
}

/* A condition that stays what it is, and loops in branches. */
static void conditions_that_are_not_known(void **state)
{
    (void)state;
    static const unsigned char yes = 1, no = 0;
    static const int64_t two = 2;
    trm_network *network = net_create();
    trm_tensor *condition = scalar(network, "condition", TRM_BOOL), *n = scalar(network, "n", TRM_I64);
    for (int32_t i = 0; i < 2; i++) {
        const trm_layer_desc begin = {.kind = TRM_LAYER_IF, .branch = {i == 1}};
        trm_tensor *begun = add(network, begin, condition, NULL);
        trm_tensor *trips = add(network, KIND(TRM_LAYER_ENTER), n, NULL);
        const loop l = begin_loop(network, trips);
        net_layer(network, i == 0 ? "then" : "else", negative, l.counter, NULL, NULL, NULL);
        end_loop(network, &l, trips);
        add(network, KIND(TRM_LAYER_END_IF), begun, NULL);
    }
    trm_tensor *begun = add(network, KIND(TRM_LAYER_LOOP), condition, NULL);
    trm_tensor *again = add(network, KIND(TRM_LAYER_ENTER), condition, NULL);
    net_layer(network, "endless", negative, add(network, KIND(TRM_LAYER_ENTER), n, NULL), NULL, NULL, NULL);
    add(network, KIND(TRM_LAYER_END_LOOP), again, begun);
    const known all[] = {{"n", &two}, {"condition", &no}}, other[] = {{"n", &two}, {"condition", &yes}};
    expect_runs(network, all, 2, NAMES("then", "else", "endless"), RUNS(8, 2, 1), true);
    expect_runs(network, all, 1, NAMES("then", "else", "endless"), RUNS(2, 8, 8), true);
    expect_runs(network, NULL, 0, NAMES("then", "else", "endless"), RUNS(8, 8, 8), true);
    const void *values[128] = {0}; /* as long as it is walked */
    int32_t runs[64];
    bool guessed;
    values[trm_network_find_tensor(network, "n")->index] = other[0].elements;
    values[condition->index] = other[1].elements;
    assert_ok(trm_layer_runs(network, NULL, values, runs, &guessed));
    assert_int_equal(runs[trm_network_find_tensor(network, "then")->producer->index], 2);
    assert_int_equal(runs[trm_network_find_tensor(network, "endless")->producer->index], 512);
    trm_network_destroy(network);
}

/* Dims decide, too; those that are not known, that data decide, and networks without loops. */
static void dims_that_decide(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1));
    const trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {.start = 0, .end = 1}};
    const trm_layer_desc flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {0}}};
    trm_tensor *n = add(network, flat, add(network, shape, x, NULL), NULL);
    const loop l = begin_loop(network, n);
    net_layer(network, "inside", negative, l.counter, NULL, NULL, NULL);
    end_loop(network, &l, n);
    expect_runs(network, NULL, 0, NAMES("inside"), RUNS(TRM_LOOP_PASSES), true);
    trm_dims dims[128] = {0};
    int32_t runs[64];
    bool guessed;
    dims[x->index] = DIMS(7);
    assert_ok(trm_layer_runs(network, dims, NULL, runs, &guessed));
    assert_int_equal(runs[trm_network_find_tensor(network, "inside")->producer->index], 7);
    assert_false(guessed);
    trm_network_destroy(network);
    network = net_create(); /* entries that are not 0 */
    x = net_input(network, "x", TRM_F32, DIMS(7));
    trm_tensor *found[TRM_MAX_LAYER_OUTPUTS];
    const trm_layer_desc non_zero = KIND(TRM_LAYER_NON_ZERO);
    assert_ok(trm_network_add_layer(network, "found", &non_zero, &x, 1, found));
    const loop counted = begin_loop(network, found[1]);
    net_layer(network, "inside", negative, counted.counter, NULL, NULL, NULL);
    end_loop(network, &counted, found[1]);
    expect_runs(network, NULL, 0, NAMES("inside"), RUNS(TRM_LOOP_PASSES), true);
    trm_network_destroy(network);
    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1));
    net_layer(network, "only", negative, x, NULL, NULL, NULL);
    expect_runs(network, NULL, 0, NAMES("only"), RUNS(1), false);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_runs_as_inputs_say),
        cmocka_unit_test(loops_within_loops),
        cmocka_unit_test(many_loops_within_each_other),
        cmocka_unit_test(conditions_that_are_not_known),
        cmocka_unit_test(dims_that_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
