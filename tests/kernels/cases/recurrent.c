/* Cases and meaning of recurrent layers. */
#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

static bool has_input(const kernel_case *test, int32_t i)
{
    return i < test->n_inputs && test->inputs[i].dtype != TRM_DTYPE_NONE;
}

/* The cases use these of the activations. */
static double activated(trm_recurrent_activation activation, double alpha, double beta, double clip, double x)
{
    x = clip > 0.0 ? fmax(-clip, fmin(clip, x)) : x;
    return activation == TRM_RECURRENT_SIGMOID        ? 1.0 / (1.0 + exp(-x))
           : activation == TRM_RECURRENT_TANH         ? tanh(x)
           : activation == TRM_RECURRENT_LEAKY_RELU   ? (x < 0.0 ? alpha * x : x)
           : activation == TRM_RECURRENT_HARD_SIGMOID ? fmax(0.0, fmin(1.0, alpha * x + beta))
                                                      : NAN;
}

typedef struct cell {
    const kernel_case *test;
    double *const *inputs;
    int64_t d, b, n, in, gates;
    double h[16], c[16];
} cell;

static double act(const cell *self, int32_t index, double x)
{
    const trm_recurrent_params *p = &self->test->layer.recurrent;
    const int32_t own = p->cell == TRM_RECURRENT_RNN ? 1 : p->cell == TRM_RECURRENT_GRU ? 2 : 3;
    const int32_t at = (int32_t)self->d * own + index;
    return activated(p->activations[at], (double)p->alpha[at], (double)p->beta[at], (double)p->clip, x);
}

/* Gate g of unit j: the input's part (with its bias), and the state's part of `h` (with its bias). */
static double of_input(const cell *self, int64_t g, int64_t j, const double *x)
{
    const int64_t rows = self->gates * self->n, row = self->d * rows + g * self->n + j;
    double sum = has_input(self->test, 3) ? self->inputs[3][self->d * 2 * rows + g * self->n + j] : 0.0;
    for (int64_t k = 0; k < self->in; k++) {
        sum += x[k] * self->inputs[1][row * self->in + k];
    }
    return sum;
}

static double of_state(const cell *self, int64_t g, int64_t j, const double *h)
{
    const int64_t rows = self->gates * self->n, row = self->d * rows + g * self->n + j;
    double sum = has_input(self->test, 3) ? self->inputs[3][self->d * 2 * rows + rows + g * self->n + j] : 0.0;
    for (int64_t k = 0; k < self->n; k++) {
        sum += h[k] * self->inputs[2][row * self->n + k];
    }
    return sum;
}

static double peephole(const cell *self, int64_t which, int64_t j)
{
    return has_input(self->test, 7) ? self->inputs[7][(self->d * 3 + which) * self->n + j] : 0.0;
}

static void step(cell *self, const double *x)
{
    const trm_recurrent_params *p = &self->test->layer.recurrent;
    double h[16], reset[16];
    for (int64_t j = 0; j < self->n && p->cell == TRM_RECURRENT_GRU; j++) {
        reset[j] = act(self, 0, of_input(self, 1, j, x) + of_state(self, 1, j, self->h));
    }
    for (int64_t j = 0; j < self->n; j++) {
        if (p->cell == TRM_RECURRENT_RNN) {
            h[j] = act(self, 0, of_input(self, 0, j, x) + of_state(self, 0, j, self->h));
        } else if (p->cell == TRM_RECURRENT_GRU) {
            const double z = act(self, 0, of_input(self, 0, j, x) + of_state(self, 0, j, self->h));
            double gated[16];
            for (int64_t k = 0; k < self->n; k++) {
                gated[k] = reset[k] * self->h[k];
            }
            const double state =
                p->linear_before_reset ? reset[j] * of_state(self, 2, j, self->h) : of_state(self, 2, j, gated);
            h[j] = (1.0 - z) * act(self, 1, of_input(self, 2, j, x) + state) + z * self->h[j];
        } else {
            double sum[4];
            for (int64_t g = 0; g < 4; g++) {
                sum[g] = of_input(self, g, j, x) + of_state(self, g, j, self->h);
            }
            const double i = act(self, 0, sum[0] + peephole(self, 0, j) * self->c[j]);
            const double f = p->input_forget ? 1.0 - i : act(self, 0, sum[2] + peephole(self, 2, j) * self->c[j]);
            self->c[j] = f * self->c[j] + i * act(self, 1, sum[3]);
            h[j] = act(self, 0, sum[1] + peephole(self, 1, j) * self->c[j]) * act(self, 2, self->c[j]);
        }
    }
    memcpy(self->h, h, (size_t)self->n * sizeof(double));
}

