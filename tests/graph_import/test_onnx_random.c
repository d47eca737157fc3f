/* ONNX's random operators: what is drawn has the distribution that the node asks for. No two implementations draw the
 * same numbers, so there are no files of what is to come out. */
#include <math.h>

#include <trireme/trireme.h>

#include "support/world.h"

#include "support/onnx_message.h"

#define ROWS    64
#define COLUMNS 128
#define DRAWN   (ROWS * COLUMNS)

static void put_float(message *to, const char *name, float number)
{
    message made = {0};
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    put_text(&made, 1, name);
    put_varint(&made, 2 << 3 | 5);
    for (int i = 0; i < 4; i++) {
        made.bytes[made.size++] = (unsigned char)(bits >> 8 * i);
    }
    put_number(&made, 20, 1);
    put_message(to, 5, &made);
}

static void put_int(message *to, const char *name, int64_t number)
{
    message made = attribute(name, number, NULL);
    put_message(to, 5, &made);
}

/* A node that draws `rows` times `columns` numbers, by its attribute, or like x. */
static message drawn(const char *text, const char *low, float a, const char *high, float b, float seed, bool is_like)
{
    message made = node(text), shape = {0};
    put_float(&made, low, a);
    put_float(&made, high, b);
    if (seed >= 0) {
        put_float(&made, "seed", seed);
    }
    if (!is_like) {
        put_text(&shape, 1, "shape");
        put_number(&shape, 8, ROWS);
        put_number(&shape, 8, COLUMNS);
        put_number(&shape, 20, 7);
        put_message(&made, 5, &shape);
    }
    return made;
}

static const int64_t sizes[] = {ROWS, COLUMNS};

static message network_of_draws(void)
{
    static const int64_t logs[] = {2, 3};
    message graph = {0}, made;
    put_graph(&graph, 1, drawn("RandomUniform uniform", "low", -1, "high", 3, 7, false));
    put_graph(&graph, 1, drawn("RandomNormal normal", "mean", 5, "scale", 0.5f, 7, false));
    put_graph(&graph, 1, drawn("RandomUniformLike x uniform_like", "low", 0, "high", 1, -1, true));
    put_graph(&graph, 1, drawn("RandomNormalLike x normal_like", "mean", 0, "scale", 1, -1, true));
    put_graph(&graph, 1, drawn("RandomNormalLike x other", "mean", 0, "scale", 1, -1, true));
    made = node("Bernoulli x coins");
    put_float(&made, "seed", 3);
    put_int(&made, "dtype", 1);
    put_graph(&graph, 1, made);
    made = node("Multinomial logs classes");
    put_int(&made, "dtype", 7);
    put_int(&made, "sample_size", DRAWN);
    put_graph(&graph, 1, made);
    put_graph(&graph, 11, port("x", 1, 2, sizes));
    put_graph(&graph, 11, port("logs", 1, 2, logs));
    static const char *const outputs[] = {"uniform", "normal", "uniform_like", "normal_like", "other", "coins"};
    for (int i = 0; i < 6; i++) {
        put_graph(&graph, 12, port(outputs[i], 1, 2, sizes));
    }
    put_graph(&graph, 12, port("classes", 7, 2, (const int64_t[]){2, DRAWN}));
    return model_of(&graph);
}

static const float *drawn_values(trm_context *context, const char *name)
{
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_output(context, name, &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == ROWS && dims.d[1] == COLUMNS);
    return data;
}

/* Mean, deviation and the share below the mean minus one deviation, with the tolerance that the number of draws needs.
 */
static void check_moments(trm_context *context, const char *name, double mean, double deviation, double below)
{
    const float *found = drawn_values(context, name);
    double sum = 0, squares = 0, low = 0;
    for (int i = 0; i < DRAWN; i++) {
        sum += found[i];
        squares += (found[i] - mean) * (found[i] - mean);
        low += found[i] < mean - deviation;
    }
    print_message("%s: mean %g, deviation %g, %g below\n", name, sum / DRAWN, sqrt(squares / DRAWN), low / DRAWN);
    assert_true(fabs(sum / DRAWN - mean) < 5 * deviation / sqrt(DRAWN));
    assert_true(fabs(sqrt(squares / DRAWN) / deviation - 1) < 0.05);
    assert_true(fabs(low / DRAWN - below) < 0.03);
}

