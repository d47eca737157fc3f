/*
 * A network of one's own: two layers of a perceptron, defined, built, run, and compared with plain C arithmetic.
 *
 *   network [cuda]
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

enum { INPUTS = 4, HIDDEN = 8, OUTPUTS = 2, MAX_ROWS = 16 };

static float w1[HIDDEN][INPUTS], b1[HIDDEN], w2[OUTPUTS][HIDDEN];

/* Every call says whether it succeeded; the first failure leads to the end of the function. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* y = relu(x w1' + b1) w2', with x [rows, INPUTS] and rows not known yet. Shapes are checked as layers are added. */
static trm_status define(trm_network *network)
{
    trm_tensor *x, *first, *bias, *second, *hidden, *active, *y;
    trm_status status;
    TRY(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, INPUTS}}, &x));
    TRY(trm_network_add_constant(network, "w1", TRM_F32, (trm_dims){2, {HIDDEN, INPUTS}}, w1, &first));
    TRY(trm_network_add_constant(network, "b1", TRM_F32, (trm_dims){1, {HIDDEN}}, b1, &bias));
    TRY(trm_network_add_constant(network, "w2", TRM_F32, (trm_dims){2, {OUTPUTS, HIDDEN}}, w2, &second));
    TRY(trm_network_add_matmul(network, "hidden", x, first, bias, true, &hidden));
    TRY(trm_network_add_activation(network, "active", TRM_ACTIVATION_RELU, hidden, &active));
    TRY(trm_network_add_matmul(network, "y", active, second, NULL, true, &y));
    TRY(trm_network_mark_output(network, y));
done:
    return status;
}

/* What the network should give for one row. */
static void reference(const float *x, float *y)
{
    memset(y, 0, OUTPUTS * sizeof(*y));
    for (int h = 0; h < HIDDEN; h++) {
        float sum = b1[h];
        for (int i = 0; i < INPUTS; i++) {
            sum += x[i] * w1[h][i];
        }
        for (int o = 0; o < OUTPUTS; o++) {
            y[o] += fmaxf(sum, 0.0f) * w2[o][h];
        }
    }
}

/* Runs the context on inputs of `rows` rows; a context takes other dims, within the bounds, at every run. */
static trm_status run(trm_context *context, int rows, float *worst)
{
    float x[MAX_ROWS][INPUTS];
    trm_dims dims;
    const void *data; /* belongs to the context, valid until the next call on it */
    trm_status status;
    for (int i = 0; i < rows * INPUTS; i++) {
        x[i / INPUTS][i % INPUTS] = sinf((float)(i + rows));
    }
    TRY(trm_context_set_input(context, "x", (trm_dims){2, {rows, INPUTS}}, x));
    TRY(trm_context_run(context));
    TRY(trm_context_output(context, "y", &dims, &data));
    const float *y = data;
    for (int row = 0; row < rows; row++) {
        float expected[OUTPUTS];
        reference(x[row], expected);
        printf("row %d: %9.6f %9.6f\n", row, (double)y[row * OUTPUTS], (double)y[row * OUTPUTS + 1]);
        for (int o = 0; o < OUTPUTS; o++) {
            *worst = fmaxf(*worst, fabsf(y[row * OUTPUTS + o] - expected[o]));
        }
    }
done:
    return status;
}

int main(int argc, char **argv)
{
    for (int i = 0; i < HIDDEN * INPUTS; i++) {
        w1[i / INPUTS][i % INPUTS] = cosf((float)i);
        w2[i % OUTPUTS][i % HIDDEN] = sinf((float)i);
        b1[i % HIDDEN] = 0.1f;
    }
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = argc > 1 && strcmp(argv[1], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    const trm_shape_bound bounds[] = {{.tensor = "x", .max = {2, {MAX_ROWS, INPUTS}}}};
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_world *world = NULL;
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    float worst = 0;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    how.backend = where.backend;
    how.bounds = bounds;
    how.n_bounds = 1;
    TRY(trm_network_create(&network));
    TRY(define(network));
    TRY(trm_build(network, &how, &plan));
    TRY(trm_engine_create(plan, world, NULL, NULL, &engine)); /* takes the plan over */
    TRY(trm_context_create(engine, &context));
    TRY(run(context, 2, &worst));
    TRY(run(context, 5, &worst));
    printf("largest difference to plain C: %g: %s\n", (double)worst, worst < 1e-5f ? "equal" : "different");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "network: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    trm_context_destroy(context); /* in the reverse order; NULL is ignored */
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : worst < 1e-5f ? 0 : 1;
}