static void meaning_recurrent(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_recurrent_params *p = &test->layer.recurrent;
    const trm_dims *x = &test->inputs[0].dims;
    const int64_t directions = test->inputs[1].dims.d[0], n = p->hidden, batch = x->d[1];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = 0.0;
    }
    for (int64_t entry = 0; entry < directions * batch; entry++) {
        cell self = {.test = test, .inputs = inputs, .d = entry / batch, .b = entry % batch, .n = n, .in = x->d[2]};
        self.gates = p->cell == TRM_RECURRENT_RNN ? 1 : p->cell == TRM_RECURRENT_GRU ? 3 : 4;
        for (int64_t j = 0; j < n; j++) {
            self.h[j] = has_input(test, 5) ? inputs[5][entry * n + j] : 0.0;
            self.c[j] = has_input(test, 6) ? inputs[6][entry * n + j] : 0.0;
        }
        const int64_t length = has_input(test, 4) ? (int64_t)inputs[4][self.b] : x->d[0];
        for (int64_t s = 0; s < length; s++) {
            const bool back = self.d == 1 || p->direction == TRM_RECURRENT_REVERSE;
            const int64_t t = back ? length - 1 - s : s;
            step(&self, inputs[0] + (t * batch + self.b) * x->d[2]);
            memcpy(outputs[0] + ((t * directions + self.d) * batch + self.b) * n, self.h, (size_t)n * sizeof(double));
        }
        memcpy(outputs[1] + entry * n, self.h, (size_t)n * sizeof(double));
        if (p->cell == TRM_RECURRENT_LSTM) {
            memcpy(outputs[2] + entry * n, self.c, (size_t)n * sizeof(double));
        }
    }
}

/* With everything there is to give, if `full`. */
static void recurrent_case(kernel_case_bench *bench, trm_dtype dtype, trm_recurrent_params p, int64_t steps, bool full)
{
    static const double lengths[] = {3, 5, 0};
    const int64_t directions = p.direction == TRM_RECURRENT_BIDIRECTIONAL ? 2 : 1, batch = 3, in = 6, n = p.hidden;
    const int64_t gates = p.cell == TRM_RECURRENT_RNN ? 1 : p.cell == TRM_RECURRENT_GRU ? 3 : 4;
    const bool lstm = p.cell == TRM_RECURRENT_LSTM;
    kernel_case test =
        new_case(TRM_LAYER_RECURRENT, "%s cell %d direction %d of %d, %lld steps%s", trm_dtype_name(dtype), (int)p.cell,
                 (int)p.direction, (int)p.hidden, (long long)steps, full ? " full" : "");
    test.layer.recurrent = p;
    test.tolerance = 8.0;
    add_data(&test, dtype, DIMS(steps, batch, in));
    add_input(&test, dtype, DIMS(directions, gates * n, in), -0.5, 0.5);
    add_input(&test, dtype, DIMS(directions, gates * n, n), -0.5, 0.5);
    if (full) {
        add_input(&test, dtype, DIMS(directions, 2 * gates * n), -0.5, 0.5);
        add_input(&test, TRM_I32, DIMS(batch), 0, 0)->values = lengths;
        add_input(&test, dtype, DIMS(directions, batch, n), -1.0, 1.0);
        if (lstm) {
            add_input(&test, dtype, DIMS(directions, batch, n), -1.0, 1.0);
            add_input(&test, dtype, DIMS(directions, 3 * n), -0.5, 0.5);
        }
    }
    add_output(&test, dtype, DIMS(steps, directions, batch, n));
    add_output(&test, dtype, DIMS(directions, batch, n));
    if (lstm) {
        add_output(&test, dtype, DIMS(directions, batch, n));
    }
    kernel_case_run(bench, &test, meaning_recurrent);
}

void kernel_cases_recurrent(kernel_case_bench *bench)
{
    static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t kind = TRM_RECURRENT_RNN; kind <= TRM_RECURRENT_LSTM; kind++) {
        trm_recurrent_params p = {.cell = (trm_recurrent_cell)kind, .hidden = 7};
        for (int32_t i = 0; i < 6; i++) { /* the usual ones, other ones backwards */
            const int32_t own = kind + 1;
            p.activations[i] = i % own == 0 && kind > 0 ? TRM_RECURRENT_SIGMOID : TRM_RECURRENT_TANH;
            if (i >= own) {
                p.activations[i] = i % own == 0 && kind > 0 ? TRM_RECURRENT_HARD_SIGMOID : TRM_RECURRENT_LEAKY_RELU;
                p.alpha[i] = 0.25f;
                p.beta[i] = 0.5f;
            }
        }
        for (int32_t direction = 0; direction <= TRM_RECURRENT_BIDIRECTIONAL; direction++) {
            p.direction = (trm_recurrent_direction)direction;
            for (int32_t t = 0; t < COUNT(types); t++) {
                recurrent_case(bench, types[t], p, 5, true);
            }
            recurrent_case(bench, TRM_F32, p, 4, false);
            recurrent_case(bench, TRM_F32, p, 0, false);
        }
        p.clip = 0.5f;
        p.linear_before_reset = p.cell == TRM_RECURRENT_GRU;
        p.input_forget = p.cell == TRM_RECURRENT_LSTM;
        recurrent_case(bench, TRM_F32, p, 5, true);
    }
}