static void check_range(trm_context *context, const char *name, float low, float high)
{
    const float *found = drawn_values(context, name);
    float least = high, most = low;
    for (int i = 0; i < DRAWN; i++) {
        assert_true(found[i] >= low && found[i] < high);
        least = found[i] < least ? found[i] : least;
        most = found[i] > most ? found[i] : most;
    }
    assert_true(least < low + 0.01 * (high - low) && most > high - 0.01 * (high - low));
}

/* Columns of x are probabilities 0, 1 and 0.25 in turn. */
static void check_coins(trm_context *context)
{
    const float *found = drawn_values(context, "coins");
    double ones[3] = {0}, all[3] = {0};
    for (int i = 0; i < DRAWN; i++) {
        assert_true(found[i] == 0 || found[i] == 1);
        ones[i % COLUMNS % 3] += found[i];
        all[i % COLUMNS % 3]++;
    }
    assert_true(ones[0] == 0 && ones[1] == all[1] && fabs(ones[2] / all[2] - 0.25) < 0.04);
}

/* Of logarithms that are not normalized. */
static void check_classes(trm_context *context, const float logs[2][3])
{
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_output(context, "classes", &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == 2 && dims.d[1] == DRAWN);
    for (int row = 0; row < 2; row++) {
        double counts[3] = {0}, sum = 0;
        for (int i = 0; i < DRAWN; i++) {
            const int64_t class = ((const int64_t *)data)[row * DRAWN + i];
            assert_true(class >= 0 && class < 3);
            counts[class]++;
        }
        for (int k = 0; k < 3; k++) {
            sum += exp(logs[row][k]);
        }
        for (int k = 0; k < 3; k++) {
            assert_true(fabs(counts[k] / DRAWN - exp(logs[row][k]) / sum) < 0.03);
        }
    }
}

static void draws_have_their_distribution(void **state)
{
    (void)state;
    static float x[DRAWN];
    static const float logs[2][3] = {{0, 0.6931472f, 1.609438f}, {-10, -11, -40}};
    char path[512];
    message model = network_of_draws();
    trm_engine *engine;
    for (int i = 0; i < DRAWN; i++) {
        x[i] = i % COLUMNS % 3 == 0 ? 0 : i % COLUMNS % 3 == 1 ? 1 : 0.25f;
    }
    snprintf(path, sizeof(path), "%s/draws.onnx", test_temporary_folder());
    test_write_file(path, model.bytes, model.size);
    trm_context *context = test_open_context(test_build_onnx(path, false, 1, 0), &engine);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {ROWS, COLUMNS}}, x));
    assert_ok(trm_context_set_input(context, "logs", (trm_dims){2, {2, 3}}, logs));
    assert_ok(trm_context_run(context));
    const double of_uniform = (1 - 1 / sqrt(3)) / 2, of_normal = 0.1587;
    check_moments(context, "uniform", 1, 4 / sqrt(12), of_uniform);
    check_range(context, "uniform", -1, 3);
    check_moments(context, "normal", 5, 0.5, of_normal);
    check_moments(context, "uniform_like", 0.5, 1 / sqrt(12), of_uniform);
    check_range(context, "uniform_like", 0, 1);
    check_moments(context, "normal_like", 0, 1, of_normal);
    check_moments(context, "other", 0, 1, of_normal);
    const float *one = drawn_values(context, "normal_like"), *other = drawn_values(context, "other");
    double product = 0;
    for (int i = 0; i < DRAWN; i++) {
        product += one[i] * other[i];
    }
    assert_true(fabs(product / DRAWN) < 0.05); /* nodes without a seed draw apart from each other */
    check_coins(context);
    check_classes(context, logs);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_their_distribution),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
